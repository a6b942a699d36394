"""Lines of any bytes: some nearly requests, most not, all from a seed.

A pool of lines is made with care; buffers are drawn from it, and bytes of them overwritten, which is fast enough for
millions of lines.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from roost.protocols.handlersocket.requests import SPELLING, VERBS, Refused, operation, parse_open
from tests.handlersocket.conftest import Served, served
from tests.handlersocket.generator import JUNK, ODD_FILTER_OPS, ODD_MOPS, ODD_NUMBERS, ODD_OPS, Generator
from tests.handlersocket.tables import KINDS, Row, Table, any_table
from tests.handlersocket.wire import Wire

POOL = 4000  # lines
LINES = 1000  # of a buffer, about
MOST_GROWTH = 48 * 2**20  # bytes that a server may need more after the noise than when it was warm
WARM = 0.2  # of the lines, after which it is
ANSWER = re.compile(rb"(0\t[0-9]+(\t[^\n]*)?|[123]\t1\t[a-z0-9_]+)\n", re.DOTALL)
WORDS = SPELLING | {"op", "klen", "notimpl", "kpnum", "modop"}
REQUESTS = frozenset(["Open", "find", "insert", *VERBS.values()])
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
                odd_value = random.choice(random.choice([kind for kind in KINDS if kind.odd]).odd)[:400]
                return b"0\t=\t1\t" + odd_value.replace(b"\n", b"") + b"\n"
            case 3:
                return (
                    random.choice([b"\t", b"0", b"9", b"\0", b"F\t", b"@\t", b"0\t"])
                    * random.choice([1, 2, 5, 30, 300])
                    + b"\n"
                )
            case _:
                return random.choice(self._generators).line(port)

    def _buffer(self) -> bytes:
        random = self._random
        buffer = bytearray(b"".join(random.choices(self._pool, k=LINES)))
        for _ in range(random.choice([0, 0, LINES // 8, LINES])):
            buffer[random.randrange(len(buffer))] = random.choice(INTERESTING)
        return bytes(buffer) + b"\n"


def reading(line: bytes) -> str:
    """Return what a line is read as: the kind of request, or the word that refuses it."""
    tokens = line.decode("utf-8", "surrogateescape").split("\t")
    try:
        if tokens[0] == "P":
            return type(parse_open(tokens)).__name__
        return operation(tokens, writes=True, parts=2, width=2, filters=("a", "b"))[0]
    except Refused as refused:
        return refused.word


def read_alone(seed: int, lines: int) -> str:
    """Read noise as requests, without a server: a request or a refusal, and never anything else."""
    random = Random(seed)
    made = table(random)
    noise = Noise(random, made, [made.row(random) for _ in range(20)])
    outcomes: Counter[str] = Counter()
    for buffer in noise.buffers("write", lines):
        for line in buffer[:-1].split(b"\n"):
            outcomes[reading(line)] += 1
    assert set(outcomes) <= WORDS | REQUESTS
    return f"{outcomes.total()} lines read: {', '.join(f'{name} {count}' for name, count in outcomes.most_common())}"


def serve(seed: int, lines: int, file: Path, say: Callable[[str], None] = lambda answer: None) -> str:
    """Send noise to a live server: an answer for each line, others undisturbed, no memory kept, nothing thrown."""
    random = Random(seed)
    made = table(random)
    rows = [made.row(random) for _ in range(30)]
    outcomes: Counter[bytes] = Counter()
    with served(file, secrets=("", "")) as server, contextlib.closing(sqlite3.connect(file, timeout=60)) as connection:
        for statement in [*made.sqlite(), "CREATE TABLE other (id INT PRIMARY KEY, v TEXT)"]:
            connection.execute(statement)
        connection.execute("INSERT INTO other VALUES (7, 'seven')")
        connection.commit()
        warm = None
        with contextlib.ExitStack() as stack:
            bystanders = [stack.enter_context(Wire(address)) for address in (server.read, server.write)]
            for wire in bystanders:
                assert wire.ask(b"P\t1\thst\tother\tPRIMARY\tv\n") == b"0\t1\n"
            noises = {port: Noise(random, made, rows).buffers(port, lines) for port in ("read", "write")}
            while outcomes.total() < lines:
                connection.execute("DELETE FROM fuzzed")
                connection.execute(f"INSERT OR IGNORE {made.insert(rows)}")
                connection.commit()
                _round(random, noises, server, bystanders, outcomes)
                if warm is None and outcomes.total() > WARM * lines:
                    warm = memory(server.serving.process.pid)
                say(f"{outcomes.total()} lines answered")
            grown = memory(server.serving.process.pid) - (warm or 0)
        log = server.serving.log
    assert "Traceback" not in log, log[:4000]
    assert grown < MOST_GROWTH, f"{grown} bytes more than when it was warm"
    refused = sum(count for word, count in outcomes.items() if word != b"0")
    return f"{outcomes.total()} lines answered, {refused} of them refused; {grown / 2**20:+.1f} MB"


def _round(
    random: Random,
    noises: dict[str, Iterator[bytes]],
    server: Served,
    bystanders: list[Wire],
    outcomes: Counter[bytes],
) -> None:
    """Send some buffers over connections of their own, in pieces, and read what is answered."""
    with contextlib.ExitStack() as stack:
        wires = {port: stack.enter_context(Wire(getattr(server, port))) for port in noises}
        for wire in wires.values():  # or the noise would be taken for another protocol
            assert wire.ask(b"P\t1\thst\tother\tPRIMARY\tv\n") == b"0\t1\n"
        for _ in range(10):
            for port, wire in wires.items():
                buffer = next(noises[port])
                cuts = [0, *sorted(random.choices(range(len(buffer)), k=random.choice([0, 3, 30]))), len(buffer)]
                answers = wire.talk([buffer[start:end] for start, end in pairwise(cuts)])
                for answer in answers:
                    assert ANSWER.fullmatch(answer), answer
                    outcomes[answer.rstrip(b"\n").split(b"\t", 3)[2] if answer[:1] != b"0" else b"0"] += 1
            for wire in bystanders:
                assert wire.ask(b"1\t=\t1\t7\n") == b"0\t1\tseven\n"


def memory(pid: int) -> int:
    """Return what a process and those it has started hold of memory, in bytes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (resident,) = re.findall(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(resident) * 1024 + sum(map(memory, map(int, children)))
