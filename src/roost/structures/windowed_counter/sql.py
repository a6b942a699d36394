"""The statements of a windowed counter, in addition to those of a counter whose key includes the start of a window."""

from __future__ import annotations

from roost.dialects.dialect import Answer, Gather, Template

# The start of the current window: by the database's clock, on SQLite by the store's; or of the newest stored window, if
# that is later. So no window reappears after a clock has jumped back. PostgreSQL's clock advances while a statement
# runs, and an index cannot be searched for a value that may change, so it is read once.
START = {
    "sqlite": "max(?, coalesce((SELECT max(start) FROM {rows}), 0))",
    "mariadb": "GREATEST({clock} - MOD({clock}, {size}), COALESCE((SELECT MAX(w.start) FROM {rows} w), 0))",
    "postgresql": """\
(SELECT greatest(m - MOD(m, {size}), coalesce((SELECT max(w.start) FROM {rows} w), 0)) FROM (SELECT {clock} AS m) c)""",
}

# The clock, and the starts of the oldest and the newest stored window.
LOOK = {
    "sqlite": "SELECT 0, min(start), (SELECT max(start) FROM {rows}) FROM {rows}",
    "mariadb": "SELECT {clock}, (SELECT MIN(start) FROM {rows}), (SELECT MAX(start) FROM {rows})",
    "postgresql": "SELECT {clock}, (SELECT min(start) FROM {rows}), (SELECT max(start) FROM {rows})",
}

# The windows of keys from a first one on. The parameters are a key and those of `since`: the first window's start, or
# its distance from the current window, on SQLite preceded by the start of the window by the store's clock.
WINDOWS = {
    "sqlite": Template("SELECT start, n FROM {rows} WHERE {equal} AND start >= {since}", answer=Answer.ORDINAL),
    "mariadb": Template(
        "SELECT {{i}}, start, n FROM {rows} WHERE {equal} AND start >= {since}", Gather.UNION, Answer.ORDINAL
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({arrays}, %s::bigint[]) WITH ORDINALITY AS q ({key}, "back", "#")
  CROSS JOIN LATERAL (SELECT r.start, r.n FROM {rows} r WHERE {same} AND r.start >= {since} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# SQLite's SUM fails beyond 64 bits: halves of 32 bits are summed instead, and give the same order.
TOP = {
    "sqlite": """\
SELECT {key}, SUM(n >> 32), SUM(n & 4294967295) FROM {rows} WHERE start >= {since} GROUP BY {key}
  ORDER BY SUM(n >> 32) + (SUM(n & 4294967295) >> 32) DESC, SUM(n & 4294967295) & 4294967295 DESC, {key} LIMIT ?""",
    "mariadb": """\
SELECT {key}, 0, SUM(n) AS total FROM {rows} WHERE start >= {start} - %s GROUP BY {key}
  ORDER BY total DESC, {in_order} LIMIT %s""",
}
TOP["postgresql"] = TOP["mariadb"]

KEYS = {
    "sqlite": "SELECT DISTINCT {key} FROM {rows} WHERE start >= {since}{after} ORDER BY {key} LIMIT ?",
    "mariadb": "SELECT DISTINCT {key} FROM {rows} WHERE start >= {start} - %s{after} ORDER BY {key} LIMIT %s",
}
KEYS["postgresql"] = KEYS["mariadb"]

CLEAR = {
    "sqlite": "DELETE FROM {rows} WHERE {equal} RETURNING start, n",
    "mariadb": "DELETE FROM {rows} WHERE {equal} RETURNING start, n",
    "mysql": "SELECT start, n FROM {rows} WHERE {equal} FOR UPDATE",
    "postgresql": "DELETE FROM {rows} WHERE {equal} RETURNING start, n",
}

# Expired windows, the oldest first, as many rows as a batch deletes. Rows that other sessions hold are skipped.
OVER = {
    "sqlite": "DELETE FROM {rows} WHERE ({cell}, slot) IN"
    " (SELECT {cell}, slot FROM {rows} WHERE start < ?{committed} ORDER BY start LIMIT ?)",
    # A DELETE cannot skip locked rows, so the rows are then deleted by their keys.
    "mariadb": "SELECT {cell}, slot FROM {rows} FORCE INDEX ({index}) WHERE start < %s{committed}"
    " ORDER BY start LIMIT %s FOR UPDATE SKIP LOCKED",
    "postgresql": "DELETE FROM {rows} WHERE ctid = ANY (ARRAY(\n"
    "  SELECT ctid FROM {rows} WHERE start < %s{committed} ORDER BY start LIMIT %s"
    " FOR UPDATE SKIP LOCKED))",
}
