"""The same random requests at memcached and at `roost serve`, and the answers compared.

What may differ is in docs/memcached-protocol.md: tokens, numbers with blanks behind them, and the seconds left, which
each server rounds in its own way. All else is the same, byte for byte.
"""

from __future__ import annotations

import base64
import random
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.memcached.cases import CONVERSATIONS
from tests.memcached.player import is_original

LAST = b"mg the-last-one k\r\n"
LAST_ANSWER = b"EN kthe-last-one\r\n"
TEXTS = [b"s%d" % n for n in range(6)]  # keys of texts
NUMBERS = [b"n%d" % n for n in range(3)]  # keys of numbers
# What is wrong in itself, whatever is there.
WRONG = [each for conversation in CONVERSATIONS[:1] for each in conversation] + [
    *(
        *(b"set a\r\n", b"set a 0 0 x\r\n", b"incr s0\r\n", b"incr s0 x\r\n", b"touch s0\r\n", b"touch s0 x\r\n"),
        b"gat\r\n",
    ),
    *(
        *(b"gat 0\r\n", b"gat x s0\r\n", b"delete\r\n", b"delete s0 x\r\n", b"flush_all x\r\n", b"verbosity\r\n"),
        b"mn\r\n",
    ),
    *(
        *(b"ms s0 1 MX\r\na\r\n", b"ms s0 1 T\r\na\r\n", b"ms s0 1 v v\r\na\r\n", b"mg s0 z\r\n", b"md s0 x\r\n"),
        b"ma n0 MX\r\n",
    ),
    *(b"set s0 0 0 1\r\nzz\r\n", b"ms s0 x\r\n", b"me\r\n", b"mg !!! b\r\n"),
]


@dataclass
class Generator:
    """Requests, and the keys whose tokens they take: `%(s0)s`."""

    seed: int
    wrong: bool = True  # there are wrong ones among them
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def requests(self, number: int) -> Iterator[bytes]:
        """Yield so many requests. `\\xffTOKEN s0\\xff` stands for the last token of a key."""
        for _ in range(number):
            yield self._request()

    def _request(self) -> bytes:
        choose, chance = self.random.choice, self.random.random
        if chance() < 0.05 and self.wrong:
            return choose(WRONG)
        if chance() < 0.003:
            return choose([b"flush_all\r\n", b"flush_all 0\r\n", b"flush_all noreply\r\n"])
        if chance() < 0.25:
            return self._number(choose(NUMBERS))
        key = choose(TEXTS)
        return self._meta(key) if chance() < 0.5 else self._text(key)

    def _quiet(self) -> bytes:
        return b" noreply" if self.random.random() < 0.2 else b""

    def _value(self) -> bytes:
        length = self.random.choice([0, 0, 1, 5, 30, 300])
        return b"v" + self.random.randbytes(length) if self.random.random() < 0.9 else b""

    def _exptime(self) -> bytes:
        return self.random.choice([b"0", b"0", b"0", b"100", b"100000", b"-1", b"2592001"])

    def _flags(self) -> bytes:
        return self.random.choice([b"0", b"1", b"77", b"4294967295"])

    def _text(self, key: bytes) -> bytes:
        quiet, value = self._quiet(), self._value()
        match self.random.randrange(12):
            case 0 | 1:
                return b"get %b\r\n" % b" ".join(self.random.choices(TEXTS, k=self.random.randrange(1, 4)))
            case 2 | 3:
                return b"gets %b\r\n" % key
            case 4 | 5 | 6:
                verb = self.random.choice([b"set", b"set", b"add", b"replace", b"append", b"prepend"])
                line = b"%b %b %b %b %d%b" % (verb, key, self._flags(), self._exptime(), len(value), quiet)
                return b"%b\r\n%b\r\n" % (line, value)
            case 7 | 8:
                token = b"\xffTOKEN %b\xff" % key if self.random.random() < 0.7 else b"7"
                line = b"cas %b %b %b %d %b%b" % (key, self._flags(), self._exptime(), len(value), token, quiet)
                return b"%b\r\n%b\r\n" % (line, value)
            case 9:
                return b"delete %b%b\r\n" % (key, quiet)
            case 10:
                return b"touch %b %b%b\r\n" % (key, self._exptime(), quiet)
        verb = self.random.choice([b"gat", b"gats"])
        return b"%b %b %b %b\r\n" % (verb, self._exptime(), key, self.random.choice(TEXTS))

    def _number(self, key: bytes) -> bytes:
        number = b"%d" % self.random.choice([0, 1, 9, 10, 99, 12345, 2**40])
        match self.random.randrange(7):
            case 0 | 1:
                return b"set %b %b %b %d\r\n%b\r\n" % (key, self._flags(), self._exptime(), len(number), number)
            case 2 | 3:
                verb = self.random.choice([b"incr", b"decr"])
                return b"%b %b %b%b\r\n" % (verb, key, number, self._quiet())
            case 4:
                return b"get %b\r\n" % key
            case 5:
                flags = self._some([b"N0", b"N100", b"J5", b"D" + number, b"MI", b"MD", b"t", b"v", b"O1", b"k"])
                if b" MI" in flags and b" MD" in flags:
                    flags = flags.replace(b" MI", b"")
                if b" N0" in flags and b" N100" in flags:
                    flags = flags.replace(b" N100", b"")
                return b"ma %b%b\r\n" % (key, flags)
        return b"mg %b%b\r\n" % (key, self._some([b"v", b"f", b"t", b"k", b"q"]))

    def _some(self, flags: list[bytes]) -> bytes:
        some = self.random.sample(flags, self.random.randrange(len(flags) + 1))
        some.sort(key=lambda flag: flag[:1] in b"tc")  # memcached shows what was there before a flag behind them
        return b"".join([b" " + flag for flag in some])

    def _meta(self, key: bytes) -> bytes:
        chance = self.random.random
        encoded = chance() < 0.2
        shown = [b"O123", b"q"] if encoded else [b"k", b"O123", b"q"]  # memcached shows the key as it was stored first
        name = base64.b64encode(key) if encoded else key
        coded = b" b" if encoded else b""
        token = b"C\xffTOKEN %b\xff" % key
        match self.random.randrange(6):
            case 0 | 1:
                more = [b"N100"] * (chance() < 0.3) + [b"R60"] * (chance() < 0.3) + [b"T100"] * (chance() < 0.2)
                return b"mg %b%b%b\r\n" % (name, coded, self._some([*shown, *more, b"v", b"f", b"s", b"t", b"c"]))
            case 2 | 3:
                value = self._value()
                flags = self._some([*shown, b"c", b"T" + self._exptime(), b"F" + self._flags(), b"L1"])
                flags += self.random.choice([b"", b"", b" ME", b" MA", b" MP", b" MR", b" MS"])
                if chance() < 0.4:
                    flags += b" " + (token if chance() < 0.6 else b"C7") + self.random.choice([b"", b" I"])
                return b"ms %b %d%b%b\r\n%b\r\n" % (name, len(value), coded, flags, value)
            case 4:
                flags = self._some([*shown, b"I", b"I", b"T50"][: 3 + 3 * (chance() < 0.6)])
                flags = flags.replace(b" I", b"", 1) if flags.count(b" I") > 1 else flags
                if chance() < 0.3:
                    flags += b" " + (token if chance() < 0.6 else b"C7")
                return b"md %b%b%b\r\n" % (name, coded, flags)
        return b"me %b\r\n" % key


