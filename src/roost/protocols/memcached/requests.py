"""The requests of memcached: a line and its block are parsed into a request, or refused with an error answer.

The checks, their order and the texts are those of memcached 1.6; docs/memcached-protocol.md lists the differences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from roost.errors import Error
from roost.protocols.memcached import asked as say
from roost.protocols.memcached.asked import (
    Asked,
    Read,
    Refused,
    Special,
    Values,
    Write,
    flags_of,
    signed,
    silent,
    unsigned,
)
from roost.protocols.memcached.framing import MOST_KEY, MOST_LENGTH, length_of, words_of
from roost.protocols.memcached.meta import Meta
from roost.structures.cache.declaration import FLAGS_MAX, KEEP, PLAIN, Cache
from roost.structures.operation import Target

log = logging.getLogger("roost.server")

ASKED_EVERY = 1.0  # seconds between looks whether the cache was dropped and created with other types
TOGETHER = 2**20  # bytes of answers that requests which run together may have, as estimated
LEAST = 4  # the least number of requests that run together, however large their answers are
MOST_KEYS = 10_000  # of one request

_ONE = b"VALUE %b %d %d\r\n%b\r\nEND\r\n"
_STORES = frozenset([b"set", b"add", b"replace", b"append", b"prepend", b"cas", b"ms"])


class Requests:
    """Requests of clients of one cache. once_for: see `Meta`.

    stale: the declaration of the cache was not the stored one in the last turn.
    """

    def __init__(self, values: Values, once_for: float = 0.0) -> None:
        self.stale = False
        self._size = 0.0  # the average bytes of recent answers
        self._once_for = once_for
        self._said = ""  # the last reason why the cache cannot be served
        self._use(values)
        self._asked = values.clock()  # when it was last compared

    def doubts(self) -> bool:
        """Whether to look how the cache is declared now: values of former types may be no error of the database."""
        now = self.values.clock()
        if not self.stale and abs(now - self._asked) < ASKED_EVERY:
            return False
        self._asked = now
        return True

    def redeclare(self, found: Target | Error) -> None:
        """Go on with the cache as it is declared now, unless it cannot be served: that is logged."""
        try:
            if isinstance(found, Error):
                raise found
            if isinstance(found, Cache) and found.definition == self.values.cache.definition:
                self.stale, self._said = False, ""
                return
            self._use(self.values.over(found))
        except Error as error:
            if self._said != str(error):
                self._said = str(error)
                log.error("the cache cannot be served: %s", error)
        else:
            self.stale, self._said = False, ""
            log.warning("%s was made anew, and is served as it is declared now", found.name)

    def _use(self, values: Values) -> None:
        self.values = values
        self._meta = Meta(values, self._once_for)
        # By the command: the least and the most words, from how many words on the last one may be `noreply`, and what
        # makes the request of them.
        self._commands: dict[bytes, tuple[int, float, float, Callable[[list[bytes]], Asked]]] = {
            b"get": (2, inf, inf, lambda words: self._get(words, False)),
            b"gets": (2, inf, inf, lambda words: self._get(words, True)),
            b"gat": (2, inf, inf, lambda words: self._gat(words, False)),
            b"gats": (2, inf, inf, lambda words: self._gat(words, True)),
            b"incr": (3, 4, 3, lambda words: self._incr(words, "increment")),
            b"decr": (3, 4, 3, lambda words: self._incr(words, "decrement")),
            b"touch": (3, 4, 3, self._touch),
            b"delete": (2, 4, 3, self._delete),
            b"flush_all": (1, 3, 1, self._flush_all),
            b"verbosity": (1, inf, 2, _verbosity),
            b"version": (1, inf, inf, lambda _: Special("version")),
            b"stats": (1, inf, inf, lambda words: Special("reset" if words[1:] == [b"reset"] else "stats", words[1:])),
            b"quit": (1, inf, inf, lambda _: Special("quit")),
            b"mn": (1, inf, inf, lambda _: b"MN\r\n"),
            **dict.fromkeys((b"mg", b"md", b"ma", b"me"), (1, inf, inf, self._meta.parse)),
        }

    def lot(self, most: int) -> int:
        """Return how many keys are looked up together: as many as have answers of about `TOGETHER` bytes."""
        return most if self._size * most <= TOGETHER else max(LEAST, int(TOGETHER / self._size))

    def learn(self, size: int, number: int) -> None:
        """Update the average with `number` answers of `size` bytes together."""
        self._size = (self._size + size / max(1, number)) / 2

    def parse(self, data: bytes, start: int) -> tuple[Asked, int]:
        """Parse the request at `start`; return it and its end. The data must be complete requests."""
        end = data.index(b"\n", start) + 1
        words = words_of(data, start, end)
        if not words:
            return say.ERROR, end
        command = words[0]
        known = self._commands.get(command)
        if known is not None:
            least, most, noreply, make = known
            quiet = len(words) >= noreply and words[-1] == b"noreply"
            return (_made(make, words, quiet) if least <= len(words) <= most else say.ERROR), end
        if command in _STORES:
            return self._store(data, end, words)
        # A browser: by its first line, as in memcached, or by the second, where its method is one of our commands.
        foreign = words[-1].startswith(b"HTTP/") or command.lower() == b"host:"
        return (Special("foreign") if foreign else say.ERROR), end

    # --- storing --------------------------------------------------------------------------------------------------

    def _store(self, data: bytes, begin: int, words: list[bytes]) -> tuple[Asked, int]:
        command = words[0]
        least = 2 if command == b"ms" else 6 if command == b"cas" else 5
        length, end = length_of(words), begin
        last = command != b"ms" and words[-1] == b"noreply"
        if length is None:
            wrong = say.ERROR if len(words) < least or (len(words) > least + 1 and command != b"ms") else say.BAD_LINE
            return (b"" if last else wrong), end
        value: bytes | None = None
        if length < MOST_LENGTH:
            end = begin + length + 2
            value = data[begin : begin + length]
            if data[begin + length : end] != b"\r\n":
                return (b"" if last and len(words) > 5 else say.BAD_CHUNK), end
        if command == b"ms":
            return _made(lambda words: self._meta.set(words, value), words), end
        return _made(lambda words: self._stored(words, value), words, last and len(words) > least), end

    def _stored(self, words: list[bytes], value: bytes | None) -> bytes | Write:
        values = self.values
        verb = words[0].decode()
        flags, exptime = flags_of(words[2]), signed(words[3])
        token = unsigned(words[5]) if verb == "cas" else 0
        if len(words[1]) > MOST_KEY or flags is None or exptime is None or token is None:
            return say.BAD_LINE
        key = values.key(words[1])
        found = None if value is None else values.value(value)
        if found is None:
            return self.too_large(key, verb)
        if verb in ("append", "prepend"):
            return Write([values.operation(verb, key, found)], _answering(say.STORED))
        ttl = values.ttl(exptime)
        if verb == "cas":
            if token >= 2**63:
                token = 0
            return Write([values.operation("cas", key, found, ttl, flags, token)], _answering(say.COMPARED))
        return Write([values.operation(verb, key, found, ttl, flags)], _answering(say.STORED))

    def too_large(self, key: tuple[Any, ...], verb: str) -> bytes | Write:
        """Refuse a value; a `set` removes the old value, as in memcached, since that value is out of date."""
        if verb != "set":
            return say.TOO_LARGE
        return Write([self.values.operation("delete", key)], lambda _: say.TOO_LARGE)

    # --- reading --------------------------------------------------------------------------------------------------

    def _keys(self, names: list[bytes]) -> list[tuple[Any, ...]]:
        if len(names) > MOST_KEYS:
            raise Refused(say.TOO_MANY)
        return self.values.keys(names)

    def _get(self, words: list[bytes], tokens: bool) -> Asked:
        names = words[1:]
        return Read(self._keys(names), lambda rows: self.shown(names, rows, tokens))

    def shown(self, names: Sequence[bytes], rows: Sequence[Any], tokens: bool = False) -> bytes:
        parts = []
        for name, row in zip(names, rows, strict=True):
            if row is not None:
                value, flags = self.values.bytes_of(row[0]), row[3] & FLAGS_MAX
                if tokens:
                    parts.append(b"VALUE %b %d %d %d\r\n%b\r\n" % (name, flags, len(value), row[1], value))
                else:
                    parts.append(b"VALUE %b %d %d\r\n%b\r\n" % (name, flags, len(value), value))
        parts.append(say.END)
        return b"".join(parts)

    def shown_alone(self, names: Sequence[bytes], rows: Sequence[Any]) -> list[bytes]:
        try:
            if self.values.text_values:
                rows = [None if row is None else (row[0].encode(), *row[1:]) for row in rows]
            return [
                say.END if row is None else _ONE % (name, row[3] & FLAGS_MAX, len(row[0]), row[0])
                for name, row in zip(names, rows, strict=True)
            ]
        except (AttributeError, TypeError):  # the cache has texts and bytes otherwise than it is known to have
            return [self.shown([name], [row]) for name, row in zip(names, rows, strict=True)]

    def _gat(self, words: list[bytes], tokens: bool) -> Asked:
        ttl, names = self._ttl(words[1]), words[2:]
        if not names:
            return say.END
        asked = [self.values.operation("meta_get", key, ttl, KEEP, PLAIN) for key in self._keys(names)]
        return Write(asked, lambda rows: self.shown(names, rows, tokens), shows=True)

    # --- the others -----------------------------------------------------------------------------------------------

    def _ttl(self, word: bytes) -> int | None:
        exptime = signed(word)
        if exptime is None:
            raise Refused(say.BAD_EXPTIME)
        return self.values.ttl(exptime)

    def _incr(self, words: list[bytes], verb: str) -> Asked:
        key, n = self.values.key(words[1]), unsigned(words[2])
        if n is None:
            return say.BAD_DELTA

        def answer(results: Sequence[Any]) -> bytes:
            (result,) = results
            return b"NOT_FOUND\r\n" if result is None else b"%d\r\n" % result

        return Write([self.values.operation(verb, key, n)], answer, number=True)

    def _touch(self, words: list[bytes]) -> Asked:
        key = self.values.key(words[1])
        return Write([self.values.operation("touch", key, self._ttl(words[2]))], _answering(say.TOUCHED))

    def _delete(self, words: list[bytes]) -> Asked:
        if words[2:] not in ([], [b"0"], [b"noreply"], [b"0", b"noreply"]):
            return say.BAD_DELETE
        return Write([self.values.operation("delete", self.values.key(words[1]))], _answering(say.DELETED))

    def _flush_all(self, words: list[bytes]) -> Asked:
        given = [word for word in words[1:2] if word != b"noreply" or len(words) > 2]
        delay = signed(given[0]) if given else 0
        if delay is None:
            return say.BAD_EXPTIME
        return say.DELAYED if delay > 0 else Write([self.values.operation("clear", None)], lambda _: b"OK\r\n")


def _verbosity(words: list[bytes]) -> bytes:
    if not 2 <= len(words) <= 3:
        return say.ERROR
    return say.BAD_LINE if unsigned(words[1]) is None else b"OK\r\n"


def _made(make: Callable[[list[bytes]], Asked], words: list[bytes], quiet: bool = False) -> Asked:
    try:
        asked = make(words)
    except Refused as refused:
        asked = refused.answer
    return silent(asked) if quiet else asked


def _answering(said: Mapping[Any, bytes]) -> Callable[[Sequence[Any]], bytes]:
    return lambda results: said[results[0]]
