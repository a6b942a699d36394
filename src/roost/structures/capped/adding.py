"""Steps of a capped collection's add on servers, and its set forms: many rows in a few statements, by hand.

A set form adds rows that are all stored. Where one may be refused, or worse than what is there, the rows are added one
by one: on PostgreSQL by the same function, elsewhere by the library, since those set forms have no outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Answer, Row, Statement, Template
from roost.structures.capped.declaration import Capped
from roost.structures.plan import AT, SEQUENCE, Context, N
from roost.structures.program import Calling
from roost.structures.rows import PLACES
from roost.structures.rules import UNTIL
from roost.structures.steps import (
    DUPLICATE,
    OUTCOMES,
    Do,
    Each,
    Fetch,
    Give,
    Leave,
    Let,
    Now,
    Program,
    Put,
    Refuse,
    Step,
    number,
)
from roost.structures.words.mysql import MySQLWords
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.structures.capped.plan import CappedPlan

BOUND = number("roost_bound")
DISTINCT = number("its distinct")  # how many rows a call of a set form stores of a row's key
FAR = 32  # sequences by which the bound lies behind before a full key's head is written
ONE_BY_ONE = """'{"1": 0}'"""  # what MariaDB's and MySQL's set form gives where one of the rows is a duplicate
FEW = 50  # rows of a key with an order that are counted with each row beyond them


def putting(plan: CappedPlan, w: Words) -> Iterator[Step]:
    """Insert the row, or overwrite the one that is there, and remember what was there as `there`; refuse a duplicate.

    On MariaDB and MySQL before anything is searched: at REPEATABLE READ, where SQL clients are, a search locks gaps,
    also that of a row that is not there, and two who hold the same one, for different keys, could not insert. Only a
    key that seems to be full is searched before: it has rows, so that nobody else waits for its gaps.
    """
    structure, there = plan.structure, w["there"]
    names = [w.dialect.name_of(each) for each in (*structure.key.columns, *structure.id.columns)]
    this = w.mine([*structure.key.columns, *structure.id.columns])
    values = plan.values_of(w, f"{w['sequence']} + 1", w.values(plan.given))
    yield Put(w.rows, values, names, "added")
    found = f"SELECT {'until' if plan.expires else 'sequence'} FROM {w.rows} WHERE {this}{w.dialect.for_update}"
    yield Let("there", f"CASE WHEN {w['added']} = 0 THEN ({found}) END")
    if structure.on_duplicate == "error":
        is_there = f"{there} > {w['now']}" if plan.expires else f"{there} IS NOT NULL"
        yield Refuse(is_there, DUPLICATE, plan.there_already)
    # The row that is there is overwritten; where there is none, an index of somebody else's refuses this one.
    again = plan.put(w, f"{w['sequence']} + 1", w.values(plan.given))
    if plan.expires:
        again = w.replace(w.rows, values, names, "", structure.rows.unknown)
    yield Do(again, when=f"{w['added']} = 0")


def expiring(plan: CappedPlan, w: Words, full: str = "") -> Iterator[Step]:
    """Delete the given key's expired rows, and remember how many are left as `n`.

    They expire in the order of their sequences, so the living ones are the last.

    full: a condition for all of it.
    """
    mine, rows, bound, n = w.mine(), w.by_index("newest"), w[BOUND.name], w["n"]
    lock = w.current
    behind, delete, upto = f"{mine} AND sequence > {bound}", w.delete_by("newest"), ""
    first_living = f"{behind} AND until > {w['now']} ORDER BY sequence LIMIT 1"
    living = f"SELECT sequence FROM {rows} WHERE {first_living}{lock}"
    also = f" AND {full}" if full else ""
    if w.dialect.family == "mariadb":  # a search by a range that finds none locks the first row of another key
        last_until = f"SELECT until FROM {rows} WHERE {mine}{also} ORDER BY sequence DESC LIMIT 1{lock}"
        yield Do(f"SET {w['gone']} = 0")
        yield Let("living", f"CASE WHEN ({last_until}) > {w['now']} THEN ({living}) END")
        upto = f"{w['living']} IS NULL{also}"
        yield Do(f"{delete} WHERE {mine} AND until <= {w['now']}", when=upto, counts="gone")
        upto = f"{w['living']} IS NOT NULL"
    else:
        yield Let("living", f"coalesce(({living}), {INT_MAX})")
    yield Do(f"{delete} WHERE {behind} AND sequence < {w['living']}", when=upto, counts="gone")
    left = f", n = {n} - {w['gone']}" if plan.structure.keep is not None else ""
    yield Do(f"UPDATE {w.head} SET sequence = {w['sequence']}{left} WHERE {w.my_head}", when=f"{w['gone']} > 0")
    yield Let("n", f"{n} - {w['gone']}")


def finding_worst(plan: CappedPlan, w: Words, is_full: str, count: str, lock: str) -> Iterator[Step]:
    """Delete the worst row of a full key, or leave where it is better than the given one.

    No row is protected by its sequence, so the rows are counted again: each time if they are few, else sometimes.
    """
    structure, mine, rows = plan.structure, w.mine(), w.by_index("best")
    keep = w.whole(structure.keep)
    assert structure.score is not None
    score, n = w.dialect.name_of(structure.score), w["n"]
    if (structure.keep or 0) <= FEW:  # the last one that has a place, if all places are taken
        worst = f"FROM {rows} WHERE {mine} ORDER BY {score} DESC, sequence LIMIT 1 OFFSET {(structure.keep or 0) - 1}"
    else:
        worst = f"FROM {rows} WHERE {mine} ORDER BY {score}, sequence DESC LIMIT 1"
        due = f"{is_full} AND {w.dialect.modulo.format(w['sequence'], keep)} = 0"
        yield Let("n", f"CASE WHEN {due} THEN {count} ELSE {n} END")
    yield Let("worst", f"CASE WHEN {is_full} THEN (SELECT {score} {worst}{lock}) END", structure.score.type)
    yield Leave(f"{w.new(structure.score.name)} <= {w['worst']}", ["0"])
    yield Let("victim", f"CASE WHEN {w['worst']} IS NOT NULL THEN (SELECT sequence {worst}{lock}) END")
    gone = f"{mine} AND {score} = {w['worst']} AND sequence = {w['victim']}"
    yield Do(f"{w.delete_by('best')} WHERE {gone}", when=f"{w['victim']} IS NOT NULL")


MOST_PASSED = 1_000  # rows of a key that MariaDB's set form passes to find the ones to evict; of more it adds singly


def is_in_sets(structure: Capped[Any, Any, Any]) -> bool:
    """Whether MariaDB and MySQL add many rows at once, unless one is a duplicate."""
    return structure.on_full == "evict" and structure.score is None and (structure.keep or 0) <= MOST_PASSED


def adding_all(plan: CappedPlan, w: Words, add: Program) -> Iterator[Step]:
    """Yield the steps of `add_all`."""
    if plan.dialect.family == "mariadb":
        if not is_in_sets(plan.structure):  # whoever calls it has other options, and looks them up after this error
            yield Do("SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1305, MESSAGE_TEXT = 'rows are added one by one'")
            return
        assert isinstance(w, MySQLWords)
        yield from _on_mysql(plan, w)
        return
    function = w.routine_name(add)
    given = w.names(add.given, "q.")
    singly = f"RETURN QUERY SELECT o.* FROM {w.source} CROSS JOIN LATERAL {function}({given}) AS o ORDER BY q.ord"
    if plan.structure.score is not None:
        yield Do(singly)
        return
    if plan.expires:
        yield Now()
    yield Do(_on_postgresql(plan, w, singly))


def _on_postgresql(plan: CappedPlan, w: Words, singly: str) -> str:
    structure, rows, head, keep = plan.structure, w.rows, w.head, w.whole(plan.structure.keep)
    key, ids = structure.key.columns, structure.id.columns
    names, q_key = w.names(key), w.names(key, "q.")
    arrays = [f"k{place}" for place in range(len(key))]
    declared = " ".join(f"{array} {w.type_of(column)}[];" for array, column in zip(arrays, key, strict=True))
    same = plan.dialect.same
    from_q = f"SELECT DISTINCT {names} FROM {w.source}"
    empty = dict.fromkeys(["sequence", "n", "roost_bound"], "0")
    named = [plan.dialect.name_of(each) for each in key]
    heads = w.put(head, {name: f"q.{name}" for name in named} | empty, named, source=f"({from_q}) q ORDER BY {q_key}")
    # Tables are read by LATERAL: before their first ANALYZE a join would be planned that reads all of a table.
    its_head = f"CROSS JOIN LATERAL (SELECT p.ctid FROM {head} p WHERE {same(key, 'p.', 'c.')} OFFSET 0) p"
    there, expired = same([*key, *ids], "r.", "q."), ""
    if plan.expires:
        count = ', n = h.n - c."its count"' if structure.keep is not None else ""
        expired = f"""
  WITH gone AS (DELETE FROM {rows} r USING ({from_q}) q CROSS JOIN LATERAL (
        SELECT v.ctid FROM {rows} v WHERE {same(key, "v.", "q.")} AND v.until <= it.now OFFSET 0) v
      WHERE r.ctid = v.ctid RETURNING {w.names(key, "r.")}, r.sequence),
    c AS (SELECT {names}, count(*) AS "its count", max(sequence) AS "its last" FROM gone GROUP BY {names})
  UPDATE {head} h SET sequence = greatest(h.sequence, c."its last"){count} FROM c {its_head}
    WHERE h.ctid = p.ctid;"""
    doubts = []  # in any of these cases the rows are added one by one
    if structure.on_duplicate == "error":
        doubts += [
            f"SELECT FROM {w.source} GROUP BY {w.names([*key, *ids], 'q.')} HAVING count(*) > 1",
            f"SELECT FROM {w.source} CROSS JOIN LATERAL (SELECT FROM {rows} r WHERE {there} OFFSET 0) r",
        ]
    if structure.on_full == "reject":
        doubts.append(
            f"SELECT FROM {w.source} JOIN {head} h ON {same(key, 'h.', 'q.')} GROUP BY {w.names(key, 'h.')}"
            f" HAVING max(h.n) + count(*) > {keep}"
        )
    refused = ""
    if doubts:
        condition = "\n      OR ".join(f"EXISTS ({doubt})" for doubt in doubts)
        refused = f"""
  IF {condition} THEN
    {singly};
    RETURN;
  END IF;"""
    place = f"PARTITION BY {q_key} ORDER BY q.ord"
    only = f' WHERE l."its rank" <= {keep}' if structure.keep is not None else ""
    given = {plan.dialect.name_of(each): f"l.{plan.dialect.name_of(each)}" for each in plan.given}
    put = plan.put(
        w, 'h."its base" + l."its place"', given, f"l JOIN h ON {same(key, 'h.', 'l.')}{only} ORDER BY l.ord"
    )
    columns = ", ".join(f"its.{array}" for array in arrays)
    aggregated = ", ".join(f"array_agg(h.{plan.dialect.name_of(each)})" for each in key)
    evicted = ""
    if structure.keep is not None:
        evicted = f"""
  WITH k AS MATERIALIZED (SELECT k.*, k."its n" + k."its fresh" - {keep} AS "its excess"
      FROM unnest({columns}, its.fresh, its.n, its.bound, its.last)
        AS k ({names}, "its fresh", "its n", "its bound", "its last")
      WHERE k."its fresh" > 0),
    gone AS (DELETE FROM {rows} r USING (SELECT v.* FROM k CROSS JOIN LATERAL (
        SELECT {w.names([*key, *ids], "v.")} FROM {rows} v WHERE {same(key, "v.", "k.")}
          AND v.sequence > k."its bound" AND v.sequence <= k."its last" - {keep}
        ORDER BY v.sequence LIMIT greatest(k."its excess", 0::bigint)) v) v
      WHERE {same([*key, *ids], "r.", "v.")} RETURNING {w.names(key, "r.")}, r.sequence),
    g AS (SELECT {names}, count(*) AS "its count", max(sequence) AS "its last" FROM gone GROUP BY {names}),
    c AS (SELECT k.*, coalesce(g."its last", k."its bound") AS "new bound", CASE
        WHEN k."its excess" <= 0 THEN k."its n" + k."its fresh" WHEN g."its count" = k."its excess" THEN {keep}
        ELSE (SELECT count(*) FROM {rows} r WHERE {same(key, "r.", "k.")}) - coalesce(g."its count", 0) END AS "new n"
      FROM k LEFT JOIN g ON {same(key, "g.", "k.")})
  UPDATE {head} h SET n = c."new n", roost_bound = c."new bound" FROM c {its_head}
    WHERE h.ctid = p.ctid AND (c."its n" <> c."new n" OR c."new bound" - c."its bound" > {FAR});"""
    return f"""\
