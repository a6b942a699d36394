"""PostgreSQL's words.

Rows of many keys are read by `CROSS JOIN LATERAL (… OFFSET 0)`, which PostgreSQL runs key by key. It turns a plain join
into a scan of the whole table while there are no statistics (for about a minute after the table has grown) or while the
table is small: measured, 4.2 instead of 0.6 ms for rings of 64 of 10,000 keys, and no difference once it has
statistics.
"""

from __future__ import annotations

import datetime as dt

from roost.dialects.dialect import Dialect, doubled, enum_of

# Those of these tables that others can change: neither this account owns them, nor the schema's owner, nor the owner of
# {rows}, a condition for tables r; nor a role that may act as one of these. A superuser does not trust the schema's.
# Columns: name, owner, whether there are such rows. Every function has arguments of exactly the types for which the
# system defines it.
FOREIGN = """\
SELECT w.name, pg_get_userbyid(c.relowner), EXISTS (SELECT FROM pg_class r WHERE {rows})
  FROM unnest(ARRAY[{names}]::text[]) AS w (name)
    JOIN pg_class c ON c.oid = to_regclass(quote_ident(w.name))::oid
    JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE NOT pg_has_role(c.relowner, current_user, 'MEMBER'::text)
    AND (current_setting('is_superuser') = 'on' OR NOT pg_has_role(c.relowner, n.nspowner, 'MEMBER'::text))
    AND (SELECT bool_and(pg_has_role(c.relowner, r.relowner, 'MEMBER'::text))
      FROM pg_class r WHERE {rows}) IS NOT TRUE"""


def _read_moment(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo is dt.UTC else value.astimezone(dt.UTC)  # a driver may answer in the session's zone


def literal(text: str) -> str:
    r"""Return text as a literal that means the same under every standard_conforming_strings.

    >>> print(literal("it's"), literal("C:\\temp"))
    'it''s'  E'C:\\temp'
    """
    quoted = doubled(text)
    if "\\" not in text and "\n" not in text:
        return quoted
    # The blank keeps it from what is before it. No line ends within it: those of programs are indented.
    return " E" + quoted.replace("\\", "\\\\").replace("\n", "\\n")


POSTGRESQL = Dialect(
    name="postgresql",
    quote='"',
    placeholder="%s",
    types={
        "int": lambda _: "bigint",
        "float": lambda _: "double precision",
        "bool": lambda _: "boolean",
        "text": lambda _: 'text COLLATE "C"',
        "binary": lambda _: "bytea",
        "datetime": lambda _: "timestamptz",
        "date": lambda _: "date",
        "decimal": lambda column: f"numeric({column.type.limit}, {column.type.scale})",
        "uuid": lambda _: "uuid",
        "enum": lambda column: "bigint" if column.type.numbered else 'text COLLATE "C"',
    },
    encoders={"enum": lambda value: value.value},
    decoders={"datetime": lambda _: _read_moment, "enum": enum_of},
    literal=literal,
    nul=False,
    slots=16,
    for_share=" FOR SHARE",
    for_update=" FOR UPDATE",
    read_committed="current_setting('transaction_isolation') = 'read committed'",
    # FOR SHARE writes a multixact for each transaction that shares the row with another: 2,000 a second from eight
    # processes, and every table of the database is to be vacuumed when there are 400 million.
    key_bytes=2_680,  # of the 2,704 that an entry of an index may have, lengths included
    lock_table="LOCK TABLE {} IN {} MODE",
)
