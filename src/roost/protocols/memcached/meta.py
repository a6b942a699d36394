"""The meta commands: mg ms md ma me. All parse their flags alike, and return them in the order in which they came."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from roost.protocols.memcached import asked as say
from roost.protocols.memcached.asked import Asked, Kept, Read, Refused, Values, Write, flags_of, signed, unsigned
from roost.protocols.memcached.framing import MOST_KEY
from roost.structures.cache.declaration import FLAGS_MAX, KEEP, SECOND, STALE, WON

KNOWN: Final = frozenset(b"bNTRlOPLkstcfvhuqFCMJDI")
MOST_OPAQUE = 32
MISS = b"EN\r\n"
BAD_FLAGS = b"CLIENT_ERROR invalid or duplicate flag\r\n"
MODES: Final = {"I": 1, "+": 1, "D": -1, "-": -1}


class Flags:
    """The flags of one request, and its key."""

    __slots__ = ("given", "key", "name", "tokens")

    def __init__(self, name: bytes, words: Sequence[bytes], values: Values) -> None:
        self.tokens: dict[int, bytes] = {}
        for word in words:
            flag = word[0]
            if flag in self.tokens:
                raise Refused(b"CLIENT_ERROR duplicate flag\r\n")
            if flag not in KNOWN:
                raise Refused(b"CLIENT_ERROR invalid flag\r\n")
            if flag == ord("M") and len(word) != 2:
                raise Refused(b"CLIENT_ERROR incorrect length for M token\r\n")
            self.tokens[flag] = word[1:]
        self.name = name
        key = name
        if self.has("b"):
            try:
                key = binascii.a2b_base64(name, strict_mode=True)
            except binascii.Error:
                key = b""
            if not key:
                raise Refused(b"CLIENT_ERROR error decoding key\r\n")
        self.key = values.key(key)

    def has(self, flag: str) -> bool:
        return ord(flag) in self.tokens

    def number(self, flag: str, otherwise: Any) -> Any:
        """Return the number of a flag; `otherwise` if the flag was not sent."""
        token = self.tokens.get(ord(flag))
        if token is None:
            return otherwise
        found = signed(token) if flag in "NTR" else unsigned(token)
        if found is None:
            raise Refused(b"CLIENT_ERROR bad token in command line format\r\n")
        return min(found, 2**63 - 1) if flag == "C" else found  # no token is that large

    def mode(self, otherwise: str) -> str:
        return self.tokens.get(ord("M"), otherwise.encode()).decode("latin-1")

    def told(self, code: bytes, facts: dict[str, Any]) -> bytes:
        """Return the answer to a modification: none to a quiet one that was done."""
        return b"" if self.has("q") and code == b"HD" else b"%b%b\r\n" % (code, self.shown(facts))

    def shown(self, facts: dict[str, Any]) -> bytes:
        """Return the flags of the answer, each after a blank: of the facts, only those that the request asked for."""
        parts = []
        for flag, token in self.tokens.items():
            letter = chr(flag)
            if letter == "O":
                parts.append(b" O" + token)
            elif letter == "k":
                parts.append(b" k" + self.name + (b" b" if self.has("b") else b""))
            elif letter in facts:
                parts.append(b" %c%d" % (flag, facts[letter]))
        return b"".join(parts)


class Meta:
    """The meta commands on one cache.

    once_for: seconds for which the opaque of a modifying request is its token; 0: opaques are not tokens.
    """

    def __init__(self, values: Values, once_for: float) -> None:
        self._values = values
        self._once_for = once_for
        # The commands without a block, and what memcached answers whatever is wrong with their flags.
        self._commands: dict[bytes, tuple[Callable[[list[bytes]], Asked], bytes | None]] = {
            b"mg": (self._get, None),
            b"md": (self._delete, BAD_FLAGS),
            b"ma": (self._arithmetic, BAD_FLAGS),
            b"me": (self._debug, say.BAD_LINE),
        }

    def _once(self, flags: Flags, write: Write) -> Write | Kept:
        opaque = flags.tokens.get(ord("O"))
        if not opaque or not self._once_for:
            return write
        # The token is prefixed with the cache's name, so that it cannot collide with a token of an application.
        return Kept(f"memcached {self._values.cache.name} {opaque.hex()}", self._once_for, write)

    def _flags(self, words: Sequence[bytes]) -> Flags:
        flags = Flags(words[0], words[1:], self._values)
        if len(flags.tokens.get(ord("O"), b"")) > MOST_OPAQUE:
            raise Refused(b"CLIENT_ERROR opaque token too long\r\n")
        return flags

    def _ttl(self, flags: Flags, flag: str) -> Any:
        seconds = flags.number(flag, None)
        return KEEP if seconds is None else self._values.ttl(seconds)

    def parse(self, words: list[bytes]) -> Asked:
        make, otherwise = self._commands[words[0]]
        if len(words) < 2 or len(words[1]) > MOST_KEY:
            return say.ERROR if len(words) < 2 and otherwise != say.BAD_LINE else say.BAD_LINE
        try:
            return make(words[1:])
        except Refused as refused:
            return refused.answer if otherwise is None or refused.answer == say.BAD_LINE else otherwise

    # --- mg -------------------------------------------------------------------------------------------------------

    def _get(self, words: list[bytes]) -> Asked:
        flags = self._flags(words)
        ttl, made, recached = self._ttl(flags, "T"), self._ttl(flags, "N"), flags.number("R", KEEP)
        asked = self._values.operation("meta_get", flags.key, ttl, made, recached)
        locked = Write([asked], lambda results: self._got(flags, results[0]), shows=flags.has("v"))
        if ttl == made == recached == KEEP:
            return Read([flags.key], partial(self._read, flags, locked))
        return locked

    def _read(self, flags: Flags, locked: Write, rows: Sequence[Any]) -> bytes | Write:
        (row,) = rows
        if row is None:
            return self._got(flags, None)
        value, token, left, kept = row[:4]
        if kept & STALE and not kept & WON:
            return locked  # the first client that reads a stale value wins: decided under the lock
        marks = (b" Z" if kept & WON else b"") + (b" X" if kept & STALE else b"")
        return self._got(flags, (value, token, None if left > 2**62 else left, kept & FLAGS_MAX, marks))

    def _got(self, flags: Flags, found: Any) -> bytes:
        quiet = flags.has("q")
        if found is None:
            return b"" if quiet else b"EN%b\r\n" % flags.shown({})
        stored, token, left, kept, marks = found
        value = self._values.bytes_of(stored)
        facts = {"s": len(value), "f": kept, "c": token, "t": _seconds(left), "h": 0, "l": 0}
        shown = flags.shown(facts) + marks
        if flags.has("v"):
            return b"VA %d%b\r\n%b\r\n" % (len(value), shown, value)
        return b"HD%b\r\n" % shown

    # --- ms -------------------------------------------------------------------------------------------------------

    def set(self, words: list[bytes], value: bytes | None) -> Asked:
        """Parse an `ms`; value: None if it is too long.

        Raises: Refused.
        """
        if len(words[1]) > MOST_KEY:
            return say.BAD_LINE
        values = self._values
        flags = self._flags([words[1], *words[3:]])
        ttl = values.ttl(flags.number("T", 0))
        kept = flags_of(flags.tokens.get(ord("F"), b"0"))
        token = flags.number("C", None)
        mode = flags.mode("S")
        if mode not in "EAPRS":
            return b"CLIENT_ERROR invalid mode for ms M token\r\n"
        if kept is None:
            return say.BAD_LINE
        found = None if value is None else values.value(value)
        if found is None:
            gone = Write([values.operation("delete", flags.key)], lambda _: say.TOO_LARGE)
            return gone if mode == "S" else say.TOO_LARGE
        if token == 0 and mode in "AP":  # memcached compares none there, and takes it for no older one elsewhere
            token = None
        asked = values.operation("meta_set", flags.key, found, ttl, kept, mode, token, flags.has("I") and token != 0)

        return self._once(flags, Write([asked], lambda results: flags.told(results[0][0], {"c": results[0][1]})))

    # --- md, ma, me -----------------------------------------------------------------------------------------------

    def _delete(self, words: list[bytes]) -> Asked:
        flags = self._flags(words)
        ttl, token = self._ttl(flags, "T"), flags.number("C", None)
        asked = self._values.operation("meta_delete", flags.key, token, flags.has("I"), ttl)
        return self._once(flags, Write([asked], lambda results: flags.told(results[0], {})))

    def _arithmetic(self, words: list[bytes]) -> Asked:
        flags = self._flags(words)
        n, first, token = flags.number("D", 1), flags.number("J", 0), flags.number("C", None) or None
        ttl, made = self._ttl(flags, "T"), self._ttl(flags, "N")
        mode = flags.mode("I")
        if mode not in MODES:
            return b"CLIENT_ERROR invalid mode for ma M token\r\n"
        asked = self._values.operation("meta_arithmetic", flags.key, n, MODES[mode], token, ttl, made, first)

        def answer(results: Sequence[Any]) -> bytes:
            ((code, number, stored, left),) = results
            facts = {"t": _seconds(left), "c": stored} if code == b"HD" else {}
            if code != b"HD" or flags.has("q") or not flags.has("v"):
                return flags.told(code, facts)
            return b"VA %d%b\r\n%d\r\n" % (len(str(number)), flags.shown(facts), number)

        return self._once(flags, Write([asked], answer, number=True))

    def _debug(self, words: list[bytes]) -> Asked:
        flags = Flags(words[0], words[1:2] if words[1:2] == [b"b"] else [], self._values)

        def answer(rows: Sequence[Any]) -> bytes:
            (row,) = rows
            if row is None:
                return MISS
            size = len(self._values.bytes_of(row[0]))
            exp = _seconds(None if row[2] > 2**62 else row[2])
            # memcached reports `exp` as the time since the expiry, so it is negative until then.
            values = (flags.name, exp if exp < 0 else -exp, row[1], size)
            return b"ME %b exp=%d la=0 cas=%d fetch=no cls=1 size=%d\r\n" % values

        return Read([flags.key], answer)


def _seconds(left: int | None) -> int:
    return -1 if left is None else -(-left // SECOND)
