"""`RoostCache`: a cache of aiocache in a `Cache` of Roost's; `await` never blocks the loop.

>>> import asyncio
>>> async def main():
...     async with RoostCache("sqlite://") as cache:
...         await cache.set("key", (1, "a"), ttl=60)
...         return await cache.get("key"), await cache.increment("hits")
>>> asyncio.run(main())
((1, 'a'), 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from aiocache.base import BaseCache, _ensure_key  # type: ignore[import-untyped]
from aiocache.serializers import BaseSerializer, NullSerializer  # type: ignore[import-untyped]

import roost
from roost.contrib.opened import AsyncOpened
from roost.contrib.serializers import AT_ONCE, MANY, Codec, adding, storable


class RoostCache(BaseCache):  # type: ignore[misc]
    """A cache of aiocache.

    store: an `AsyncStore`, or its URL. name: of the structure; create: whether it is made when it is missing.
    serializer: "json" (the default, also for None), "msgpack", "pickle", `Signed(secret)`, or an object
        (`roost.contrib.serializers`); or one of aiocache's own, whose texts and bytes are stored as they are.
    options: those of aiocache's caches (`namespace`, `ttl`, `plugins`, `timeout`, `key_builder`).
    """

    NAME = "roost"

    def __init__(
        self,
        store: roost.AsyncStore | str,
        name: str = "aiocache",
        serializer: Any = "json",
        create: bool = True,
        max_items: int | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> None:
        theirs = isinstance(serializer, BaseSerializer)
        build = options.pop("key_builder", None) or self._build_key
        options["key_builder"] = lambda key, **namespace: storable(str(build(key, **namespace)))
        super().__init__(serializer=serializer if theirs else NullSerializer(), **options)
        self.cache = roost.Cache(name, max_items=max_items, max_bytes=max_bytes)
        self._codec = Codec("json" if theirs or serializer is None else serializer, name)
        self._open = partial(AsyncOpened, store, self.cache, create=create)
        self._opened = self._open()

    def _build_key(self, key: Any, namespace: str | None = None) -> str:
        name = str(_ensure_key(key))
        prefix = self.namespace if namespace is None else namespace
        return f"{prefix}:{name}" if prefix else name

    def _dumps(self, key: str, value: Any) -> bytes:
        if isinstance(self.serializer, NullSerializer):
            return self._codec.dumps(key, value)
        return value if isinstance(value, bytes) else str(value).encode()

    def _loads(self, key: str, data: bytes | None, encoding: str | None) -> Any:
        if data is None:
            return None
        if isinstance(self.serializer, NullSerializer):
            return self._codec.loads(key, data)
        return data if encoding is None else data.decode(encoding)

    async def _get(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return (await self._multi_get([key], encoding))[0]

    async def _gets(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        found = await self._opened.run(self.cache.gets(key))
        return None if found is None else found.token

    async def _multi_get(self, keys: Sequence[str], encoding: str | None = "utf-8", _conn: Any = None) -> list[Any]:
        found = await self._opened.run(self.cache.get_many(keys)) if keys else {}
        return [self._loads(key, found.get(key), encoding) for key in keys]

    async def _set(
        self, key: str, value: Any, ttl: float | None = None, _cas_token: int | None = None, _conn: Any = None
    ) -> bool:
        data = self._dumps(key, value)
        if _cas_token is not None:
            return bool(await self._opened.run(self.cache.cas(key, data, _cas_token, ttl or None)))
        await self._opened.run(self.cache.set(key, data, ttl or None))
        return True

    async def _multi_set(self, pairs: Iterable[tuple[str, Any]], ttl: float | None = None, _conn: Any = None) -> bool:
        rows = {key: self._dumps(key, value) for key, value in pairs}
        if rows:
            await self._opened.run(self.cache.set_many(rows, ttl or None))
        return True

    async def _add(self, key: str, value: Any, ttl: float | None = None, _conn: Any = None) -> bool:
        if not await self._opened.run(self.cache.add(key, self._dumps(key, value), ttl or None)):
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return True

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self._opened.run(self.cache.get(key)) is not None

    async def _increment(self, key: str, delta: int, _conn: Any = None) -> int:
        try:
            found: int = await self._opened.play(adding(self.cache, key, delta, delta, None, self._codec))
        except (roost.Invalid, roost.Overflow):
            raise TypeError("Value is not an integer") from None
        return found

    async def _expire(self, key: str, ttl: float, _conn: Any = None) -> bool:
        return await self._opened.run(self.cache.touch(key, ttl or None))

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return int(await self._opened.run(self.cache.delete(key)))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        if not namespace:
            await self._opened.run(self.cache.clear())
            return True
        prefix = f"{namespace}:"
        await self._opened.run(self.cache.delete(prefix))  # the key "" in this namespace
        last = prefix
        while keys := await self._opened.run(self.cache.keys(after=last, n=MANY)):
            mine = [key for key in keys if key.startswith(prefix)]
            await self._opened.run([self.cache.delete(key) for key in mine])
            if len(mine) < len(keys):
                break
            last = keys[-1]
        return True

    async def _redlock_release(self, key: str, value: Any) -> bool:
        found = await self._opened.run(self.cache.gets(key))
        if found is None or found.value != self._dumps(key, value):
            return False
        # Only if it is still this holder's: it is over at once.
        return bool(await self._opened.run(self.cache.cas(key, found.value, found.token, AT_ONCE)))

    async def _close(self, *args: Any, _conn: Any = None, **kwargs: Any) -> None:
        closed, self._opened = self._opened, self._open()  # it can be used again, as aiocache wants it
        await closed.close()
