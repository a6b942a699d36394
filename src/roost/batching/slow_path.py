"""The slow path, for atoms that need a lock which another transaction holds for long: no batch waits for it.

A batch waits `lock_wait` for a lock. If that is not enough, the batch is run again in halves that do not wait, until
the atom that needs the lock is alone; it leaves the batch, and the other atoms commit. The atom then waits in one of a
few queues, each with a connection of its own, until the store's `timeout`. While it waits there, other atoms that write
the same key go there at once. So a transaction that is left open delays the others by `lock_wait`, once.

Reads wait only for a session that has locked a whole table (LOCK TABLE, an ALTER). They retry in a queue of their own,
and while one does, other reads of its structure go there at once.

An atom that needs several locks must not hold some of them while it waits for another: it retries instead, in a queue
for such atoms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from roost.batching.atoms import Atom, refuse_all
from roost.errors import Busy

QUEUES = 4  # connections that may wait for locks besides the writer's
RETRYING = QUEUES  # the queue of atoms that retry instead of waiting
READING = QUEUES + 1  # the same, for reads
PAUSE = 0.02  # the least seconds between two attempts; at most twice as many


class SlowPath:
    """The slow path of writes, or of reads: the keys, or the structures, for which atoms wait there.

    needs: returns what an atom needs a lock for.
    queue: the number of the queue in which all wait; None: each key has one, which waits.
    """

    def __init__(self, needs: Callable[[Atom], set[Any]], queue: int | None = None) -> None:
        self._needs = needs
        self._queue = queue
        self._blocked: set[Any] = set()

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom needs a lock for which others wait here; if so, mark it for the slow path."""
        if not self._blocked or self._blocked.isdisjoint(needs := self._needs(atom)):
            return False
        self._mark(atom, needs)
        return True

    def send(self, atom: Atom, error: Busy) -> None:
        """Mark an atom that could not get its lock for the slow path."""
        needs = self._needs(atom)
        self._mark(atom, needs)
        if len(needs) == 1:  # of several it is unknown which one is locked, and the others may be free
            self._blocked |= needs

    def _mark(self, atom: Atom, needs: set[Any]) -> None:
        waiting = hash(min(needs)) % QUEUES if len(needs) == 1 else RETRYING
        atom.slow_path = waiting if self._queue is None else self._queue

    def settled(self, atom: Atom) -> None:
        """Let other atoms that need the same join batches again, since this atom has its answer."""
        self._blocked -= self._needs(atom)


class Retries(SlowPath):
    """The slow path of atoms that retry instead of waiting: one that cannot get a lock goes back to its queue."""

    def __init__(self) -> None:
        super().__init__(lambda _: set())
        self.again = False  # whether an atom goes back to the queue

    def send(self, atom: Atom, error: Busy) -> None:
        """Leave the atom to another attempt, or refuse it after its deadline."""
        if atom.deadline <= time.monotonic():
            refuse_all([atom], error)
        else:
            self.again = True


def names_of(atom: Atom) -> set[str]:
    """Return the names of the structures that an atom reads."""
    return {op.structure.name for op in atom.operations}
