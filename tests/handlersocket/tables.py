"""Random tables of types that MariaDB and SQLite mostly share, and their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from random import Random

INT, BIGINT = 2**31, 2**63
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
INTEGER = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
ISO = re.compile(rb"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
BLANKS = b" \t\n\v\f\r"
ALPHABET = "abcdxyz"

Value = bytes | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Kind:
    """A type on both sides: what it mostly holds, what is odd for it, and what both hold alike."""

    name: str
    mariadb: str
    sqlite: str
    usual: Callable[[Random], bytes]
    odd: tuple[bytes, ...]
    same: Callable[[bytes], bool]
    lite: Callable[[bytes], bool]  # whether Roost can hold it: on SQLite, or in `MARIADB`
    can_be_key: bool = True
    is_number: bool = False

    def __repr__(self) -> str:
        return self.name


def _int(random: Random) -> bytes:
    return b"%d" % random.choice(
        [random.randrange(-3, 12), random.randrange(-100, 100), random.randrange(-INT // 2, INT // 2)]
    )


def _bigint(random: Random) -> bytes:
    return b"%d" % random.choice([random.randrange(-3, 12), random.randrange(-BIGINT, BIGINT), BIGINT - 1, -BIGINT])


def _text(random: Random) -> bytes:
    length = random.choice([0, 1, 1, 1, 2, 2, 3, 8])
    return "".join(random.choice(ALPHABET + ("é€" if length == 8 else "")) for _ in range(length)).encode()


def _mixed(random: Random) -> bytes:
    length = random.choice([0, 1, 1, 1, 2, 2, 3, 8])
    return "".join(random.choice(ALPHABET + ALPHABET.upper() + "09") for _ in range(length)).encode()


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.choice([0, 1, 1, 2, 3, 20]))


def _quarter(random: Random) -> bytes:
    return b"%g" % (random.randrange(-40, 40) / 4)


def _within(bound: int) -> Callable[[bytes], bool]:
    return lambda value: INTEGER.fullmatch(value) is not None and value != b"-0" and -bound <= int(value) < bound


def _is_short_text(value: bytes) -> bool:
    try:
        return len(value.decode()) <= 20
    except UnicodeDecodeError:
        return False


def _is_plain(value: bytes) -> bool:
    return len(value) <= 20 and re.fullmatch(rb"[A-Za-z0-9]*", value) is not None


def _is_quarter(value: bytes) -> bool:
    return re.fullmatch(rb"-?[0-9]{1,6}(\.(25|5|75))?", value) is not None and value not in (b"-0",)


def _is_anything(value: bytes) -> bool:
    return True


def is_text(value: bytes) -> bool:
    """Valid UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def reads_as_number(value: bytes) -> bool:
    """As SQLite reads text: digits, a point, an exponent, blanks around it."""
    return NUMBER.fullmatch(value.strip(b" \t\n\v\f\r")) is not None


def asks_for_number(given: Value) -> bool:
    """What a column that numbers itself takes as being asked for a number: 0, however it is written."""
    return not given or (_reads_as_integer(given) and Decimal(given.strip(BLANKS).decode()) == 0)


def is_finite(value: bytes) -> bool:
    """What a column of numbers can be compared with."""
    return reads_as_number(value) and math.isfinite(float(value))


def _is_numeric(value: bytes) -> bool:
    """Any text or bytes, but no number that ends at a NUL byte: there it would be cut."""
    return b"\0" not in value or not reads_as_number(value.partition(b"\0")[0])


def _reads_as_integer(value: bytes) -> bool:
    """As SQLite's affinity reads text: what is a whole number of 64 bits, however it is written."""
    if not reads_as_number(value):
        return False
    exact = Decimal(value.strip(b" \t\n\v\f\r").decode())
    return -BIGINT <= exact < BIGINT and exact == exact.to_integral_value()


def _date(random: Random) -> bytes:
    return b"20%02d-%02d-%02d" % (random.randrange(18, 22), random.randrange(1, 13), random.randrange(1, 29))


def _is_date(value: bytes) -> bool:
    return re.fullmatch(rb"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])", value) is not None


ODD_DATES = (b"", b"abc", b"20200101", b"2020-02-30", b"2020-1-1", b"2020-01-01 10:00:00", b"0", b"\xff")

ODD_NUMBERS = (
    *(b"", b" 1", b"+1", b"01", b"1.0", b"1.4", b"1.6", b"1e2", b"abc", b"1abc", b"0x1", b"-0", b"1\x00", b"--5"),
    *(b"99999999999", b"-99999999999", b"9223372036854775808", b"-9223372036854775809", b"1" * 30, b"1e400", b"nan"),
)
ODD_TEXTS = (
    b"\xff",
    b"a\xe9",
    b"x" * 21,
    b"a ",
    b" a",
    b"\x00",
    b"a\x00b",
    b"A",
    "É".encode(),
    "😀".encode(),
    b"x" * 70000,
)
ODD_BYTES = (b"x" * 41, b"\x00" * 3, b"x" * 70000)

