"""The log of records that an item of memcached holds: bytes to members and back. No I/O.

An item is a header and records, in their order. Binary (integers are LEB128 varints):

    item    = %x00 %x01 flags expires generation shards *record
    record  = op length bytes                 ; op is + or -
            / "*" separator length bytes      ; adds, joined by a byte that is in none of them: what compaction writes

Readable, as the recipe this comes from has it (a reader that knows only + and - passes over the header):

    item    = ["=" flags "," expires "," generation "," shards " "] *(("+" / "-") member " ")

Members are text in UTF-8, or bytes. Whatever is not this is refused with `Mismatch`, never skipped. A record carries
no generation of its own: it has that of the header before it, which is in the same item.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from roost.errors import Mismatch

COMPLETE, LOST = 1, 2  # flags
ADD, REMOVE, BLOCK = b"+-*"
MAGIC = b"\x00\x01"
FEW = 4  # members that are written one by one
SEPARATORS = (0, 10, 1, 2, 3)

Member = Any  # str, or bytes where members are bytes


class Header(NamedTuple):
    """What an item says of itself.

    complete: nothing was lost since `replace`. lost: a shard is gone, and that is known. expires: by the clock of
    who made it, in seconds since 1970; 0: never; -1: another program made it, who knows. generation, shards: where the
    rest of a large set is; 0 and 0 when this is all.
    """

    complete: bool = False
    lost: bool = False
    expires: int = 0
    generation: int = 0
    shards: int = 0


class Log(NamedTuple):
    """One item, read: what its records add to what they stand upon, and what they remove from it."""

    header: Header
    start: int  # of the records
    added: set[Member]
    removed: set[Member]
    loose: int  # records that stand alone


def home(member: Member, shards: int) -> int:
    """Return the shard of a member: the same for every client, for ever."""
    return zlib.crc32(member if isinstance(member, bytes) else member.encode()) % shards


class Binary:
    """How records are written: length-prefixed, so that every member can be. `raw`: members are bytes, not text."""

    name = "binary"

    def __init__(self, raw: bool) -> None:
        self.raw = raw

    def net(self, added: Collection[Member], removed: Collection[Member]) -> bytes:
        """Return the fewest records that add and remove these."""
        return self.records(False, removed) + self.records(True, added)

    def header(self, header: Header) -> bytes:
        """Return what an item begins with."""
        flags = COMPLETE * header.complete | LOST * header.lost
        return b"%b%b%b%b%b" % (MAGIC, *map(varint, (flags, header.expires, header.generation, header.shards)))

    def records(self, adds: bool, members: Collection[Member]) -> bytes:
        """Return records that add or remove members; of many, adds go into one block."""
        texts: Collection[bytes] = members if self.raw else [member.encode() for member in members]
        if len(texts) == 1:
            (text,) = texts
            if len(text) < 128:
                return (b"+%c%b" if adds else b"-%c%b") % (len(text), text)
        if adds and len(texts) > FEW:
            for separator in SEPARATORS:
                joined = bytes([separator]).join(texts)
                if joined.count(separator) == len(texts) - 1:
                    return b"*%c%b%b" % (separator, varint(len(joined)), joined)
        op = ADD if adds else REMOVE
        return b"".join(
            [
                b"%c%c%b" % (op, len(text), text) if len(text) < 128 else b"%c%b%b" % (op, varint(len(text)), text)
                for text in texts
            ]
        )

    def read(self, item: str, data: bytes) -> Log:
        """Read an item; `Mismatch` when it is not of this encoding."""
        try:
            return self._read(item, data)
        except (IndexError, UnicodeDecodeError) as error:
            raise _foreign(item, f"{error}") from None

    def _read(self, item: str, data: bytes) -> Log:
        if not data.startswith(MAGIC):
            raise _foreign(item, f"it begins with {data[:20]!r}")
        header, start = _HEADERS.get(data[:6]) or _header(data)
        place, end = start, len(data)
        added: set[Member] = set()
        removed: set[Member] = set()
        add, raw, loose = added.add, self.raw, 0
        while place < end:
            op = data[place]
            length = data[place + 1]
            if op == BLOCK:
                separator = length
                length, place = _number(data, place + 2)
                stop = place + length
                block = data[place:stop]
                members: list[Any] = block.split(bytes([separator])) if raw else block.decode().split(chr(separator))
                if added or removed or stop < end:
                    added.update(members)
                    removed.difference_update(members)
                else:
                    added = set(members)
            else:
                if length < 128:
                    place += 2
                else:
                    length, place = _number(data, place + 1)
                stop = place + length
                member = data[place:stop] if raw else data[place:stop].decode()
                loose += 1
                if op == ADD:
                    add(member)
                    if removed:
                        removed.discard(member)
                elif op == REMOVE:
                    added.discard(member)
                    removed.add(member)
                else:
                    raise _foreign(item, f"there is no operation {bytes([op])!r}")
            place = stop
        if place > end:
            raise _foreign(item, "its last record is cut off")
        return Log(header, start, added, removed, loose)


def _header(data: bytes) -> tuple[Header, int]:
    place = len(MAGIC)
    facts = []
    for _ in range(4):
        fact, place = _number(data, place)
        facts.append(fact)
    flags, expires, generation, shards = facts
    return Header(bool(flags & COMPLETE), bool(flags & LOST), expires, generation, shards), place


# Those of sets in one item that do not expire: most of them.
_HEADERS = {MAGIC + bytes([flags, 0, 0, 0]): (Header(complete=bool(flags)), 6) for flags in (0, COMPLETE)}


class Readable(Binary):
    """`+a +b -c `: for members without white space; the original recipe reads and writes it too."""

    name = "readable"

    def header(self, header: Header) -> bytes:
        flags = "c" * header.complete + "l" * header.lost
        return f"={flags},{header.expires},{header.generation:x},{header.shards} ".encode()

    def records(self, adds: bool, members: Collection[Member]) -> bytes:
        op = b"+" if adds else b"-"
        texts: Iterable[bytes] = members if self.raw else [member.encode() for member in members]
        return b"".join([b"%b%b " % (op, text) for text in texts])

    def read(self, item: str, data: bytes) -> Log:
        """Read an item; without a header, another program made it."""
        header, start = Header(expires=-1), 0
        if data.startswith(b"="):
            end = data.find(b" ")
            try:
                flags, expires, generation, shards = data[1:end].decode().split(",")
                header = Header("c" in flags, "l" in flags, int(expires), int(generation, 16), int(shards))
            except ValueError:
                raise _foreign(item, f"its header is {data[:40]!r}") from None
            start = end + 1
        added: set[Member] = set()
        removed: set[Member] = set()
        try:
            text: Any = data[start:] if self.raw else data[start:].decode()
        except UnicodeDecodeError as error:
            raise _foreign(item, str(error)) from None
        plus, minus = (b"+", b"-") if self.raw else ("+", "-")
        tokens = text.split()
        for token in tokens:
            op, member = token[:1], token[1:]
            if op == plus:
                added.add(member)
                if removed:
                    removed.discard(member)
            elif op == minus:
                added.discard(member)
                removed.add(member)
            else:
                raise _foreign(item, f"there is no operation {op!r}")
        return Log(header, start, added, removed, 0)


ENCODINGS: dict[str, type[Binary]] = {"binary": Binary, "readable": Readable}


def varint(number: int) -> bytes:
    """Return an unsigned LEB128."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _number(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than 64 bits")


def _foreign(item: str, reason: str) -> Mismatch:
    return Mismatch(f"the item {item} is not what this declaration writes, nor of its encoding: {reason}")
