"""Views on MariaDB and MySQL: a view to read, NAME_in to insert, NAME_out to remove.

A trigger cannot change its own table, and a view cannot have triggers; so the two inlets are BLACKHOLE tables, which
store nothing, with AFTER INSERT triggers. If the server lacks BLACKHOLE, the procedures NAME_add and NAME_remove take
their place. Rules for all of them:

- The head is locked first, then the rows, as in the plans. The client may be in REPEATABLE READ, so triggers read with
  locks. No gap lock is taken before the last row is written: two clients would wait for each other's.
- Everything that can be refused is refused before anything is written. Input types: `dialects/mariadb_conditions.py`.
- The code that inserts a row also counts it. Deletes are counted by a trigger on the rows, whoever deletes: so a
  client's own DELETE keeps the count right, too. The plans write a head's count after the rows, with its value then.
- What an `alter` changes is replaced in place, one statement each: no object is ever missing, and one that is still as
  before does what is right for the columns that it has. MySQL cannot replace a trigger: while it is missing, another
  one refuses what is inserted.
- The view is one over a derived table: merged into a query, so that every index serves, but nothing can be written to
  it. An inlet has its name only when it has its trigger: without, it would swallow what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.conditions import wanted
from roost.dialects.dialect import Dialect, Statement, fetch
from roost.dialects.mariadb import compared, literal
from roost.dialects.mariadb_conditions import given_type, refused, stored
from roost.dialects.mariadb_definers import Right, may, powerless
from roost.structures.clock import CLOCK, TRIGGER_CLOCK
from roost.structures.plan import StructurePlan
from roost.structures.steps import REFUSALS
from roost.structures.views.view import NOTHING, Case, FoundView, View, ViewDialect, ViewWords
from roost.structures.words.words import digest
from roost.types.columns import Column

MARK = "a view, made by Roost"  # in the comment of a table or a procedure: without, it is somebody else's
MESSAGE = 500  # characters that SIGNAL takes, about

OUT_OF_RANGE = "1690, 1264"


@dataclass(frozen=True, slots=True)
class Inlet:
    """What an inlet or a procedure does with one row: the columns that it takes, and its statements."""

    columns: Sequence[Column]
    declared: Sequence[str]
    body: Sequence[str]


@dataclass(frozen=True, slots=True)
class Inlets:
    """One view before its objects have their names."""

    view: str  # {mark}: the alias by which the view is known again
    add: Callable[[MySQLViewWords], Inlet]
    remove: Callable[[MySQLViewWords], Inlet]
    counted: bool = False  # whether heads have a count, which direct deletes must keep right


class MySQLViewWords(ViewWords):
    """What the statements of one structure's view are made of.

    given: how a column's value is called that the client gives, to be formatted with its name.
    """

    def __init__(self, plan: StructurePlan, given: str) -> None:
        super().__init__(plan)
        self._given = given

    def new(self, column: Column) -> str:
        return f"`new {column.name}`"

    def inlet(self, columns: Sequence[Column], body: Sequence[str], declared: Sequence[str] = ()) -> Inlet:
        """Return an inlet that first refuses what is not allowed and puts what is given into its variables."""
        made, checks = checked(self.dialect, self.name, columns, self._given)
        work = [each.replace(CLOCK["mariadb"], TRIGGER_CLOCK) for each in body]
        return Inlet(columns, [*made, *declared], [*checks, *work])

    def call(self, verb: str, passes: Mapping[str, str] = NOTHING) -> tuple[list[str], list[str]]:
        """Return the statements of a call of a program, whose outcome may refuse the row, and their variables."""
        gives, words = self.plan.program(verb).gives, self.plan.words
        outs = [f"`its {each.name}`" for each in gives]
        declared = [f"DECLARE `its {each.name}` {words.type_of(each)}" for each in gives]
        name = words.routine_name(self.plan.program(verb))
        called = strangers(self.dialect, f"CALL {name}({', '.join([*self.called(verb, passes, self.new), *outs])})")
        refused = [
            f"IF {outs[0]} = {outcome} THEN {signal(message, REFUSALS[outcome][1])}; END IF"
            for message, outcome in self.plan.refusals(verb).items()
        ]
        return [called, *refused], declared

    def refuse(self, *cases: Case) -> list[str]:
        """Return the statements that refuse a row in one of these cases."""
        return [f"IF {when} THEN {signal(f'{self.name}{message}')}; END IF" for when, _, message in cases]


def strangers(dialect: Dialect, call: str) -> str:
    """Return a call of a program by a session of somebody else's.

    MariaDB takes a DELETE that names its index for one that uses no key, which sql_safe_updates refuses (1175).
    """
    return f"SET STATEMENT sql_safe_updates = 0 FOR {call}" if dialect.name == "mariadb" else call


def signal(message: str, number: int | None = None) -> str:
    """Return the statement that refuses a row."""
    more = "" if number is None else f", MYSQL_ERRNO = {number}"
    state = 45000 if number is None else 23000
    return f"SIGNAL SQLSTATE '{state}' SET MESSAGE_TEXT = {literal(message[:MESSAGE])}{more}"


def checked(dialect: Dialect, name: str, columns: Sequence[Column], given: str) -> tuple[list[str], list[str]]:
    """Return the variables of what a client gives, and the statements that refuse what is not allowed and set them.

    given: how a column's value is called that the client gives, to be formatted with its name.
    """
    cases, variables = [], []
    for column in columns:
        value = given.format(column.name)
        message = f"{name}.{column.name}: it takes {wanted(dialect, column)}"
        cases.append(f"IF {refused(dialect, column, value)} THEN {signal(message)}; ")
        variables.append(f"SET `new {column.name}` = {stored(column, value)}")
    made = [f"DECLARE `new {each.name}` {dialect.types[each.type.kind](each)}" for each in columns]
    return made, ["ELSE".join(cases) + "END IF", *variables]


def _view(plan: StructurePlan, inlets: bool = True) -> View:
    made, name, rows = plan.relation().inlets(plan), plan.structure.name, plan.rows_table
    mark = f"roost_view_{digest(made.view)}"
    objects = {name: mark}
    # Each with the statement that undoes it.
    make = {f"CREATE VIEW `{name}` AS {made.view.format(mark=mark)}": f"DROP VIEW `{name}`"}
    if made.counted:
        same = plan.dialect.same(plan.structure.key.columns, "h.", "OLD.")
        count = f"UPDATE {plan.head_table} h SET h.n = h.n - 1 WHERE {same}"
        objects[f"roost_{name}_deleted"] = count
        trigger = f"CREATE TRIGGER roost_{name}_deleted AFTER DELETE ON {rows} FOR EACH ROW {count}"
        make[trigger] = f"DROP TRIGGER roost_{name}_deleted"
    if not inlets:
        for procedure, built in _built(plan, made, "`given {}`", "add", "remove"):
            parameters = ", ".join(f"`given {each.name}` {given_type(plan.dialect, each)}" for each in built.columns)
            body = transaction(_block(built, "  "))
            objects[procedure] = f"{MARK}: {digest(parameters + body)}"
            sql = f"CREATE PROCEDURE `{procedure}` ({parameters}) COMMENT '{objects[procedure]}'\n{body}"
            make[sql] = f"DROP PROCEDURE `{procedure}`"
        return View(tuple(make), (), objects, tuple(make.values()))
    for inlet, built in _built(plan, made):
        columns = ",\n  ".join(f"`{each.name}` {given_type(plan.dialect, each)}" for each in built.columns)
        body = _block(built)
        objects[inlet] = f"BLACKHOLE {MARK}: {digest(columns)}"
        objects[f"roost_{inlet}"] = compared(body)
        table = f"CREATE TABLE roost_{inlet} (\n  {columns}\n) ENGINE=BLACKHOLE COMMENT='{MARK}: {digest(columns)}'"
        trigger = f"CREATE TRIGGER roost_{inlet} AFTER INSERT ON roost_{inlet} FOR EACH ROW\n{body}"
        make |= {table: f"DROP TABLE roost_{inlet}", trigger: f"DROP TRIGGER roost_{inlet}"}
    renamed = f"roost_{name}_in TO `{name}_in`, roost_{name}_out TO `{name}_out`"
    make[f"RENAME TABLE {renamed}"] = f"DROP TABLE `{name}_in`, `{name}_out`"
    return View(tuple(make), (), objects, tuple(make.values()))


def _built(
    plan: StructurePlan, made: Inlets, given: str = "NEW.`{}`", add: str = "in", remove: str = "out"
) -> Iterator[tuple[str, Inlet]]:
    # The inlets or procedures, by name.
    yield f"{plan.structure.name}_{add}", made.add(MySQLViewWords(plan, given))
    yield f"{plan.structure.name}_{remove}", made.remove(MySQLViewWords(plan, given))


def _replace(plan: StructurePlan, found: FoundView) -> Generator[Statement, Any, Sequence[str]]:
    # Replaces only what differs. An inlet is altered in place, and its trigger stays the first of the inlet's triggers.
    wanted = _view(plan, f"{plan.structure.name}_in" in found.objects)
    if {*found.objects} != {*wanted.objects}:
        return ()
    made, name = plan.relation().inlets(plan), plan.structure.name
    different = {each for each, text in wanted.objects.items() if found.objects[each] != text}
    changes = []
    for inlet, built in _built(plan, made):
        if inlet in different:
            there = yield from _asked(COLUMNS, inlet)
            columns = {row[0] for row in there}
            changes.append(_changed_inlet(plan.dialect, inlet, built.columns, columns, wanted.objects[inlet]))
        if f"roost_{inlet}" in different:
            own = [row for row in (yield from _asked(TRIGGERS, inlet)) if row[0] not in _trigger_names(name)]
            after = sorted((row[3], row[0]) for row in own if row[4:] == ("AFTER", "INSERT"))
            place = f" PRECEDES `{after[0][1]}`" if after else ""
            trigger = f"CREATE TRIGGER roost_{inlet} AFTER INSERT ON `{inlet}` FOR EACH ROW{place}"
            changes += _instead(plan, f"{trigger}\n{_block(built)}", f"DROP TRIGGER roost_{inlet}")
    for sql, undo in zip(wanted.make, wanted.undo, strict=True):
        if re.match("CREATE (VIEW|PROCEDURE|TRIGGER .* AFTER DELETE)", sql) and undo.split()[2].strip("`") in different:
            changes += _instead(plan, sql, undo)
    return changes


def _instead(plan: StructurePlan, sql: str, drop: str) -> list[str]:
    if plan.dialect.replaces or sql.startswith("CREATE VIEW"):
        return [sql.replace("CREATE", "CREATE OR REPLACE", 1)]
    trigger = re.match(r"CREATE TRIGGER \w+ AFTER (\w+ ON \S+) FOR EACH ROW", sql)
    if not trigger:
        return [drop, sql]
    name = plan.structure.name
    closed = f"roost_{name}_closed"  # what is written meanwhile is refused, and not swallowed, whatever happens
    refuse = f"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = '{name} is being altered; try again'"
    return [f"CREATE TRIGGER {closed} BEFORE {trigger[1]} FOR EACH ROW {refuse}", drop, sql, f"DROP TRIGGER {closed}"]


def _changed_inlet(dialect: Dialect, inlet: str, columns: Sequence[Column], there: set[str], comment: str) -> str:
    parts, place = [], "FIRST"
    for column in columns:
        verb = "MODIFY" if column.name in there else "ADD"
        parts.append(f"{verb} COLUMN `{column.name}` {given_type(dialect, column)} {place}")
        place = f"AFTER `{column.name}`"
    parts += [f"DROP COLUMN `{name}`" for name in sorted(there - {column.name for column in columns})]
    return f"ALTER TABLE `{inlet}` {', '.join(parts)}, ENGINE=BLACKHOLE, COMMENT='{comment.removeprefix('BLACKHOLE ')}'"


def _block(inlet: Inlet, indent: str = "") -> str:
    lines = "".join(f"{indent}  {each};\n" for each in [*inlet.declared, *inlet.body])
    return f"{indent}BEGIN\n{lines}{indent}END"


def transaction(block: str, declared: Sequence[str] = (), last: str = "") -> str:
    """Return the body of a procedure that begins a transaction where none is open, and otherwise undoes only its own.

    A trigger is part of a statement, which is undone as a whole; a procedure has to undo its statements itself. A
    savepoint that is gone at once tells that no transaction is open: MySQL has no variable for that. After a deadlock,
    which has rolled back the whole transaction, it is gone, too.

    declared: variables of the block that are read behind it, by the last statement.
    """
    last = f"\n  {last};" if last else ""
    variables = "".join(f"  {each};\n" for each in declared)
    return f"""\