KINDS = (
    Kind("int", "INT", "INT", _int, ODD_NUMBERS, _within(INT), _reads_as_integer, is_number=True),
    Kind("bigint", "BIGINT", "BIGINT", _bigint, ODD_NUMBERS, _within(BIGINT), _reads_as_integer, is_number=True),
    Kind("text", "VARCHAR(20) COLLATE utf8mb4_nopad_bin", "TEXT", _text, ODD_TEXTS, _is_short_text, is_text),
    Kind(
        "mixed",
        "VARCHAR(20) COLLATE utf8mb4_general_nopad_ci",
        "TEXT COLLATE NOCASE",
        _mixed,
        tuple(each for each in ODD_TEXTS if each.isascii()),  # NOCASE folds no others
        _is_plain,
        is_text,
    ),
    Kind("bytes", "VARBINARY(40)", "BLOB", _bytes, ODD_BYTES, lambda value: len(value) <= 40, _is_anything),
    Kind("double", "DOUBLE", "DOUBLE", _quarter, ODD_NUMBERS, _is_quarter, is_finite, is_number=True),
    Kind(
        *("decimal", "DECIMAL(12,2)", "DECIMAL(12,2)", _quarter, (*ODD_NUMBERS, b"\xff"), _is_quarter, _is_numeric),
        is_number=True,
    ),
    Kind("date", "DATE", "DATE", _date, ODD_DATES, _is_date, _is_numeric),
    Kind(
        "long",
        "LONGTEXT COLLATE utf8mb4_nopad_bin",
        "TEXT",
        _text,
        ODD_TEXTS[:2],
        _is_short_text,
        is_text,
        can_be_key=False,
    ),
    Kind("blob", "LONGBLOB", "BLOB", _bytes, (), _is_anything, _is_anything, can_be_key=False),
)


def _reads_within(bound: int) -> Callable[[bytes], bool]:
    return lambda value: _reads_as_integer(value) and -bound <= Decimal(value.strip(BLANKS).decode()) < bound


def _has_characters(value: bytes) -> bool:
    return is_text(value) and len(value.decode()) <= 20


def _is_decimal(value: bytes) -> bool:
    if not reads_as_number(value):
        return False
    exact = Decimal(value.strip(BLANKS).decode())
    return abs(exact) < 10**10 and exact == exact.quantize(Decimal("0.01"))


def _reads_as_date(value: bytes) -> bool:
    return ISO.fullmatch(value) is not None and _is_day(*map(int, value.split(b"-")))


def _is_day(*parts: int) -> bool:
    try:
        date(*parts)
    except ValueError:
        return False
    return True


_ON_MARIADB: dict[str, Callable[[bytes], bool]] = {
    "int": _reads_within(INT),
    "bigint": _reads_within(BIGINT),
    "text": _has_characters,
    "mixed": _has_characters,
    "bytes": lambda value: len(value) <= 40,
    "decimal": _is_decimal,
    "date": _reads_as_date,
}
# The same types, for Roost on MariaDB.
MARIADB = tuple(
    [
        replace(
            each,
            lite=_ON_MARIADB.get(each.name, each.lite),
        )
        for each in KINDS
    ]
)


@dataclass(frozen=True)
class Column:
    """A column: NOT NULL or not, with a constant default or none."""

    name: str
    kind: Kind
    nullable: bool
    default: Value = None

    def __repr__(self) -> str:
        return f"{self.name} {self.kind}{'' if self.nullable else ' NOT NULL'}"

    def usual(self, random: Random) -> Value:
        """Return a value as both sides hold it alike."""
        if self.nullable and random.random() < 0.15:
            return None
        return self.kind.usual(random)


@dataclass(frozen=True)
class Key:
    """A key: its columns with their directions."""

    name: str
    parts: tuple[tuple[Column, bool], ...]  # True: descending
    unique: bool

    def __repr__(self) -> str:
        return self.name

    @property
    def columns(self) -> list[Column]:
        return [column for column, _ in self.parts]


