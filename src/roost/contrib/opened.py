"""The store behind an adapter: opened by a URL, or given; its structures are made when they are first missing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from roost.databases.engine import adrive, drive
from roost.errors import Missing
from roost.store.store import AsyncStore, Store
from roost.structures.operation import Operation
from roost.structures.structure import Structure

T = TypeVar("T")

# What an adapter does, written once for both stores: it yields an operation, or a list of them, and receives results.
Work = Generator[Any, Any, T]


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
        self._owned = isinstance(store, str)
        self._structures, self._create = structures, create

    def close(self) -> None:
        """Close the store, unless it was given."""
        if self._owned:
            self.store.close()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        found: T = self.execute(operation)
        return found

    def play(self, work: Work[T]) -> T:
        """Run what an adapter's work yields."""
        return drive(work, self)

    def execute(self, wanted: Any) -> Any:
        """Run an operation, or a list of them, all or none."""
        try:
            return _call(self.store, wanted)
        except Missing:
            if not self._create:
                raise
            self.store.create(*self._structures)
            return _call(self.store, wanted)


class AsyncOpened:
    """The same for asyncio."""

    def __init__(self, store: AsyncStore | str, *structures: Structure, create: bool = True, **options: Any) -> None:
        self.store = AsyncStore(store, **options) if isinstance(store, str) else store
        self._structures, self._create = structures, create

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation."""
        found: T = await self.execute(operation)
        return found

    async def play(self, work: Work[T]) -> T:
        """Run what an adapter's work yields."""
        return await adrive(work, self)

    async def execute(self, wanted: Any) -> Any:
        """Run an operation, or a list of them, all or none."""
        try:
            return await _call(self.store, wanted)
        except Missing:
            if not self._create:
                raise
            await self.store.create(*self._structures)
            return await _call(self.store, wanted)


def _call(store: Any, wanted: Any) -> Any:
    return store.run_all(*wanted) if isinstance(wanted, list) else store.run(wanted)
