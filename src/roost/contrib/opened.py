"""The store behind an adapter: opened by a URL, or given; its structures are made when they are first missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from roost.errors import Missing
from roost.store.store import AsyncStore, Store
from roost.structures.operation import Operation
from roost.structures.structure import Structure

T = TypeVar("T")


class Opened:
    """A store with the structures of an adapter.

    store: a store, or its URL, with its options.
    create: whether structures that are missing are made; otherwise `roost ddl` prints what makes them.

    >>> import roost
    >>> pages = roost.Cache("pages")
    >>> Opened("sqlite://", pages).run(pages.add("/home", b"a page"))
    True
    """

    def __init__(self, store: Store | str, *structures: Structure, create: bool = True, **options: Any) -> None:
        self.store = Store(store, **options) if isinstance(store, str) else store
        self._structures, self._create = structures, create

    def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        found: T = self._made(self.store.run, operation)
        return found

    def run_all(self, *operations: Operation[Any]) -> tuple[Any, ...]:
        """Run operations, all or none."""
        return self._made(self.store.run_all, *operations)

    def _made(self, call: Callable[..., T], *operations: Operation[Any]) -> T:
        try:
            return call(*operations)
        except Missing:
            if not self._create:
                raise
            self.store.create(*self._structures)
            return call(*operations)


class AsyncOpened:
    """The same for asyncio."""

    def __init__(self, store: AsyncStore | str, *structures: Structure, create: bool = True, **options: Any) -> None:
        self.store = AsyncStore(store, **options) if isinstance(store, str) else store
        self._structures, self._create = structures, create

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        return await self._made(self.store.run, operation)

    async def run_all(self, *operations: Operation[Any]) -> tuple[Any, ...]:
        """Run operations, all or none."""
        return await self._made(self.store.run_all, *operations)

    async def _made(self, call: Callable[..., Awaitable[T]], *operations: Operation[Any]) -> T:
        try:
            return await call(*operations)
        except Missing:
            if not self._create:
                raise
            await self.store.create(*self._structures)
            return await call(*operations)
