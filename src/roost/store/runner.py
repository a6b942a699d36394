"""What runs operations: a store, and the application's own transaction, on its connection, that a store has joined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from roost.batching.atoms import Atom
from roost.batching.batch import joined
from roost.batching.known import Known
from roost.batching.once import checked
from roost.databases.callers import Play, Work
from roost.structures.operation import Operation
from roost.structures.plan import Context

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")

Op: TypeAlias = Operation[T]
Once: TypeAlias = str | None


class Runner(ABC):
    """Runs operations: a `Store`, or the object that `Store.on` returns."""

    def run(self, operation: Operation[T], *, once: str | None = None) -> T:
        """Run one operation and return its result, or raise its error.

        once: a token. A call with the same token again, from any process, does nothing and returns the first result.
        """
        result: T = self._answer(_atom((operation,), once))[0]
        return result

    @overload
    def run_all(self, a: Op[A], /, *, once: Once = None) -> tuple[A]: ...
    @overload
    def run_all(self, a: Op[A], b: Op[B], /, *, once: Once = None) -> tuple[A, B]: ...
    @overload
    def run_all(self, a: Op[A], b: Op[B], c: Op[C], /, *, once: Once = None) -> tuple[A, B, C]: ...
    @overload
    def run_all(self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], /, *, once: Once = None) -> tuple[A, B, C, D]: ...
    @overload
    def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F]: ...
    @overload
    def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], g: Op[G], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F, G]: ...
    @overload
    def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], g: Op[G], h: Op[H], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F, G, H]: ...
    @overload
    def run_all(self, *operations: Op[T], once: Once = None) -> tuple[T, ...]: ...

    def run_all(self, *operations: Operation[Any], once: str | None = None) -> tuple[Any, ...]:
        """Run operations in their order, all or none of them, and return their results.

        Without operations it does nothing. If one fails, its error is raised and all of them are undone.

        once: a token for all of them, as for `run`.
        """
        return self._answer(_atom(operations, once)) if operations else ()

    @abstractmethod
    def _answer(self, atom: Atom) -> tuple[Any, ...]: ...


class AsyncRunner(ABC):
    """Runs operations with `await`: an `AsyncStore`, or the object that `AsyncStore.on` returns."""

    async def run(self, operation: Operation[T], *, once: str | None = None) -> T:
        """Run one operation and return its result, or raise its error; for `once` see `Runner.run`."""
        atom = _atom((operation,), once)
        await self._answered(atom)
        result: T = atom.answer[0]
        return result

    @overload
    async def run_all(self, a: Op[A], /, *, once: Once = None) -> tuple[A]: ...
    @overload
    async def run_all(self, a: Op[A], b: Op[B], /, *, once: Once = None) -> tuple[A, B]: ...
    @overload
    async def run_all(self, a: Op[A], b: Op[B], c: Op[C], /, *, once: Once = None) -> tuple[A, B, C]: ...
    @overload
    async def run_all(self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], /, *, once: Once = None) -> tuple[A, B, C, D]: ...
    @overload
    async def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    async def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F]: ...
    @overload
    async def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], g: Op[G], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F, G]: ...
    @overload
    async def run_all(
        self, a: Op[A], b: Op[B], c: Op[C], d: Op[D], e: Op[E], f: Op[F], g: Op[G], h: Op[H], /, *, once: Once = None
    ) -> tuple[A, B, C, D, E, F, G, H]: ...
    @overload
    async def run_all(self, *operations: Op[T], once: Once = None) -> tuple[T, ...]: ...

    async def run_all(self, *operations: Operation[Any], once: str | None = None) -> tuple[Any, ...]:
        """Run operations in their order, all or none of them, and return their results.

        Without operations it does nothing. If one fails, its error is raised and all of them are undone.

        once: a token for all of them, as for `run`.
        """
        if not operations:
            return ()
        atom = _atom(operations, once)
        await self._answered(atom)
        return atom.answer

    @abstractmethod
    def _answered(self, atom: Atom) -> Awaitable[None]: ...


def _atom(operations: tuple[Operation[Any], ...], once: str | None) -> Atom:
    return Atom(operations) if once is None else Atom(operations, checked(once, operations))


# --- the application's own transaction ------------------------------------------------------------------------------
# Nothing is committed, rolled back or retried. Every call is wrapped in a savepoint, so an operation that fails leaves
# the transaction as it was. `databases/callers` has the code for each kind of connection.


class Transaction(Protocol):
    """A connection or session of the application, typed by a method that all of them have: no driver is imported."""

    def commit(self) -> None:
        """Commit."""


class AsyncTransaction(Protocol):
    """`Transaction` with `await`."""

    def commit(self) -> Awaitable[None]:
        """Commit."""


class AsyncpgTransaction(Protocol):
    """A connection of asyncpg, which has no `commit`."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""


class Joined(Runner):
    """Runs operations inside the open transaction of an application's connection."""

    def __init__(self, play: Callable[[Work, bool], None], known: Known, context: Context) -> None:
        self._play = play
        self._known = known
        self._context = context

    def _answer(self, atom: Atom) -> tuple[Any, ...]:
        self._play(joined(atom, self._known, self._context), atom.writes)
        return atom.answer


class AsyncJoined(AsyncRunner):
    """`Joined` with `await`."""

    def __init__(self, play: Play, known: Known, context: Context) -> None:
        self._play = play
        self._known = known
        self._context = context

    async def _answered(self, atom: Atom) -> None:
        await self._play(joined(atom, self._known, self._context), atom.writes)
