"""What several structures have: how rows expire and whole keys are removed, what `check` verifies of their tables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from roost.dialects.conditions import no_moment
from roost.dialects.dialect import Statement, Wanted, execute, fetch
from roost.errors import Invalid
from roost.structures.clock import SECOND, duration, in_words
from roost.structures.plan import SEQUENCE, Facts, N, Rule, StructurePlan
from roost.structures.steps import BY_INDEX, Do, Each, Give, Head, Let, Now, Program, Step, number
from roost.structures.structure import facts_of
from roost.structures.words.words import Words
from roost.types.column_types import shown
from roost.types.columns import Column

UNTIL = number("until")  # the moment at which a row expires
# On servers, where rows are written again and again, the index in which a sweep searches has this moment: that at which
# the row would have expired first. It does not move with the row's end: an update that changes no indexed column writes
# no index (on PostgreSQL it is HOT), and passes few old versions while somebody holds a snapshot. The sweep moves it.
# SQLite would write the index all the same.
DUE = number("due")
MOST = number("roost_most")  # rows that one call of a sweep deletes

# Steps before rows of a key are removed, given the condition of that key.
Remember = Callable[[Words, str], Iterable[Do]]


def sweep(
    rows_key: Sequence[Column],
    column: Column = UNTIL,
    stays: int = 0,
    head: bool = False,
    due: bool = False,
    remember: Remember = lambda _, __: (),
) -> Program:
    """Return the program that deletes some expired rows, whoever's, and stores the structure's time.

    They are found without locks, and those that another session holds are skipped: the order of the rows is not an
    order of locks. It is for the store's own transactions: an application's would keep other keys locked until its end.

    rows_key: the columns that identify a row.
    column: the one with the moment at which it expires.
    stays: microseconds for which it stays after that.
    head: whether the keys have a head with a count, which is locked first and mended.
    due: whether `due` is indexed in place of the column.
    """

    def steps(w: Words) -> Iterator[Step]:
        yield Now()
        ends = w.dialect.name_of(column)
        past = f"{{}} <= {w['now']}{f' - {stays}' if stays else ''}"
        over = past.format(ends)
        key = w.names(w.key)
        found = f"FROM {w.rows} {_some(w, over, ends)}"
        if not w.loops:
            if head:
                same = w.dialect.same(w.key, "q.", f"{w.head}.")
                had = f"SELECT count(*) FROM (SELECT {key} {found}) q WHERE {same}"
                yield Do(f"UPDATE {w.head} SET n = n - ({had}) WHERE ({key}) IN (SELECT {key} {found})")
            yield from gone(w, w.rows, rows_key, over, ends)
        elif head:
            yield Each(w.key, f"SELECT DISTINCT {key} FROM (SELECT {key} {found}) q", [*_of_key(w, over, remember)])
        else:
            yield from gone(w, w.rows, rows_key, over, ends, past.format(DUE.name) if due else "")

    return Program("sweep", [MOST], steps, pinned=BY_INDEX)


def due_with(ends: str, due: str = "due") -> str:
    """Return what `due` becomes when a row gets another end; it is 0 in a row that was made to be locked."""
    return f"coalesce(least(nullif({due}, 0), {ends}), {ends})"


def gone(
    w: Words, table: str, rows_key: Sequence[Column], over: str, ends: str, due: str = "", index: str = "over"
) -> Iterator[Step]:
    """Delete some rows for which `over` holds, except those that another session holds.

    ends: the column in `over`.
    due: the same condition of `due`, where that is indexed in its place. Not on SQLite.
    index: the end of the name of the index.
    """
    names = w.names(rows_key)
    found = _some(w, due or over, DUE.name if due else ends)
    move, too = f"UPDATE {table} SET due = {ends} WHERE", f" AND {over}" if due else ""
    match w.dialect.family:
        case "sqlite":
            yield Do(f"DELETE FROM {table} WHERE ({names}) IN (SELECT {names} FROM {table} {found})")
        case "postgresql":
            free = f"ctid = ANY (ARRAY(SELECT ctid FROM {table} {found} FOR UPDATE SKIP LOCKED))"
            if due:
                yield Do(f"{move} {free} AND NOT ({over})")
            yield Do(f"DELETE FROM {table} WHERE {free}{too}")
        case _:  # a DELETE there cannot skip rows
            this = " AND ".join(f"{w.dialect.name_of(each)} = {w[each.name]}" for each in rows_key)
            by_index = f"FORCE INDEX (roost_{w.name}_{index})"
            free = f"SELECT {names} FROM {table} {by_index} {found} FOR UPDATE SKIP LOCKED"
            moved = [Do(f"{move} {this} AND NOT ({over})")] if due else []
            yield Each(rows_key, free, [*moved, Do(f"DELETE FROM {table} WHERE {this}{too}")])


def _some(w: Words, over: str, ends: str) -> str:
    return f"WHERE {over} ORDER BY {ends}{w.backwards} LIMIT {w.new(MOST.name)}"


def _of_key(w: Words, over: str, remember: Remember) -> Iterator[Step]:
    # Deletes the expired rows of a key that was found, if nobody else holds its head. A trigger of MariaDB's relation
    # may count what is deleted, so the count is written as a whole.
    mine = " AND ".join(f"{w.dialect.name_of(each)} = {w[each.name]}" for each in w.key)
    yield Let("free", f"SELECT n FROM {w.head} WHERE {mine} FOR UPDATE SKIP LOCKED")
    free = f"{w['free']} IS NOT NULL"
    for step in remember(w, mine):
        yield step._replace(when=free)
    yield Do(f"DELETE FROM {w.rows} WHERE {mine} AND {over}", when=free, counts="gone")
    yield Do(f"UPDATE {w.head} SET n = {w['free']} - {w['gone']} WHERE {mine}", when=free)


def removals(plan: Any, goes: str = "") -> Iterator[Program]:
    """Yield the programs `clear`, which removes all rows of a key with a head, and `forget`, which removes that, too.

    Their outcome is how many rows the key had that had not expired.

    goes: the condition under which the head is removed; otherwise it is left empty.
    """
    had, counted = number("had"), N in plan.layout[plan.head_table]

    def steps(w: Words, verb: str) -> Iterator[Step]:
        yield Head([N if counted else SEQUENCE], makes=False)
        yield from plan.remember(w, w.mine()) if verb == "clear" else ()
        if plan.expires:
            yield Now()
            yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND until <= {w['now']}")
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}", counts="had")
        if verb == "forget":
            yield Do(f"DELETE FROM {w.head} WHERE {w.mine()}", when=goes)
        elif counted:
            yield Do(f"UPDATE {w.head} SET n = 0 WHERE {w.mine()} AND n <> 0")
        yield Give([w["had"]])

    before = f"SELECT count(*) FROM {plan.rows_table} WHERE {plan.mine()}{plan.living()}"
    for verb in ("clear", "forget"):
        yield Program(verb, plan.structure.key.columns, partial(steps, verb=verb), [had], before=before)


LONGEST = 10**15  # microseconds: about 31 years


def seconds(name: str, keep_for: Any) -> int:
    """Return `keep_for` in whole seconds, or raise `Invalid`."""
    found, rest = divmod(duration(f"{name}: keep_for", keep_for, LONGEST), SECOND)
    if rest:
        raise Invalid(f"{name}: keep_for is a timedelta of whole seconds, or their number, not {shown(keep_for)}")
    return found


def change_keep_for(plan: Any, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Let stored rows expire earlier if `keep_for` becomes shorter.

    A longer one applies only to rows written from then on: expired rows that are still stored must not reappear.
    """
    if old.get("keep_for") is None:
        raise Invalid(
            f"{plan.structure.name}: keep_for cannot change from None to {in_words(new['keep_for'])}: the rows have no "
            "times; create another structure and import into it"
        )
    less = old["keep_for"] - new["keep_for"]
    if less <= 0:
        return
    name = plan.dialect.literal(plan.structure.name)
    former = yield from fetch(f"SELECT definition FROM roost_former WHERE name = {name}")
    kept = [facts_of(definition).get("keep_for") or old["keep_for"] for (definition,) in former]
    where = ""
    if shorter := [each for each in kept if each < old["keep_for"]]:
        # A row of a time when it was shorter has not got what would be taken away, and has ended by `most`. Of those
        # that end before it nobody knows of which time they are: they may stay as long as a row that is written now.
        ((now,),) = yield from fetch(f"SELECT {plan.shown_now}")
        most, end = (int(now) + each * SECOND for each in (max(shorter), new["keep_for"]))
        yield execute(f"UPDATE {plan.rows_table} SET until = {end} WHERE until > {end} AND until <= {most}")
        where = f" WHERE until > {most}"
    yield execute(f"UPDATE {plan.rows_table} SET until = until - {less * SECOND}{where}")


