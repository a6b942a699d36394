"""MariaDB's SQL of the recordings, as SQLite takes it.

Only what table definitions and their rows are made of. A table keeps its names, its keys and their order, and its rows
in the order of its primary key, as InnoDB keeps them. What has no likeness in SQLite is left out, and said.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TEXTS = ("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "JSON")
BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BIT", "INET4", "INET6", "UUID")
SHAPES = ("GEOMETRY", "POINT", "LINESTRING", "POLYGON")
# What MariaDB's latin1 is.
CHARSETS = {"latin1": "cp1252", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "utf8": "utf-8", "ascii": "ascii"}

_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"[^\"]*\"|`[^`]*`", re.DOTALL)


@dataclass
class Column:
    """A column as MariaDB was told of it."""

    name: str
    type: str
    length: str
    rest: str
    charset: str

    @property
    def is_text(self) -> bool:
        return self.type in TEXTS and self.charset != "binary"

    @property
    def is_bytes(self) -> bool:
        return self.type in BYTES or self.type in SHAPES or (self.type in TEXTS and self.charset == "binary")

    @property
    def is_automatic(self) -> bool:
        return "AUTO_INCREMENT" in self.rest.upper()


@dataclass
class Table:
    """A table as MariaDB was told of it, and the names that its keys have in SQLite."""

    name: str
    columns: list[Column]
    keys: dict[str, str] = field(default_factory=dict)


@dataclass
class Translated:
    """What was made in SQLite: tables by their names, and what could not be made."""

    tables: dict[str, Table] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    index_names: set[str] = field(default_factory=set)


def pieces(text: str, separator: str) -> Iterator[str]:
    """Split at a separator that stands neither in quotes nor in parentheses."""
    depth, start, at = 0, 0, 0
    while at < len(text):
        quoted = _QUOTED.match(text, at)
        if quoted:
            at = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if text[at] == separator and not depth:
            yield text[start:at].strip()
            start = at + 1
        at += 1
    yield text[start:].strip()


def enclosed(text: str, start: int) -> tuple[str, str]:
    """Return what stands in the parentheses that open at `start`, and what follows them."""
    depth, at = 0, start
    while at < len(text):
        quoted = _QUOTED.match(text, at)
        if quoted:
            at = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if not depth:
            return text[start + 1 : at - 1], text[at:]
    raise ValueError(text)


def unquoted(name: str) -> str:
    """Return a name without its backticks."""
    return name.strip().strip("`")


def identifier(name: str) -> str:
    """Return a name as SQLite reads it, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def expression(text: str) -> str:
    """Return an expression or a query in SQLite's words."""
    text = re.sub(r"`([^`]*)`", r'"\1"', text)
    text = re.sub(r"\bhst\.", "", text)
    text = re.sub(r"\bDIV\b", "/", text, flags=re.I)
    text = re.sub(r"\bMOD\b(?!\s*\()", "%", text, flags=re.I)
    text = re.sub(r"\bLAST_INSERT_ID\(\)", "last_insert_rowid()", text, flags=re.I)
    text = re.sub(r"\bCONVERT\((x'[0-9A-F]*') USING (\w+)\)", r"decoded(\1, '\2')", text, flags=re.I)
    text = re.sub(r"\bIF\s*\(", "iif(", text, flags=re.I)
    text = re.sub(r"(?<![\w)])\s*CHAR\(", " char(", text, flags=re.I)
    while found := re.search(r"\bCONCAT\(", text, flags=re.I):
        inner, after = enclosed(text, found.end() - 1)
        text = text[: found.start()] + "(" + " || ".join(pieces(inner, ",")) + ")" + after
    while found := re.search(r"\bGROUP_CONCAT\(", text):
        inner, after = enclosed(text, found.end() - 1)
        text = text[: found.start()] + "group_concat(" + " || ".join(pieces(inner, ",")) + ")" + after
    return text


def functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that the recordings use, with MariaDB's meaning."""

    def octets(value: object) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    def length(value: object) -> int | None:
        return None if value is None else len(octets(value))

    def md5(value: object) -> str | None:
        return None if value is None else hashlib.md5(octets(value)).hexdigest()

    def decoded(value: Any, charset: str) -> Any:
        return value.decode(CHARSETS[charset]) if isinstance(value, bytes) else value

    def hexadecimal(value: object) -> str | None:
        return None if value is None else octets(value).hex().upper()

    connection.create_function("hex", 1, hexadecimal, deterministic=True)
    connection.create_function("length", 1, length, deterministic=True)
    connection.create_function("md5", 1, md5, deterministic=True)
    connection.create_function("repeat", 2, lambda value, times: str(value) * int(times), deterministic=True)
    connection.create_function("decoded", 2, decoded, deterministic=True)


class Translator:
    """Runs MariaDB's definitions and rows on a SQLite connection, one statement after the other.

    rowid: tables keep their rows by their rowid, and not in the order of their primary key as InnoDB does.
    """

    def __init__(self, connection: sqlite3.Connection, rowid: bool = False) -> None:
        self.connection = connection
        self.rowid = rowid
        self.made = Translated()
        self._charset = "utf8mb4"
        self._variables: dict[str, str] = {}
        self._prepared: dict[str, str] = {}
        functions(connection)

    def run(self, sql: str) -> list[tuple[object, ...]]:
        """Run statements, and return the rows of those that have some."""
        rows: list[tuple[object, ...]] = []
        for statement in pieces(sql, ";"):
            if statement:
                rows += self._statement(statement)
        return rows

    def request(self, line: bytes) -> bytes:
        """Return a line with the name that an index has in SQLite."""
        tokens = line.split(b"\t")
        if tokens[0] == b"P" and len(tokens) > 4:
            table = self.made.tables.get(tokens[3].decode("latin-1"))
            own = table and table.keys.get(tokens[4].decode("latin-1"))
            tokens[4] = own.encode() if own else tokens[4]
        return b"\t".join(tokens)

    def _statement(self, statement: str) -> list[tuple[object, ...]]:
        words = statement.upper().split()
        if words[0] in ("USE", "DROP", "COMMIT", "START", "BEGIN", "FLUSH") and words[1:2] != ["TABLE"]:
            return []
        if words[:2] == ["CREATE", "DATABASE"]:
            found = re.search(r"CHARACTER SET (\w+)", statement, re.I)
            self._charset = found[1].lower() if found else "utf8mb4"
            return []
        if words[:2] == ["CREATE", "TABLE"]:
            self._create_table(statement)
            return []
        if words[:2] == ["CREATE", "TRIGGER"]:
            self._create_trigger(statement)
            return []
        if words[0] == "CREATE":
            self.made.left_out.append(statement)
            return []
        if words[0] in ("SET", "PREPARE", "EXECUTE"):
            self._prepare(statement)
            return []
        self._sequences(statement)
        rows = self.connection.execute(self._expression(statement)).fetchall()
        self.connection.commit()
        if words[0] == "INSERT":
            self._store_as_declared(unquoted(re.sub(r"\bhst\.", "", statement).split()[2].partition("(")[0]))
        return rows

    def _expression(self, text: str) -> str:
        return expression(text)

    def _sequences(self, statement: str) -> None:
        for name, first, last in re.findall(r"\b(seq_(\d+)_to_(\d+))\b", statement):
            self.connection.execute(
                f"CREATE TEMP VIEW IF NOT EXISTS {name} AS WITH RECURSIVE numbers(seq) AS "
                f"(SELECT {first} UNION ALL SELECT seq + 1 FROM numbers WHERE seq < {last}) SELECT seq FROM numbers"
            )

    def _prepare(self, statement: str) -> None:
        if assigned := re.fullmatch(r"SET\s+@(\w+)\s*=\s*\((.*)\)", statement, re.I | re.DOTALL):
            self._sequences(assigned[2])
            ((value,),) = self.connection.execute(self._expression(assigned[2])).fetchall()
            self._variables[assigned[1]] = value.decode() if isinstance(value, bytes) else str(value)
        elif prepared := re.fullmatch(r"PREPARE\s+(\w+)\s+FROM\s+@(\w+)", statement, re.I):
            self._prepared[prepared[1]] = self._variables[prepared[2]]
        elif executed := re.fullmatch(r"EXECUTE\s+(\w+)", statement, re.I):
            self._alter(self._prepared[executed[1]])

    def _alter(self, statement: str) -> None:
        found = re.fullmatch(r"ALTER\s+TABLE\s+(\S+)\s+(.*)", statement, re.I | re.DOTALL)
        if not found:
            raise ValueError(statement)
        table = self.made.tables[unquoted(found[1])]
        for clause in pieces(found[2], ","):
            added = re.fullmatch(r"ADD\s+COLUMN\s+(.*)", clause, re.I | re.DOTALL)
            if not added:
                raise ValueError(clause)
            column = self._column(added[1], self._charset)
            table.columns.append(column)
            self.connection.execute(f"ALTER TABLE {identifier(table.name)} ADD COLUMN {self._definition(column, [])}")
        self.connection.commit()

    def _column(self, clause: str, charset: str) -> Column:
        name, rest = re.match(r"(`[^`]+`|\S+)\s+(.*)", clause, re.DOTALL).groups()  # type: ignore[union-attr]
        type, rest = re.match(r"(\w+)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        length = ""
        if rest.startswith("("):
            length, rest = enclosed(rest, 0)
        if own := re.search(r"\bCHARACTER SET (\w+)", rest, re.I):
            charset = own[1].lower()
        return Column(unquoted(name), type.upper(), length, rest, charset)

    def _definition(self, column: Column, primary: list[str]) -> str:
        if column.is_automatic:
            return f"{identifier(column.name)} INTEGER PRIMARY KEY AUTOINCREMENT"
        if column.is_text:
            type = "TEXT"
        elif column.is_bytes:
            type = "BLOB"
        else:
            type = column.type + (f"({column.length})" if column.length and column.type not in ("YEAR", "INT") else "")
        parts = [identifier(column.name), type]
        if computed := re.search(r"\bAS\s*\(", column.rest, re.I):
            inner, after = enclosed(column.rest, computed.end() - 1)
            parts.append(f"AS ({expression(inner)}) {'STORED' if 'STORED' in after.upper() else 'VIRTUAL'}")
        if re.search(r"\bNOT NULL\b", column.rest, re.I) or column.name in primary:
            parts.append("NOT NULL")
        if default := re.search(r"\bDEFAULT\s+(\(|'(?:[^']|'')*'|\S+)", column.rest, re.I):
            value = default[1]
            if value == "(":
                value = f"({enclosed(column.rest, default.end() - 1)[0]})"
            parts.append(f"DEFAULT {expression(value)}")
        if checked := re.search(r"\bCHECK\s*\(", column.rest, re.I):
            parts.append(f"CHECK ({expression(enclosed(column.rest, checked.end() - 1)[0])})")
        if column.is_text and "_bin" not in column.rest.lower():
            parts.append("COLLATE NOCASE")
        return " ".join(parts)

    def _create_table(self, statement: str) -> None:
        opens = statement.index("(")
        name = unquoted(re.sub(r"\bhst\.", "", statement[:opens]).split()[-1])
        inner, options = enclosed(statement, opens)
        if table_charset := re.search(r"(?:CHARACTER SET|CHARSET)[ =](\w+)", options, re.I):
            charset = table_charset[1].lower()
        else:
            charset = self._charset
        columns: list[Column] = []
        primary: list[str] = []
        unique: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        constraints: list[str] = []
        for clause in pieces(inner, ","):
            clause = re.sub(r"^CONSTRAINT\s+\S+\s+", "", clause, flags=re.I)
            if key := re.match(r"PRIMARY KEY\s*(?:USING \w+\s*)?\(", clause, re.I):
                primary = [unquoted(each) for each in pieces(self._parts(enclosed(clause, key.end() - 1)[0]), ",")]
            elif re.match(r"(FULLTEXT|SPATIAL)\b", clause, re.I):
                self.made.left_out.append(f"{name}: {clause}")
            elif key := re.match(r"(UNIQUE\s+)?(?:KEY|INDEX)\s+(`[^`]+`|\w+)\s*(?:USING \w+\s*)?\(", clause, re.I):
                parts = self._parts(enclosed(clause, key.end() - 1)[0])
                (unique if key[1] else others).append((unquoted(key[2]), parts))
            elif re.match(r"(FOREIGN KEY|CHECK)\b", clause, re.I):
                constraints.append(expression(clause))
            else:
                column = self._column(clause, charset)
                columns.append(column)
                if re.search(r"\bPRIMARY KEY\b", column.rest, re.I):
                    primary = [column.name]
                elif re.search(r"\bUNIQUE\b", column.rest, re.I):
                    unique.append((column.name, identifier(column.name)))
        # MariaDB numbers the unique ones first, and of these those that cannot be NULL.
        whole = {each.name for each in columns if "NOT NULL" in each.rest.upper() or each.name in primary}
        unique.sort(key=lambda key: not {unquoted(part.split()[0]).strip('"') for part in key[1].split(",")} <= whole)
        first = re.search(r"AUTO_INCREMENT\s*=\s*(\d+)", options, re.I)
        # No number has more than 63 bits: where it cannot begin there, it begins with 1.
        begin = int(first[1]) if first and int(first[1]) < 2**63 else 1
        table = self.made.tables[name] = Table(name, columns)
        self._make_table(table, primary, constraints, begin)
        for key_name, parts in [*unique, *others]:
            own = self._free_name(table, key_name)
            table.keys[key_name] = own
            kind = "UNIQUE INDEX" if (key_name, parts) in unique else "INDEX"
            self.connection.execute(f"CREATE {kind} {identifier(own)} ON {identifier(name)} ({parts})")
        self.connection.commit()

    def _make_table(self, table: Table, primary: list[str], constraints: list[str], begin: int) -> None:
        automatic = [column for column in table.columns if column.is_automatic]
        lines = [self._definition(column, primary) for column in table.columns]
        if primary and not automatic:
            lines.append(f"PRIMARY KEY ({', '.join(map(identifier, primary))})")
        layout = " WITHOUT ROWID" if primary and not automatic and not self.rowid else ""
        self.connection.execute(f"CREATE TABLE {identifier(table.name)} ({', '.join([*lines, *constraints])}){layout}")
        if automatic and begin > 1:
            self.connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table.name, begin - 1))

    def _parts(self, columns: str) -> str:
        """Return the columns of a key without the lengths of their prefixes."""
        return re.sub(r"\(\d+\)", "", columns).replace("`", '"')

    def _free_name(self, table: Table, name: str) -> str:
        """Return a name for an index: SQLite has one room of names for tables and indexes, whatever their case."""
        ask = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE"
        taken = self.connection.execute(ask, (name,)).fetchone() is not None
        return f"{table.name}_{name}" if taken else name

    def _create_trigger(self, statement: str) -> None:
        shape = r"CREATE TRIGGER (\w+) (?:BEFORE|AFTER) (\w+) ON (\w+) FOR EACH ROW SET NEW\.(\w+)\s*=\s*(.*)"
        found = re.fullmatch(shape, statement, re.I | re.DOTALL)
        if not found:
            raise ValueError(statement)
        name, event, table, column, value = found.groups()
        key = identifier(self.made.tables[table].columns[0].name)
        self.connection.execute(
            f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW BEGIN "
            f"UPDATE {table} SET {column} = {expression(value)} WHERE {key} = NEW.{key}; END"
        )

    def _store_as_declared(self, name: str) -> None:
        """Text that was written as bytes, and bytes that were written as text, become what their columns hold."""
        for column in self.made.tables[name].columns if name in self.made.tables else []:
            own, table = identifier(column.name), identifier(name)
            if column.is_text:
                self.connection.execute(
                    f"UPDATE {table} SET {own} = decoded({own}, '{column.charset}') WHERE typeof({own}) = 'blob'"
                )
            if column.is_bytes:
                self.connection.execute(
                    f"UPDATE {table} SET {own} = CAST({own} AS BLOB) WHERE typeof({own}) IN ('text', 'integer')"
                )
            if column.type == "BINARY":
                width = int(column.length or 1)
                self.connection.create_function("padded", 1, lambda value, width=width: value.ljust(width, b"\0"))
                self.connection.execute(f"UPDATE {table} SET {own} = padded({own}) WHERE {own} IS NOT NULL")
        self.connection.commit()
