"""A request as the original reads it, so that the tests can say which rule a line falls under.

Written from the description of the protocol, apart from Roost's own reading of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NULL = b"\x00"
DIGITS = re.compile(rb"[^0-9]")
EXACT = re.compile(rb"[0-9]*")
BROKEN = re.compile(rb"\x01(?![\x40-\xff])")


def number(token: bytes) -> int:
    """Return the number that the original reads: of the digits alone, of 32 bits."""
    # int() refuses more than 4300 digits; only the last ten or so matter, as powers of ten pile up powers of two.
    digits = DIGITS.sub(b"", token)
    found = 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        found = (found * pow(10, len(part), 2**32) + int(part)) % 2**32
    return found


def is_number(token: bytes) -> bool:
    """Say whether Roost takes a token for a number: decimal digits, or nothing, within 32 bits."""
    return (
        EXACT.fullmatch(token) is not None
        and (len(token) <= 10 or not token.lstrip(b"0")[10:])
        and (int(token[-4000:] or b"0") < 2**32)
    )


def is_broken(token: bytes) -> bool:
    """Say whether an escape is cut off or not one."""
    return BROKEN.search(token) is not None


def value(token: bytes) -> bytes | None:
    """Return the value of a token, as far as its escapes are whole; None is NULL."""
    if token == NULL:
        return None
    whole = BROKEN.split(token, maxsplit=1)[0]
    return re.sub(rb"\x01([\x40-\xff])", lambda found: bytes([found[1][0] - 0x40]), whole, flags=re.DOTALL)


@dataclass(frozen=True)
class Filter:
    """One filter of a request."""

    type: bytes
    op: bytes
    column: bytes
    value: bytes


@dataclass(frozen=True)
class Open:
    """What a line `P` asks for."""

    id: bytes
    db: bytes
    table: bytes
    index: bytes
    columns: tuple[bytes, ...]
    filters: tuple[bytes, ...]


@dataclass(frozen=True)
class Request:
    """A line that works on an opened index, token by token. Missing tokens are empty, as they are read."""

    id: bytes
    op: bytes
    vlen: bytes
    key: tuple[bytes, ...]
    given: int  # of the key, the tokens that were there
    limit: bytes = b""
    offset: bytes = b""
    icol: bytes | None = None  # None: there is no IN
    ivlen: bytes = b""
    members: tuple[bytes, ...] = ()
    filters: tuple[Filter, ...] = ()
    mop: bytes = b""
    values: tuple[bytes, ...] = ()

    @property
    def numbers(self) -> list[bytes]:
        """All tokens that are numbers."""
        found = [self.id, self.vlen, self.limit, self.offset, *[each.column for each in self.filters]]
        return found if self.icol is None else [*found, self.icol, self.ivlen]

    @property
    def is_insert(self) -> bool:
        return self.op == b"+"

    @property
    def modifies(self) -> bool:
        return self.is_insert or self.mop != b""


@dataclass
class Tokens:
    """The tokens of a line, taken one by one; those that are missing are empty."""

    left: list[bytes] = field(default_factory=list)

    def next(self) -> bytes:
        return self.left.pop(0) if self.left else b""

    def starts(self, *firsts: bytes) -> bool:
        return bool(self.left) and self.left[0][:1] in firsts


def tokens(line: bytes) -> list[bytes]:
    """Return the tokens of a line, its LF and the CR before it dropped."""
    whole = line.removesuffix(b"\n")
    return whole.removesuffix(b"\r").split(b"\t")


def name(token: bytes) -> bytes:
    """Return a name: it ends before the first NUL byte."""
    return token.partition(b"\0")[0]


def _listed(token: bytes) -> tuple[bytes, ...]:
    return tuple(name(token).split(b",")) if name(token) else ()


def read(line: bytes) -> Open | Request | None:
    """Return what a line asks for; None for authentication and for what is no request."""
    all_tokens = tokens(line)
    first = all_tokens[0]
    left = Tokens(all_tokens[1:])
    if first == b"P":
        return Open(
            *(left.next(), name(left.next()), name(left.next()), name(left.next())),
            *(_listed(left.next()), _listed(left.next())),
        )
    if not first[:1].isdigit():
        return None
    op, vlen = left.next(), left.next()
    length = min(number(vlen), 100_000)
    given = min(len(left.left), length)
    key = tuple(left.next() for _ in range(min(length, 1000)))
    limit, offset = left.next(), left.next()
    icol: bytes | None = None
    ivlen, members = b"", list[bytes]()
    if left.starts(b"@"):
        left.next()
        icol, ivlen = left.next(), left.next()
        members = [left.next() for _ in range(min(number(ivlen), 100_000))]
    filters = []
    while left.starts(b"F", b"W"):
        filters.append(Filter(left.next(), left.next(), left.next(), left.next()))
    return Request(
        *(first, op, vlen, key, given, limit, offset, icol, ivlen),
        *(tuple(members), tuple(filters), left.next(), tuple(left.left)),
    )
