"""`RoostStore`: sessions of starsessions in a `Cache` of Roost's, `SessionMiddleware(app, store=RoostStore(url))`."""

from __future__ import annotations

from typing import Any

from starsessions.stores.base import SessionStore

import roost
from roost.contrib.opened import AsyncOpened
from roost.contrib.serializers import storable

MONTH = 30 * 86_400  # seconds


class RoostStore(SessionStore):
    """A store of sessions.

    store: an `AsyncStore`, or its URL. name: of the structure; create: whether it is made when it is missing.
    gc_ttl: seconds for which a session is kept that lasts as long as its browser is open.

    >>> import asyncio
    >>> async def main():
    ...     store = RoostStore("sqlite://")
    ...     await store.write("id", b"data", lifetime=3600, ttl=3600)
    ...     return await store.read("id", lifetime=3600), await store.read("nobody", lifetime=3600)
    >>> asyncio.run(main())
    (b'data', b'')
    """

    def __init__(
        self,
        store: roost.AsyncStore | str,
        name: str = "starsessions",
        gc_ttl: int = MONTH,
        create: bool = True,
        **options: Any,
    ) -> None:
        self.cache = roost.Cache(name)
        self.gc_ttl = gc_ttl
        self._opened = AsyncOpened(store, self.cache, create=create, **options)

    async def read(self, session_id: str, lifetime: int) -> bytes:
        return await self._opened.run(self.cache.get(storable(session_id))) or b""

    async def write(self, session_id: str, data: bytes, lifetime: int, ttl: int) -> str:
        seconds = max(1, ttl) if lifetime else self.gc_ttl
        await self._opened.run(self.cache.set(storable(session_id), data, seconds))
        return session_id

    async def remove(self, session_id: str) -> None:
        await self._opened.run(self.cache.delete(storable(session_id)))
