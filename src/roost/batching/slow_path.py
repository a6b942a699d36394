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

from roost.batching.atoms import Atom, refuse_all
from roost.batching.known import Known
from roost.dialects.dialect import Row
from roost.errors import Busy
from roost.structures.plan import Context

QUEUES = 4  # connections that may wait for locks besides the writer's
RETRYING = QUEUES  # the queue of atoms that retry instead of waiting
READING = QUEUES + 1  # the same, for reads
PAUSE = 0.02  # the least seconds between two attempts; at most twice as many

Head = tuple[str, Row]  # the name of a structure, and a key as it is stored


class SlowWrites:
    """The slow path of writes: the keys for which atoms wait there."""

    def __init__(self, known: Known, context: Context) -> None:
        self._known = known
        self._context = context
        self._blocked: set[Head] = set()

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom needs a key for which others wait here; if so, mark it for the slow path."""
        if not self._blocked:
            return False
        heads = self._known.heads(atom)
        if heads.isdisjoint(self._blocked):
            return False
        atom.slow_path = _queue_for(heads)
        return True

    def send(self, atom: Atom, error: Busy) -> None:
        """Mark an atom that could not get its lock for the slow path."""
        heads = self._known.heads(atom)
        atom.slow_path = _queue_for(heads)
        if len(heads) == 1:  # with several keys it is unknown which one is locked, and the others may be free
            self._blocked |= heads

    def settled(self, atom: Atom) -> None:
        """Let other atoms with its keys join batches again, since this atom has its answer."""
        self._blocked -= self._known.heads(atom)


class SlowReads:
    """The slow path of reads: the structures whose tables another session has locked."""

    def __init__(self) -> None:
        self._blocked: set[str] = set()

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom reads one of these structures; if so, mark it for the slow path."""
        if not self._blocked or self._blocked.isdisjoint(_names(atom)):
            return False
        atom.slow_path = READING
        return True

    def send(self, atom: Atom, error: Busy) -> None:
        """Mark an atom that could not get its lock for the slow path."""
        names = _names(atom)
        atom.slow_path = READING
        if len(names) == 1:  # with several structures it is unknown which one is locked
            self._blocked |= names

    def settled(self, atom: Atom) -> None:
        """Let other reads of its structures join batches again, since this atom has its answer."""
        self._blocked -= _names(atom)


class Retries:
    """The slow path of atoms that retry instead of waiting: one that cannot get a lock goes back to its queue."""

    def __init__(self) -> None:
        self.again = False  # whether an atom goes back to the queue

    def concerns(self, atom: Atom) -> bool:
        """Return False: no atom is sent to another queue."""
        return False

    def send(self, atom: Atom, error: Busy) -> None:
        """Leave the atom to another attempt, or refuse it after its deadline."""
        if atom.deadline <= time.monotonic():
            refuse_all([atom], error)
        else:
            self.again = True


def _names(atom: Atom) -> set[str]:
    return {op.structure.name for op in atom.operations}


def _queue_for(heads: set[Head]) -> int:
    return hash(min(heads)) % QUEUES if len(heads) == 1 else RETRYING
