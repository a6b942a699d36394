"""Several processes write one file as fast as they can: nothing is lost or doubled, and nobody is starved."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import roost
from tests.campaigns.ledger import STRUCTURES, Ledger, shared
from tests.campaigns.played import asked, database
from tests.campaigns.processes import Line, Start, children


@dataclass
class Counts:
    """What a campaign has seen."""

    counts: list[int]  # atoms answered, per process

    @property
    def least(self) -> float:
        """The share of the slowest process, of what an even division would give it."""
        return min(self.counts) * len(self.counts) / sum(self.counts)

    def __str__(self) -> str:
        shown = " / ".join(f"{count:,}" for count in self.counts)
        return f"{shown} atoms, nothing lost or doubled, the slowest had {self.least:.2f} of an even share"


def together(url: str, processes: int, seconds: float, seed: object, threads: int = 1) -> Counts:
    """Let processes write for some seconds, each its own keys and one shared by all."""
    groups = [[Ledger(1 + p * threads + t, seed) for t in range(threads)] for p in range(processes)]
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    start = Start()

    def work(line: Line, number: int) -> None:
        store = roost.Store(url, timeout=60)
        store.run(STRUCTURES[0].total(1))
        line.say("ready")
        start.wait()
        end = time.monotonic() + seconds
        errors: list[BaseException] = []

        def write(ledger: Ledger) -> None:
            try:
                while time.monotonic() < end:
                    answers = list(store.run_all(*ledger.atom()))
                    assert answers == ledger.apply(), answers
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=write, args=(ledger,)) for ledger in groups[number]]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not errors, errors
        store.close()
        line.say(" ".join(str(ledger.done) for ledger in groups[number]))

    with children(processes, work, seconds + 60) as found:
        for child in found:
            assert child.hear() == "ready"
        start.go()
        done = [[int(count) for count in child.hear(seconds + 60).split()] for child in found]
        assert [child.wait() for child in found] == [0] * processes
    with roost.Store(url) as store:
        assert store.check() == []
        for group, counts in zip(groups, done, strict=True):
            for ledger, count in zip(group, counts, strict=True):
                assert ledger.settle(store, count, in_flight=0) == 0
        assert shared(store) == sum(ledger.shared for group in groups for ledger in group)
    return Counts([sum(counts) for counts in done])


def main() -> None:
    """Run and say what was found."""
    options = asked(rounds=10, processes=4, threads=1, seconds=2.5)
    worst = 1.0
    for _ in range(options.rounds):
        with database(None) as url:
            found = together(url, options.processes, options.seconds, options.seed, options.threads)
        print(found)
        worst = min(worst, found.least)
    print(f"{options.rounds} rounds; the slowest of all had {worst:.2f} of an even share")
    raise SystemExit(worst < 1 / 3)


if __name__ == "__main__":
    main()
