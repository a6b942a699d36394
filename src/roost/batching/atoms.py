"""Atoms: the operations of one call, and the number of them that makes a batch."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from roost.errors import Error, Invalid
from roost.structures.operation import READS, RUNS, Operation

E = TypeVar("E", bound=BaseException)

MAX_OPERATIONS = 10_000  # in a batch of several atoms: bounds the time for which the write lock is held
MAX_BYTES = 16 * 2**20  # of their values, for the same reason
FEW = 64  # the bytes of so few operations are not counted: counting takes a good part of the time for running them


class Atom:
    """The operations of one call: all or none of them are committed."""

    __slots__ = (
        "begun",
        "deadline",
        "done",
        "error",
        "future",
        "once",
        "operations",
        "results",
        "size",
        "slow_path",
        "writes",
    )

    def __init__(self, operations: Sequence[Operation[Any]], once: str | None = None) -> None:
        writes = False
        size = len(operations)
        for op in operations:
            if type(op) is not Operation:
                shown = reprlib.repr(op)
                raise Invalid(f"{shown} is not an operation; make one with a structure's method, such as add()")
            if op.verb not in READS:
                writes = True
                if op.verb in RUNS:
                    size += len(op.args) - 1
        self.operations = operations
        self.once = once  # the token with which they run only once
        self.writes = writes
        self.size = size
        self.results: Sequence[Any] = ()
        self.error: BaseException | None = None
        self.done = False
        self.slow_path: int | None = None  # the slow-path queue in which it must wait for a lock
        self.begun = 0.0  # the time of the call, by the monotonic clock
        self.deadline = 0.0  # the time until which its caller waits, by the same clock
        self.future: Any = None  # the future that its caller awaits, in asyncio

    @property
    def answer(self) -> tuple[Any, ...]:
        """The results, or the error raised."""
        assert self.done or self.error is not None, "an atom without an answer"
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # breaks a reference cycle: the raised error refers to this frame
        return tuple(self.results)

    def weight(self) -> int:
        """Return the approximate number of bytes of its values."""
        return sum([_weight(op.args) for op in self.operations])


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


class Load:
    """The size of a batch of several callers, compared with the limits."""

    __slots__ = ("_operations", "_weight")

    def __init__(self) -> None:
        self._operations = 0
        self._weight = 0

    def add(self, atoms: Iterable[Atom]) -> bool:
        """Count atoms that the batch takes, whatever their size; return whether it must take no more."""
        for atom in atoms:
            self._operations += atom.size
            if self._operations > FEW:
                self._weight += atom.weight()
        return self._operations >= MAX_OPERATIONS or self._weight >= MAX_BYTES


def fitting(atoms: Sequence[Atom], most: int) -> int:
    """Return how many of the first atoms fill a batch, at most `most`."""
    load = Load()
    for number in range(1, most):
        if load.add(atoms[number - 1 : number]):
            return number
    return most


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
        if len(atom.operations) == 1:
            atom.results = (results[place],)
            place += 1
        else:
            end = place + len(atom.operations)
            atom.results = results[place:end]
            place = end
        # An error of an earlier attempt does not count: the operation may succeed here.
        atom.error = next((copied(each) for each in atom.results if isinstance(each, Error)), None) if errors else None
    return errors
