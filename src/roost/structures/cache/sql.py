"""The statements of a cache, in each dialect. The statements for bounds are in `bounds.py`.

A row is its own head: it is locked, or created and locked, before a decision depends on it. A row created for that has
the expiry time 0, so that no reader ever sees it.
"""

from __future__ import annotations

from roost.dialects.dialect import Answer, Gather, Template
from roost.structures.plan import write

# The values that have not expired; `now` is the current moment: on SQLite two parameters, before the key.
READ = {
    "sqlite": Template(
        "SELECT value, token, until - ?, flags, {old} FROM {rows} r WHERE until > ? AND {equal}", answer=Answer.ORDINAL
    ),
    "mariadb": Template(
        "SELECT {{i}}, value, token, until - {now}, flags, {old} FROM {rows} r WHERE {equal} AND until > {now}",
        Gather.UNION,
        Answer.ORDINAL,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT r.value, r.token, r.until - {now}, r.flags, {old} FROM {rows} r
    WHERE {q_rows} AND r.until > {now} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# The same on SQLite for many keys in one statement, each a text without NUL: a row for each key, in their order.
FETCH = """\
WITH m AS MATERIALIZED (SELECT {now} AS now)
SELECT r.value, r.token, r.until - m.now, r.flags, {old} FROM m CROSS JOIN {array} q
  LEFT JOIN {rows} r ON r.{key} = q.value AND r.until > m.now"""

# The rows, expired or not, read under their locks.
FIND = {
    "sqlite": Template("SELECT {value}, until, token, flags, {size} FROM {rows} WHERE {equal}", answer=Answer.ORDINAL),
    "mariadb": Template(
        "(SELECT {{i}}, {value}, until, token, flags, {size} FROM {rows} WHERE {equal} FOR UPDATE)",
        Gather.UNION,
        Answer.ORDINAL,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT {value}, until, token, flags, {size} FROM {rows} r WHERE {q_rows} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

PUT = {
    "sqlite": write(
        """\
INSERT INTO {rows} ({columns}) VALUES ({holes})
  ON CONFLICT ({key}) DO UPDATE
    SET value = excluded.value, until = excluded.until, token = max(excluded.token, token + 1),
      flags = excluded.flags{more}""",
        "{holes}",
    ),
    "mariadb": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until),
    token = GREATEST(VALUES(token), token + 1), flags = VALUES(flags){more}""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {rows} ({columns}) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE value = new.value, until = new.until,
    token = GREATEST(new.token, {rows}.token + 1), flags = new.flags{more}""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} AS r ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({key}) DO UPDATE
    SET value = excluded.value, until = excluded.until, token = greatest(excluded.token, r.token + 1),
      flags = excluded.flags{more}""",
        Gather.ARRAYS,
    ),
}

# Creates or locks a row.
LOCK = {
    "sqlite": None,
    "mariadb": Template(
        "INSERT INTO {rows} ({key}, until, token) VALUES {{rows}} ON DUPLICATE KEY UPDATE until = until", Gather.VALUES
    ),
    "mysql": Template(
        "INSERT INTO {rows} ({key}, until, token) VALUES {{rows}} AS new ON DUPLICATE KEY UPDATE until = {rows}.until",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({key}, until, token) SELECT * FROM unnest({key_arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET until = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

# Expired rows, the oldest first, as many as a write deletes. Rows that other sessions hold are skipped without waiting.
OVER = "SELECT {what} FROM {rows} WHERE until <= {{moment}} AND until < {never} ORDER BY until LIMIT {hole}"
SWEEP = {
    # The rows are then deleted by their keys: in a DELETE, MariaDB cannot skip locked rows, and SQLite would make
    # temporary tables.
    "sqlite": "{over}",
    "mariadb": "{over}",
    "postgresql": "DELETE FROM {rows} WHERE ctid = ANY (ARRAY({over} FOR UPDATE SKIP LOCKED)) RETURNING {size}",
}
SWEPT = {"sqlite": "{key}, {size}", "mariadb": "{key}, {size}", "postgresql": "ctid"}

# A single set. If the declaration is not stored, the token is NULL, and the statement fails.
ONE_SET = {
    "sqlite": """\
INSERT INTO {rows} ({columns}) VALUES ({key_holes}, ?, coalesce({now} + ?, {never}), {one_token}, {hole}{one_more})
  ON CONFLICT ({key}) DO UPDATE
    SET value = excluded.value, until = excluded.until, token = max(excluded.token, token + 1),
      flags = excluded.flags{more}""",
    "mariadb": """\
INSERT INTO {rows} ({columns}) VALUES ({key_holes}, %s, COALESCE({now} + %s, {never}), {one_token}, {hole})
  ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until),
    token = GREATEST(VALUES(token), token + 1), flags = VALUES(flags)""",
    "postgresql": """\
{lock}a AS (INSERT INTO {rows} AS r ({columns})
    SELECT {key_holes}, %s, coalesce({now} + %s::bigint, {never}), {one_token}, {hole}{locked}
  ON CONFLICT ({key}) DO UPDATE
    SET value = excluded.value, until = excluded.until, token = greatest(excluded.token, r.token + 1),
      flags = excluded.flags){over}""",
}
ONE_SWEEP = {
    "postgresql": """\
,
o AS (DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {rows}
    WHERE until <= {now} AND until < {never} AND NOT ({equal})
    ORDER BY until LIMIT {sweep} FOR UPDATE SKIP LOCKED)))""",
}
