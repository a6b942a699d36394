"""The requests of memcached: a line and its block are parsed into a request, or refused with an error answer.

The checks, their order and the texts are those of memcached 1.6; docs/memcached-protocol.md lists the differences.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roost.errors import Error
from roost.protocols.memcached.asked import (
    BAD_CHUNK,
    BAD_DELETE,
    BAD_DELTA,
    BAD_EXPTIME,
    BAD_LINE,
    COMPARED,
    DELAYED,
    DELETED,
    END,
    ERROR,
    STORED,
    TOO_LARGE,
    TOO_MANY,
    TOUCHED,
    Asked,
    Read,
    Special,
    Write,
    flags_of,
    signed,
    unsigned,
)
from roost.protocols.memcached.framing import MOST_KEY, MOST_LENGTH, length_of, words_of
from roost.protocols.memcached.meta import Meta
from roost.protocols.memcached.values import Unfit, Values
from roost.structures.cache.declaration import FLAGS_MAX
from roost.structures.cache.meta import KEEP, PLAIN
from roost.structures.operation import Target

log = logging.getLogger("roost.server")

TOGETHER = 2**20  # bytes of answers that requests which run together may have, as estimated
LEAST = 4  # the least number of requests that run together, however large their answers are
MOST_KEYS = 10_000  # of one request

# The usual form of `set`. Lengths have 8 digits at most, so `MOST_LENGTH`, which marks a skipped block, never matches.
_SET = re.compile(rb"set ([^ \r\n]{1,250}) ([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,8})( noreply)?\r\n")

_ONE = b"VALUE %b %d %d\r\n%b\r\nEND\r\n"
_HTTP = re.compile(rb"(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|CONNECT) .*HTTP/\d")
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

    def redeclare(self, found: Target | Error) -> None:
        """Go on with the cache as it is declared now, unless it cannot be served: that is logged."""
        try:
            if isinstance(found, Error):
                raise found
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
        self._commands: dict[bytes, Callable[[list[bytes]], Asked]] = {
            b"get": lambda words: self._get(words, False),
            b"gets": lambda words: self._get(words, True),
            b"gat": lambda words: self._gat(words, False),
            b"gats": lambda words: self._gat(words, True),
            b"incr": lambda words: self._incr(words, "increment"),
            b"decr": lambda words: self._incr(words, "decrement"),
            b"touch": self._touch,
            b"delete": self._delete,
            b"flush_all": self._flush_all,
            b"verbosity": self._verbosity,
            b"version": lambda _: Special("version"),
            b"stats": lambda words: Special("reset" if words[1:] == [b"reset"] else "stats", words[1:]),
            b"quit": lambda _: Special("quit"),
            b"mn": lambda _: b"MN\r\n",
            b"mg": self._meta.get,
            b"md": self._meta.delete,
            b"ma": self._meta.arithmetic,
            b"me": self._meta.debug,
        }

    def lot(self, most: int) -> int:
        """Return how many keys are looked up together: as many as have answers of about `TOGETHER` bytes."""
        return most if self._size * most <= TOGETHER else max(LEAST, int(TOGETHER / self._size))

    def learn(self, size: int, number: int) -> None:
        """Update the average with `number` answers of `size` bytes together."""
        self._size = (self._size + size / max(1, number)) / 2

    def parse(self, data: bytes, start: int) -> tuple[Asked, int]:
        """Parse the request at `start`; return it and its end. The data must be complete requests."""
        plain = _SET.match(data, start)
        if plain is not None:
            end = plain.end() + int(plain[4])
            if data[end : end + 2] == b"\r\n":
                return self._plain(plain, data, end), end + 2
        end = data.index(b"\n", start) + 1
        words = words_of(data, start, end)
        if not words:
            return ERROR, end
        command = words[0]
        known = self._commands.get(command)
        if known is not None:
            return known(words), end
        if command in _STORES:
            return self._store(data, end, words)
        return (Special("foreign") if _HTTP.match(data, start, end) else ERROR), end

    def _plain(self, found: re.Match[bytes], data: bytes, end: int) -> bytes | Write:
        # A `set` of the usual form.
        values = self.values
        name, flags, exptime, _, quiet = found.groups()
        silent = quiet is not None
        try:
            key = values.key(name)
        except Unfit:
            return b"" if silent else BAD_LINE
        try:
            value = values.value(data[found.end() : end])
        except Unfit:
            refused = self.too_large(key, "set")
            assert isinstance(refused, Write)
            return Write(refused.operations, _nothing, silent=True) if silent else refused
        ttl = None if exptime == b"0" else values.ttl(int(exptime))
        asked = [values.operation("set", key, value, ttl, int(flags))]
        return Write(asked, _nothing, silent=True) if silent else Write(asked, _stored)

    # --- storing --------------------------------------------------------------------------------------------------

    def _store(self, data: bytes, begin: int, words: list[bytes]) -> tuple[Asked, int]:
        command = words[0]
        length, end = length_of(words), begin
        if length is None:
            if command == b"ms":
                return (ERROR if len(words) < 2 else BAD_LINE), end
            least = 6 if command == b"cas" else 5
            quiet = words[-1] == b"noreply"
            return (b"" if quiet else BAD_LINE if least <= len(words) <= least + 1 else ERROR), end
        value: bytes | None = None
        if length < MOST_LENGTH:
            end = begin + length + 2
            value = data[begin : begin + length]
            if data[begin + length : end] != b"\r\n":
                quiet = command != b"ms" and words[-1] == b"noreply" and len(words) > 5
                return (b"" if quiet else BAD_CHUNK), end
        if command == b"ms":
            return self._meta.set(words, value), end
        quiet = len(words) > (6 if command == b"cas" else 5) and words[-1] == b"noreply"
        asked = self._stored(words, value)
        if quiet:
            asked = b"" if isinstance(asked, bytes) else Write(asked.operations, lambda _: b"", silent=True)
        return asked, end

    def _stored(self, words: list[bytes], value: bytes | None) -> bytes | Write:
        values = self.values
        verb = words[0].decode()
        flags, exptime = flags_of(words[2]), signed(words[3])
        token = unsigned(words[5]) if verb == "cas" else 0
        if len(words[1]) > MOST_KEY or flags is None or exptime is None or token is None:
            return BAD_LINE
        try:
            key = values.key(words[1])
        except Unfit:
            return BAD_LINE
        if value is None:
            return self.too_large(key, verb)
        try:
            found = values.value(value)
        except Unfit:
            return self.too_large(key, verb)
        if verb in ("append", "prepend"):
            return Write([values.operation(verb, key, found)], _answering(STORED))
        ttl = values.ttl(exptime)
        if verb == "cas":
            if token >= 2**63:
                token = 0
            return Write([values.operation("cas", key, found, ttl, flags, token)], _answering(COMPARED))
        return Write([values.operation(verb, key, found, ttl, flags)], _answering(STORED))

    def too_large(self, key: tuple[Any, ...], verb: str) -> bytes | Write:
        """Refuse a value; a `set` removes the old value, as in memcached, since that value is out of date."""
        if verb != "set":
            return TOO_LARGE
        return Write([self.values.operation("delete", key)], lambda _: TOO_LARGE)

    # --- reading --------------------------------------------------------------------------------------------------

    def _get(self, words: list[bytes], tokens: bool) -> Asked:
        names = words[1:]
        if not names:
            return ERROR
        if len(names) > MOST_KEYS:
            return TOO_MANY
        try:
            keys = self.values.keys(names)
        except Unfit:
            return BAD_LINE
        return Read(keys, lambda rows: self.shown(names, rows, tokens))

    def shown(self, names: Sequence[bytes], rows: Sequence[Any], tokens: bool = False) -> bytes:
        """Return the answer to a `get`."""
        parts = []
        for name, row in zip(names, rows, strict=True):
            if row is not None:
                value, flags = self.values.bytes_of(row[0]), row[3] & FLAGS_MAX
                if tokens:
                    parts.append(b"VALUE %b %d %d %d\r\n%b\r\n" % (name, flags, len(value), row[1], value))
                else:
                    parts.append(b"VALUE %b %d %d\r\n%b\r\n" % (name, flags, len(value), value))
        parts.append(END)
        return b"".join(parts)

    def shown_alone(self, names: Sequence[bytes], rows: Sequence[Any]) -> list[bytes]:
        """Return the answers to requests of one key each."""
        if self.values.text_values:
            rows = [None if row is None else (row[0].encode(), *row[1:]) for row in rows]
        return [
            END if row is None else _ONE % (name, row[3] & FLAGS_MAX, len(row[0]), row[0])
            for name, row in zip(names, rows, strict=True)
        ]

    def _gat(self, words: list[bytes], tokens: bool) -> Asked:
        if len(words) < 2:
            return ERROR
        exptime = signed(words[1])
        if exptime is None:
            return BAD_EXPTIME
        names = words[2:]
        if not names:
            return END
        if len(names) > MOST_KEYS:
            return TOO_MANY
        try:
            keys = self.values.keys(names)
        except Unfit:
            return BAD_LINE
        ttl = self.values.ttl(exptime)
        asked = [self.values.operation("meta_get", key, ttl, KEEP, PLAIN) for key in keys]
        return Write(asked, lambda rows: self.shown(names, rows, tokens), shows=True)

    # --- the others -----------------------------------------------------------------------------------------------

    def _incr(self, words: list[bytes], verb: str) -> Asked:
        if not 3 <= len(words) <= 4:
            return ERROR
        quiet = words[-1] == b"noreply"
        n = unsigned(words[2])
        try:
            key = self.values.key(words[1])
        except Unfit:
            return b"" if quiet else BAD_LINE
        if n is None:
            return b"" if quiet else BAD_DELTA

        def answer(results: Sequence[Any]) -> bytes:
            (result,) = results
            return b"" if quiet else b"NOT_FOUND\r\n" if result is None else b"%d\r\n" % result

        return Write([self.values.operation(verb, key, n)], answer, silent=quiet, number=True)

    def _touch(self, words: list[bytes]) -> Asked:
        if not 3 <= len(words) <= 4:
            return ERROR
        quiet = words[-1] == b"noreply"
        try:
            key = self.values.key(words[1])
        except Unfit:
            return b"" if quiet else BAD_LINE
        exptime = signed(words[2])
        if exptime is None:
            return b"" if quiet else BAD_EXPTIME
        return self._simple("touch", quiet, TOUCHED, key, self.values.ttl(exptime))

    def _delete(self, words: list[bytes]) -> Asked:
        if not 2 <= len(words) <= 4:
            return ERROR
        quiet = words[-1] == b"noreply" and len(words) > 2
        if words[2:] not in ([], [b"0"], [b"noreply"], [b"0", b"noreply"]):
            return b"" if quiet else BAD_DELETE
        try:
            key = self.values.key(words[1])
        except Unfit:
            return b"" if quiet else BAD_LINE
        return self._simple("delete", quiet, DELETED, key)

    def _simple(self, verb: str, quiet: bool, said: Mapping[Any, bytes], *args: Any) -> Write:
        answer: Callable[[Sequence[Any]], bytes] = (lambda _: b"") if quiet else _answering(said)
        return Write([self.values.operation(verb, *args)], answer, silent=quiet)

    def _flush_all(self, words: list[bytes]) -> Asked:
        if len(words) > 3:
            return ERROR
        quiet = words[-1] == b"noreply"
        given = words[1 : len(words) - quiet]
        delay = signed(given[0]) if given else 0
        if delay is None:
            return b"" if quiet else BAD_EXPTIME
        if delay > 0:
            return b"" if quiet else DELAYED
        return Write([self.values.operation("clear", None)], lambda _: b"" if quiet else b"OK\r\n", silent=quiet)

    def _verbosity(self, words: list[bytes]) -> Asked:
        quiet = words[-1] == b"noreply"
        if quiet:
            return b""
        if not 2 <= len(words) <= 3:
            return ERROR
        return BAD_LINE if unsigned(words[1]) is None else b"OK\r\n"


def _answering(said: Mapping[Any, bytes]) -> Callable[[Sequence[Any]], bytes]:
    return lambda results: said[results[0]]


def _stored(results: Sequence[Any]) -> bytes:
    return STORED[True]


def _nothing(results: Sequence[Any]) -> bytes:
    return b""
