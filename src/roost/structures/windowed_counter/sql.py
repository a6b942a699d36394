"""The statements of a windowed counter, beside those of a counter whose key is a key and the begin of a window."""

from __future__ import annotations

from roost.dialects.dialect import Answer, Gather, Template

# When the current window began: by the database's clock, on SQLite by the store's; or the newest one that is stored,
# where that is later. So a clock that has jumped back makes no window come back. PostgreSQL's clock goes on while a
# statement runs, and an index takes nothing that may change: so it is asked once.
START = {
    "sqlite": "max(?, coalesce((SELECT max(start) FROM {rows}), 0))",
    "mariadb": "GREATEST({clock} - MOD({clock}, {size}), COALESCE((SELECT MAX(w.start) FROM {rows} w), 0))",
    "postgresql": """\
(SELECT greatest(m - MOD(m, {size}), coalesce((SELECT max(w.start) FROM {rows} w), 0)) FROM (SELECT {clock} AS m) c)""",
}

# The clock, and when the oldest and the newest window that are stored began.
LOOK = {
    "sqlite": "SELECT 0, min(start), (SELECT max(start) FROM {rows}) FROM {rows}",
    "mariadb": "SELECT {clock}, (SELECT MIN(start) FROM {rows}), (SELECT MAX(start) FROM {rows})",
    "postgresql": "SELECT {clock}, (SELECT min(start) FROM {rows}), (SELECT max(start) FROM {rows})",
}

# The windows of keys on from one, asked with a key and what `since` takes: when that one began, or how long before the
# current one, on SQLite behind the window that the clock shows.
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

# SQLite's SUM errors past 64 bits: halves of 32 bits are summed instead, and order just the same.
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

# Windows that are over, the oldest first, as many rows as a batch removes. What others hold is skipped.
OVER = {
    "sqlite": "DELETE FROM {rows} WHERE ({cell}, slot) IN"
    " (SELECT {cell}, slot FROM {rows} WHERE start < ?{committed} ORDER BY start LIMIT ?)",
    # A DELETE cannot skip; they are removed by their keys then.
    "mariadb": "SELECT {cell}, slot FROM {rows} FORCE INDEX ({index}) WHERE start < %s{committed}"
    " ORDER BY start LIMIT %s FOR UPDATE SKIP LOCKED",
    "postgresql": "DELETE FROM {rows} WHERE ctid = ANY (ARRAY(\n"
    "  SELECT ctid FROM {rows} WHERE start < %s{committed} ORDER BY start LIMIT %s"
    " FOR UPDATE SKIP LOCKED))",
}
