"""Atoms: the operations of one call; how many make a batch, and which wait for a lock.

The slow path is for atoms that need a lock which another transaction holds for long: no batch waits for it. A batch
waits `lock_wait` for a lock. If that is not enough, the batch is run again in halves that do not wait, until the atom
that needs the lock is alone; it leaves the batch, and the other atoms commit. The atom then waits in one of a few
queues, each with a connection of its own, until the store's `timeout`. While it waits there, other atoms that write the
same key go there at once. So a transaction that is left open delays the others by `lock_wait`, once.

Reads wait only for a session that has locked a whole table (LOCK TABLE, an ALTER). They retry in a queue of their own,
and while one does, other reads of its structure go there at once. An atom that needs several locks must not hold some
of them while it waits for another: it retries instead, in a queue for such atoms.
"""

from __future__ import annotations

import copy
import reprlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from roost.errors import Busy, Error, Invalid
from roost.structures.operation import READS, RUNS, Operation

E = TypeVar("E", bound=BaseException)

MAX_OPERATIONS = 10_000  # in a batch of several atoms: bounds the time for which the write lock is held
MAX_BYTES = 16 * 2**20  # of their values, for the same reason
FEW = 64  # the bytes of so few operations are not counted: counting takes a good part of the time for running them


class Atom:
    """The operations of one call: all or none of them are committed."""

    __slots__ = (
        *("begun", "deadline", "done", "error", "future", "once", "operations", "place", "results", "size"),
        *("slow_path", "writes"),
    )

    def __init__(self, operations: Sequence[Operation[Any]], once: str | None = None) -> None:
        writes = False
        size = len(operations)
        for op in operations:
            if type(op) is not Operation:
                shown = reprlib.repr(op)
                raise Invalid(
                    f"{shown} is not an operation; make one with a structure's method, such as add(), and give several "
                    "as run_all(*operations)"
                )
            if op.verb not in READS:
                writes = True
                if op.verb in RUNS:
                    size += len(op.args) - 1
        self.operations = operations
        self.once = once  # the token with which they run only once
        self.writes = writes
        self.size = size
        self.results: Sequence[Any] = ()  # of the whole batch, in which this atom's have their place
        self.place = 0
        self.error: BaseException | None = None
        self.done = False
        self.slow_path: int | None = None  # the slow-path queue in which it must wait for a lock
        self.begun = 0.0  # the time of the call, by the monotonic clock
        self.deadline = 0.0  # the time until which its caller waits, by the same clock
        self.future: Any = None  # the future that its caller awaits, in asyncio

    @property
    def answer(self) -> tuple[Any, ...]:
        assert self.done or self.error is not None, "an atom without an answer"
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # breaks a reference cycle: the raised error refers to this frame
        return tuple(self.results[self.place : self.place + len(self.operations)])

    def weight(self) -> int:
        weight = 0
        for op in self.operations:
            weight += _weight(op.args)
        return weight


def _weight(values: tuple[Any, ...]) -> int:
    weight = 8
    for value in values:
        kind = type(value)
        if kind is tuple:
            weight += _weight(value)
        elif kind is str or kind is bytes:
            weight += len(value)
        else:
            weight += 8
    return weight


def fitting(waiting: Iterable[Sequence[Atom]]) -> int:
    """Return how many of the first of those that wait, each with its atoms, fill a batch; one, whatever its size."""
    operations = weight = number = 0
    for number, atoms in enumerate(waiting, 1):  # noqa: B007 - `number` is returned
        for atom in atoms:
            operations += atom.size
            if operations > FEW:
                weight += atom.weight()
        if operations >= MAX_OPERATIONS or weight >= MAX_BYTES:
            break
    return number


def refuse_all(atoms: Iterable[Atom], error: BaseException) -> None:
    """Answer all unanswered atoms with an error, each with a copy, since one thread alone may raise an exception."""
    for atom in atoms:
        if not atom.done and atom.slow_path is None:
            atom.error = copied(error)
            atom.done = True


def copied(error: E) -> E:
    """Return a copy of an error, for another caller; the error itself if its class, the application's, allows none."""
    try:
        made = copy.copy(error)
    except Exception:
        made = error
    return (made if isinstance(made, type(error)) else error).with_traceback(None)


def answer(atoms: Sequence[Atom], results: list[Any]) -> bool:
    """Set each atom's results, and as its error a copy of the first error among them; return whether there is one."""
    errors = False
    for kind in set(map(type, results)):
        if issubclass(kind, Error):
            errors = True
    place = 0
    for atom in atoms:
        atom.results, atom.place = results, place  # a list for each would be another object for the garbage collector
        place += len(atom.operations)
        atom.error = None  # an error of an earlier attempt does not count: the operation may succeed here
        if errors:
            mine = results[atom.place : place]
            atom.error = next((copied(each) for each in mine if isinstance(each, Error)), None)
    return errors


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
        if atom.deadline <= time.monotonic():
            refuse_all([atom], error)
        else:
            self.again = True


def names_of(atom: Atom) -> set[str]:
    return {op.structure.name for op in atom.operations}
