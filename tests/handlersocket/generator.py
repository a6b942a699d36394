"""Random requests on a table: mostly what both sides answer alike, a share of odd ones, a share of broken ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from tests.handlersocket import rules
from tests.handlersocket.requests import NULL, Open, Request, name, number, read, tokens
from tests.handlersocket.tables import Column, Key, Row, Table, Value

DB = b"hst"
ODD_NUMBERS = (
    *(b"", b"-3", b"abc", b"4x5", b"1.5", b" 1 ", b"+1", b"\0", b"00", b"0x", b"007", b"4294967295", b"4294967296"),
    *(b"4294967297", b"99999999999", b"U", b"-1", b"1e3", b"\xff"),
)
ODD_OPS = (b"==", b"!=", b"<>", b"=<", b"=>", b"", b"S", b"U", b"@", b"\0", b"LIKE", b"++", b">==", b"+=")
ODD_FILTER_OPS = (b"==", b"<>", b"", b"x", b"LIKE", b"=<", b"\0", b"===")
ODD_MOPS = (b"Ux", b"U?x", b"DROP", b"++", b"u", b"X", b"?", b"FOO", b"\0", b"W", b"D?", b"", b"UU", b"-?", b"+?")
JUNK = (
    *(b"", b"\0", b"x", b"\x01", b"a\x01?b", b"\x01@", b"@", b"F", b"W", b"0", b"1", b"-1", b"\xff", b" ", b"\r"),
    b"a\x0bb",
)
COMMANDS = (
    *(b"", b"p", b"PP", b" P", b"-1", b"+0", b"\0", b"X", b"quit", b"a", b"AA", b"A", b"A\t2\tx", b"\x01", b"@", b"\r"),
)


@dataclass
class Chunk:
    """What is sent at once, on one port, and where it is cut into packets."""

    port: str
    lines: list[bytes]
    cuts: list[int] = field(default_factory=list)

    @property
    def packets(self) -> list[bytes]:
        whole = b"".join(self.lines)
        bounds = [0, *sorted({cut % len(whole) for cut in self.cuts} - {0}), len(whole)]
        return [whole[start:end] for start, end in pairwise(bounds)]


def escaped(value: Value, random: Random) -> bytes:
    """Return a token; what may stay raw does so now and then."""
    if value is None:
        return NULL
    raw = (2, 3, 4, 5, 6, 7, 8, 0x0B, 0x0C, 0x0E, 0x0F) if random.random() < 0.3 else ()
    return b"".join(bytes([1, byte + 0x40]) if byte < 0x10 and byte not in raw else bytes([byte]) for byte in value)


class Generator:
    """Requests on one table, for a connection that reads and one that writes."""

    def __init__(self, random: Random, table: Table, rows: list[Row], oddity: float) -> None:
        self.random, self.table, self.rows, self.oddity = random, table, rows, oddity
        self._alone: list[tuple[str, bytes]] = []
        self.opened: dict[str, dict[int, rules.Opened]] = {"read": {}, "write": {}}

    def chunk(self, port: str, length: int) -> Chunk:
        """Return a chunk. A line that may leave other rows behind than the original does comes alone."""
        lines: list[bytes] = []
        if self._alone:
            port, line = self._alone.pop()
            return Chunk(port, [line])
        while len(lines) < length:
            line = self.line(port)
            if not self._is_safe(line, port):
                continue
            if self._leaves_other_rows(line, port):
                if not lines:
                    return Chunk(port, [line])
                self._alone.append((port, line))
                break
            lines.append(line)
        cuts = [self.random.randrange(1 << 20) for _ in range(self.random.choice([0, 0, 1, 3, 10]))]
        return Chunk(port, lines, cuts)

    def first(self, port: str) -> Chunk:
        """Return the chunk that opens indexes."""
        lines = [self._open(port, at) for at in range(self.random.randrange(1, 5))]
        return Chunk(port, [line for line in lines if self._is_safe(line, port)] or [b"\n"])

    def learn(self, line: bytes, port: str, answer: bytes) -> None:
        """Note what a line has opened, when it has."""
        asked = read(line)
        if isinstance(asked, Open) and answer == b"0\t1\n":
            index = rules.opened(asked, self.table)
            assert index is not None, line
            self.opened[port][number(asked.id)] = index

    def _leaves_other_rows(self, line: bytes, port: str) -> bool:
        asked = read(line)
        if port == "read" or not isinstance(asked, Request) or not asked.modifies:
            return False
        index = self.opened[port].get(number(asked.id))
        return index is None or any(rule.stateful for rule in rules.of_request(asked, index))

    def _is_safe(self, line: bytes, port: str) -> bool:
        """Say whether the original survives a line, and the campaign its consequences."""
        found = tokens(line)
        first = found[0]
        if line[:1] in (b"Q", b"/") or found[:2] == [b"A", b"1"]:
            return False
        if first == b"P":
            if number(b"".join(found[1:2])) > 1000:
                return False
            # An open that fails makes the original's write port answer 167 from then on.
            target = [name(each) for each in [*found, b"", b"", b"", b""][2:4]]
            return port == "read" or target == [DB, self.table.name.encode()]
        for at, token in enumerate(found):
            if token[:1] == b"@" and number(b"".join(found[at + 2 : at + 3])) > 200:
                return False
        return True

    def _odd(self) -> bool:
        return self.random.random() < self.oddity

    def line(self, port: str) -> bytes:
        """Return a line, whatever the original makes of it."""
        random = self.random
        if random.random() < 0.05:
            return self._open(port, random.randrange(6))
        if random.random() < 0.01:
            return random.choice(COMMANDS) + b"\n"
        ids = list(self.opened[port])
        id = random.choice(ids) if ids and random.random() < 0.98 else random.randrange(12)
        index = self.opened[port].get(id) or rules.Opened(self.table, self.table.keys[0], self.table.columns, ())
        insert = 0.25 if port == "write" else 0.02
        parts = self._insert(index) if random.random() < insert else self._find(index, port)
        line = [b"%d" % id, *parts]
        if self._odd():
            line = self._broken(line)
        return b"\t".join(line) + random.choice([b"\n"] * 9 + [b"\r\n"])

    def _broken(self, line: list[bytes]) -> list[bytes]:
        random = self.random
        at = random.randrange(len(line))
        match random.randrange(6):
            case 0:
                return [*line[:at], *line[at + 1 :]] if len(line) > 1 else line
            case 1:
                return [*line[:at], random.choice(JUNK), *line[at:]]
            case 2:
                return [*line[:at], random.choice(JUNK), *line[at + 1 :]]
            case 3:
                return [*line[:at], random.choice(line), *line[at + 1 :]]
            case 4:
                return [*line, *random.choices(JUNK, k=random.randrange(1, 4))]
            case _:
                return line[:at] or line

    def _open(self, port: str, at: int) -> bytes:
        random, table = self.random, self.table
        key = random.choice(table.keys)
        place = table.keys.index(key)
        names = [key.name.encode(), b"%d" % place, *([b"", b"\0"] if place == 0 else [])]
        columns = [column.name.encode() for column in table.columns]
        chosen = columns if random.random() < 0.4 else random.choices(columns, k=random.randrange(0, 5))
        filters = random.choices(columns, k=random.choice([0, 1, 2, 3]))
        line = [b"P", b"%d" % at, DB, table.name.encode(), random.choice(names), b",".join(chosen)]
        if filters or random.random() < 0.2:
            line.append(b",".join(filters))
        if self._odd():
            odd = {
                1: ODD_NUMBERS,
                2: (b"", b"nodb", b"HST", b"hst\0x", b"`hst`"),
                3: (b"", b"nope", table.name.upper().encode(), table.name.encode() + b"\0x", b"../hst/t"),
                4: (b"nope", b"primary", b"99", b"-1", b"01", b"0x", b"PRIMARY\0x", b"1x", b"99999999999999"),
                5: (b"C0", b"c0,", b",c0", b"c0, c1", b"*", b"c0\0,c1", b"nope", b"c0,c0"),
                6: (b"", b"nope", b"C0", b"c0\0x", b",", b"c0,"),
            }
            at = random.randrange(1, 7)
            line[at : at + 1] = [random.choice(odd[at])]
        return b"\t".join(line) + b"\n"

    def _value(self, column: Column) -> bytes:
        random = self.random
        if random.random() < self.oddity / 4 and column.kind.odd:
            return escaped(random.choice(column.kind.odd), random)
        if random.random() < self.oddity / 8:
            return random.choice(JUNK)
        if self.rows and random.random() < 0.6:
            row = random.choice(self.rows)
            found = row[self.table.columns.index(column)]
            if found is not None or column.nullable:
                return escaped(found, random)
        return escaped(column.usual(random), random)

    def _number(self, *usual: int) -> bytes:
        if self.random.random() < self.oddity / 10:
            return self.random.choice(ODD_NUMBERS)
        return b"%d" % self.random.choice(usual)

    def _insert(self, index: rules.Opened) -> list[bytes]:
        random = self.random
        values = [
            escaped(column.usual(random), random) if random.random() < 0.8 else self._value(column)
            for column in index.columns
        ]
        length = len(values)
        if random.random() < 0.1:
            length = random.randrange(0, length + 3)
        return [b"+", self._number(length), *values[:length]]

    def _find(self, index: rules.Opened, port: str) -> list[bytes]:
        random = self.random
        op = random.choice(ODD_OPS) if random.random() < self.oddity / 10 else random.choice((b"=", b"=", *rules.OPS))
        key = self._key(index.key)
        line = [op, self._number(len(key)), *key]
        modifies = port == "write" and random.random() < 0.5
        if not modifies and random.random() < 0.2:
            return line
        line.append(self._number(0, 1, 1, 2, 3, 10, 100))
        if not modifies and random.random() < 0.2:
            return line
        line.append(self._number(0, 0, 0, 1, 2))
        if random.random() < 0.1:
            place = random.randrange(len(key))
            column = index.key.columns[place]
            members = [self._value(column) for _ in range(random.randrange(1, 6))]
            line += [random.choice([b"@", b"@", b"@x"]), self._number(place), self._number(len(members)), *members]
        while index.filters and random.random() < 0.25:
            at = random.randrange(len(index.filters))
            op = random.choice(ODD_FILTER_OPS) if random.random() < self.oddity / 4 else random.choice(rules.FILTER_OPS)
            line += [random.choice([b"F", b"W"]), op, self._number(at), self._value(index.filters[at])]
        if modifies or random.random() < 0.02:
            line += self._modification(index)
        return line

    def _key(self, key: Key) -> list[bytes]:
        random = self.random
        length = len(key.columns) if random.random() < 0.7 else random.randrange(1, len(key.columns) + 1)
        if self.rows and random.random() < 0.6:
            row = random.choice(self.rows)
            return [escaped(row[self.table.columns.index(column)], random) for column in key.columns[:length]]
        return [self._value(column) for column in key.columns[:length]]

    def _modification(self, index: rules.Opened) -> list[bytes]:
        random = self.random
        if random.random() < self.oddity / 4:
            return [random.choice(ODD_MOPS), *random.choices(JUNK, k=random.randrange(3))]
        mop = random.choice((b"U", b"U", b"D", b"+", b"-", b"U?", b"D?", b"+?", b"-?"))
        if mop[:1] == b"D":
            return [mop]
        if mop[:1] == b"U":
            values = [self._value(column) for column in index.columns]
            return [mop, *(values if random.random() < 0.9 else values[: random.randrange(len(values) + 1)])]
        operands = []
        for column in index.columns:
            if column.kind.name not in ("int", "bigint") and random.random() < 0.95:
                operands.append(NULL)
            else:
                operands.append(b"%d" % random.choice([0, 1, 1, 2, -1, -5, 10, 100]) if random.random() < 0.9 else NULL)
        return [mop, *operands]
