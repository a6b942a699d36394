"""Reads of a ring's rows: two ranges of slots, divided at the newest row's slot."""

from __future__ import annotations

from roost.dialects.dialect import Answer, Gather, Template

# The newest row is in slot `sequence % keep`: the slots up to it hold the newer rows, the others the older ones. Both
# are runs of the primary key, so neither is sorted; Python sorts the few rows found. Parameters: (key, n).
LATEST = {
    "sqlite": Template(
        """\
SELECT * FROM (SELECT {r_row} FROM {head} h CROSS JOIN {rows} r ON {join} AND r.slot <= h.sequence % {keep}
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT ?)
UNION ALL
SELECT * FROM (SELECT {r_row} FROM {head} h CROSS JOIN {rows} r ON {join} AND r.slot > h.sequence % {keep}
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT ?)""",
        answer=Answer.ORDINAL,
        copies=2,
    ),
    "mariadb": Template(
        """\
(SELECT {{i}}, {r_row} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} AND r.slot <= MOD(h.sequence, {keep})
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT %s)
UNION ALL
(SELECT {{i}}, {r_row} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} AND r.slot > MOD(h.sequence, {keep})
  WHERE {h_equal} ORDER BY r.slot DESC LIMIT %s)""",
        Gather.UNION,
        Answer.ORDINAL,
        copies=2,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest({key_arrays}, %s::bigint[]) WITH ORDINALITY AS q ({key}, n, "#") JOIN {head} h USING ({key})
  CROSS JOIN LATERAL (
    (SELECT {r_row} FROM {rows} r WHERE {join} AND r.slot <= MOD(h.sequence, {keep}) ORDER BY r.slot DESC LIMIT q.n)
    UNION ALL
    (SELECT {r_row} FROM {rows} r WHERE {join} AND r.slot > MOD(h.sequence, {keep}) ORDER BY r.slot DESC LIMIT q.n)
  ) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# If all rows of each key are needed, the two runs need not be distinguished, so no head is read. Parameters: the key.
WHOLE = {
    "mariadb": Template(
        """\
SELECT q.`#`, {r_row} FROM (SELECT 0 AS `#`, {key} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r ON {q_rows}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT {r_row} FROM {rows} r WHERE {q_rows} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# MariaDB reads the two runs slowly, with one statement per key. The head tells the newest sequences, so a few rows take
# as many lookups in the primary key, and a third of the time. It finds too few rows if some in between were deleted.
# PostgreSQL gains nothing from it; on MySQL it was not tried. Parameters: (key, n).
NEWEST = Template(
    """\
SELECT q.`#`, {r_row} FROM (SELECT 0 AS `#`, {key}, 0 AS n FROM {head} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {head} h ON {q_join} STRAIGHT_JOIN (SELECT 0 AS d UNION ALL VALUES {numbers}) d ON d.d < q.n
  STRAIGHT_JOIN {rows} r ON {join} AND r.slot = MOD(h.sequence - d.d, {keep}) AND r.sequence = h.sequence - d.d""",
    Gather.LIST,
    Answer.ORDINAL,
)

FEW = 50  # rows that are read in this way

# The same two runs in ascending order, each from the first slot after `after` on. Parameters: (key, after, n).
ENTRIES = {
    "sqlite": Template(
        """\
SELECT * FROM (SELECT {r_values} FROM {head} h CROSS JOIN {rows} r ON {h_equal} AND {join}
    AND r.slot > max(min(?, h.sequence), h.sequence - {keep}) - h.sequence + h.sequence % {keep} + {keep}
  ORDER BY r.slot LIMIT ?)
UNION ALL
SELECT * FROM (SELECT {r_values} FROM {head} h CROSS JOIN {rows} r ON {h_equal} AND {join}
    AND r.slot > max(min(?, h.sequence), h.sequence - {keep}) - h.sequence + h.sequence % {keep}
    AND r.slot <= h.sequence % {keep}
  ORDER BY r.slot LIMIT ?)""",
        answer=Answer.ORDINAL,
        copies=2,
    ),
    "mariadb": Template(
        """\
(SELECT {{i}}, {r_values} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} WHERE {h_equal}
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep}) + {keep}
  ORDER BY r.slot LIMIT %s)
UNION ALL
(SELECT {{i}}, {r_values} FROM {head} h STRAIGHT_JOIN {rows} r ON {join} WHERE {h_equal}
    AND r.slot > GREATEST(LEAST(%s, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep})
    AND r.slot <= MOD(h.sequence, {keep})
  ORDER BY r.slot LIMIT %s)""",
        Gather.UNION,
        Answer.ORDINAL,
        copies=2,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.*
  FROM unnest({key_arrays}, %s::bigint[], %s::bigint[]) WITH ORDINALITY AS q ({key}, sequence, n, "#")
  JOIN {head} h USING ({key})
  CROSS JOIN LATERAL (
    (SELECT {r_values} FROM {rows} r WHERE {join}
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - {keep}) - h.sequence
          + MOD(h.sequence, {keep}) + {keep}
      ORDER BY r.slot LIMIT q.n)
    UNION ALL
    (SELECT {r_values} FROM {rows} r WHERE {join}
        AND r.slot > GREATEST(LEAST(q.sequence, h.sequence), h.sequence - {keep}) - h.sequence + MOD(h.sequence, {keep})
        AND r.slot <= MOD(h.sequence, {keep})
      ORDER BY r.slot LIMIT q.n)
  ) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}
