"""PostgreSQL: reads the schema of a table from pg_catalog, and defines how its columns store values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from zlib import crc32

from roost.dialects.dialect import Row, Together, query
from roost.dialects.postgresql import POSTGRESQL
from roost.errors import Conflict
from roost.structures.index import values
from roost.structures.index.schema import IndexWords, Key, Part, Reading, Table, TableColumn, ask

WORDS: Final = IndexWords(POSTGRESQL, says_nulls=True, shown_first=True, same="IS NOT DISTINCT FROM", aborts=True)

# The ids of the transactions that wrote the catalog's rows of a table, its columns and its indexes. Every transaction
# asks for them, to see whether the table has changed. A snapshot may be older than the lock on a table: if the table
# was rewritten in between (ALTER, TRUNCATE and INSERT, REFRESH), the snapshot sees neither the new rows nor the new
# catalog rows. Functions do see the latter: if they return another file, or another table of this name, the answer
# contains the time, so that it differs from all earlier ones.
_QUESTION = """\
SELECT n.oid::int8, c.xmin::text,
    ARRAY(SELECT a.xmin FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)::text,
    ARRAY(SELECT ROW(x.indexrelid, x.xmin, i.xmin)::text FROM pg_catalog.pg_index x, pg_catalog.pg_class i
      WHERE i.oid = x.indexrelid AND x.indrelid = c.oid ORDER BY x.indexrelid)::text,
    {files}
  FROM (SELECT to_regclass(%s)::oid) n (oid) LEFT JOIN pg_catalog.pg_class c ON c.oid = n.oid
  WHERE n.oid IS NOT NULL"""
_REWRITTEN = "{0}.relfilenode <> 0 AND {0}.relfilenode <> pg_relation_filenode({0}.oid)"
_VERSIONS = query(_QUESTION.format(files=f"CASE WHEN {_REWRITTEN.format('c')} THEN clock_timestamp()::text END"))
# The same for tables with partitions or children, and for views: the answer has the files of these tables, and of those
# below a view, as nothing in the catalog's rows of the table itself tells that one of them was rewritten or replaced.
_FILES = f"""md5(string_agg(
          concat_ws(' ', p.oid, CASE WHEN k.oid IS NULL OR ({_REWRITTEN.format("k")}) THEN clock_timestamp()::text
            ELSE k.relfilenode::text END), ',' ORDER BY p.oid))"""
_ALL_VERSIONS = query(
    _QUESTION.format(
        files=f"""\
CASE c.relkind
      WHEN 'p' THEN (
        SELECT {_FILES}
        FROM pg_partition_tree(c.oid) p (oid) LEFT JOIN pg_catalog.pg_class k ON k.oid = p.oid)
      ELSE (
        WITH RECURSIVE p AS (
          SELECT c.oid
          UNION
          SELECT b.oid FROM p CROSS JOIN LATERAL (
            SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = p.oid
            UNION ALL
            SELECT d.refobjid FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d
                ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
              WHERE r.ev_class = p.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
          ) b (oid)
        )
        SELECT {_FILES} FROM p JOIN pg_catalog.pg_class k ON k.oid = p.oid)
    END"""
    )
)

# One row for the table, one for each of its columns, one for each part of an index that can be opened: a B-tree over
# columns, with the default operators of their types. For a domain, a column has its base type, and the modifier of that
# type or of the first domain that has one. The type's name is without the modifier: a cast to bit(3) or varchar(3)[]
# cuts and pads, while an assignment refuses.
_FACTS = query(
    """\
WITH t AS (
  SELECT c.oid, c.relkind::text AS kind, c.relhassubclass AS inherited
  FROM pg_catalog.pg_class c
  WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p', 'v', 'm')
    AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
)
SELECT 0, t.oid::int8, t.kind, CASE WHEN t.inherited THEN 1 ELSE 0 END, 0, '', '', '', 0
  FROM t
