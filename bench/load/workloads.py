"""The requests of each kind of work, and the expected answers: whole chunks, as bytes, made in advance.

The tables (in any SQL; for SQLite INTEGER is better than BIGINT): `bench (id BIGINT PRIMARY KEY, v VARCHAR(64))` with
the rows 1 to N, whose values `value` returns; for increments `(id BIGINT PRIMARY KEY, n BIGINT)`; and for `wide` a
table with the twelve columns of `WIDE`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bench.load.load import Load
from roost.errors import Invalid

Chunk: TypeAlias = tuple[bytes, bytes]  # requests, and the expected answers

PREPARED = 2**16  # requests that a process makes in advance, and then repeats
PREPARED_BYTES = 2**24  # of their answers

WIDE = ["a", "b", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10"]
WIDE_READ = ["a", "b", "c2", "c5", "c9"]
WIDE_KEYS = 1000  # values of b for each a

_FILL = b"abcdefghijklmnopqrstuvwxyz"
_GENERATION = re.compile(rb"-\d\d-")


def value(row: int, generation: int = 0) -> bytes:
    """Return the value of a row: 40 bytes; half of the rows begin with e or a later letter.

    >>> value(7)
    b'h0000000007-00-abcdefghijklmnopqrstuvwxyz'
    """
    return b"%c%010d-%02d-%s" % (97 + row % 8, row, generation, _FILL)


def wide(row: int) -> list[bytes]:
    """Return the twelve values of a row of the wide table.

    >>> wide(2007)[:5]
    [b'2', b'7', b'2008', b'c2-2007', b'2010']
    """
    return [
        *(b"%d" % (row // WIDE_KEYS), b"%d" % (row % WIDE_KEYS)),
        *[b"c%d-%d" % (place, row) if place % 2 == 0 else b"%d" % (row + place) for place in range(1, 11)],
    ]


@dataclass(frozen=True)
class Workload:
    """The columns to open, and the chunks to send, in order; without end, except for `fill`."""

    columns: str
    filters: str
    chunks: Iterator[Chunk]

    def opening(self, load: Load) -> bytes:
        """Return the line that opens the index, as number 0."""
        line = f"P\t0\t{load.database}\t{load.table}\tPRIMARY\t{self.columns}"
        return f"{line}\t{self.filters}\n".encode() if self.filters else f"{line}\n".encode()


def is_as_good(expected: bytes, answer: bytes) -> bool:
    """Whether an answer is right though it differs from the expected one, since the row was updated in between."""
    return len(answer) == len(expected) and _GENERATION.sub(b"", answer) == _GENERATION.sub(b"", expected)


def workload_of(load: Load, process: int, processes: int, answer: bytes = b"0\t1\n") -> Workload:
    """Make the workload of one process.

    answer: the server's answer to an insert.
    """
    dice = random.Random(f"{load.seed} {process}")
    draw = _keys(load, dice)
    if load.work == "get":
        return Workload("id,v", "", _repeated(load, lambda: _get(draw())))
    if load.work == "range":
        return Workload("id,v", "v", _repeated(load, lambda: _range(load, draw())))
    if load.work == "wide":
        return Workload(",".join(WIDE_READ), "", _repeated(load, lambda: _wide(draw())))
    if load.work == "update":
        # Two generations in turn, since setting a row to its present value costs a server nothing.
        keys = [draw() for _ in range(PREPARED)]
        turns = [(key, generation) for generation in (1 + process, 50 + process) for key in keys]
        following = itertools.cycle(turns).__next__
        return Workload("v", "", _repeated(load, lambda: _update(*following()), 2 * PREPARED))
    if load.work == "increment":
        return Workload("n", "", _repeated(load, lambda: _increment(dice.randint(1, load.hot))))
    if load.work == "insert":
        return Workload("id,v", "", _inserts(load, itertools.count(load.first + process, processes), answer))
    if load.work == "fill":
        return Workload("id,v", "", _inserts(load, iter(range(load.first + process, load.rows + 1, processes)), answer))
    raise Invalid(f"there is no work {load.work!r}")


def _keys(load: Load, dice: random.Random) -> Callable[[], int]:
    if not load.zipf:
        return lambda: dice.randint(1, load.rows)
    if load.zipf == 1:
        raise Invalid("the exponent of zipf must not be exactly 1: use 0.99")
    power, rows = 1 - load.zipf, load.rows
    span = rows**power - 1
    # Ranks by the inverse of the (continuous) distribution; a prime spreads the frequent ones over the table.
    return lambda: int((1 + dice.random() * span) ** (1 / power)) * 2_654_435_761 % rows + 1


def _repeated(load: Load, make: Callable[[], Chunk], number: int = PREPARED) -> Iterator[Chunk]:
    chunks: list[Chunk] = []
    weight = 0
    while len(chunks) * load.pipeline < number and weight < PREPARED_BYTES:
        each = [make() for _ in range(load.pipeline)]
        chunks.append((b"".join(ask for ask, _ in each), b"".join(answer for _, answer in each)))
        weight += len(chunks[-1][1])
    return itertools.cycle(chunks)


def _get(row: int) -> Chunk:
    return b"0\t=\t1\t%d\n" % row, b"0\t2\t%d\t%s\n" % (row, value(row))


def _range(load: Load, row: int) -> Chunk:
    row = 1 + (row - 1) % max(load.rows - 2 * load.limit - 8, 1)
    passing = (each for each in range(row, load.rows + 1) if each % 8 >= 4)
    rows = b"".join(b"\t%d\t%s" % (each, value(each)) for each in itertools.islice(passing, load.limit))
    return b"0\t>=\t1\t%d\t%d\t0\tF\t>=\t0\te\n" % (row, load.limit), b"0\t2%s\n" % rows


def _wide(row: int) -> Chunk:
    values = dict(zip(WIDE, wide(row), strict=True))
    found = b"\t".join(values[name] for name in WIDE_READ)
    return b"0\t=\t2\t%s\t%s\n" % (values["a"], values["b"]), b"0\t%d\t%s\n" % (len(WIDE_READ), found)


def _update(row: int, generation: int) -> Chunk:
    return b"0\t=\t1\t%d\t1\t0\tU\t%s\n" % (row, value(row, generation)), b"0\t1\t1\n"


def _increment(row: int) -> Chunk:
    return b"0\t=\t1\t%d\t1\t0\t+\t1\n" % row, b"0\t1\t1\n"


def _inserts(load: Load, rows: Iterator[int], answer: bytes) -> Iterator[Chunk]:
    if load.pipeline == 1:
        for row in rows:
            yield b"0\t+\t2\t%d\t%s\n" % (row, value(row)), answer
    while taken := list(itertools.islice(rows, load.pipeline)):
        asked = b"".join([b"0\t+\t2\t%d\t%s\n" % (row, value(row)) for row in taken])
        yield asked, answer * len(taken)
