"""Operations inside the application's own transaction, on its own connection.

Nothing is committed, rolled back or retried. Every call is wrapped in a savepoint, so an operation that fails leaves
the transaction as it was. `databases/callers` has the code for each kind of connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from roost.batching.atoms import Atom
from roost.batching.batch import joined
from roost.batching.known import Known
from roost.databases.callers import AsyncPlay, Play
from roost.store.runner import AsyncRunner, Runner
from roost.structures.plan import Context


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

    def __init__(self, play: Play, known: Known, context: Context, prepare_once: Callable[[], None]) -> None:
        self._play = play
        self._known = known
        self._context = context
        self._prepare_once = prepare_once

    def _answer(self, atom: Atom) -> tuple[Any, ...]:
        if atom.once is not None:
            self._prepare_once()
        self._play(joined(atom, self._known, self._context), atom.writes)
        return atom.answer


class AsyncJoined(AsyncRunner):
    """`Joined` with `await`."""

    def __init__(
        self, play: AsyncPlay, known: Known, context: Context, prepare_once: Callable[[], Awaitable[None]]
    ) -> None:
        self._play = play
        self._known = known
        self._context = context
        self._prepare = prepare_once

    async def _prepare_once(self) -> None:
        await self._prepare()

    async def _answered(self, atom: Atom) -> None:
        await self._play(joined(atom, self._known, self._context), atom.writes)