BEGIN
{variables}  DECLARE `own` BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1305 BEGIN END;
      IF `own` THEN ROLLBACK; ELSE ROLLBACK TO SAVEPOINT roost_view; END IF;
    END;
    RESIGNAL;
  END;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET `own` = TRUE;
    SAVEPOINT roost_view;
    RELEASE SAVEPOINT roost_view;
  END;
  IF `own` THEN START TRANSACTION; ELSE SAVEPOINT roost_view; END IF;
{block};
  IF `own` THEN COMMIT; ELSE RELEASE SAVEPOINT roost_view; END IF;{last}
END"""


ENGINES = "SELECT engine FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT')"
# A node of Galera may make no BLACKHOLE table (4165), nor a MySQL of a group (3161), nor one without a primary key.
LIMITS = ("wsrep_mode", "disabled_storage_engines", "sql_require_primary_key")
SETTINGS = f"SHOW VARIABLES WHERE variable_name IN {LIMITS}"
FORBIDS = re.compile("STRICT_REPLICATION|BLACKHOLE|^(ON|1)$", re.IGNORECASE)
TABLES = """\
SELECT table_name, IF(table_type = 'VIEW', 'VIEW', concat(engine, ' ', table_comment)) FROM information_schema.tables
  WHERE table_schema = DATABASE() AND table_name IN ({})"""
VIEW = """\
SELECT view_definition FROM information_schema.views WHERE table_schema = DATABASE() AND table_name IN ({})"""
ROUTINES = """\
SELECT routine_name, routine_comment FROM information_schema.routines
  WHERE routine_schema = DATABASE() AND routine_name IN ({})"""
TRIGGERS = """\
SELECT trigger_name, event_object_table, action_statement, action_order, action_timing, event_manipulation
  FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_object_table IN ({})"""
# By names of tables: to find a trigger by its own, the server opens all tables of the database.
DEFINERS = """\
SELECT table_name, definer FROM information_schema.views WHERE table_schema = DATABASE() AND table_name IN ({0})
UNION ALL SELECT trigger_name, definer FROM information_schema.triggers
  WHERE event_object_schema = DATABASE() AND event_object_table IN ({0}) AND trigger_name IN ({0})
