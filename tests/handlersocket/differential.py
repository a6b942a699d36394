"""Random tables and requests on two servers at once, the original and another: equal, or different by a rule."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.handlersocket import rules
from tests.handlersocket.generator import Chunk, Generator
from tests.handlersocket.requests import Open, Request, number, read
from tests.handlersocket.tables import KINDS, Kind, Row, Table, any_table
from tests.handlersocket.wire import Address, Closed, Ports, Wire
from tests.servers import Plugin

CHUNKS = 12  # of one table
ROWS = 24


class Side(Protocol):
    """A server and SQL beside it."""

    ports: Ports

    def make(self, table: Table) -> None: ...

    def fill(self, table: Table, rows: list[Row]) -> None: ...

    def rows(self, table: Table) -> list[Row]: ...

    def drop(self, table: Table) -> None: ...

    def packets(self, packets: Sequence[bytes]) -> Sequence[bytes]:
        """Return packets as they are sent there."""
        return packets


@dataclass(frozen=True)
class _Ports:
    read: Address
    write: Address


class Original(Side):
    """The plugin in MariaDB."""

    ports: Ports
    name = "hst"

    def __init__(self, plugin: Plugin) -> None:
        self.ports = _Ports(
            Address(plugin.host, plugin.read_port, plugin.read_secret),
            Address(plugin.host, plugin.write_port, plugin.write_secret),
        )
        self._use(plugin)

    def _use(self, plugin: Plugin) -> None:
        self._cursor: Any = plugin.connection().cursor()
        self._cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.name} CHARACTER SET utf8mb4")
        self._cursor.execute(f"USE {self.name}")
        self._cursor.execute("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")

    def make(self, table: Table) -> None:
        for statement in table.mariadb():
            self._cursor.execute(statement)

    def fill(self, table: Table, rows: list[Row]) -> None:
        self._cursor.execute(f"DELETE FROM {table.name}")
        if rows:
            self._cursor.execute(f"INSERT IGNORE {table.insert(rows)}")

    def rows(self, table: Table) -> list[Row]:
        self._cursor.execute(f"SELECT * FROM {table.name}")
        return [tuple(map(_bytes, row)) for row in self._cursor.fetchall()]

    def drop(self, table: Table) -> None:
        self._cursor.execute(f"DROP TABLE {table.name}")


class Twin(Original):
    """Roost on the same MariaDB, in a database of its own, whose name is as long."""

    name = "hs2"

    def __init__(self, plugin: Plugin) -> None:
        self._use(plugin)
        self.url = f"{plugin.daemon.url}/{self.name}"

    def packets(self, packets: Sequence[bytes]) -> Sequence[bytes]:
        """Return them with the name of the other database, cut at the same places."""
        lines = b"".join(packets).split(b"\n")
        text = b"\n".join([line.replace(b"\thst", b"\ths2", 1) if line[:2] == b"P\t" else line for line in lines])
        ends = list(accumulate(map(len, packets)))
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Lite(Side):
    """Roost on a SQLite file."""

    def __init__(self, file: Path, ports: Ports) -> None:
        self.ports = ports
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=60)
        self._connection.text_factory = bytes

    def make(self, table: Table) -> None:
        for statement in table.sqlite():
            self._connection.execute(statement)

    def fill(self, table: Table, rows: list[Row]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"DELETE FROM {table.name}")
        if rows:
            self._connection.execute(f"INSERT OR IGNORE {table.insert(rows)}")
        self._connection.execute("COMMIT")

    def rows(self, table: Table) -> list[Row]:
        return [tuple(map(_bytes, row)) for row in self._connection.execute(f"SELECT * FROM {table.name}")]

    def drop(self, table: Table) -> None:
        self._connection.execute(f"DROP TABLE {table.name}")

    def close(self) -> None:
        self._connection.close()


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        # Whole numbers are written by one as 1, by the other as 1.0.
        return b"%d" % int(value) if value.is_integer() and abs(value) < 1e15 else repr(value).encode()
    return str(value).encode()


@dataclass
class Counts:
    """What a campaign has seen."""

    requests: int = 0
    errors: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unseen: int = 0  # requests after one that left other rows behind
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rules = ", ".join(f"{name}: {count}" for name, count in sorted(self.explained.items()))
        return (
            f"{self.requests} requests, {self.errors} of them refused by both; "
            f"explained {rules or 'none'}; {self.unseen} not compared"
        )


def same(one: bytes, other: bytes, index: rules.Opened | None) -> str | None:
    """Say whether two answers are equal: "" when they are, the rule when numbers are written otherwise, or None."""
    if one == other:
        return ""
    if index and any(column.kind.name in ("double", "decimal") for column in index.columns):
        pairs = list(zip(one.split(b"\t"), other.split(b"\t"), strict=False))
        if one.count(b"\t") == other.count(b"\t") and all(map(_same_number, pairs)):
            return "T"
    return None


def _same_number(pair: tuple[bytes, bytes]) -> bool:
    if pair[0] == pair[1]:
        return True
    try:
        return float(pair[0]) == float(pair[1])
    except ValueError:
        return False


class Comparison:
    """One table, on the original and on another server, with requests on both."""

    def __init__(
        self, random: Random, original: Side, other: Side, name: str, counts: Counts, types: Sequence[Kind]
    ) -> None:
        self.random, self.counts = random, counts
        self.sides = (original, other)
        self.table = any_table(random, name, types)
        rows = [self.table.row(random) for _ in range(random.randrange(ROWS))]
        for side in self.sides:
            side.make(self.table)
            side.fill(self.table, rows)
        self.start = original.rows(self.table)
        self.generator = Generator(random, self.table, self.start, random.choice([0.0, 0.05, 0.4]))
        self.strange: dict[str, set[int]] = {
            "read": set(),
            "write": set(),
        }  # ids that mean one thing here, another there

    def run(self) -> None:
        """Compare some chunks of requests; stop at the first fault."""
        with contextlib.ExitStack() as stack:
            wires = {
                port: [stack.enter_context(Wire(getattr(side.ports, port))) for side in self.sides]
                for port in ("read", "write")
            }
            chunks = [self.generator.first(port) for port in wires]
            for at in range(len(chunks) + CHUNKS):
                if at < len(chunks):
                    chunk = chunks[at]
                else:
                    chunk = self.generator.chunk(self.random.choice(list(wires)), self.random.choice([1, 1, 4, 16]))
                try:
                    answers = [
                        wire.talk(side.packets(chunk.packets))
                        for side, wire in zip(self.sides, wires[chunk.port], strict=True)
                    ]
                except (Closed, OSError) as error:
                    self._fault(f"no answer: {error!r}", chunk)
                    break
                if not self._compare(chunk, *answers):
                    break
        if not self.counts.faults:
            for side in self.sides:
                side.drop(self.table)

    def _compare(self, chunk: Chunk, ours: list[bytes], theirs: list[bytes]) -> bool:
        """Compare the answers to a chunk, and the rows after it; return whether to go on."""
        may_differ = False
        for line, original, other in zip(chunk.lines, ours, theirs, strict=True):
            if may_differ:
                # Only the last line of a chunk does so, unless what it works on was opened within the chunk.
                self.counts.unseen += 1
                self._learn(line, chunk.port, original, other)
                continue
            self.counts.requests += 1
            self.counts.errors += original == other and not original.startswith(b"0\t")
            asked = read(line)
            if isinstance(asked, Request) and number(asked.id) in self.strange[chunk.port]:
                self.counts.unseen += 1
                may_differ = asked.modifies and chunk.port == "write"
                continue
            applying = self._rules(line, chunk.port)
            may_differ = any(rule.stateful for rule in applying) and chunk.port == "write"
            if not self._is_explained(line, chunk, original, other, applying):
                return False
            self._learn(line, chunk.port, original, other)
        if chunk.port == "write":
            return self._same_rows(chunk, may_differ)
        return True

    def _learn(self, line: bytes, port: str, original: bytes, other: bytes) -> None:
        asked = read(line)
        if isinstance(asked, Open):
            if original == other == b"0\t1\n":
                self.strange[port].discard(number(asked.id))
            elif original != other:
                self.strange[port].add(number(asked.id))
            self.generator.learn(line, port, original)

    def _rules(self, line: bytes, port: str) -> list[rules.Rule]:
        asked = read(line)
        if isinstance(asked, Open):
            return list(rules.of_open(asked))
        if isinstance(asked, Request):
            index = self.generator.opened[port].get(number(asked.id))
            if index:
                return list(rules.of_request(asked, index))
            # With an id that it alone has opened, the original looks at a request's filters first.
            apart = [rules.Rule("3", rules.exactly(b"2\t1\tstmtnum\n"))] if self.strange[port] else []
            return [*apart, *rules.of_any(asked, b"2\t1\tstmtnum\n")]
        return []

    def _is_explained(
        self, line: bytes, chunk: Chunk, original: bytes, other: bytes, applying: list[rules.Rule]
    ) -> bool:
        asked = read(line)
        index = self.generator.opened[chunk.port].get(number(asked.id)) if isinstance(asked, Request) else None
        found = same(original, other, index)
        if found == "":
            return True
        rule = found or next((rule.name for rule in applying if rule.check(other, original)), None)
        if rule:
            self.counts.explained[rule] += 1
            return True
        self._fault(
            f"{chunk.port} {line!r} of {index}: the original {original!r}, the other {other!r}, rules "
            f"{[rule.name for rule in applying]}",
            chunk,
        )
        return False

    def _same_rows(self, chunk: Chunk, may_differ: bool) -> bool:
        one, other = (sorted(side.rows(self.table), key=repr) for side in self.sides)
        if one != other:
            if not may_differ:
                self._fault(f"rows: the original {one}, the other {other}", chunk)
                return False
            self.counts.explained["rows"] += 1
            for side in self.sides:
                side.fill(self.table, self.start)
            one = self.start
        self.generator.rows = one
        return True

    def _fault(self, text: str, chunk: Chunk) -> None:
        made = "; ".join(self.table.sqlite())
        self.counts.faults.append(f"{text}\n  in {chunk.packets!r}\n  on {made}\n  with {self.generator.rows}")


def compare(
    seed: int,
    requests: int,
    original: Side,
    other: Side,
    enough: int = 1,
    tag: str = "t",
    types: Sequence[Kind] = KINDS,
) -> Counts:
    """Compare until that many requests are answered, or that many faults are found."""
    counts = Counts()
    at = 0
    while counts.requests < requests and len(counts.faults) < enough:
        random = Random(f"{seed} {at}")
        Comparison(random, original, other, f"{tag}{at}", counts, types).run()
        at += 1
    return counts