@dataclass(frozen=True)
class Table:
    """A table; its first key is the primary one."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[Key, ...]
    automatic: bool = False

    def __repr__(self) -> str:
        return self.name

    def column(self, name: bytes) -> Column:
        """Return a column by its name."""
        return next(each for each in self.columns if each.name == name.decode())

    def key(self, name: bytes) -> Key | None:
        """Return the key that a request calls so."""
        if name in (b"", b"\0", b"PRIMARY"):
            return self.keys[0]
        if name[:1].isdigit():
            digits = re.match(rb"[0-9]+", name)
            at = int(digits[0]) if digits else 0
            return self.keys[at] if at < len(self.keys) else None
        return next((each for each in self.keys[1:] if each.name == name.decode()), None)

    def _lines(self, mariadb: bool) -> list[str]:
        lines = []
        for at, column in enumerate(self.columns):
            if at == 0 and self.automatic:
                lines.append("c0 INT AUTO_INCREMENT PRIMARY KEY" if mariadb else "c0 INTEGER PRIMARY KEY AUTOINCREMENT")
                continue
            default = "" if column.default is None else f" DEFAULT {literal(column, column.default)}"
            type = column.kind.mariadb if mariadb else column.kind.sqlite
            lines.append(f"{column.name} {type}{'' if column.nullable else ' NOT NULL'}{default}")
        if not self.automatic:
            lines.append(f"PRIMARY KEY ({', '.join(column.name for column in self.keys[0].columns)})")
        return lines

    def mariadb(self) -> list[str]:
        """Return the statements that make the table in MariaDB."""
        lines = self._lines(mariadb=True)
        for key in self.keys[1:]:
            lines.append(f"{'UNIQUE ' if key.unique else ''}KEY {key.name} ({_parts(key)})")
        return [f"CREATE TABLE {self.name} ({', '.join(lines)}) ENGINE=InnoDB CHARACTER SET utf8mb4"]

    def sqlite(self) -> list[str]:
        """Return the statements that make the table in SQLite, its rows in the order of the primary key."""
        layout = "" if self.automatic else " WITHOUT ROWID"
        made = [f"CREATE TABLE {self.name} ({', '.join(self._lines(mariadb=False))}){layout}"]
        for key in self.keys[1:]:
            made.append(f"CREATE {'UNIQUE ' if key.unique else ''}INDEX {key.name} ON {self.name} ({_parts(key)})")
        return made

    def row(self, random: Random) -> Row:
        """Return a row of values that both sides hold alike."""
        return tuple(column.usual(random) for column in self.columns)

    def insert(self, rows: list[Row]) -> str:
        """Return the statement that inserts rows, the same for both, as far as one does not stand in another's way."""
        values = [f"({', '.join(map(literal, self.columns, row))})" for row in rows]
        return f"INTO {self.name} VALUES {', '.join(values)}"


def literal(column: Column, value: Value) -> str:
    """Return a value as SQL, for MariaDB and for SQLite."""
    if value is None:
        return "NULL"
    if column.kind.is_number:
        return value.decode()
    if column.kind.sqlite == "BLOB":
        return f"x'{value.hex()}'"
    return f"'{value.decode()}'"


def _parts(key: Key) -> str:
    return ", ".join(f"{column.name}{' DESC' if down else ''}" for column, down in key.parts)


def any_table(random: Random, name: str, types: Sequence[Kind] = KINDS) -> Table:
    """Make a table up: one to six columns, a primary key of one or two, none to two others."""
    automatic = random.random() < 0.1
    kinds = [random.choice(types) for _ in range(random.randrange(2, 7))]
    kinds[0] = (
        types[0] if automatic or random.random() < 0.5 else random.choice([each for each in types if each.can_be_key])
    )
    two = not automatic and len(kinds) > 2 and kinds[1].can_be_key and random.random() < 0.4
    columns = []
    for at, kind in enumerate(kinds):
        nullable = at > (1 if two else 0) and random.random() < 0.6
        default = None
        if (
            at > (1 if two else 0)
            and kind.can_be_key
            and kind.name != "bytes"
            and (not nullable or random.random() < 0.3)
        ):
            default = kind.usual(random)
        columns.append(Column(f"c{at}", kind, nullable, default))
    keys = [Key("PRIMARY", tuple((column, False) for column in columns[: 2 if two else 1]), True)]
    able = [column for column in columns if column.kind.can_be_key]
    for at in range(random.choice([0, 1, 1, 2]) if able else 0):
        some = random.sample(able, min(len(able), random.choice([1, 1, 2, 3])))
        parts = tuple((column, random.random() < 0.15) for column in some)
        unique = random.random() < 0.3
        if types is MARIADB and any([column.nullable for column in some]):
            unique = False  # downwards, equals that are NULL come in another order: see docs/handlersocket.md
        keys.append(Key(f"{name}_k{at}", parts, unique))
    # MariaDB numbers the unique ones first, and of these those that cannot be NULL.
    keys[1:] = sorted(keys[1:], key=lambda key: 2 if not key.unique else any(each.nullable for each in key.columns))
    return Table(name, tuple(columns), tuple(keys), automatic)
