"""Makes the programs of a structure, and replaces those that an older release or another declaration has left."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.dialects.mariadb_definers import powerless
from roost.errors import Invalid
from roost.structures.plan import StructurePlan, each
from roost.structures.registry import from_definition
from roost.structures.steps import Routine
from roost.structures.views.mysql import needed
from roost.structures.words import mysql, words

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
SELECT p.proname::text, CASE WHEN p.prosecdef AND p.proowner = r.relowner
    AND {here}
    THEN p.prosrc WHEN strpos(p.prosrc, {mark}) > 0 THEN {mark} ELSE '' END
  FROM pg_proc p LEFT JOIN pg_class r ON r.oid = to_regclass({rows})::oid
  WHERE p.proname IN ({names}) AND p.pronamespace = quote_ident(current_schema())::regnamespace""",
}

DEFINERS = """\
SELECT routine_name, definer FROM information_schema.routines
  WHERE routine_schema = DATABASE() AND routine_name IN ({names})"""
USER = "SUBSTRING_INDEX(CURRENT_USER(), '@', {})"
MINE = f"privilege_type = 'CREATE ROUTINE' AND grantee = CONCAT(QUOTE({USER.format(1)}), '@', QUOTE({USER.format(-1)}))"


# The names of all programs that are given whole rows of a declaration that had fewer columns.
VARIANTS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'view' AND sql LIKE '%made by Roost%'",
    "mariadb": "SELECT routine_name FROM information_schema.routines\n"
    "  WHERE routine_schema = DATABASE() AND routine_comment LIKE '%made by Roost%'",
    "postgresql": "SELECT p.oid::regprocedure::text FROM pg_proc p\n"
    "  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.prosrc LIKE '%made by Roost%'",
}
VARIANT = r"(roost_)?{name}_(push|add)(_all)?_[0-9a-f]{{16}}(\(.*)?"
DROPS = {"sqlite": "DROP VIEW {}", "mariadb": "DROP PROCEDURE `{}`", "postgresql": "DROP FUNCTION {}"}


def drop_variants(plan: StructurePlan, but: Collection[str] = ()) -> Generator[Statement, Any, None]:
    """Drop the programs for whole rows of former declarations, but those of these names."""
    if not plan.routines:
        return
    (found,) = yield Statement(each(plan.dialect.choose(VARIANTS)), [()])
    for (name,) in found:
        bare = name.rsplit(".", 1)[-1].replace('"', "")
        if re.fullmatch(VARIANT.format(name=plan.structure.name), bare) and bare.split("(")[0] not in but:
            yield Statement(Template(plan.dialect.choose(DROPS).format(name)), [()])


def found_programs(plan: StructurePlan) -> Generator[Statement, Any, Mapping[str, str]]:
    """Return the stored programs by name; `Invalid` if one of their names belongs to somebody else's object."""
    if not plan.routines:
        return {}
    literal, mark = plan.dialect.literal, words.MARK if plan.dialect.family != "mariadb" else mysql.MARK
    names = ", ".join(literal(each.name) for each in plan.routines)
    told = {
        "names": names,
        "rows": literal(plan.rows_table),
        "mark": literal(mark),
        "mine": MINE,
        "here": "'search_path=' || quote_ident(current_schema()) || ', pg_temp' = ANY (p.proconfig)",
    }
    sql = plan.dialect.choose(FOUND).format(**told)
    (found,) = yield Statement(each(sql), [()])
    for name, text in found:
        if mark not in (text or ""):
            raise Invalid(f"{plan.structure.name}: the database has something called {name} that Roost has not made")
    return dict(found)


def programs_differ(plan: StructurePlan) -> Generator[Statement, Any, list[str]]:
    """Return the names of the programs that are missing, or not as this version makes them."""
    found = yield from found_programs(plan)
    if plan.dialect.family == "mariadb" and not found:
        return []  # an account that may not see them; a call says what is missing
    lost: set[str] = set()
    if plan.dialect.family == "mariadb":
        names = ", ".join(map(plan.dialect.literal, found))
        (defined,) = yield Statement(each(DEFINERS.format(names=names)), [()])
        bodies = {each.name: each.make[-1] for each in plan.routines}
        lost = yield from powerless({name: (definer, needed(bodies.get(name, ""))) for name, definer in defined})
    return [each.name for each in plan.routines if found.get(each.name) != each.text or each.name in lost]


def make_programs(plan: StructurePlan) -> Generator[Statement, Any, bool]:
    """Make the programs that are missing or differ; return whether there were any."""
    differ = yield from programs_differ(plan)
    for routine in plan.routines:
        if routine.name in differ:
            # SQLite cannot replace a view; elsewhere what is there is replaced in place, and no call misses it.
            for sql in [*(routine.drop if plan.dialect.name == "sqlite" else ()), *routine.make]:
                yield Statement(Template(sql), [()])
    return bool(differ)


def make_variants(plan: StructurePlan, definitions: Sequence[str]) -> Generator[Statement, Any, None]:
    """Make the programs for processes whose declaration, one of these, has fewer columns than the stored one."""
    wanted: dict[str, Routine] = {}
    for definition in definitions:
        former = from_definition(definition).overlap(plan.structure.definition)
        if former is not None:
            wanted |= {each.name: each for each in type(plan)(former, plan.dialect).routines}
    made = {each.name for each in plan.routines}
    yield from drop_variants(plan, {*made, *wanted})
    for routine in [routine for name, routine in wanted.items() if name not in made]:
        for sql in [*(routine.drop if plan.dialect.name == "sqlite" else ()), *routine.make]:
            yield Statement(Template(sql), [()])
