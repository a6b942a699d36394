"""`Cache`: a local cache in a directory, in the manner of diskcache, for the processes and threads of one machine.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path, Cache(path) as cache:
...     cache["a"] = (1, "list")
...     cache.set("b", 5, expire=60, tag="numbers"), cache.incr("b"), cache.get("b", tag=True)
...     cache.evict("numbers"), list(cache), cache["a"]
(True, 6, (6, 'numbers'))
(1, ['a'], (1, 'list'))
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import roost
from roost.contrib.serializers import AT_ONCE, LARGEST, LONGEST_KEY, MANY, Codec, added
from roost.databases.sqlite.engine import translate

F = TypeVar("F", bound=Callable[..., Any])

FILE = "cache.db"
MARK = "~"  # before a key that is no text
STORED = "SELECT count(*) FROM roost_cache_rows"  # with those that have expired
SWEPT = 1_000  # of them, that a batch of 64 writes deletes
FLAGS = 2**32
ABSENT: Any = object()
_keys = Codec("json", "keys, tags, arguments", "they are texts, numbers, bytes, and tuples of these")


def _text(*values: Any) -> str:
    return _keys.dumps("", [*values]).decode()


def _stored(key: Any) -> str:
    name = key if type(key) is str and not key.startswith(MARK) else MARK + _text(key)
    if len(name) > LONGEST_KEY:
        raise roost.Invalid(f"a key has at most {LONGEST_KEY} characters, and this one {len(name)}")
    return name


def _given(name: str) -> Any:
    return _keys.loads(name, name[1:].encode())[0] if name.startswith(MARK) else name


class Cache:
    """Values under keys in a directory, bounded in bytes: what was used longest ago goes, whatever it is.

    directory: made if it is missing; the file in it is `cache.db`.
    size_limit: the bytes of all keys and values. timeout: seconds for which a call waits for other processes.
    serializer: "json" (default), "msgpack", "pickle", `Signed(secret)`, or an object (`roost.contrib.serializers`).

    Keys are texts of at most 255 characters, numbers, bytes, and tuples of these. A value has at most 8,000,000 bytes.
    Hits and misses are those of this object.
    """

    def __init__(
        self, directory: str | Path, timeout: float = 60.0, *, size_limit: int = 2**30, serializer: Any = "json"
    ) -> None:
        self.directory = Path(directory).expanduser().absolute()
        self._file = self.directory / FILE
        self.directory.mkdir(parents=True, exist_ok=True)
        self._values = roost.Cache("cache", value=roost.binary(LARGEST), max_bytes=size_limit)
        self._tags = roost.Cache("cache_tags", key=int, value=str)
        self.store = roost.Store(f"sqlite:///{quote(str(self._file))}?synchronous=normal", timeout=timeout)
        try:
            self.store.alter(self._values)  # an existing directory may have another limit
        except roost.Missing:
            with suppress(roost.Mismatch):  # another process has just made it, with its own limit
                self.store.create(self._values, self._tags)
        self._codec, self._timeout = Codec(serializer, self._values.name), timeout
        self._local = threading.local()
        self._numbers: dict[str, int] = {}  # of tags
        self._hits = self._misses = 0

    # --- one value ------------------------------------------------------------------------------------------------

    def set(self, key: Any, value: Any, expire: float | None = None, tag: Any = None) -> bool:
        """Store a value, which expires in `expire` seconds."""
        name = _stored(key)
        self._run(self._values.set(name, self._codec.dumps(name, value), _ttl(expire), self._number(tag)))
        return True

    __setitem__ = set

    def add(self, key: Any, value: Any, expire: float | None = None, tag: Any = None) -> bool:
        """Store a value if the key has none; return whether it was stored."""
        name = _stored(key)
        data, number = self._codec.dumps(name, value), self._number(tag)
        return bool(self._run(self._values.add(name, data, _ttl(expire), number)))

    def get(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        """Return a value, or the default; on request with the Unix time when it expires, and its tag, as a tuple."""
        return self._told(key, self._run(self._values.gets(_stored(key))), default, expire_time, tag)

    def pop(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        """Remove a value and return it, as `get` does."""
        name = _stored(key)
        item, _ = self._run_all(self._values.gets(name), self._values.delete(name))
        return self._told(key, item, default, expire_time, tag)

    def incr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Add to an int atomically and return the new one; a missing one is `default`, or a KeyError if it is None."""
        begin = None if default is None else default + delta
        if not isinstance(begin, int | None):
            raise roost.Invalid(f"{begin!r} is no int")
        try:
            found: int | None = added(self._run, self._values, _stored(key), delta, begin, None, self._codec)
        except roost.Overflow:
            raise roost.Overflow(f"{key!r} would have more than 64 bits") from None
        if found is None:
            raise KeyError(key)
        return found

    def decr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Subtract from an int atomically and return the new one."""
        return self.incr(key, -delta, default)

    def touch(self, key: Any, expire: float | None = None) -> bool:
        """Let a value expire `expire` seconds from now; return whether there is one."""
        return bool(self._run(self._values.touch(_stored(key), _ttl(expire))))

    def delete(self, key: Any) -> bool:
        """Remove a value; return whether there was one."""
        return bool(self._run(self._values.delete(_stored(key))))

    def __getitem__(self, key: Any) -> Any:
        if (found := self.get(key, ABSENT)) is ABSENT:
            raise KeyError(key)
        return found

    def __delitem__(self, key: Any) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return self._run(self._values.get(_stored(key))) is not None

    # --- many values ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys in the order of their texts."""
        last = None
        while names := self._run(self._values.keys(last, MANY)):
            yield from map(_given, names)
            last = names[-1]

    def __len__(self) -> int:
        return int(self._ask("SELECT count(*) FROM cache"))

    def volume(self) -> int:
        """Return the bytes of all keys and values."""
        return int(self._ask("SELECT coalesce(sum(length(CAST(key AS BLOB)) + length(value)), 0) FROM cache"))

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return how many reads have found a value, and how many have not; they are counted always."""
        found = self._hits, self._misses
        if reset:
            self._hits = self._misses = 0
        return found

    def evict(self, tag: Any) -> int:
        """Remove all values of a tag, and return how many they were; those without a tag have none."""
        with self.transact():
            found = self._sql(
                self._local.connection, "SELECT key FROM cache WHERE flags = ? AND flags > 0", self._number(tag)
            )
            return sum(self._run_all(*[self._values.delete(name) for (name,) in found]))

    def expire(self) -> int:
        """Remove the values that have expired, and return how many they were; later writes do so, too.

        In a block of `transact` they are left to these.
        """
        before = self._ask(STORED)
        for _ in range((before - len(self)) // SWEPT + 1):  # each write deletes some: those of a key that is not there
            self._run_all(*[self._values.delete(MARK)] * 64)
        return max(int(before - self._ask(STORED)), 0)

    def clear(self) -> int:
        """Remove all values, and return how many there were."""
        return int(self._run(self._values.clear()))

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Run the calls of this thread in a `with` block as one transaction; others wait until it ends."""
        if getattr(self._local, "runner", None) is not None:
            yield
            return
        with closing(sqlite3.connect(self._file, timeout=self._timeout, isolation_level=None)) as connection:
            self._sql(connection, "BEGIN IMMEDIATE")
            self._local.connection, self._local.runner = connection, self.store.on(connection)
            try:
                yield
                self._sql(connection, "COMMIT")
            finally:
                self._local.connection = self._local.runner = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Collection[Any] = (),
    ) -> Callable[[F], F]:
        """Return a decorator that stores what a function returns, by its arguments.

        name: of the function in keys. typed: whether equal arguments of different types are told apart. ignore: the
        positions and names of arguments that make no difference.
        """

        def decorator(function: F) -> F:
            base = name or f"{function.__module__}.{function.__qualname__}"

            def key_of(*args: Any, **kwargs: Any) -> tuple[str, str]:
                given = [each for place, each in enumerate(args) if place not in ignore]
                named = sorted((key, each) for key, each in kwargs.items() if key not in ignore)
                types = [type(each).__qualname__ for each in [*given, *[each for _, each in named]]] if typed else []
                text = _text(given, named, types)
                return base[:100], hashlib.sha256(f"{base}\0{text}".encode()).hexdigest()

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                key = key_of(*args, **kwargs)
                found = self.get(key, ABSENT)
                if found is ABSENT:
                    found = function(*args, **kwargs)
                    if expire is None or expire > 0:
                        self.set(key, found, expire, tag)
                return found

            wrapper.__cache_key__ = key_of  # type: ignore[attr-defined]
            return wrapper  # type: ignore[return-value]

        return decorator

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- within ---------------------------------------------------------------------------------------------------

    def _run(self, operation: roost.Operation[Any]) -> Any:
        return (getattr(self._local, "runner", None) or self.store).run(operation)

    def _run_all(self, *operations: roost.Operation[Any]) -> tuple[Any, ...]:
        runner = getattr(self._local, "runner", None) or self.store
        return tuple(runner.run_all(*operations)) if operations else ()

    def _ask(self, sql: str) -> Any:
        if (connection := getattr(self._local, "connection", None)) is not None:
            return self._sql(connection, sql)[0][0]
        with closing(sqlite3.connect(self._file, timeout=self._timeout)) as connection:
            return self._sql(connection, sql)[0][0]

    def _sql(self, connection: sqlite3.Connection, sql: str, *values: Any) -> list[Any]:
        try:
            return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate(error, str(self._file), sql) from error

    def _told(self, key: Any, item: roost.Item[bytes] | None, default: Any, expire_time: bool, tag: bool) -> Any:
        value = ABSENT if item is None else self._codec.loads(_stored(key), item.value, ABSENT)
        if item is None or value is ABSENT:
            self._misses += 1
            told = [default, *[None] * (expire_time + tag)]
        else:
            self._hits += 1
            ends = None if item.ttl is None else time.time() + item.ttl
            told = [value, *([ends] if expire_time else []), *([self._tag(item.flags)] if tag else [])]
        return tuple(told) if len(told) > 1 else told[0]

    def _number(self, tag: Any) -> int:
        # A tag is a number beside the value, from 1 on: its checksum, or the next one that no other tag has.
        if tag is None:
            return 0
        text = json.dumps(tag) if isinstance(tag, str) else _text(tag)
        if text not in self._numbers:
            number = zlib.crc32(text.encode()) or 1
            while not self._run(self._tags.add(number, text)) and self._run(self._tags.get(number)) != text:
                number = number % (FLAGS - 1) + 1
            if getattr(self._local, "runner", None) is not None:
                return number  # which a rollback takes back
            self._numbers[text] = number
        return self._numbers[text]

    def _tag(self, number: int) -> Any:
        if number == 0:
            return None
        found = _keys.loads("", self._run(self._tags.get(number)).encode())
        return found[0] if isinstance(found, list) else found


def _ttl(expire: float | None) -> float | None:
    return None if expire is None else max(expire, AT_ONCE)