UNION ALL
SELECT 1, a.attnum::int8, a.attname::text,
    s.modifier, a.attcollation::int8, '',
    CASE WHEN b.typtype = 'e' THEN 'e' WHEN b.typelem <> 0 AND b.typlen = -1 THEN 'a' ELSE b.typname::text END,
    format_type(b.oid, -1),
    CASE WHEN a.attnotnull THEN 1 ELSE 0 END + CASE WHEN a.attgenerated <> '' THEN 2 ELSE 0 END
      + CASE WHEN a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) ~ '^"?nextval"?[(]' THEN 4 ELSE 0 END
      + CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_constraint f WHERE f.conrelid = a.attrelid AND f.contype = 'f'
          AND a.attnum = ANY (f.conkey)) THEN 8 ELSE 0 END
  FROM t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN LATERAL (
      WITH RECURSIVE s AS (
        SELECT a.atttypid AS type, a.atttypmod AS modifier
        UNION ALL
        SELECT y.typbasetype, CASE WHEN s.modifier < 0 THEN y.typtypmod ELSE s.modifier END
          FROM s JOIN pg_catalog.pg_type y ON y.oid = s.type AND y.typtype = 'd'
      )
      SELECT s.type, s.modifier FROM s JOIN pg_catalog.pg_type y ON y.oid = s.type AND y.typtype <> 'd'
    ) s
    JOIN pg_catalog.pg_type b ON b.oid = s.type
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
SELECT 2, k.place, i.relname::text, x.indkey[k.place - 1], x.indoption[k.place - 1], coalesce(n.nspname::text, ''),
    CASE WHEN x.indcollation[k.place - 1] <> a.attcollation THEN l.collname::text ELSE '' END, '',
    CASE WHEN x.indisunique THEN 1 ELSE 0 END + CASE WHEN x.indisprimary THEN 2 ELSE 0 END
      + CASE WHEN o.opcdefault OR o.opcname = 'varchar_ops' THEN 0 ELSE 4 END
  FROM t JOIN pg_catalog.pg_index x ON x.indrelid = t.oid AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL
    JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
    JOIN pg_catalog.pg_am m ON m.oid = i.relam AND m.amname = 'btree'
    CROSS JOIN LATERAL generate_series(1, x.indnkeyatts) AS k (place)
    JOIN pg_catalog.pg_opclass o ON o.oid = x.indclass[k.place - 1]
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = x.indkey[k.place - 1]
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = x.indcollation[k.place - 1]
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
ORDER BY 1, 3, 2"""
)
NOT_NULL, GENERATED, NUMBERED, CHILD = 1, 2, 4, 8  # bits of a column; NUMBERED: it generates ids
UNIQUE, PRIMARY, STRANGE = 1, 2, 4  # bits of a part of an index; STRANGE: its operators are not the default ones
DESCENDING, NULLS_FIRST = 1, 2  # PostgreSQL's own, in pg_index.indoption

_INTEGERS: Final = {"int2": 15, "int4": 31, "int8": 63}
# The kinds of columns whose values can be sent as an array.
LISTED: Final = (
    *("integer", "real", "decimal", "text", "blob"),
    *("bool", "date", "timestamp", "timestamptz", "time", "uuid"),
)
# Values of other types are sent as text, which the type's own function reads.
_BY_TEXT = "%s::text::"
# Types that silently cut or round what does not fit: whether a text fits, by the column's modifier.
_SILENT: Final[dict[str, Callable[[int, str], bool]]] = {
    "char": lambda _, text: len(text.encode()) <= 1,
    "name": lambda _, text: len(text.encode()) <= 63,
    "money": lambda _, text: _decimals(text) <= 2,
    "timetz": lambda modifier, text: _decimals(text) <= (6 if modifier < 0 else modifier),
    "interval": lambda modifier, text: _fits_interval(modifier, text),
}
_FULL_RANGE, _FULL_PRECISION = 0x7FFF, 0xFFFF  # of an interval's modifier: its fields above its precision
_FRACTION: Final = re.compile(r"\.([0-9]*?)0*(?![0-9])")


def read_table(name: str, wire: bool = False, schema: str = "") -> Reading:
    """Return the facts about a table or view; None if there is none that can be opened.

    wire: values are tokens: texts, bytes, and PostgreSQL's own text of other values.
    schema: the schema that contains it; "": it is found by the search path.
    """
    if name.startswith("roost_") or "\0" in name or "\0" in schema:
        return None
    quoted = ".".join([f'"{each_.replace(chr(34), 2 * chr(34))}"' for each_ in (schema, name) if each_])
    question, of_all = ask(_VERSIONS, quoted), ask(_ALL_VERSIONS, quoted)
    answer, of_all_answer, (rows,), again = yield Together((question, of_all, ask(_FACTS, quoted), question))
    if list(answer) != list(again) or (answer[0] and answer[0][0][1] is None):
        raise Conflict(f"{name} was made anew in this moment")
    if not rows or rows[0][0] != 0:
        return None
    _, _, kind, inherited, *_ = rows[0]
    if inherited or kind in ("p", "v"):
        question, answer = of_all, of_all_answer
    numbered = {row[1]: _column(row, wire) for row in rows if row[0] == 1}
    facts_of = {row[2]: row for row in rows if row[0] == 1}
    facts = {name: row[8] for name, row in facts_of.items()}
    view = kind == "v"
    keys = () if view else _keys([row for row in rows if row[0] == 2], numbered)
    identity: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()
    named: tuple[TableColumn, ...] = ()
    primary = next((key for key in keys if key.name == "PRIMARY"), None)
    if kind == "r" and inherited:  # children have keys of their own: a key is unique in each table, not in all
        keys = tuple([replace(key, unique=False) for key in keys])
        identity = ("tableoid::int8", "ctid::text")
        named_by = ("tableoid = %s::oid", "ctid = %s::text::tid")
    elif kind in ("r", "p") and primary is not None:
        named = tuple([_column(facts_of[part.column.name], True) for part in primary.parts])
        identity = tuple([column.sql for column in named])
        named_by = tuple([f"{column.sql} = {column.hole}" for column in named])
    elif kind == "r":  # a row's position (ctid) identifies it while it is locked
        identity, named_by = ("ctid::text",), ("ctid = %s::text::tid",)
    return Table(
        name,
        WORDS,
        view,
        {column.name: column for column in numbered.values()},
        keys,
        identity,
        named_by,
        named,
        automatic=next((column for column, bits in facts.items() if bits & NUMBERED), None),
        triggers=view,  # only an INSERT shows whether a view accepts rows
        unique=frozenset([part.column.name for key in keys if key.unique for part in key.parts]),
        children=frozenset([column for column, bits in facts.items() if bits & CHILD]),
        mark=f" /* {crc32(repr(answer).encode()):x} */",
        seen=(question, answer),
        schema=schema,
    )


def _keys(rows: Sequence[Row], columns: dict[int, TableColumn]) -> tuple[Key, ...]:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row[2], []).append(row)
    keys = []
    for name, parts in by_name.items():
        if any([bits & STRANGE for *_, bits in parts]):
            continue
        made = []
        for _, _, _, column, option, schema, collation, _, _ in sorted(parts, key=lambda part: part[1]):
            term = columns[column].sql
            if collation:
                term += f" COLLATE {WORDS.quoted(schema)}.{WORDS.quoted(collation)}"
            made.append(Part(columns[column], bool(option & DESCENDING), term, bool(option & NULLS_FIRST)))
        bits = parts[0][8]
        keys.append(Key("PRIMARY" if bits & PRIMARY else name, bool(bits & UNIQUE), tuple(made), ""))
    return tuple(sorted(keys, key=lambda key: key.name != "PRIMARY"))


def _column(row: Row, wire: bool) -> TableColumn:
    _, _, name, modifier, _, _, kind, declared, bits = row
    digits = 6 if modifier < 0 else modifier  # of a second
    makes: dict[str, values.Held] = {
        "float4": values.single,
        "float8": values.real,
        "bytea": partial(values.binary, None, False),
        "bool": values.truth,
        "date": values.date,
        "timestamp": partial(values.moment, digits),
        "timestamptz": partial(values.zoned, digits),
        "time": partial(values.time, digits),
        "uuid": values.unique_id,
    }
    meaning = {"float4": "real", "float8": "real", "bytea": "blob"}.get(str(kind), str(kind))
    held, hole = makes.get(kind, values.never), "%s"
    if kind in _INTEGERS:
        most = 2 ** _INTEGERS[kind]
        meaning, held = "integer", partial(values.integer, -most, most - 1)
    elif kind == "numeric":
        precision, scale = (modifier - 4 >> 16) & 0xFFFF, modifier - 4 & 0x7FF
        scale = scale - 2048 if scale > 1023 else scale
        meaning, held = "decimal", partial(values.decimal, precision, scale, None)
        if modifier < 4:
            held = values.any_decimal
    elif kind in ("text", "varchar", "bpchar"):
        meaning, held = "text", partial(values.text, fits=_fits(None if modifier < 4 else modifier - 4))
    elif kind in makes:
        hole = f"%s::{kind}" if meaning == "real" else "%s"
    else:
        also = partial(_SILENT[kind], modifier) if kind in _SILENT else None
        held, hole = partial(values.text, fits=_fits(None, also)), _BY_TEXT + declared.replace("%", "%%")
    filtered = ""
    compares: values.Held | None = None
    addend: values.Held | None = None
    if meaning == "real":
        filtered, compares, addend = "%s::float8", values.real, values.real
    elif meaning in ("integer", "decimal"):
        filtered, compares, addend = "%s::numeric", values.exact, values.whole_or_exact
    shown_by = ("", "")
    if wire and kind == "bool":
        shown_by = ("CASE ", " WHEN true THEN 't' WHEN false THEN 'f' END")
    elif wire and kind == "inet":  # a cast to text would add the mask even to a single address
        shown_by = ("nullif(concat(", "), '')")
    elif wire and meaning not in ("integer", "text", "blob"):
        shown_by = ("", "::text")
    return TableColumn(
        *(name, meaning, not bits & NOT_NULL, bool(bits & GENERATED), held, WORDS.quoted(name), hole),
        filtered=filtered,
        compares=compares,
        array=kind if meaning in LISTED or kind in LISTED else "",
        addend=addend,
        shown_by=shown_by,
    )


def _fits(most: int | None, also: Callable[[str], bool] | None = None) -> Callable[[str], bool]:
    return lambda text: "\0" not in text and (most is None or len(text) <= most) and (also is None or also(text))


def _decimals(text: str) -> int:
    """Return the number of digits of the longest fraction in a text, without trailing zeros.

    >>> _decimals("10:00:00.2500+01"), _decimals("1 day")
    (2, 0)
    """
    return max([len(found) for found in _FRACTION.findall(text)], default=0)


def _fits_interval(modifier: int, text: str) -> bool:
    # A type with only some of the fields (`interval year`) silently drops the others. Only PostgreSQL can tell which
    # fields a text has, so no value is accepted for such a column.
    if modifier < 0:
        return _decimals(text) <= 6
    fields, precision = modifier >> 16 & _FULL_RANGE, modifier & 0xFFFF
    return fields == _FULL_RANGE and _decimals(text) <= (6 if precision == _FULL_PRECISION else precision)
