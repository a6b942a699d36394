"""Operations that fail among many that do not: the neighbours are committed, the culprit alone is told and undone.

What fails: an id that is there, a collection that is full, a sum past 64 bits, and two things that Roost cannot know
before it tries: somebody's trigger that aborts, and somebody's CHECK. A trigger that aborts undoes a whole statement,
one that rolls back a whole transaction.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import roost
from tests.campaigns.played import asked, database

MOST = 2**63 - 1
TAKEN, FULL, OVER = 1, 2, 3  # rooms and tills that are so from the beginning
FIRST = 10  # the first key of an atom's own


@dataclass(frozen=True)
class Seat:
    """A row of a collection that rejects."""

    room: int
    seat: int


@dataclass(frozen=True)
class Note:
    """A row of a ring."""

    page: int
    text: str


seats = roost.Capped("seats", Seat, per="room", keep=3, unique="seat", on_full="reject")
tills = roost.Counter("tills", key=int)
notes = roost.Ring("notes", Note, per="page", keep=3)
marks = roost.Set("marks", key=int, member=int)
STRUCTURES = (seats, tills, notes, marks)

CULPRITS: dict[str, tuple[type[roost.Error], Callable[[int], roost.Operation[Any]]]] = {
    "duplicate": (roost.Duplicate, lambda own: seats.add(Seat(TAKEN, 1))),
    "full": (roost.Full, lambda own: seats.add(Seat(FULL, own))),
    "overflow": (roost.Overflow, lambda own: tills.add(OVER, own)),
    "abort": (roost.StatementFailed, lambda own: notes.push(Note(own, "abort"))),
    "rollback": (roost.StatementFailed, lambda own: notes.push(Note(own, "rollback"))),
    "check": (roost.StatementFailed, lambda own: marks.add(own, 13)),
}


@dataclass
class Case:
    """One atom with what must come of it."""

    own: int
    operations: list[roost.Operation[Any]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    error: type[roost.Error] | None = None

    @property
    def state(self) -> tuple[Any, ...]:
        """What must be found under its keys: the seats, the till, the last note, the marks."""
        return tuple([0] * 4) if self.error else tuple([self.count(each) for each in STRUCTURES])

    def count(self, structure: object) -> int:
        """Return how many of its operations are on a structure."""
        return sum(op.structure is structure for op in self.operations)


def prepare(url: str) -> None:
    """Make the structures, what is full from the beginning, and what somebody else has added."""
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
        store.run_all(seats.add(Seat(TAKEN, 1)), *[seats.add(Seat(FULL, -n)) for n in range(3)])
        store.run(tills.add(OVER, MOST))
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    for how in ("abort", "rollback"):
        raw.execute(
            f"CREATE TRIGGER {how}_notes BEFORE INSERT ON roost_notes_rows WHEN new.text = '{how}'"
            f" BEGIN SELECT RAISE({how.upper()}, 'not on my watch'); END"
        )
    (made,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'roost_marks_rows'").fetchone()
    raw.execute("DROP TABLE roost_marks_rows")
    raw.execute(made.replace("PRIMARY KEY", "CHECK (member <> 13), PRIMARY KEY"))
    raw.commit()
    raw.close()


def case(own: int, chance: random.Random, culprit: str | None) -> Case:
    """Make an atom of 1 to 5 operations, one of which fails when a culprit is named."""
    made = Case(own)
    for n in range(chance.randrange(1, 5)):
        structure = chance.choice(STRUCTURES)
        if structure is seats and made.count(seats) < 3:
            made.operations.append(seats.add(Seat(own, n)))
            made.answers.append(None)
        elif structure is notes and made.count(notes) < notes.keep - 1:  # no more, or the culprit is never written
            made.operations.append(notes.push(Note(own, str(n))))
            made.answers.append(made.count(notes))
        elif structure is marks:
            made.operations.append(marks.add(own, n))
            made.answers.append(1)
        else:
            made.operations.append(tills.add(own))
            made.answers.append(None)
    if culprit is not None:
        made.error, operation = CULPRITS[culprit]
        if chance.random() < 0.3:
            made.operations = []
        made.operations.insert(chance.randrange(len(made.operations) + 1), operation(own))
    return made


def judge(cases: Sequence[Case], outcomes: Sequence[Any], url: str) -> int:
    """Compare every atom's answer and what it left with what must come of it; return how many failed as they must."""
    with roost.Store(url) as store:
        for made, outcome in zip(cases, outcomes, strict=True):
            message = f"{made.operations} was answered {outcome!r}"
            if made.error is None:
                assert outcome == tuple(made.answers), message
            else:
                assert type(outcome) is made.error, message
            found = store.run_all(
                seats.count(made.own), tills.total(made.own), notes.entries(made.own, n=3), marks.size(made.own)
            )
            last = found[2][-1].sequence if found[2] else 0
            assert (found[0], found[1], last, found[3]) == made.state, f"{message}, and {found} is there"
        errors = [outcome for outcome in outcomes if isinstance(outcome, roost.Error)]
        assert len({id(error) for error in errors}) == len(errors), "two atoms were given the same error"
        assert store.run_all(seats.count(TAKEN), seats.count(FULL), tills.total(OVER)) == (1, 3, MOST)
        assert store.check() == []
    return len(errors)


def mixed(n: int, seed: object, part: float, first: int = FIRST) -> list[Case]:
    """Make atoms of which a part has a culprit."""
    chance = random.Random(f"{seed}")
    kinds = list(CULPRITS)
    return [
        case(own, chance, chance.choice(kinds) if chance.random() < part else None) for own in range(first, first + n)
    ]


def in_one_batch(url: str, cases: Sequence[Case]) -> list[Any]:
    """Run all at once: asyncio's atoms that wait together are one batch."""

    async def gather() -> list[Any]:
        async with roost.AsyncStore(url) as store:
            atoms = [store.run_all(*made.operations) for made in cases]
            outcomes: list[Any] = await asyncio.gather(*atoms, return_exceptions=True)
        return outcomes

    return asyncio.run(gather())


def in_threads(url: str, cases: Sequence[Case], threads: int) -> list[Any]:
    """Run from several threads, each its own part."""
    outcomes: list[Any] = [None] * len(cases)
    with roost.Store(url) as store:

        def work(first: int) -> None:
            for place in range(first, len(cases), threads):
                operations = cases[place].operations
                try:
                    one = (store.run(operations[0]),) if len(operations) == 1 else store.run_all(*operations)
                    outcomes[place] = one
                except Exception as error:
                    outcomes[place] = error

        workers = [threading.Thread(target=work, args=(first,)) for first in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return outcomes


def main() -> None:
    """Run and say what was found."""
    options = asked(rounds=200, atoms=200)  # of each round
    began = time.monotonic()
    failed = 0
    with database(None) as url:
        prepare(url)
        for round_ in range(options.rounds):
            part = random.Random(f"{options.seed}/{round_}").choice((0.01, 0.1, 0.5))
            cases = mixed(options.atoms, f"{options.seed}/{round_}", part, FIRST + round_ * options.atoms)
            outcomes = in_one_batch(url, cases) if round_ % 2 else in_threads(url, cases, 8)
            failed += judge(cases, outcomes, url)
    done = options.rounds * options.atoms - failed
    print(f"{done} atoms done, {failed} refused with their own error and undone; check is clean;", end=" ")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
