"""What a writer must find again: a model of its own keys, atom by atom, and the same for all writers together."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import roost

KEEP = 7
SHARED = 0  # a key of `counts` that every atom of several operations adds 1 to, whoever its owner


@dataclass(frozen=True)
class Event:
    """A row whose key is its owner."""

    owner: int
    number: int


counts = roost.Counter("counts", key=int)
events = roost.Ring("events", Event, per="owner", keep=KEEP)
recent = roost.Capped("recent", Event, per="owner", keep=KEEP, unique="number", on_duplicate="refresh")
tags = roost.Set("tags", key=int, member=int)
STRUCTURES = (counts, events, recent, tags)

State = tuple[Any, ...]


class Ledger:
    """One owner's atoms, always the same for the same seed, and what they leave behind.

    Only its owner writes the owner's keys, one atom after another, and no atom leaves the state as it was: so the state
    tells exactly how many were done.
    """

    def __init__(self, owner: int, seed: object = 0) -> None:
        assert owner != SHARED
        self.owner = owner
        self.done = 0
        self.shared = 0
        self._seed = f"{seed}/{owner}"
        self._total = 0
        self._pushed = 0
        self._ring: deque[tuple[int, int]] = deque(maxlen=KEEP)
        self._added = 0
        self._capped: dict[int, int] = {}  # n -> sequence, oldest first
        self._tags: set[int] = set()

    def atom(self) -> list[roost.Operation[Any]]:
        """Return the next atom: always the same until `apply`."""
        made: list[roost.Operation[Any]] = []
        for verb, n in self._next():
            event = Event(self.owner, n)
            match verb:
                case "count":
                    made.append(counts.add(self.owner, n))
                case "push":
                    made.append(events.push(event))
                case "add":
                    made.append(recent.add(event))
                case "remove":
                    made.append(recent.remove(self.owner, n))
                case "tag":
                    made.append(tags.add(self.owner, n, n + 1))
                case "untag":
                    made.append(tags.remove(self.owner, n))
        return made if len(made) == 1 else [*made, counts.add(self.owner), counts.add(SHARED)]

    def apply(self) -> list[Any]:
        """Take the next atom as done; return the answers it must have."""
        answers = [self._play(verb, n) for verb, n in self._next()]
        self.done += 1
        if len(answers) == 1:
            return answers
        self._total += 1
        self.shared += 1
        return [*answers, None, None]

    def state(self) -> State:
        """Return what must be found in the database."""
        return (
            self._total,
            list(self._ring),
            [(sequence, n) for n, sequence in self._capped.items()],
            len(self._capped),
            self._tags,
            len(self._tags),
        )

    def found(self, store: roost.Store) -> State:
        """Return what is found, in one snapshot."""
        total, ring, capped, count, members, size = store.run_all(
            counts.total(self.owner),
            events.entries(self.owner),
            recent.entries(self.owner),
            recent.count(self.owner),
            tags.members(self.owner),
            tags.size(self.owner),
        )
        ring_rows = [(entry.sequence, entry.row.number) for entry in ring]
        return total, ring_rows, [(entry.sequence, entry.row.number) for entry in capped], count, members, size

    def settle(self, store: roost.Store, answered: int, in_flight: int = 1) -> int:
        """Come up with what was answered; return how many of those that were in flight have happened.

        AssertionError when something that was answered is not there, or anything is there twice or in part.
        """
        while self.done < answered:
            self.apply()
        found = self.found(store)
        states = [self.state()]
        while found != states[-1] and len(states) <= in_flight:
            self.apply()
            states.append(self.state())
        assert found == states[-1], f"owner {self.owner}, {answered} answered: found {found}, may be one of {states}"
        return len(states) - 1

    def _next(self) -> list[tuple[str, int]]:
        chance = random.Random(f"{self._seed}/{self.done}")
        n = chance.choice((1, 2, 3, 4))
        verbs = ("count", "push", "add") if n == 1 else ("push", "add", "add", "remove", "tag", "untag")
        return [(chance.choice(verbs), chance.randrange(1, 3 * KEEP)) for _ in range(n)]

    def _play(self, verb: str, n: int) -> Any:
        match verb:
            case "count":
                self._total += n
                return None
            case "push":
                self._pushed += 1
                self._ring.append((self._pushed, n))
                return self._pushed
            case "add":
                self._added += 1
                self._capped.pop(n, None)
                self._capped[n] = self._added
                if len(self._capped) > KEEP:
                    del self._capped[next(iter(self._capped))]
                return None
            case "remove":
                return self._capped.pop(n, None) is not None
            case "tag":
                before = len(self._tags)
                self._tags |= {n, n + 1}
                return len(self._tags) - before
        there = n in self._tags
        self._tags.discard(n)
        return int(there)


def shared(store: roost.Store) -> int:
    """Return how many atoms of all owners together were done."""
    return store.run(counts.total(SHARED))
