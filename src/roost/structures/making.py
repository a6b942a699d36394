"""Makes, finds, replaces and drops what a structure has in the database beside its tables: its programs, its SQL view.

MySQL replaces no procedure, and a call of one that is missing keeps others from making it until its transaction ends.
So there the name of a program ends in a digest of its text: a new text is made beside the old one, which goes last.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Statement, execute, fetch
from roost.dialects.mariadb_definers import powerless
from roost.errors import Error, Invalid
from roost.structures.plan import StructurePlan
from roost.structures.registry import from_definition
from roost.structures.steps import Routine
from roost.structures.views.mysql import MYSQL_VIEWS, needed
from roost.structures.views.postgresql import POSTGRESQL_VIEWS
from roost.structures.views.sqlite import SQLITE_VIEWS
from roost.structures.views.view import NO_VIEW, FoundView, View, ViewDialect
from roost.structures.words import mysql, words

log = logging.getLogger("roost")

# The stored routines of some names: each with the text of `Routine.text`, or "" where something else about it differs.
FOUND = {
    "sqlite": "SELECT name, group_concat(sql, char(10)) FROM\n"
    "  (SELECT tbl_name AS name, sql FROM sqlite_master WHERE tbl_name IN ({names}) ORDER BY type DESC) GROUP BY name",
    # An account sees the procedures that it may call. One that may make procedures sees all of the database's.
    # An empty literal would be NULL under EMPTY_STRING_IS_NULL.
    "mariadb": """\
SELECT routine_name, routine_comment FROM information_schema.routines
  WHERE routine_schema = DATABASE() AND routine_name IN ({names})
UNION ALL SELECT _utf8mb4 X'', {mark} FROM information_schema.user_privileges WHERE {mine}
UNION ALL SELECT _utf8mb4 X'', {mark} FROM information_schema.schema_privileges
  WHERE {mine} AND DATABASE() LIKE table_schema""",
    "postgresql": """\
SELECT p.proname::text, CASE WHEN p.proowner = r.relowner AND (p.prosecdef AND {here} OR left(p.prosrc, 7) = 'SELECT ')
    THEN p.prosrc WHEN strpos(p.prosrc, {mark}) > 0 THEN {mark} ELSE '' END
  FROM pg_proc p LEFT JOIN pg_class r ON r.oid = to_regclass({rows})::oid
  WHERE p.proname IN ({names}) AND p.pronamespace = quote_ident(current_schema())::regnamespace""",
}

GRANTED = """\
SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.procs_priv
  WHERE db = DATABASE() AND routine_name = {name} AND routine_type = 'PROCEDURE' AND FIND_IN_SET('Execute', proc_priv)
    AND CONCAT(user, '@', host) <> CURRENT_USER()"""
DEFINERS = """\
SELECT routine_name, definer FROM information_schema.routines
  WHERE routine_schema = DATABASE() AND routine_name IN ({names})"""
LOST = "%s is made anew: %s need EXECUTE on this procedure again"
USER = "SUBSTRING_INDEX(CURRENT_USER(), '@', {})"
MINE = f"privilege_type = 'CREATE ROUTINE' AND grantee = CONCAT(QUOTE({USER.format(1)}), '@', QUOTE({USER.format(-1)}))"


# The names of programs: on MariaDB and MySQL of all of a structure, elsewhere of all that are given whole rows of a
# declaration that had fewer columns.
PROGRAMS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'view' AND sql LIKE '%made by Roost%'",
    "mariadb": "SELECT routine_name FROM information_schema.routines\n"
    "  WHERE routine_schema = DATABASE() AND routine_comment REGEXP '^{mark}: [0-9a-f]+ of {name}$'",
    "postgresql": "SELECT p.oid::regprocedure::text FROM pg_proc p\n"
    "  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.prosrc LIKE '%made by Roost%'",
}
VARIANT = r"(roost_)?{name}_(push|add)(_all)?_[0-9a-f]{{8}}(\(.*)?"
DROPS = {"sqlite": "DROP VIEW {}", "mariadb": "DROP PROCEDURE `{}`", "postgresql": "DROP FUNCTION {}"}


def drop_programs(plan: StructurePlan, but: Sequence[Routine] = ()) -> Generator[Statement, Any, bool]:
    """Drop the programs of former declarations and of other versions, but these; return whether there were any."""
    if not plan.routines:
        return False
    structure, names = plan.structure.name, {each.name for each in but}
    found = yield from fetch(plan.dialect.choose(PROGRAMS).format(mark=mysql.MARK, name=structure))
    dropped = False
    for (name,) in found:
        bare = name.rsplit(".", 1)[-1].replace('"', "")
        mine = plan.dialect.family == "mariadb" or re.fullmatch(VARIANT.format(name=structure), bare)
        if mine and bare.split("(")[0] not in names:
            yield execute(plan.dialect.choose(DROPS).format(name))
            dropped = True
    return dropped


def found_programs(plan: StructurePlan, routines: Sequence[Routine]) -> Generator[Statement, Any, Mapping[str, str]]:
    """Return those of the programs that are stored, by name; `Invalid` if a name belongs to somebody else's object."""
    if not routines:
        return {}
    literal, mark = plan.dialect.literal, words.MARK if plan.dialect.family != "mariadb" else mysql.MARK
    names = ", ".join(literal(each.name) for each in routines)
    told = {
        "names": names,
        "rows": literal(plan.rows_table),
        "mark": literal(mark),
        "mine": MINE,
        "here": "'search_path=' || quote_ident(current_schema()) || ', pg_temp, pg_roost_' || r.oid::text"
        " = ANY (p.proconfig)",
    }
    found = yield from fetch(plan.dialect.choose(FOUND).format(**told))
    for name, text in found:
        if mark not in (text or ""):
            raise Invalid(f"{plan.structure.name}: the database has something called {name} that Roost has not made")
    return dict(found)


