"""Lines of any bytes: some nearly requests, most not, all from a seed.

A pool of lines is made with care; buffers are drawn from it, and bytes of them overwritten, which is fast enough for
millions of lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.handlersocket.generator import JUNK, ODD_FILTER_OPS, ODD_MOPS, ODD_NUMBERS, ODD_OPS, Generator
from tests.handlersocket.tables import KINDS, Row, Table, any_table

POOL = 4000  # lines
LINES = 500  # of a buffer, about
INTERESTING = b"\t\t\t\n\r\0\x01\x02\x0f@FW+-UDPA0123456789=<>\xff\x80\xc3 .,'\""


def table(random: Random) -> Table:
    """Return a table with columns of every kind and a few keys."""
    while True:
        found = any_table(random, "fuzzed")
        if len(found.keys) == 3 and len({column.kind.name for column in found.columns}) >= min(5, len(KINDS)):
            return found


class Noise:
    """Buffers of lines."""

    def __init__(self, random: Random, table: Table, rows: list[Row]) -> None:
        self._random = random
        self._generators = [Generator(random, table, rows, oddity) for oddity in (0.0, 0.3, 1.0)]
        self._pool: list[bytes] = []

    def buffers(self, port: str, lines: int) -> Iterator[bytes]:
        """Yield buffers of whole lines, together as many as asked for, a few more."""
        made = 0
        while made < lines:
            if made % (40 * POOL) < LINES or not self._pool:
                self._pool = [self._line(port) for _ in range(POOL)]
            buffer = self._buffer()
            made += buffer.count(b"\n")
            yield buffer

    def _line(self, port: str) -> bytes:
        random = self._random
        match random.randrange(8):
            case 0:
                return random.randbytes(random.choice([0, 1, 5, 30, 300])).replace(b"\n", b"") + b"\n"
            case 1:
                odd = (*JUNK, *ODD_NUMBERS, *ODD_OPS, *ODD_FILTER_OPS, *ODD_MOPS, b"F", b"W", b"@", b"P", b"A")
                return b"\t".join(random.choices(odd, k=random.randrange(12))) + b"\n"
            case 2:
                odd_value = random.choice(random.choice([kind for kind in KINDS if kind.odd]).odd)[:2000]
                return b"0\t=\t1\t" + odd_value.replace(b"\n", b"") + b"\n"
            case 3:
                return (
                    random.choice([b"\t", b"0", b"9", b"\0", b"F\t", b"@\t", b"0\t"]) * random.randrange(2000) + b"\n"
                )
            case _:
                return random.choice(self._generators).line(port)

    def _buffer(self) -> bytes:
        random = self._random
        buffer = bytearray(b"".join(random.choices(self._pool, k=LINES)))
        for _ in range(random.choice([0, 0, LINES // 8, LINES])):
            buffer[random.randrange(len(buffer))] = random.choice(INTERESTING)
        return bytes(buffer) + b"\n"
