"""Writes of SQL clients through a view on MariaDB and MySQL: the input's types, values refused, values stored.

A client's sql_mode may be lax: its values are then truncated, or become 0, before a trigger sees them. So the input
columns are texts or bytes, wide enough that nothing is lost, and the values are checked there, by conditions that do
not depend on any setting of the session.
"""

from __future__ import annotations

from roost.dialects.conditions import members
from roost.dialects.dialect import Dialect
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

_WORD = "TINYTEXT CHARACTER SET ascii COLLATE ascii_bin"
_ANY_TEXT = Column("", ColumnType("text", 1_000_000))
_HOURS = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_DAYS = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_DOUBLE_MAX = "1.7976931348623157e308"


def given_type(dialect: Dialect, column: Column) -> str:
    """Return the type of the column of an inlet, or of a procedure's parameter, that takes a value."""
    match column.type.kind:
        case "text":
            return dialect.types["text"](_ANY_TEXT)
        case "binary":
            return "MEDIUMBLOB"
        case "uuid":
            return "TINYBLOB"
        case "enum":
            return _WORD if column.type.numbered else dialect.types["text"](_ANY_TEXT)
        case "float":  # as a number MySQL gives a TINYTEXT 22 characters of it
            return _WORD.replace("TINYTEXT", "VARCHAR(255)")
    return _WORD


def refused(dialect: Dialect, column: Column, given: str) -> str:
    """Return the condition under which what a SQL client gives is not allowed."""
    condition = _wrong(dialect, column, given)
    return f"{given} IS NOT NULL AND ({condition})" if column.nullable else f"{given} IS NULL OR {condition}"


def stored(column: Column, given: str) -> str:
    """Return the value as it is stored, for one that is not refused."""
    match column.type.kind:
        case "float":
            return f"CAST({given} AS DOUBLE) + 0"  # -0.0 is 0.0
        case "datetime":
            return f"CAST({given} AS DATETIME(6))"
        case "date":
            return f"CAST({given} AS DATE)"
        case "decimal":
            return f"CAST({given} AS DECIMAL({column.type.limit}, {column.type.scale}))"
        case "uuid":
            return f"IF(LENGTH({given}) = 16, {given}, UNHEX(REPLACE({given}, '-', '')))"
        case "text" | "binary":
            return given
        case "enum" if not column.type.numbered:
            return given
    return f"CAST({given} AS DECIMAL(30))"


def _wrong(dialect: Dialect, column: Column, given: str) -> str:
    limit, scale = column.type.limit or 0, column.type.scale
    match column.type.kind:
        case "text":
            return f"CHAR_LENGTH({given}) > {limit}"
        case "binary":
            return f"LENGTH({given}) > {limit}"
        case "bool":
            return f"{given} NOT IN ('0', '1')"
        case "enum" if column.type.numbered:
            return f"{_no_integer(given)} OR CAST({given} AS DECIMAL(30)) NOT IN ({members(dialect, column)})"
        case "enum":
            return f"{given} NOT IN ({members(dialect, column)})"
        case "float":
            beyond = f"ABS(CAST({given} AS DOUBLE)) >= {_DOUBLE_MAX}"  # where the server cuts what is larger
            most = f"{given} NOT IN ('{_DOUBLE_MAX}', '-{_DOUBLE_MAX}')"
            number = "[-+]?([0-9]{1,70}([.][0-9]{0,70})?|[.][0-9]{1,70})([eE][-+]?[0-9]{1,5})?"
            return f"{_unlike(given, number)} OR {beyond} AND {most}"
        case "datetime":
            return f"{_unlike(given, f'{_DAYS}[ T]{_HOURS}')} OR {_no_day(given)}"
        case "date":
            return f"{_unlike(given, _DAYS)} OR {_no_day(given)}"
        case "decimal":
            number = f"-?(?=[.]?[0-9])0{{0,30}}[0-9]{{0,{limit - scale}}}([.][0-9]{{0,{scale}}}0{{0,30}})?"
            return _unlike(given, number)
        case "uuid":
            digits = "-".join(f"[0-9a-fA-F]{{{n}}}" for n in (8, 4, 4, 4, 12))
            return f"LENGTH({given}) <> 16 AND {_unlike(given, digits)}"
    return f"{_no_integer(given)} OR CAST({given} AS DECIMAL(30)) NOT BETWEEN {INT_MIN} AND {INT_MAX}"


def _unlike(given: str, pattern: str) -> str:
    # (?-imsx): a session may set flags of its own. The end is where no character follows: $ also matches before a last
    # line break. No backslash, which means something else under NO_BACKSLASH_ESCAPES.
    return f"{given} NOT REGEXP '(?-imsx)^{pattern}(?![^0]|0)'"


def _no_integer(given: str) -> str:
    # A DOUBLE of 16 digits, as which Node.js binds a number, comes as 1.795782767138298e15. A longer one is not exact.
    return _unlike(given, "-?([0-9]{1,20}([.]0{1,30})?|[0-9]([.][0-9]{1,15})?e15)")


def _no_day(given: str) -> str:
    # LAST_DAY of a month's first is the same whatever the session allows as a date.
    return f"{given} < '0001' OR SUBSTR({given}, 9, 2) > DAY(LAST_DAY(CONCAT(LEFT({given}, 7), '-01')))"