def programs_differ(
    plan: StructurePlan, routines: Sequence[Routine] | None = None
) -> Generator[Statement, Any, list[str]]:
    """Return the names of those of its programs, or of these, that are missing, or not as this version makes them."""
    routines = plan.routines if routines is None else routines
    found = yield from found_programs(plan, routines)
    if plan.dialect.family == "mariadb" and not found:
        return []  # an account that may not see them; a call says what is missing
    lost: set[str] = set()
    if plan.dialect.family == "mariadb":
        names = ", ".join(map(plan.dialect.literal, found))
        defined = yield from fetch(DEFINERS.format(names=names))
        bodies = {each.name: each.make[-1] for each in routines}
        lost = yield from powerless({name: (definer, needed(bodies.get(name, ""))) for name, definer in defined})
    return [each.name for each in routines if found.get(each.name) != each.text or each.name in lost]


def make_programs(plan: StructurePlan, routines: Sequence[Routine]) -> Generator[Statement, Any, None]:
    """Make those of these programs of a structure that are missing or differ."""
    differ = yield from programs_differ(plan, routines)
    for routine in routines:
        if routine.name in differ:
            # SQLite cannot replace a view; elsewhere what is there is replaced in place, and no call misses it.
            granted = (yield from _granted(plan, routine.name)) if plan.dialect.name == "mysql" else []
            for sql in [*(routine.drop if plan.dialect.name == "sqlite" else ()), *routine.make]:
                yield execute(sql)
            for account in granted:
                try:
                    yield execute(f"GRANT EXECUTE ON PROCEDURE `{routine.name}` TO {account}")
                except Error:
                    log.warning(LOST, routine.name, account)


def _granted(plan: StructurePlan, name: str) -> Generator[Statement, Any, list[str]]:
    # The accounts whose right to call a procedure goes with it, since MySQL does not replace one.
    literal = plan.dialect.literal(name)
    if not (yield from fetch(DEFINERS.format(names=literal))):
        return []
    try:
        found = yield from fetch(GRANTED.format(name=literal))
    except Error:  # this account may not see them
        log.warning(LOST, name, "accounts to which it was granted")
        return []
    return [account for (account,) in found]


