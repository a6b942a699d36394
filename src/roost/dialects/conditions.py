"""The values that may be stored, as SQL conditions: for `check`, and for writes of SQL clients through a view."""

from __future__ import annotations

from roost.dialects.dialect import Dialect
from roost.types.columns import Column

_DIGITS = "[0-9]" * 2
_MOMENT = f"{_DIGITS}{_DIGITS}-{_DIGITS}-{_DIGITS} [0-2][0-9]:[0-5][0-9]:[0-5][0-9].{_DIGITS}{_DIGITS}{_DIGITS}"
_UUID = "-".join("[0-9a-f]" * n for n in (8, 4, 4, 4, 12))
PIECE = 64  # bytes of a text that are walked through at a time


# What types of PostgreSQL take beyond what Python has. NaN is greater than all numbers there.
_POSTGRESQL = {
    "float": "NOT BETWEEN '-1.7976931348623157e308'::float8 AND '1.7976931348623157e308'::float8",
    "decimal": "= 'NaN'",
    "date": "NOT BETWEEN '0001-01-01' AND '9999-12-31'",
    "datetime": "NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'",
}


def no_moment(name: str) -> str:
    """Return the condition under which a text is not a time in the stored format."""
    return f"{name} NOT GLOB '{_MOMENT}' OR substr({name}, 12, 2) > '23' OR {_no_day(f'substr({name}, 1, 10)')}"


def _no_day(name: str) -> str:
    return f"date({name}, '+0 days') IS NOT {name} OR {name} < '0001'"  # SQLite has a year 0, Python has none


def wrong(dialect: Dialect, column: Column, name: str) -> str:
    """Return the condition for a value of the right storage class that the declaration forbids; "" if there is none.

    name: what stands for the value in SQL.
    """
    limit = column.type.limit or 0
    if dialect.name != "sqlite":  # columns have types there that see to all the rest
        return _wrong_on_server(dialect, column, name)
    match column.type.kind:
        case "text":
            return f"length({name}) > {limit} OR {no_utf8(name)}"
        case "binary":
            return f"length({name}) > {limit}"
        case "bool":
            return f"{name} NOT IN (0, 1)"
        case "float":
            return f"abs({name}) > 1.7976931348623157e308"
        case "date":
            return _no_day(name)
        case "datetime":
            return no_moment(name)
        case "uuid":
            return f"length({name}) <> 36 OR {name} GLOB '*[^-0-9a-f]*'"
        case "decimal":
            return f"{name} GLOB '*[^-0-9.]*' OR {name} NOT GLOB '*[0-9]*' OR length({name}) > {limit + 3}"
        case "enum":
            return f"{name} NOT IN ({members(dialect, column)})"
    return ""


def _wrong_on_server(dialect: Dialect, column: Column, name: str) -> str:
    limit = column.type.limit or 0
    match column.type.kind:
        case "text":
            return f"char_length({name}) > {limit}"
        case "binary":
            return f"octet_length({name}) > {limit}"
        case "enum":
            return f"{name} NOT IN ({members(dialect, column)})"
        case kind if dialect.name == "postgresql" and kind in _POSTGRESQL:
            return f"{name} {_POSTGRESQL[kind]}"
    return ""


def refused(dialect: Dialect, column: Column, name: str) -> str:
    """Return the condition under which a value that a SQL client writes is not allowed.

    Stricter than `wrong` where a value could be written in several ways: keys are compared as they are stored. Numbers
    are taken in any storage class that loses nothing, as a table takes them: some drivers bind all as text, or as REAL.
    On a server, "" for none: what the types of columns do not take is refused by them.
    """
    if dialect.name != "sqlite":
        conditions = [] if column.nullable else [f"{name} IS NULL"]
        return " OR ".join(filter(None, [*conditions, wrong(dialect, column, name)]))
    conditions = [_other_class(dialect, column, name)]
    limit, scale = column.type.limit or 0, column.type.scale
    match column.type.kind:
        case "int":
            pass
        case "text":  # length() stops at a NUL: such a text is measured in bytes
            conditions.append(wrong(dialect, column, name))
            conditions.append(f"length(CAST({name} AS BLOB)) > {limit} AND {_nul(name)}")
        case "datetime":
            conditions += [_nul(name), wrong(dialect, column, stored(dialect, column, name))]
        case "uuid":
            conditions += [_nul(name), f"{stored(dialect, column, name)} NOT GLOB '{_UUID}'"]
        case "decimal":
            digits = f"ltrim({name}, '-')"
            whole = f"substr({digits}, 1, length({digits}) - {scale + 1})" if scale else digits
            conditions += [
                _nul(name),
                f"{name} GLOB '?*-*' OR {name} GLOB '-[-0.]*' AND {name} NOT GLOB '*[1-9]*'",
                f"{whole} = '' OR {whole} GLOB '*[^0-9]*' OR {whole} GLOB '0?*'",
                f"length({whole}) > {limit - scale}" if limit > scale else f"{whole} <> '0'",
            ]
            if scale:
                conditions.append(f"substr({digits}, -{scale + 1}) NOT GLOB '.{'[0-9]' * scale}'")
        case _:
            conditions.append(wrong(dialect, column, stored(dialect, column, name)))
    condition = " OR ".join(conditions)
    return f"{name} IS NOT NULL AND ({condition})" if column.nullable else f"{name} IS NULL OR {condition}"


