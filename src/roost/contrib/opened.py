"""The store behind an adapter: opened by a URL, or given; its structures are made when they are first missing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, TypeVar

from roost.databases.engine import adrive, drive
from roost.errors import Missing
from roost.store.store import AsyncStore, Store
from roost.structures.operation import Operation
from roost.structures.structure import Structure

T = TypeVar("T")

# What an adapter does, written once for both stores: it yields an operation, or a list of them, and receives results.
Work = Generator[Any, Any, T]
Wanted = Operation[T] | list[Operation[Any]]  # of which a list is done whole or not at all


class _Opened:
    _class: ClassVar[Any]

    def __init__(self, store: Any, *structures: Structure, create: bool = True, **options: Any) -> None:
        self._owned = isinstance(store, str)
        self.store = self._class(store, **options) if self._owned else store
        self._structures, self._create = structures, create

    def _call(self, wanted: Wanted[T]) -> Any:
        return self.store.run_all(*wanted) if isinstance(wanted, list) else self.store.run(wanted)


class Opened(_Opened):
    """A store with the structures of an adapter.

    store: a store, or its URL, with its options; only one that was opened here is closed by `close`.
    create: whether structures that are missing are made; otherwise `roost ddl` prints what makes them.

    >>> import roost
    >>> pages = roost.Cache("pages")
    >>> Opened("sqlite://", pages).run(pages.add("/home", b"a page"))
    True
    """

    store: Store
    _class = Store

    def run(self, wanted: Wanted[T]) -> T:
        try:
            found: T = self._call(wanted)
        except Missing:
            if not self._create:
                raise
            self.store.create(*self._structures)
            found = self._call(wanted)
        return found

    execute = run

    def play(self, work: Work[T]) -> T:
        return drive(work, self)

    def close(self) -> None:
        if self._owned:
            self.store.close()


class AsyncOpened(_Opened):
    """The same for asyncio."""

    store: AsyncStore
    _class = AsyncStore

    async def run(self, wanted: Wanted[T]) -> T:
        try:
            found: T = await self._call(wanted)
        except Missing:
            if not self._create:
                raise
            await self.store.create(*self._structures)
            found = await self._call(wanted)
        return found

    execute = run

    async def play(self, work: Work[T]) -> T:
        return await adrive(work, self)

    async def close(self) -> None:
        if self._owned:
            await self.store.close()
