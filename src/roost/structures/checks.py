"""Invariants that several structures have: each a name, and a query for the keys that break it.

A query's last column says in words what is wrong; the columns before it are the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from roost.dialects.conditions import no_moment
from roost.structures.plan import Rule, StructurePlan


class RuleWords:
    """The names and conditions from which the queries of one structure are built."""

    def __init__(self, plan: StructurePlan) -> None:
        dialect, key = plan.dialect, plan.structure.key.columns
        self.dialect = dialect
        self.rows, self.head = plan.rows_table, plan.head_table
        self.key, self.first = dialect.names(key), dialect.name_of(key[0])
        self.r_key, self.h_key = dialect.names(key, "r."), dialect.names(key, "h.")
        self.join = " AND ".join(f"h.{dialect.name_of(each)} = r.{dialect.name_of(each)}" for each in key)
        self.message = dialect.message


def has_head(plan: StructurePlan) -> Rule:
    """Return the rule that every row has a head."""
    words = RuleWords(plan)
    return (
        "head",
        f"SELECT {words.r_key}, {words.message('? rows without a head', 'count(*)')} FROM {words.rows} r"
        f" LEFT JOIN {words.head} h ON {words.join}\n"
        f"  WHERE h.{words.first} IS NULL GROUP BY {words.r_key}",
    )


def sequences(plan: StructurePlan, last: bool = True) -> Iterator[Rule]:
    """Return the rules of rows that have a sequence: it is one that the head has given, at a moment.

    last: whether the head has the sequence of the newest row.
    """
    words = RuleWords(plan)
    wrong = "r.sequence > h.sequence OR r.sequence < 1" if last else "r.sequence < 1"
    yield (
        "sequence",
        f"SELECT {words.r_key}, {words.message('sequence ?, the head says ?', 'r.sequence', 'h.sequence')}\n"
        f"  FROM {words.rows} r JOIN {words.head} h ON {words.join} WHERE {wrong}",
    )
    if plan.dialect.name == "sqlite":
        yield "at", f"SELECT {words.r_key}, 'at ' || at || ' is no moment' FROM {words.rows} r WHERE {no_moment('at')}"


def counted(plan: StructurePlan) -> Rule:
    """Return the rule that the head's count is that of its rows."""
    words = RuleWords(plan)
    return (
        "count",
        f"SELECT {words.key}, {words.message('the head says ?, there are ?', 'said', 'there')}\n"
        f"  FROM (SELECT {words.h_key}, h.n AS said, count(r.{words.first}) AS there\n"
        f"    FROM {words.head} h LEFT JOIN {words.rows} r ON {words.join} GROUP BY {words.h_key}, h.n) q\n"
        f"  WHERE said <> there",
    )


def lasting(plan: StructurePlan) -> Rule:
    """Return the rule that every row has a moment at which it leaves."""
    words = RuleWords(plan)
    return (
        "until",
        f"SELECT {words.r_key}, {words.message('a row with the end ?', 'r.until')} FROM {words.rows} r\n"
        f"  WHERE r.until <= 0",
    )