UNION ALL SELECT routine_name, definer FROM information_schema.routines
  WHERE routine_schema = DATABASE() AND routine_name IN ({0})"""
COLUMNS = """\
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ({})"""
NAMED_TRIGGERS = """\
SELECT trigger_name FROM information_schema.triggers
  WHERE event_object_schema = DATABASE() AND trigger_name IN ({})"""


def _asked(sql: str, *names: str) -> Generator[Statement, Any, list[Any]]:
    holes = ", ".join(["%s"] * len(names))
    return fetch(sql.format(holes), *names * sql.count("{"))


def _inlets(plan: StructurePlan) -> Generator[Statement, Any, bool]:
    # If there are procedures already, they are kept even when the engine has been loaded since.
    engines = yield from fetch(ENGINES)
    limits = yield from fetch(SETTINGS)
    procedures = yield from _asked(ROUTINES, f"{plan.structure.name}_add", f"{plan.structure.name}_remove")
    forbidden = any(FORBIDS.search(value) for _, value in limits)
    kept = any(comment.startswith(MARK) for _, comment in procedures)
    return ("BLACKHOLE",) in engines and not forbidden and not kept


def _found(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    name = plan.structure.name
    objects: dict[str, str] = {}
    drop: list[str] = []
    unnamed = (f"roost_{name}_in", f"roost_{name}_out")  # left by a `create` that was interrupted
    for inlet, comment in (yield from _asked(TABLES, f"{name}_in", f"{name}_out", *unnamed)):
        if MARK in comment:
            objects[f"table {inlet}" if inlet in unnamed else inlet] = comment
            drop.append(f"DROP TABLE `{inlet}`")  # which drops its triggers
    for routine, comment in (yield from _asked(ROUTINES, f"{name}_add", f"{name}_remove")):
        if comment.startswith(MARK):
            objects[routine] = comment
            drop.append(f"DROP PROCEDURE `{routine}`")
    triggers = yield from _asked(TRIGGERS, f"{name}_in", f"{name}_out", plan.rows_table)
    for trigger, inlet, *_ in triggers:
        if trigger == f"roost_{inlet}" and inlet not in objects:  # its comment, and its engine, were lost by a dump
            objects[f"table {inlet}"] = ""
            drop.append(f"DROP TABLE `{inlet}`")
    # A text that the account may not see is empty: if the other objects are Roost's, it is assumed to be right.
    wanted = _view(plan, f"{name}_in" in objects).objects if objects else {}
    for (text,) in (yield from _asked(VIEW, name)):
        if mark := re.search("`(roost_view_[0-9a-f]+)`", text or f"`{wanted.get(name, '')}`"):
            objects[name] = mark[1]
            drop.append(f"DROP VIEW `{name}`")
    own: list[str] = []
    if objects and not triggers and not (yield from may("TRIGGER")):  # MySQL tells nothing of them
        objects |= {each: wanted[each] for each in _trigger_names(name) if each in wanted}
    for trigger, table, body, *_ in sorted(triggers, key=lambda row: row[3]):
        if trigger in _trigger_names(name):
            objects[trigger] = compared(body or "") or wanted.get(trigger, "")
            if table == plan.rows_table:
                drop.append(f"DROP TRIGGER {trigger}")
        elif not objects.keys().isdisjoint((table, f"table {table}")):
            ((_, _, made, *_),) = yield from fetch(f"SHOW CREATE TRIGGER `{trigger}`")
            own.append(made)
    for lost in (yield from _powerless(plan, objects)):
        objects[lost] = ""  # so that it differs from what Roost makes, and is recreated
    return FoundView(objects, tuple(own), drop=tuple(drop))


def _powerless(plan: StructurePlan, objects: Mapping[str, str]) -> Generator[Statement, Any, set[str]]:
    # The objects whose definer was dropped, or has lost a right that they need.
    if not objects:
        return set()
    name = plan.structure.name
    bodies = _bodies(_view(plan, f"{name}_in" in objects))
    stood_on = {f"roost_{name}_in": f"{name}_in", f"roost_{name}_out": f"{name}_out"}
    names = [each for each in bodies if each in objects]
    if not names:  # of inlets that were lost
        return set()
    needs = {}
    asked = yield from _asked(DEFINERS, *names, f"{name}_in", f"{name}_out", plan.rows_table)
    for made, definer in [each for each in asked if each[0] in names]:
        rights = needed(bodies[made])
        if made in _trigger_names(name):
            table = stood_on.get(made, plan.rows_table)
            rights |= {(table, "TRIGGER"), (table, "SELECT")}  # of NEW and OLD
        needs[made] = definer, rights
    return (yield from powerless(needs))


def _bodies(view: View) -> dict[str, str]:
    # The texts of the objects that run with their definer's rights: the view, the triggers and the procedures.
    found = [(re.match("CREATE (?:VIEW|TRIGGER|PROCEDURE) `?(\\w+)", sql), sql) for sql in view.make]
    return {match[1]: sql for match, sql in found if match}


def needed(sql: str) -> set[Right]:
    """Return the rights that the statements of a text need on Roost's own tables."""
    wanted = {"INSERT INTO": ["INSERT"], "UPDATE": ["UPDATE", "SELECT"], "DELETE FROM": ["DELETE", "SELECT"]}
    found = re.findall(
        r"(INSERT INTO|UPDATE|DELETE FROM|FROM) (roost_\w+)",
        re.sub(r"DELETE (roost_\w+|/\*.*?\*/) FROM", "DELETE FROM", sql),
    )
    rights = {(table, right) for verb, table in found for right in wanted.get(verb, ["SELECT"])}
    return rights | {(table, "UPDATE") for table in re.findall(r"INSERT INTO (roost_\w+)[^;]*ON DUPLICATE KEY", sql)}


def _trigger_names(name: str) -> tuple[str, ...]:
    return f"roost_{name}_in", f"roost_{name}_out", f"roost_{name}_deleted", f"roost_{name}_closed"


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    name = plan.structure.name
    if (yield from _inlets(plan)):
        names = [name, f"{name}_in", f"{name}_out"]
    else:
        names = [name]
        for routine, _ in (yield from _asked(ROUTINES, f"{name}_add", f"{name}_remove")):
            return f"procedure {routine}"
    for table, kind in (yield from _asked(TABLES, *names)):
        return f"{'view' if kind == 'VIEW' else 'table'} {table}"
    for (trigger,) in (yield from _asked(NAMED_TRIGGERS, *_trigger_names(name))):
        return f"trigger {trigger}"
    return ""


MYSQL_VIEWS = ViewDialect(_view, _found, _taken, _inlets, _replace)