def all_programs(plan: StructurePlan, definitions: Sequence[str]) -> Sequence[Routine]:
    """Return its programs, and those for processes whose declaration is one of these, perhaps with fewer columns."""
    wanted: dict[str, Routine] = {}
    for definition in definitions:
        former = from_definition(definition).overlap(plan.structure.definition)
        if former is not None:
            wanted |= {each.name: each for each in type(plan)(former, plan.dialect).routines}
    return [*(wanted | {each.name: each for each in plan.routines}).values()]


# --- views -----------------------------------------------------------------------------------------------------------

_DIALECTS: dict[str, ViewDialect] = {"sqlite": SQLITE_VIEWS, "postgresql": POSTGRESQL_VIEWS, "mariadb": MYSQL_VIEWS}


def view_of(plan: StructurePlan, inlets: bool = True) -> View:
    """Return the view of a structure, on MariaDB and MySQL with inlets or with procedures."""
    if not plan.has_view:
        raise Invalid(f"{plan.structure.name}: it has no view")
    return _dialect(plan).view(plan, inlets)


def wanted_view(plan: StructurePlan) -> Generator[Statement, Any, View]:
    """Return the view of a structure as this database can make it."""
    return view_of(plan, not plan.has_view or (yield from _dialect(plan).inlets(plan)))


def found_view(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    """Return the stored view of a structure; empty if it has none."""
    return (yield from _dialect(plan).found(plan)) if plan.has_view else NO_VIEW


def is_made(plan: StructurePlan) -> Generator[Statement, Any, bool]:
    """Return whether the view exists in the form that this version creates."""
    return (yield from found_view(plan)).objects == (yield from wanted_view(plan)).objects


def make_view(plan: StructurePlan, anew: bool = False) -> Generator[Statement, Any, bool]:
    """Create the view if it is missing or of another version, or anew; return whether it did.

    What the application has added to it stays. `Invalid` if another object has one of its names.
    """
    view, found = (yield from wanted_view(plan)), (yield from found_view(plan))
    if found.objects == view.objects and not anew:
        return False
    replace = _dialect(plan).replace
    if replace is not None and (changes := (yield from replace(plan, found))):
        for sql in changes:
            yield execute(sql)
        return True
    only_told = False  # the statements are only collected to be shown, and the view still exists
    dropped = yield from drop_view(plan)
    if dropped.objects:
        only_told = bool((yield from found_view(plan)).objects)
    if not only_told:
        yield from refuse_taken(plan)
    done = 0
    try:
        for sql in [*view.make, *dropped.own]:
            yield execute(sql)
            done += 1
    except Error:
        for sql in reversed(view.undo[:done]):
            yield execute(sql)
        raise
    return True


def refuse_taken(plan: StructurePlan) -> Generator[Statement, Any, None]:
    """`Invalid` if another object has one of the names of the view, which is not there."""
    if taken := (yield from _dialect(plan).taken(plan)):
        raise Invalid(
            f"{plan.structure.name}: the database has something of that name already ({taken}); give the structure "
            "another name, or leave out its view (view=False, on the command line --no-view): then only Python can "
            "write it"
        )


def drop_view(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    """Drop the view, and return it; `Invalid` if an object of the application depends on it."""
    found = yield from found_view(plan)
    if found.objects:
        for sql in found.drop or view_of(plan).drop:
            yield execute(sql)
    return found


def lock_view(plan: StructurePlan) -> Generator[Statement, Any, bool]:
    """Keep others from writing through the view before its tables change; return whether that drops part of it."""
    locking = _dialect(plan).lock(plan)
    for sql in locking:
        yield execute(sql)
    return bool(locking)


def _dialect(plan: StructurePlan) -> ViewDialect:
    return _DIALECTS[plan.dialect.family]
