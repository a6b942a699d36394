"""The database server is killed with -9 while processes write: what was answered is there, nothing is there twice.

Who writes sees no error but `OutcomeUnknown`, and that only where the server could not be asked; what it was told so
about may have happened, or not, as a whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import roost
from tests import servers
from tests.campaigns.ledger import STRUCTURES, Ledger, shared
from tests.campaigns.played import asked
from tests.campaigns.processes import Line, children
from tests.servers import Daemon, Server

DAEMONS: dict[str, tuple[Callable[..., Daemon], Callable[[str], Server]]] = {
    "mariadb": (servers.mariadb_daemon, servers.mariadb_server),
    "mysql": (servers.mysql_daemon, servers.mariadb_server),
    "postgresql": (servers.postgresql_daemon, servers.postgresql_server),
}


@dataclass
class Counts:
    """What a campaign has seen."""

    kills: int = 0
    answers: int = 0
    unknown: int = 0
    happened: int = 0  # of those
    retries: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of the server, {self.answers:,} answered atoms all there, {self.unknown} outcomes "
            f"unknown of which {self.happened} had happened"
        )


def _write(line: Line, url: str, ledgers: Sequence[Ledger]) -> None:
    # Until it is told to stop. An owner whose outcome is unknown asks what happened before it goes on.
    store = roost.Store(url, timeout=120)
    ended = threading.Event()

    def work(ledger: Ledger) -> None:
        unknown = happened = 0
        try:
            while not ended.is_set():
                try:
                    answers = list(store.run_all(*ledger.atom()))
                    assert answers == ledger.apply(), answers
                except roost.OutcomeUnknown:
                    unknown += 1
                    happened += ledger.settle(store, ledger.done)
            line.say(f"{ledger.owner} {ledger.done} {unknown} {happened}")
        except BaseException as error:
            line.say(f"wrong {ledger.owner} after {ledger.done}: {error!r}")
            raise

    threads = [threading.Thread(target=work, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    store.structures()  # the server has been there: from now on it may be away
    line.say("ready")
    line.hear(600)
    ended.set()
    for thread in threads:
        thread.join()
    store.close()


def outage(name: str, rounds: int, seed: object, processes: int = 2, threads: int = 3) -> Counts:
    """Kill the server again and again at random moments, while processes write to it."""
    make, server = DAEMONS[name]
    daemon = make()
    chance, counts = random.Random(f"outage/{seed}"), Counts()
    url = server(daemon.url).database("outage")
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    groups = [[Ledger(1 + p * threads + t, seed) for t in range(threads)] for p in range(processes)]
    with children(processes, lambda line, number: _write(line, url, groups[number]), 600) as writers:
        for writer in writers:
            assert writer.hear() == "ready"
        for _ in range(rounds):
            time.sleep(chance.uniform(0.05, 0.5))  # a random moment of their work
            daemon.kill()
            daemon.start()
            counts.kills += 1
        texts = []
        for writer in writers:
            writer.line.say("stop")
            texts += writer.rest()
            assert writer.wait() == 0, texts
    wrong = [text for text in texts if text.startswith("wrong")]
    assert not wrong, wrong
    done = {int(owner): list(map(int, rest)) for owner, *rest in (text.split() for text in texts)}
    with roost.Store(url) as store:
        assert store.check() == []
        for ledger in (ledger for group in groups for ledger in group):
            answered, unknown, happened = done[ledger.owner]
            assert ledger.settle(store, answered, in_flight=0) == 0
            counts.answers += answered - happened
            counts.unknown += unknown
            counts.happened += happened
        assert shared(store) == sum(ledger.shared for group in groups for ledger in group)
    daemon.kill()
    return counts


def main() -> None:
    """Run on each server and say what was found."""
    options = asked(rounds=20, server=list(DAEMONS))
    for name in [options.server] if options.server else DAEMONS:
        began = time.monotonic()
        found = outage(name, options.rounds, options.seed)
        print(f"{name}: {found}; check is clean; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
