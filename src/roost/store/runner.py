"""The interface that runs operations: of a store, and of an application's transaction that a store has joined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, TypeAlias, TypeVar, overload

from roost.batching.atoms import Atom
from roost.batching.once import checked
from roost.structures.operation import Operation

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
T7 = TypeVar("T7")
T8 = TypeVar("T8")

Op: TypeAlias = Operation[T]


class Runner(ABC):
    """Runs operations: a `Store`, or the object that `Store.on` returns."""

    def run(self, operation: Operation[T], *, once: str | None = None) -> T:
        """Run one operation and return its result, or raise its error.

        once: a token. A call with the same token again, from any process, does nothing and returns the first result.
        """
        result: T = self._answer(_atom((operation,), once))[0]
        return result

    @overload
    def run_all(self, a: Op[T1], /, *, once: str | None = None) -> tuple[T1]: ...
    @overload
    def run_all(self, a: Op[T1], b: Op[T2], /, *, once: str | None = None) -> tuple[T1, T2]: ...
    @overload
    def run_all(self, a: Op[T1], b: Op[T2], c: Op[T3], /, *, once: str | None = None) -> tuple[T1, T2, T3]: ...
    @overload
    def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], f: Op[T6], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5, T6]: ...
    @overload
    def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], f: Op[T6], g: Op[T7], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5, T6, T7]: ...
    @overload
    def run_all(
        self,
        a: Op[T1],
        b: Op[T2],
        c: Op[T3],
        d: Op[T4],
        e: Op[T5],
        f: Op[T6],
        g: Op[T7],
        h: Op[T8],
        /,
        *,
        once: str | None = None,
    ) -> tuple[T1, T2, T3, T4, T5, T6, T7, T8]: ...
    @overload
    def run_all(self, *operations: Operation[T], once: str | None = None) -> tuple[T, ...]: ...

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
        result: T = (await self._answer(_atom((operation,), once)))[0]
        return result

    @overload
    async def run_all(self, a: Op[T1], /, *, once: str | None = None) -> tuple[T1]: ...
    @overload
    async def run_all(self, a: Op[T1], b: Op[T2], /, *, once: str | None = None) -> tuple[T1, T2]: ...
    @overload
    async def run_all(self, a: Op[T1], b: Op[T2], c: Op[T3], /, *, once: str | None = None) -> tuple[T1, T2, T3]: ...
    @overload
    async def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    async def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], f: Op[T6], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5, T6]: ...
    @overload
    async def run_all(
        self, a: Op[T1], b: Op[T2], c: Op[T3], d: Op[T4], e: Op[T5], f: Op[T6], g: Op[T7], /, *, once: str | None = None
    ) -> tuple[T1, T2, T3, T4, T5, T6, T7]: ...
    @overload
    async def run_all(
        self,
        a: Op[T1],
        b: Op[T2],
        c: Op[T3],
        d: Op[T4],
        e: Op[T5],
        f: Op[T6],
        g: Op[T7],
        h: Op[T8],
        /,
        *,
        once: str | None = None,
    ) -> tuple[T1, T2, T3, T4, T5, T6, T7, T8]: ...
    @overload
    async def run_all(self, *operations: Operation[T], once: str | None = None) -> tuple[T, ...]: ...

    async def run_all(self, *operations: Operation[Any], once: str | None = None) -> tuple[Any, ...]:
        """Run operations in their order, all or none of them, and return their results.

        Without operations it does nothing. If one fails, its error is raised and all of them are undone.

        once: a token for all of them, as for `run`.
        """
        return await self._answer(_atom(operations, once)) if operations else ()

    async def _answer(self, atom: Atom) -> tuple[Any, ...]:
        if atom.once is None:
            await self._answered(atom)
            return atom.answer
        await self._prepare_once()
        await self._answered(atom)
        if self._is_once_gone(atom):
            await self._prepare_once()
            atom = Atom(atom.operations, atom.once)
            await self._answered(atom)
        return atom.answer

    @abstractmethod
    def _answered(self, atom: Atom) -> Awaitable[None]: ...

    async def _prepare_once(self) -> None:
        """Make sure that the table of tokens exists, unless `_answered` does that itself."""
        return

    def _is_once_gone(self, atom: Atom) -> bool:
        # Whether an atom failed because the table of tokens is gone, if the table can be made at this moment.
        return False


def _atom(operations: tuple[Operation[Any], ...], once: str | None) -> Atom:
    return Atom(operations) if once is None else Atom(operations, checked(once, operations))