def end_late_rows(plan: Any, _: Facts, new: Facts) -> Generator[Wanted, Any, None]:
    """Let rows that were written by a longer `keep_for`, by calls beside `alter`, last as if they were written now."""
    if (keep_for := new.get("keep_for")) is not None:
        # A procedure is replaced beside its calls: those that have not ended have locked what is read here.
        yield from fetch(f"SELECT count(*) FROM {plan.head_table if plan.heads else plan.rows_table} FOR UPDATE")
        ((end,),) = yield from fetch(f"SELECT {plan.now} + {keep_for * SECOND}")
        yield execute(f"UPDATE {plan.rows_table} SET until = {end} WHERE until > {end}")


def beyond(plan: Any, identity: Sequence[Column], order: str, keep: int) -> Statement:
    """Return the statement that deletes the rows of each key behind the first `keep` in an order."""
    rows, names, ids = plan.rows_table, plan.dialect.names(plan.structure.key.columns), plan.dialect.names(identity)
    ranked = f"SELECT {ids}, row_number() OVER (PARTITION BY {names} ORDER BY {order}) AS place FROM {rows}"
    over = f"SELECT {ids} FROM ({ranked}) ranked WHERE place > {keep}"
    return execute(f"DELETE FROM {rows} WHERE ({ids}) IN ({over})")


