"""MariaDB and MySQL: reads the schema of a table from information_schema, and defines how its columns store values."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from roost.dialects.dialect import Dialect, Row, Together, query
from roost.dialects.mariadb import MARIADB, MYSQL, literal
from roost.errors import StatementFailed
from roost.structures.index import values
from roost.structures.index.schema import IndexWords, Key, Part, Reading, Table, TableColumn, ask
from roost.structures.index.values import UNHELD, as_bytes

WORDS: Final = IndexWords(MARIADB, nothing="() VALUES ()", orders_equals=False, same="<=>", counts=False)

_TABLE = query(
    "SELECT table_name, table_type, engine,\n"
    "    (SELECT transactions FROM information_schema.engines e WHERE e.engine = t.engine)\n"
    "  FROM information_schema.tables t WHERE table_schema = DATABASE() AND table_name = %s"
)
_COLUMNS = (
    "SELECT column_name, data_type, column_type, is_nullable, character_maximum_length, character_octet_length,\n"
    "    numeric_precision, numeric_scale, datetime_precision, character_set_name, extra, is_generated,\n"
    "    collation_name\n"
    "  FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position"
)
_KEYS = query(
    "SELECT index_name, non_unique, column_name, collation, sub_part, index_type, ignored\n"
    "  FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = %s"
)  # in the order of their creation, as in SHOW KEYS
_COLUMNS_OF: Final = {
    MARIADB.name: query(_COLUMNS),
    MYSQL.name: query(_COLUMNS.replace("is_generated", "IF(generation_expression = '', 'NEVER', 'ALWAYS')")),
}

_IGNORED: Final = {"YES": "NO", "NO": "YES"}  # by `Visible`

# At the moment at which an ALTER replaces the old table with the new one, information_schema contains neither, or no
# engine of it; SHOW CREATE TABLE waits for the ALTER. So the query is repeated while SHOW CREATE TABLE finds the table.
ATTEMPTS = 20
MOST_PARTS = 32  # of a key: MariaDB 10.11.19 crashes (signal 11) when it plans the search for a range of the last one
_HAS_KEY = re.compile(rb"^ +(PRIMARY |UNIQUE |)KEY ", re.MULTILINE)

_COUNTED = re.compile(r" AUTO_INCREMENT=\d+")
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_ESCAPED = re.compile(r"''|\\([0nr\\])")  # whatever the sql_mode
_ESCAPES: Final = {None: "'", "0": "\0", "n": "\n", "r": "\r", "\\": "\\"}

# The names of character sets in Python. A character set that is not listed here takes only ASCII.
_CODECS: Final = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ucs2": "utf-16-be", "utf16": "utf-16-be",
    "utf16le": "utf-16-le", "utf32": "utf-32-be", "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9",
    "latin7": "iso8859_13", "greek": "iso8859_7", "hebrew": "iso8859_8", "cp1250": "cp1250", "cp1251": "cp1251",
    "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8_r",
    "koi8u": "koi8_u", "macroman": "mac_roman", "macce": "mac_latin2", "ascii": "ascii", "tis620": "tis_620",
    "big5": "big5", "gbk": "gbk", "gb2312": "gb2312", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "euckr": "euc_kr",
}  # fmt: skip
_UTF8: Final = ("utf8mb4", "utf8mb3", "utf8")
_BYTES: Final = ("CAST(", " AS BINARY)")  # the stored bytes
_TEXT: Final = ("CAST(", " AS CHAR)")
# A TIMESTAMP is compared in the session's time zone. In the hour that comes twice its text stands for the later moment.
_MOMENT: Final = "IF(COALESCE(UNIX_TIMESTAMP(CAST({} AS DATETIME(6))), 0) = UNIX_TIMESTAMP({}), CAST({} AS CHAR), NULL)"
_TWO_BYTES: Final = ("utf8mb3", "utf8", "ucs2")  # characters up to U+FFFF

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_MOST_TIME: Final = dt.timedelta(hours=838, minutes=59, seconds=59, microseconds=999_999)
# These have no text form: their stored bytes are shown.
_SHAPES: Final = frozenset([
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection", "vector",
])  # fmt: skip
# A key ends before a column of these types: the order of the index is not that of the values.
_UNORDERED: Final = _SHAPES | {"set", "bit"}
_AS_STORED: Final = _SHAPES | {"blob", "bit"}


def read_table(name: str, wire: bool = False, *, dialect: Dialect = MARIADB) -> Reading:
    """Return the facts about a table or view; None if there is none that can be opened.

    wire: values are tokens: texts as bytes in their column's character set, other values as the server's own text.
    """
    if name.startswith("roost_"):
        return None
    quoted = WORDS.quoted(name).replace("%%", "%")
    made = ask(query(f"SHOW CREATE TABLE {quoted}"))
    of_columns, of_keys = ask(_COLUMNS_OF[dialect.name], name), ask(_KEYS, name)
    if dialect is MYSQL:  # whose information_schema has them in the order of their names
        of_keys = ask(query(f"SHOW KEYS FROM {quoted}"))
    for _ in range(ATTEMPTS):
        (found,) = yield ask(_TABLE, name)
        if found:
            spelt, kind, engine, undoes = found[0]
            if spelt != name or kind not in ("BASE TABLE", "VIEW", "SYSTEM VERSIONED"):
                return None
            view = kind == "VIEW"
            same = of_columns if view else made
            seen, (listed,), (parts,) = yield Together((same, of_columns, of_keys))
            if dialect is MYSQL:
                parts = [(row[2], row[1], row[4], row[5], row[7], row[10], _IGNORED[row[13]]) for row in parts]
            if listed and (view or (engine and (parts or not _HAS_KEY.search(as_bytes(seen[0][0][1]))))):
                break
        try:
            yield made
        except StatementFailed:
            return None
    else:
        return None
    columns = {row[0]: _column(row, wire) for row in listed}
    automatic = next((row[0] for row in listed if "auto_increment" in row[10].lower()), None)
    keys = () if view else _keys(parts, columns)
    singles = {row[0] for row in listed if row[1] == "float"}
    identity: Sequence[Part] = next((key.parts for key in keys if _names_rows(key, singles)), ())
    primary = keys[0] if keys and keys[0].name == "PRIMARY" and keys[0].whole_index else None
    return Table(
        name,
        replace(WORDS, dialect=dialect),
        view,
        columns,
        keys,
        tuple([part.column.sql for part in identity]),
        tuple([f"{part.column.sql} = {part.column.hole}" for part in identity]),
        tuple([_column(row, True) for part in identity for row in listed if row[0] == part.column.name]),
        clustered=primary.parts if primary and engine == "InnoDB" else (),
        automatic=automatic,
        triggers=view,  # only an INSERT shows whether a view accepts rows
        unique=frozenset([part.column.name for key in keys if key.unique for part in key.parts]),
        undoes=view or undoes == "YES",
        seen=(same, without_count(seen)),
        compared=without_count,
    )


def without_count(answer: Any) -> Any:
    """Return an answer to SHOW CREATE TABLE without the AUTO_INCREMENT number, which changes with each row."""
    return [[_COUNTED.sub("", value) if isinstance(value, str) else value for value in row] for row in answer[0]]


def _keys(rows: Sequence[Row], columns: dict[str, TableColumn]) -> tuple[Key, ...]:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row[0], []).append(row)
    keys = []
    for name, parts in by_name.items():
        _, non_unique, _, _, _, kind, ignored = parts[0]
        made: list[Part] = []
        for _, _, column, collation, prefix, _, _ in parts:
            if prefix is not None or column is None or columns[column].kind in _UNORDERED:
                break  # the columns from here on are not in an order for which a find could ask
            part, down = columns[column], collation == "D"
            made.append(Part(part, down, part.sql, not down, len(made) == MOST_PARTS - 1))
        if kind != "BTREE" or ignored == "YES" or not made:
            continue
        whole = len(made) == len(parts)
        hint = f" FORCE INDEX ({WORDS.quoted(name)})"
        keys.append(Key(name, whole and not non_unique, tuple(made), hint, whole))
    return tuple(sorted(keys, key=lambda key: key.name != "PRIMARY"))


def _names_rows(key: Key, singles: set[str]) -> bool:
    # A FLOAT is returned with fewer digits than it has, so a search for the value that was read may not find the row.
    return key.unique and not any([part.column.nullable or part.column.name in singles for part in key.parts])


def _column(row: Row, wire: bool) -> TableColumn:
    name, kind, declared, nullable, characters, octets, precision, scale, fraction, charset, _, generated, collation = (
        row
    )
    unsigned, meaning, ranged, digits = "unsigned" in declared, kind, "", fraction or 0
    makes: dict[str, values.Held] = {
        "year": _year,
        "decimal": partial(values.decimal, precision or 10, scale or 0, 0 if unsigned else None),
        "float": partial(_real, values.single, scale, unsigned),
        "double": partial(_real, values.real, scale, unsigned),
        "date": values.date,
        "datetime": partial(values.moment, digits),
        "timestamp": partial(values.moment, digits),
        "time": partial(values.span, digits, _MOST_TIME),
        "uuid": values.unique_id,
        "inet4": partial(_address, ipaddress.IPv4Address),
        "inet6": partial(_address, ipaddress.IPv6Address),
    }
    held = makes.get(kind, values.never)
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        meaning, held = "integer", partial(values.integer, low, high)
    elif kind == "bit":
        held = partial(_bits, precision or 1, wire)
    elif kind in ("float", "double"):
        meaning = "real"
    elif kind == "enum":
        labels = [_ESCAPED.sub(lambda found: _ESCAPES[found[1]], label) for label in _LABEL.findall(declared)]
        spelt = str.lower if (collation or "").endswith("_ci") else str
        held = partial(_label, spelt, {spelt(label): label for label in labels})
        ranged = f"FIELD(%s, {', '.join([literal(label).replace('%', '%%') for label in labels])})"
    elif charset is not None:
        meaning = kind if kind == "set" else "text"
        held = partial(values.text, fits=partial(_fits, charset, characters or 0, octets or 0))
    elif kind in ("binary", "varbinary") or kind.endswith("blob"):
        meaning, held = "blob", partial(values.binary, octets, kind == "binary")
    numeric = meaning in ("integer", "decimal", "real")
    shown_by = ("", "")
    if wire and charset is not None and charset not in _UTF8:
        shown_by = _BYTES
        held = partial(_decoded, _CODECS.get(charset, "ascii"), held)
    elif wire and charset is None and meaning not in _AS_STORED and (meaning != "integer" or "zerofill" in declared):
        shown_by = _TEXT
    return TableColumn(
        *(name, meaning, nullable == "YES", generated == "ALWAYS", held, WORDS.quoted(name), "%s", ranged, ranged),
        compares=values.whole_or_exact if numeric else None,
        addend=None if not numeric else values.real if meaning == "real" else values.whole_or_exact,
        array=meaning if meaning in ("integer", "blob") or charset == "utf8mb4" else "",
        summed_by=("", " + 0e0") if kind == "float" else ("", ""),
        named_as=_MOMENT if kind == "timestamp" else "",
        shown_by=shown_by,
    )


def _decoded(codec: str, held: values.Held, value: Any) -> Any:
    # A token contains the bytes of the column's character set.
    if not isinstance(value, str):
        return held(value)
    try:
        return held(as_bytes(value).decode(codec))
    except UnicodeDecodeError:
        return UNHELD


def _fits(charset: str, characters: int, octets: int, text: str) -> bool:
    if len(text) > characters or (charset in _TWO_BYTES and not text.isascii() and max(text) > "\uffff"):
        return False
    if text.isascii() and len(text) <= octets // 4:
        return True
    try:
        return len(text.encode(_CODECS.get(charset, "ascii"))) <= octets
    except UnicodeEncodeError:
        return False


def _year(value: Any) -> Any:
    found = values.integer(0, 2155, value)
    return found if found == 0 or (found is not UNHELD and found > 1900) else UNHELD


def _bits(most: int, wire: bool, value: Any) -> Any:
    value = as_bytes(value) if wire and isinstance(value, str) else value
    return values.integer(0, 2**most - 1, int.from_bytes(value) if isinstance(value, bytes) else value)


def _real(held: Callable[[Any], Any], scale: int | None, unsigned: bool, value: Any) -> Any:
    found = held(value)
    if found is UNHELD or (unsigned and found < 0) or (scale is not None and round(found, scale) != found):
        return UNHELD
    return found


def _label(spelt: Callable[[str], str], labels: dict[str, str], value: Any) -> Any:
    return labels.get(spelt(value), UNHELD) if isinstance(value, str) else UNHELD


def _address(kind: Callable[[str], Any], value: Any) -> Any:
    try:
        return str(kind(value)) if isinstance(value, str) else UNHELD
    except ValueError:
        return UNHELD