def stored(dialect: Dialect, column: Column, name: str) -> str:
    """Return the value as it is stored, for one that a SQL client writes: some may be written in two ways."""
    if dialect.name != "sqlite":
        return f"{name} + 0.0::float8" if column.type.kind == "float" else name
    match column.type.kind:
        case "float":
            return f"(CAST({name} AS REAL) + 0.0)"  # -0.0 is 0.0
        case "datetime":  # the microseconds may be left out
            return f"({name} || CASE length({name}) WHEN 19 THEN '.000000' ELSE '' END)"
        case "uuid":
            return f"lower({name})"
    return f"CAST({name} AS INTEGER)" if dialect.types[column.type.kind](column) == "INTEGER" else name


def wanted(dialect: Dialect, column: Column) -> str:
    """Return in words what a SQL client may write."""
    limit = column.type.limit
    number = "number" if dialect.family == "mariadb" else "text"
    words = {
        "int": "an integer",
        "float": "a finite number",
        "bool": "true or false" if dialect.name == "postgresql" else "0 or 1",
        "text": f"a text of at most {limit} characters",
        "binary": f"a blob of at most {limit} bytes",
        "datetime": "a UTC time such as '2008-01-01 22:03:23'",
        "date": "a date such as '2008-01-01'",
        "decimal": f"a {number} of {limit} digits at most, {column.type.scale} of them behind the point",
        "uuid": "a UUID as text",
    }
    values = column.type.members
    listed = ", ".join(map(repr, values)) if len(values) <= 10 else f"its {len(values)} declared values"
    return words.get(column.type.kind, f"one of {listed}") + (" or NULL" if column.nullable else "")


def _other_class(dialect: Dialect, column: Column, name: str) -> str:
    # The condition under which a value is not of the column's storage class, nor a number that loses nothing in it.
    class_ = dialect.types[column.type.kind](column)
    if class_ in ("INTEGER", "REAL"):
        return f"CAST({name} AS {class_}) IS NOT {name}"
    return f"typeof({name}) <> '{class_.lower()}'"


def _nul(name: str) -> str:
    # GLOB and length() see a text only up to a NUL.
    return f"instr({name}, char(0))"


def no_utf8(name: str) -> str:
    """Return the condition under which a text is none that Python can read."""
    # SQLite stores any bytes as text and reads most of them as some character. So a text that is not plain ASCII is
    # walked through, from the end of one character to that of the next: each has to be what is read, written again.
    # It is halved into pieces first, between characters: every substr() copies all bytes of what it is taken from.
    # U+FFFE and U+FFFF alone are read as U+FFFD. In a file whose texts are UTF-16, only halves of characters are wrong.
    bytes_, place, half = '"its bytes"', '"its end" + 1', 'length("its bytes") / 2'
    starts = " ".join(
        f"WHEN substr({bytes_}, {half} + {n + 1}, 1) NOT BETWEEN X'80' AND X'BF' THEN {half} + {n}" for n in range(4)
    )
    cut = f"CASE {starts} ELSE {half} END"

    def part(width: int) -> str:
        return f"substr({bytes_}, {place}, {width})"

    widths = " ".join(
        f"WHEN CAST(char(unicode(CAST({part(width)} AS TEXT))) AS BLOB) = {part(width)} THEN {width}"
        for width in (2, 3, 4)
    )
    width = f"CASE WHEN {part(1)} < X'80' THEN 1 WHEN {part(3)} IN (X'EFBFBE', X'EFBFBF') THEN 3 {widths} END"
    read = name
    for lost in (65533, 65534, 65535):
        read = f"replace({read}, char({lost}), '')"
    return (
        f"CASE WHEN CAST('a' AS BLOB) <> X'61' THEN {read} GLOB '*' || char(65533) || '*'\n"
        f"  ELSE ({name} GLOB '*[^' || char(1) || '-' || char(127) || ']*' OR {_nul(name)}) AND EXISTS (\n"
        f'  WITH RECURSIVE "a piece" ({bytes_}) AS (SELECT CAST({name} AS BLOB) UNION ALL\n'
        f'    SELECT CASE "its half" WHEN 1 THEN substr({bytes_}, 1, {cut}) ELSE substr({bytes_}, {cut} + 1) END\n'
        f'    FROM "a piece", (SELECT 1 AS "its half" UNION ALL SELECT 2) WHERE length({bytes_}) > {PIECE})\n'
        f'  SELECT 1 FROM "a piece" WHERE length({bytes_}) <= {PIECE} AND EXISTS (\n'
        f'  WITH RECURSIVE "a character" ("its end") AS (SELECT 0 UNION ALL SELECT "its end" + {width}\n'
        f'    FROM "a character" WHERE "its end" < length({bytes_}))\n'
        f'  SELECT 1 FROM "a character" WHERE "its end" IS NULL)) END'
    )


def members(dialect: Dialect, column: Column) -> str:
    """Return what is stored for an Enum's members, as the list of an IN."""
    return ", ".join(map(str if column.type.numbered else dialect.literal, column.type.members))
