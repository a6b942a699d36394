"""The store behind an adapter: opened by a URL, or given; its structures are made when they are first missing."""

from __future__ import annotations

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
        try:
            return self.store.run(operation)
        except Missing:
            if not self._create:
                raise
            self.store.create(*self._structures)
            return self.store.run(operation)

    def run_all(self, *operations: Operation[Any]) -> tuple[Any, ...]:
        """Run operations, all or none."""
        try:
            return self.store.run_all(*operations)
        except Missing:
            if not self._create:
                raise
            self.store.create(*self._structures)
            return self.store.run_all(*operations)


class AsyncOpened:
    """The same for asyncio."""

    def __init__(self, store: AsyncStore | str, *structures: Structure, create: bool = True, **options: Any) -> None:
        self.store = AsyncStore(store, **options) if isinstance(store, str) else store
        self._structures, self._create = structures, create

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        try:
            return await self.store.run(operation)
        except Missing:
            if not self._create:
                raise
            await self.store.create(*self._structures)
            return await self.store.run(operation)

    async def run_all(self, *operations: Operation[Any]) -> tuple[Any, ...]:
        """Run operations, all or none."""
        try:
            return await self.store.run_all(*operations)
        except Missing:
            if not self._create:
                raise
            await self.store.create(*self._structures)
            return await self.store.run_all(*operations)