def rule(plan: StructurePlan, name: str, said: str, *parts: str, where: str = "", having: str = "") -> Rule:
    """Return the rule that no row `r`, head `h`, or row with its head fulfils a condition.

    said, parts: what is wrong, with a ? for each of these expressions.
    having: the condition of the rows of a key together; or of those with equal values in columns: `a, b HAVING …`.
    """
    dialect, key, text = plan.dialect, plan.structure.key.columns, " ".join([*parts, where])
    of, source = "r.", f"{plan.rows_table} r"
    if "h." in text and "r." in text:
        source += f" JOIN {plan.head_table} h ON {dialect.same(key, 'h.', 'r.')}"
    elif "h." in text:
        of, source = "h.", f"{plan.head_table} h"
    tail = f"WHERE {where}"
    if having:
        by, _, condition = having.rpartition(" HAVING ")
        tail = f"GROUP BY {', '.join(filter(None, [dialect.names(key, of), by]))} HAVING {condition}"
    return name, f"SELECT {dialect.names(key, of)}, {dialect.message(said, *parts)}\n  FROM {source} {tail}"


def has_head(plan: StructurePlan) -> Rule:
    """Return the rule that every row has a head."""
    dialect, key = plan.dialect, plan.structure.key.columns
    names, none = dialect.names(key, "r."), f"h.{dialect.name_of(key[0])} IS NULL"
    return (
        "head",
        f"SELECT {names}, {dialect.message('? rows without a head', 'count(*)')} FROM {plan.rows_table} r\n"
        f"  LEFT JOIN {plan.head_table} h ON {dialect.same(key, 'h.', 'r.')} WHERE {none} GROUP BY {names}",
    )


def sequences(plan: StructurePlan, last: bool = True) -> Iterator[Rule]:
    """Return the rules of rows that have a sequence: it is one that the head has given, at a moment.

    last: whether the head has the sequence of the newest row.
    """
    wrong = "r.sequence > h.sequence OR r.sequence < 1" if last else "r.sequence < 1"
    yield rule(plan, "sequence", "sequence ?, the head says ?", "r.sequence", "h.sequence", where=wrong)
    if plan.dialect.name == "sqlite":
        yield rule(plan, "at", "at ? is no moment", "at", where=no_moment("at"))


def counted(plan: StructurePlan) -> Rule:
    """Return the rule that the head's count is that of its rows."""
    dialect, key = plan.dialect, plan.structure.key.columns
    names, first = dialect.names(key, "h."), dialect.name_of(key[0])
    said, there = dialect.quoted("its n"), dialect.quoted("its rows")  # no column has a blank in its name
    return (
        "count",
        f"SELECT {dialect.names(key)}, {dialect.message('the head says ?, there are ?', said, there)}\n"
        f"  FROM (SELECT {names}, h.n AS {said}, count(r.{first}) AS {there} FROM {plan.head_table} h\n"
        f"    LEFT JOIN {plan.rows_table} r ON {dialect.same(key, 'h.', 'r.')} GROUP BY {names}, h.n) q\n"
        f"  WHERE {said} <> {there}",
    )


def lasting(plan: StructurePlan) -> Rule:
    """Return the rule that every row has a moment at which it leaves."""
    return rule(plan, "until", "a row with the end ?", "r.until", where="r.until <= 0")