_ASKED = re.compile(rb"\xffTOKEN ([^\xff]+)\xff")
_TOKEN = re.compile(rb"^VALUE ([^ ]+) \d+ \d+ (\d+)\r$", re.M)
_HEAD = re.compile(rb"(VALUE [^ ]+ \d+|VA) (\d+)([^\r]*)\r\n")


class Side:
    """A server, and the last token of each key there."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=180)
        self._tokens: dict[bytes, bytes] = {}

    def ask(self, request: bytes) -> bytes:
        """Return the answer of a request."""
        asked = _ASKED.sub(lambda found: self._tokens.get(found[1], b"5"), request)
        self._socket.sendall(asked + LAST)
        answer = b""
        while not answer.endswith(LAST_ANSWER):
            piece = self._socket.recv(65536)
            assert piece, f"closed after {request!r}: {answer!r}"
            answer += piece
        answer = answer.removesuffix(LAST_ANSWER)
        for key, token in _TOKEN.findall(answer):
            self._tokens[key] = token
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def compared(answer: bytes) -> bytes:
    """Return an answer as it is compared."""
    parts = []
    place = 0
    while (found := _HEAD.search(answer, place)) is not None:
        parts.append(_rest(answer[place : found.start()]))
        end = found.end() + int(found[2])
        data = answer[found.end() : end]
        stripped = data.rstrip(b" ")
        if stripped.isdigit():
            data = stripped
        kind = found[1]
        rest = re.sub(rb" k\S+(?: b)?", b" k#", found[3])
        rest = re.sub(rb" c[1-9]\d*| s\d+", b" #", re.sub(rb" t\d+", b" t#", rest))
        if kind.startswith(b"VALUE") and rest:
            rest = b" #"
        parts.append(b"%b %d%b\r\n%b" % (kind, len(data), rest, data))
        place = end
    return b"".join(parts) + _rest(answer[place:])


def _rest(text: bytes) -> bytes:
    if text.startswith(b"ME "):
        return re.sub(rb"=\S+|^ME \S+", b"=#", text)
    text = re.sub(rb" k\S+(?: b)?", b" k#", text)  # memcached shows a key in base64 where it was stored so
    return re.sub(rb" c[1-9]\d*", b" c#", re.sub(rb" t\d+", b" t#", text))


def compare(theirs: tuple[str, int], ours: tuple[str, int], number: int, seed: int) -> int:
    """Ask both; return how many requests were asked. Raises AssertionError at the first difference."""
    sides = Side(theirs), Side(ours)
    try:
        for side in sides:
            side.ask(b"flush_all\r\n")
        lately: list[bytes] = []
        for request in Generator(seed, is_original(theirs)).requests(number):
            lately = [*lately[-12:], request]
            found = [side.ask(request) for side in sides]
            one, other = map(compared, found)
            assert one == other, f"seed {seed}: {found[0]!r} and {found[1]!r} after {lately!r}"
    finally:
        for side in sides:
            side.close()
    return number
