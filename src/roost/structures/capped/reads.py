"""Reads that a change of a capped collection depends on: the heads, the ids that it names, the oldest rows.

A ranked collection uses the same reads, with the worst rows instead of the oldest.
"""

from __future__ import annotations

from roost.dialects.dialect import Answer, Dialect, Gather, Template
from roost.types.columns import Column


def places(dialect: Dialect, score: Column | None) -> dict[str, str]:
    """Return the SQL for a row's place among those of its key, and for the order of rows.

    `first` is the order in which rows are evicted; `best` is the opposite order, which is that of an index.
    """
    words = {"best": "sequence" if score is None else f"{dialect.name_of(score)} DESC, sequence"}
    for table in ("", "r", "e"):
        word, dot = (f"{table}_", f"{table}.") if table else ("", "")
        words[f"{word}place"] = words[f"{word}first"] = f"{dot}sequence"
        if score is not None:
            name = f"{dot}{dialect.name_of(score)}"
            words[f"{word}place"], words[f"{word}first"] = f"{name}, {dot}sequence", f"{name}, {dot}sequence DESC"
    return words


HEAD = {
    "sqlite": Template(
        "SELECT sequence, n FROM {head} WHERE {equal}",
        answer=Answer.ORDINAL,
        many=Template(
            "SELECT q.column1, r.sequence, r.n FROM (VALUES {{rows}}) q CROSS JOIN {head} r ON {nth_key}",
            Gather.LIST,
            Answer.ORDINAL,
        ),
    ),
    "mariadb": Template(
        """\
SELECT q.`#`, h.sequence, h.n FROM (SELECT 0 AS `#`, {key} FROM {head} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {head} h FORCE INDEX (PRIMARY) ON {same_head}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "mysql": Template("SELECT {{i}}, sequence, n FROM {head} WHERE {equal}", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}) WITH ORDINALITY AS q ({key}, "#")
  CROSS JOIN LATERAL (SELECT h.sequence, h.n FROM {head} h WHERE {same_head} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# Which of these ids exist, and at which place: their sequence, in a ranked collection after their score.
FIND = {
    "sqlite": Template(
        "SELECT {place} FROM {rows} WHERE {equal_pair}",
        answer=Answer.ORDINAL,
        many=Template(
            "SELECT q.column1, {r_place} FROM (VALUES {{rows}}) q CROSS JOIN {rows} r ON {nth_pair}",
            Gather.LIST,
            Answer.ORDINAL,
        ),
    ),
    "mariadb": Template(
        """\
SELECT q.`#`, {r_place} FROM (SELECT 0 AS `#`, {pairs} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {same_pair}""",
        Gather.LIST,
        Answer.ORDINAL,
    ),
    "mysql": Template("SELECT {{i}}, {place} FROM {rows} WHERE {equal_pair}", Gather.UNION, Answer.ORDINAL),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, {e_place} FROM unnest({pair_arrays}) WITH ORDINALITY AS q ({pairs}, "#")
  CROSS JOIN LATERAL (SELECT {r_place} FROM {rows} r WHERE {same_pair} OFFSET 0) e""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# The rows that are evicted first, the oldest or the worst. Parameters: (key, n).
OLDEST = {
    "sqlite": Template(
        "SELECT {ids}, {place} FROM {rows} WHERE {equal} ORDER BY {first} LIMIT ?", answer=Answer.ORDINAL
    ),
    "mariadb": Template(
        "(SELECT {{i}}, {ids}, {place} FROM {rows} WHERE {equal} ORDER BY {first} LIMIT %s)",
        Gather.UNION,
        Answer.ORDINAL,
    ),
    "postgresql": Template(
        """\
SELECT (q."#" - 1)::integer, e.* FROM unnest({key_arrays}, %s::bigint[]) WITH ORDINALITY AS q ({key}, n, "#")
  CROSS JOIN LATERAL (SELECT {r_ids}, {r_place} FROM {rows} r WHERE {same_key} ORDER BY {r_first} LIMIT q.n) e
  ORDER BY q."#", {e_first}""",
        Gather.ARRAYS,
        Answer.ORDINAL,
    ),
}

# MariaDB is slow with one statement per key. If only one row of each key is needed, as nearly always, a list of keys is
# joined instead, in a quarter of the time. The inner query reads a snapshot whatever the outer one locks.
OLDEST_ONE = Template(
    """\
SELECT q.`#`, {r_ids}, r.sequence FROM (SELECT 0 AS `#`, {key} FROM {head} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r ON {same_key} AND r.sequence =
    (SELECT r.sequence FROM {rows} r WHERE {same_key} ORDER BY r.sequence LIMIT 1)""",
    Gather.LIST,
    Answer.ORDINAL,
)