<<its>> DECLARE {declared} fresh bigint[]; n bigint[]; bound bigint[]; last bigint[];
BEGIN
  {heads};{expired}{refused}
  WITH q AS MATERIALIZED (SELECT q.*, row_number() OVER ({place}) AS "its place", row_number() OVER (
      PARTITION BY {w.names([*key, *ids], "q.")} ORDER BY q.ord DESC) AS "its turn" FROM {w.source}),
    l AS MATERIALIZED (SELECT q.*, row_number() OVER ({place} DESC) AS "its rank" FROM q WHERE q."its turn" = 1),
    h AS MATERIALIZED (SELECT {w.names(key, "h.")}, h.n, h.roost_bound, k."its adds", greatest(h.sequence,
        (SELECT r.sequence FROM {rows} r WHERE {same(key, "r.", "h.")} ORDER BY r.sequence DESC LIMIT 1)) AS "its base"
      FROM (SELECT {q_key}, count(*) AS "its adds" FROM q GROUP BY {q_key}) k
        CROSS JOIN LATERAL (SELECT * FROM {head} p WHERE {same(key, "p.", "k.")} OFFSET 0) h),
    put AS ({put} RETURNING {w.names(key, rows + ".")}, ({rows}.xmax = 0)::int AS "its fresh"),
    c AS (SELECT {names}, sum(put."its fresh") AS "its fresh" FROM put GROUP BY {names})
  SELECT {aggregated}, array_agg(c."its fresh"), array_agg(h.n), array_agg(h.roost_bound),
      array_agg(h."its base" + h."its adds")
    INTO {columns}, its.fresh, its.n, its.bound, its.last FROM h JOIN c ON {same(key, "h.", "c.")};{evicted}
  RETURN QUERY SELECT 1::bigint FROM {w.source};
