"""Steps that the programs of several structures have: the rules of age, of identity, of whole keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from roost.structures.steps import INT, Do, Each, Give, Head, Let, Now, Program, Step, number
from roost.structures.words.words import Words
from roost.types.columns import Column

UNTIL = number("until")  # the moment at which a row expires
MOST = number("roost_most")  # rows that one call of a sweep deletes

# Steps before rows of a key are removed, given the condition of that key.
Remember = Callable[[Words, str], Iterable[Do]]


def expired(w: Words, head: bool) -> Iterator[Step]:
    """Delete the given key's expired rows; with `head`, its count is mended. Before it: `Now()`."""
    over = f"{w.mine()} AND until <= {w['now']}"
    if head and not w.loops:  # counted before they go: a later statement could not tell how many went
        yield Do(f"UPDATE {w.head} SET n = n - (SELECT count(*) FROM {w.rows} WHERE {over}) WHERE {w.mine()}")
    yield Do(f"DELETE FROM {w.rows} WHERE {over}", counts="gone" if head and w.loops else "")
    if head and w.loops:
        yield Do(f"UPDATE {w.head} SET n = n - {w['gone']} WHERE {w.mine()}", when=f"{w['gone']} > 0")


def sweep(
    rows_key: Sequence[Column],
    column: Column = UNTIL,
    stays: int = 0,
    head: bool = False,
    remember: Remember = lambda _, __: (),
) -> Program:
    """Return the program that deletes some expired rows, whoever's, and stores the structure's time.

    The oldest go first. They are found without locks, and those that another session holds are skipped: the order of
    the rows is not an order of locks. It is for the store's own transactions: the application's would keep other keys
    locked until its end.

    rows_key: the columns that identify a row.
    column: the one with the moment at which it expires.
    stays: microseconds for which it stays after that.
    head: whether the keys have a head with a count, which is locked first and mended.
    """

    def steps(w: Words) -> Iterator[Step]:
        yield Now()
        ends = w.dialect.name_of(column)
        over = f"{ends} <= {w['now']}{f' - {stays}' if stays else ''}"
        key = w.names(w.key)
        found = f"FROM {w.rows} WHERE {over} ORDER BY {ends} LIMIT {w.new(MOST.name)}"
        if not w.loops:
            if head:
                same = " AND ".join(
                    f"q.{w.dialect.name_of(each)} = {w.head}.{w.dialect.name_of(each)}" for each in w.key
                )
                had = f"SELECT count(*) FROM (SELECT {key} {found}) q WHERE {same}"
                yield Do(f"UPDATE {w.head} SET n = n - ({had}) WHERE ({key}) IN (SELECT {key} {found})")
            yield from gone(w, w.rows, rows_key, over, ends)
        elif head:
            yield Each(w.key, f"SELECT DISTINCT {key} FROM (SELECT {key} {found}) q", [*_of_key(w, over, remember)])
        else:
            yield from gone(w, w.rows, rows_key, over, ends)

    return Program("sweep", [MOST], steps)


def gone(w: Words, table: str, rows_key: Sequence[Column], over: str, ends: str) -> Iterator[Step]:
    """Delete some rows for which `over` holds, the oldest first, except those that another session holds."""
    names, index = w.names(rows_key), f"FORCE INDEX ({table.removesuffix('_rows')}_over) "
    found = f"WHERE {over} ORDER BY {ends} LIMIT {w.new(MOST.name)}"
    match w.dialect.family:
        case "sqlite":
            yield Do(f"DELETE FROM {table} WHERE ({names}) IN (SELECT {names} FROM {table} {found})")
        case "postgresql":
            free = f"SELECT ctid FROM {table} {found} FOR UPDATE SKIP LOCKED"
            yield Do(f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({free}))")
        case _:  # a DELETE there cannot skip rows
            this = " AND ".join(f"{w.dialect.name_of(each)} = {w[each.name]}" for each in rows_key)
            free = f"SELECT {names} FROM {table} {index}{found} FOR UPDATE SKIP LOCKED"
            yield Each(rows_key, free, [Do(f"DELETE FROM {table} WHERE {this}")])


def _of_key(w: Words, over: str, remember: Remember) -> Iterator[Step]:
    # Deletes the expired rows of a key that was found, if nobody else holds its head. A trigger of MariaDB's relation
    # may count what is deleted, so the count is written as a whole.
    mine = " AND ".join(f"{w.dialect.name_of(each)} = {w[each.name]}" for each in w.key)
    yield Let("free", INT, f"SELECT n FROM {w.head} WHERE {mine} FOR UPDATE SKIP LOCKED")
    free = f"{w['free']} IS NOT NULL"
    for step in remember(w, mine):
        yield step._replace(when=free)
    yield Do(f"DELETE FROM {w.rows} WHERE {mine} AND {over}", when=free, counts="gone")
    yield Do(f"UPDATE {w.head} SET n = {w['free']} - {w['gone']} WHERE {mine}", when=free)


def removal(
    verb: str,
    key: Sequence[Column],
    before: str,
    counted: bool,
    lasts: bool,
    remember: Remember = lambda _, __: (),
    goes: str = "",
) -> Program:
    """Return the program `clear`, which removes all rows of a key, or `forget`, which removes its head, too.

    Its outcome is how many rows the key had that had not expired; before: the query for that.
    goes: the condition under which the head is removed; otherwise it is left empty.
    """
    had = number("had")

    def steps(w: Words) -> Iterator[Step]:
        yield Head(["n" if counted else "sequence"], makes=False)
        yield from remember(w, w.mine()) if verb == "clear" else ()
        if w.loops and lasts:
            yield Now()
            yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()} AND until <= {w['now']}")
        yield Do(f"DELETE FROM {w.rows} WHERE {w.mine()}", counts="had" if w.loops else "")
        if verb == "forget":
            yield Do(f"DELETE FROM {w.head} WHERE {w.mine()}", when=goes)
        elif counted:
            yield Do(f"UPDATE {w.head} SET n = 0 WHERE {w.mine()} AND n <> 0")
        if w.loops:
            yield Give([w["had"]])

    return Program(verb, key, steps, gives=[had], before=before)
