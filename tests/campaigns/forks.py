"""Processes fork while their threads are in the middle of a run: parent and children all keep what they were answered.

The parent writes from several threads. Children are forked at random moments, write for themselves from threads of
their own, and end, or live on after their parent has closed its store or was killed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import roost
from tests.campaigns.kill import answered
from tests.campaigns.ledger import STRUCTURES, Ledger, shared
from tests.campaigns.played import asked, database
from tests.campaigns.processes import Child, Gone, Line, until

EACH = 8  # atoms of each thread of a child: before its parent ends, and again after


@dataclass
class Counts:
    """What a campaign has seen."""

    forks: int = 0
    answers: int = 0

    def __str__(self) -> str:
        return f"{self.forks} forks, {self.answers} answered atoms all there"


def generation(url: str, forks: int, seed: object, end: str, threads: int = 2) -> Counts:
    """One parent with several children, all writing one file.

    end: how the parent ends while its children go on: "close", "exit" (its threads in the middle of a run) or "kill".
    """
    families = [[Ledger(1 + family * threads + t, seed) for t in range(threads)] for family in range(forks + 1)]
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    with Child(lambda line: _parent(line, url, families, f"{seed}", end)) as parent:
        said: list[str] = []
        while said.count("half") < forks:
            said.append(parent.hear())
            assert not said[-1].startswith("wrong"), said[-1]
        if end == "kill":
            parent.kill()
        else:
            parent.say("end")
        said += parent.rest()  # ends when the last child has ended
        code = parent.wait()
    assert code == (-signal.SIGKILL if end == "kill" else 0), code
    last = answered([text for text in said if text != "half"])
    counts = Counts(forks)
    with roost.Store(url) as store:
        assert store.check() == []
        for family in families:
            for ledger in family:
                if family is not families[0]:
                    assert last.get(ledger.owner) == 2 * EACH, f"owner {ledger.owner} did not end: {last}"
                ledger.settle(store, last.get(ledger.owner, 0), in_flight=family is families[0])
                counts.answers += ledger.done
        assert shared(store) == sum(ledger.shared for family in families for ledger in family)
    return counts


def _write(line: Line, store: roost.Store, ledger: Ledger, n: float, stop: threading.Event) -> None:
    try:
        while n > 0 and not stop.is_set():
            answers = list(store.run_all(*ledger.atom()))
            if answers != ledger.apply():
                line.say(f"wrong {ledger.owner} {ledger.done}: {answers}")
            line.say(f"{ledger.owner} {ledger.done}")
            n -= 1
    except BaseException as error:
        line.say(f"wrong {ledger.owner} after {ledger.done}: {error!r}")


def _all(
    line: Line, store: roost.Store, ledgers: Sequence[Ledger], n: float, stop: threading.Event
) -> list[threading.Thread]:
    threads = [threading.Thread(target=_write, args=(line, store, ledger, n, stop), daemon=True) for ledger in ledgers]
    for thread in threads:
        thread.start()
    return threads


def _parent(line: Line, url: str, families: Sequence[Sequence[Ledger]], seed: str, end: str) -> None:
    chance = random.Random(seed)
    stop = threading.Event()
    store = roost.Store(url, timeout=5)
    threads = _all(line, store, families[0], float("inf"), stop)
    children = []
    for ledgers in families[1:]:
        line.overhear(chance.uniform(0, 0.01))
        children.append(Child(lambda own, ledgers=ledgers: _child(own, line, store, ledgers)))  # type: ignore[misc]
    for child in children:
        assert child.hear() == "half"
        line.say("half")
    try:
        line.hear()
    except Gone:
        os._exit(1)
    if end == "close":
        stop.set()
        for thread in threads:
            thread.join()
        store.close()
    os._exit(0)  # not the end of the `with` of a Child, which would kill the children


def _child(own: Line, line: Line, store: roost.Store, ledgers: Sequence[Ledger]) -> None:
    # `own` goes to the parent, `line` to the campaign.
    stop = threading.Event()
    for thread in _all(line, store, ledgers, EACH, stop):
        thread.join()
    parent = os.getppid()
    own.say("half")
    until(lambda: os.getppid() != parent, "the end of the parent")
    for thread in _all(line, store, ledgers, EACH, stop):
        thread.join()


def main() -> None:
    """Let parents of all kinds fork and say what was found."""
    options = asked(rounds=100, forks=4)
    began = time.monotonic()
    sums, failed = Counts(), 0
    for round_ in range(options.rounds):
        end = ("close", "exit", "kill")[round_ % 3]
        with database(None) as url:
            try:
                found = generation(url, options.forks, f"{options.seed}/{round_}", end)
            except AssertionError as error:
                failed += 1
                print(f"round {round_} ({end}): {error}")
                continue
        sums = Counts(sums.forks + found.forks, sums.answers + found.answers)
    print(f"{sums}; {failed} of {options.rounds} rounds failed; {time.monotonic() - began:.0f} s")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