END"""


def _on_mysql(plan: CappedPlan, w: MySQLWords) -> Iterator[Step]:
    # What is deleted may be counted by a trigger of the relation, so the counts are written as a whole. What is only
    # read is not locked: the heads are, and a batch of the library's sees all that was committed before.
    structure, rows, head = plan.structure, w.rows, w.head
    key, ids, keep = structure.key.columns, structure.id.columns, structure.keep
    name_of, same = plan.dialect.name_of, plan.dialect.same
    values = {name_of(column): w.new(column.name) for column in plan.given}
    own = {name_of(column): values[name_of(column)] for column in key}
    place, adds, distinct = (w.new(each.name) for each in (*PLACES, DISTINCT))
    last, given = f"{place} = {adds}", ", ".join(own.values())
    by_index, locked = f"FORCE INDEX (roost_{w.name}_newest)", f"{head} h FORCE INDEX (PRIMARY)"

    joined = w.mine(key, "h.")
    heads = f"{w.source} STRAIGHT_JOIN {locked} ON {joined} AND {last}"
    count = f"(SELECT COUNT(*) FROM {rows} r FORCE INDEX (PRIMARY) WHERE {same(key, 'r.', 'h.')})"

    change = {"sequence": f"{head}.sequence + VALUES(sequence)", "n": f"{head}.n + VALUES(n)"}
    first = {**own, "sequence": adds, "n": distinct if keep is not None else "0", "roost_bound": "0"}
    yield Do(w.put(head, first, [*own], change, f"{w.source} WHERE {last}"))
    if plan.expires:
        yield Now()
        over = f"{w.mine(key, 'r.')} AND {last} AND r.until <= {w['now']}"
        expired = f"{w.source} STRAIGHT_JOIN {rows} r {by_index} ON {over}"
        yield Let("expired", f"SELECT EXISTS (SELECT 1 FROM {expired})")
        yield Do(f"DELETE r FROM {expired}", when=f"{w['expired']} = 1")
        if keep is not None:
            yield Do(f"UPDATE {heads} SET h.n = {count} + {distinct}", when=f"{w['expired']} = 1")
    stored = f"{w.source} STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {w.mine([*key, *ids], 'r.')}"
    yield Let("there", f"SELECT EXISTS (SELECT 1 FROM {stored})")
    there = f"{w['there']} = 1"
    if structure.on_duplicate == "error":
        back = f"h.sequence = h.sequence - {adds}, h.n = h.n - {first['n']}"
        yield Do(f"UPDATE {heads} SET {back}", when=there)
        yield Leave(there, [ONE_BY_ONE])
    elif keep is not None:
        as_key = ", ".join(f"{value} AS {name}" for name, value in own.items())
        known = f"(SELECT {as_key}, COUNT(*) AS `its known` FROM {stored} GROUP BY {given}) g"
        yield Do(
            f"UPDATE {known} STRAIGHT_JOIN {locked} ON {same(key, 'h.', 'g.')} SET h.n = h.n - g.`its known`",
            when=there,
        )
    source = f"{w.source} STRAIGHT_JOIN {locked} ON {joined}"
    yield Do(plan.put(w, f"h.sequence - {adds} + {place}", values, source))
    if keep is not None:
        yield from _evicting(plan, w, heads, count)
    yield Give(["NULL"])


def _evicting(plan: CappedPlan, w: MySQLWords, heads: str, count: str) -> Iterator[Step]:
    # The rows to evict are found from the newest end, or after the bound: from the oldest end, a search would pass all
    # that an old snapshot keeps. Most keys have one, which is deleted together with those of the other keys.
    key, keep, name_of = plan.structure.key.columns, plan.structure.keep, plan.dialect.name_of
    index = f"roost_{w.name}_newest"
    newest = ", ".join(f"v.{name_of(each)} DESC" for each in [*key, SEQUENCE])  # MySQL would sort by `sequence` alone
    cut = f"SELECT v.sequence FROM {w.rows} v FORCE INDEX ({index}) WHERE {plan.dialect.same(key, 'v.', 'h.')}"
    cut = f"({cut} ORDER BY {newest} LIMIT 1 OFFSET {keep})"
    columns, excess = [*key, SEQUENCE, number("excess")], f"h.n - {keep}"
    listing = w.listing(columns, [*(f"h.{name_of(each)}" for each in key), cut, excess])
    over = f"FROM {heads} WHERE h.n > {keep}"
    yield Fetch([Column("evicted", OUTCOMES), number("excess")], [listing, f"SUM({excess})"], over)

    def listed_in(prefix: str, columns: Sequence[Column]) -> str:
        return " AND ".join(f"{prefix}{name_of(each)} = {w.json_column(each, 'k')}" for each in columns)

    # Found by a whole index: in a join with a condition on a range, MariaDB locks each row that it looks at. The heads
    # are not read, since a trigger on the rows may write them.
    listed, evicted = w.listed(columns, "evicted"), f"{w['evicted']} IS NOT NULL"
    gone = f"{listed} STRAIGHT_JOIN {w.rows} r FORCE INDEX ({index}) ON {listed_in('r.', [*key, SEQUENCE])}"
    yield Do(f"DELETE r FROM {gone}", when=evicted, counts="gone")
    mine = " AND ".join(f"{name_of(each)} = {w[each.name]}" for each in key)
    listed += f" STRAIGHT_JOIN {w.head} h FORCE INDEX (PRIMARY) ON {listed_in('h.', key)}"
    more = f"SELECT {w.names(key, 'h.')}, h.roost_bound, k.sequence FROM {listed} WHERE k.excess > 1"
    range_ = f"{mine} AND sequence > {w[BOUND.name]} AND sequence < {w['sequence']}"
    delete = Do(f"{w.delete_by('newest')} WHERE {range_}", counts="more")
    yield Each([*key, BOUND, SEQUENCE], more, [delete, Do(f"SET {w['gone']} = {w['gone']} + {w['more']}")])
    n = f"IF({w['gone']} = {w['excess']}, LEAST(h.n, {keep}), {count})"
    bound = f"IF(k.sequence - h.roost_bound > {FAR}, k.sequence, h.roost_bound)"
    yield Do(f"UPDATE {listed} SET h.n = {n}, h.roost_bound = {bound}", when=evicted)


class SetForm:
    """Many rows on SQLite, by a few statements of the library: a trigger for each takes up to three times as long."""

    def __init__(self, plan: CappedPlan) -> None:
        self._plan = plan
        key, pair, rows = plan.structure.key.columns, plan.identity, plan.rows_table
        self._find = plan.finding("r.until" if plan.expires else "1", rows, pair)
        self._heads = plan.finding("r.sequence, r.n", plan.head_table, key)
        self._counted = plan.storing(plan.head_table, [*key, SEQUENCE, N], key, [SEQUENCE, N])
        moments = [SEQUENCE, AT, *([UNTIL] if plan.expires else [])]
        self._stored = plan.storing(rows, [*plan.given, *moments], pair, [*plan.values, *moments])
        mine = plan.dialect.equal(key)
        if plan.expires:
            living = f"SELECT sequence FROM {rows} WHERE {mine} AND until > ? ORDER BY sequence LIMIT 1"
            over = f"DELETE FROM {rows} WHERE {mine} AND sequence < coalesce(({living}), {INT_MAX})"
            self._expired = Template(over, answer=Answer.COUNTS)
        place = f"SELECT sequence FROM {rows} WHERE {mine} ORDER BY sequence{{}} LIMIT 1 OFFSET ?"
        evict = f"DELETE FROM {rows} WHERE {mine} AND sequence <= ? AND sequence <= ({place})"
        self._evict, self._cut = Template(evict.format("")), Template(evict.format(" DESC"))
        count = f"SELECT count(*) FROM {rows} WHERE {mine}"
        self._recount = Template(f"UPDATE {plan.head_table} SET n = ({count}) WHERE {mine}")

    def add(self, rows: Sequence[Row], context: Context) -> Calling:
        """Store the newest `keep` rows of each key, and delete as many of the oldest; [] if one may be refused."""
        plan, keep = self._plan, self._plan.structure.keep
        keys, identities = [row[: plan.key_width] for row in rows], [*map(plan.identity_of, rows)]
        adds = Counter(keys)
        time, moments = yield from plan.moments(context)
        last_of = {identity: place for place, identity in enumerate(identities)}
        there = yield Statement(self._find, [*last_of])
        known = set(compress(last_of, [found and found[0] > time for found in there] if time else there))
        if plan.structure.on_duplicate == "error" and (known or len(last_of) < len(rows)):
            return []
        gone = (yield Statement(self._expired, [(*key, *key, *time) for key in adds])) if time else [0] * len(adds)
        heads = yield Statement(self._heads, [*adds])
        had = {key: head[0] if head else (0, 0) for key, head in zip(adds, heads, strict=True)}
        ends = {key: had[key][0] + n for key, n in adds.items()}
        sequences, sizes = dict(ends), dict.fromkeys(adds, 0)
        fresh, written = dict.fromkeys(adds, 0), []
        for place in range(len(rows) - 1, -1, -1):
            key, identity = keys[place], identities[place]
            if last_of[identity] == place and (keep is None or sizes[key] < keep):
                written.append((*rows[place], sequences[key], *moments))
                sizes[key] += 1
                fresh[key] += identity not in known
            sequences[key] -= 1
        yield Statement(self._stored, written[::-1])
        counts = {key: had[key][1] + fresh[key] - n if keep else 0 for key, n in zip(adds, gone, strict=True)}
        excess = {key: n - keep for key, n in counts.items() if keep is not None and n > keep}
        yield Statement(self._counted, [(*key, end, counts[key] - excess.get(key, 0)) for key, end in ends.items()])
        if keep is not None and excess:
            over = [(*key, ends[key] - keep, *key, n - 1) for key, n in excess.items()]
            if (yield Statement(self._evict, over)) < sum(excess.values()):  # a count was wrong
                yield Statement(self._cut, [(*key, ends[key] - keep, *key, keep) for key in excess])
                yield Statement(self._recount, [(*key, *key) for key in excess])
        return [1] * len(rows)
