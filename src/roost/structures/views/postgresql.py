"""Views on PostgreSQL: a view of the structure's name, with INSTEAD OF triggers in PL/pgSQL.

The triggers do what the plans do, for one row; the library writes the private tables directly, so no trigger fires.
Rules for all triggers:

- The head is locked first, in a statement of its own: later statements then see everything committed under that lock.
- A row that was deleted since the client's statement began is skipped, and not counted. An entry that was overwritten
  is another entry, with another sequence. So the outcome of concurrent statements is that of some order.
- Triggers run with the rights of the tables' owner, as a view reads: a client needs a GRANT on the view only. Their
  search path is the schema in which they were made, so a view writes its own tables whatever the client's path is.
- The first statement refuses other tables: whoever may execute the function could put it on a table of their own, whose
  types have casts and operators of their own.
- Operators and functions are called with exactly the argument types of the system's own. If two fit equally well, the
  system's is taken; so nobody who may create operators in that schema can have them called with the owner's rights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from roost.dialects.dialect import Statement, fetch
from roost.dialects.postgresql import POSTGRESQL
from roost.structures.plan import AT, SEQUENCE, StructurePlan
from roost.structures.steps import REFUSALS
from roost.structures.views.view import (
    MARK,
    NO_VIEW,
    NOTHING,
    Case,
    FoundView,
    View,
    ViewDialect,
    ViewWords,
    dollar_tag,
    indented,
)
from roost.types.columns import Column

TYPES = {"insert": 69, "update": 81, "delete": 73}  # pg_trigger.tgtype: INSTEAD OF, for each row

# The server rewrites a view's text. Hashes of the original text and of the server's text are stored in a comment, with
# the server's major version, since another version may write the same view differently.
VIEW = (
    "encode(sha256(convert_to(pg_get_viewdef(c.oid), 'UTF8')), 'hex') || ' '"
    " || current_setting('server_version_num')::integer / 10000"
)
BIND = """\
DO $roost$ DECLARE c pg_class; owner name; other regrole; BEGIN
  SELECT * INTO c FROM pg_class
    WHERE relname = {literal} AND relnamespace = quote_ident(current_schema())::regnamespace;
  IF to_regclass({rows}) IS DISTINCT FROM to_regclass(quote_ident(current_schema()) || {dot_rows}) THEN
    RAISE EXCEPTION USING ERRCODE = '3F000',
      MESSAGE = {literal} || ': its tables are not in schema ' || current_schema() || ', where its view would be made';
  END IF;
  SELECT pg_get_userbyid(r.relowner) INTO owner FROM pg_class r WHERE r.oid = to_regclass({rows})::oid;
  EXECUTE format('ALTER VIEW {quoted} OWNER TO %I', owner);
{functions}
  EXECUTE format('COMMENT ON TRIGGER roost_{name}_insert ON {quoted} IS %L', '{hash} ' || {view});
END $roost$"""
BIND_FUNCTION = """\
  EXECUTE format('ALTER FUNCTION {function}() SET search_path = %I, pg_temp', current_schema());
{revoked}
  EXECUTE format('ALTER FUNCTION {function}() OWNER TO %I', owner);"""
# Default privileges may have let others execute a function.
REVOKED = """\
  REVOKE ALL ON FUNCTION {function} FROM PUBLIC;
  FOR other IN SELECT DISTINCT g.grantee::regrole FROM pg_proc p, aclexplode(p.proacl) g
      WHERE p.oid = {literal}::regprocedure::oid AND g.grantee <> p.proowner LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', {literal}, other);
  END LOOP;"""
SEARCHES_HERE = "p.proconfig = ARRAY['search_path=' || quote_ident(current_schema()) || ', pg_temp']"
EXECUTED_BY_OTHERS = """\
EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g WHERE g.grantee <> p.proowner)"""
GONE = "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;"
THE_VIEW = """\
WITH c AS (
  SELECT * FROM pg_class
  WHERE relname = %s AND relkind = 'v' AND relnamespace = quote_ident(current_schema())::regnamespace
)
"""
# The view and its triggers: kind, name, the statement that recreates a trigger, and the text that is compared.
FOUND = f"""\
{THE_VIEW}SELECT 'view', c.relname::text, '', coalesce((SELECT CASE
    WHEN split_part(d.description, ' ', 3) <> split_part({VIEW}, ' ', 2) THEN split_part(d.description, ' ', 1)
    WHEN substr(d.description, 66) = {VIEW} THEN split_part(d.description, ' ', 1) END
  FROM pg_trigger t JOIN pg_description d ON d.objoid = t.oid AND d.classoid = 'pg_trigger'::regclass
  WHERE t.tgrelid = c.oid AND t.tgname = 'roost_' || c.relname || '_insert'), 'changed')
  FROM c
UNION ALL
SELECT 'trigger', t.tgname, pg_get_triggerdef(t.oid, true), concat_ws(' ', t.tgtype, t.tgenabled, t.tgqual, t.tgattr,
    p.proname, l.lanname, p.prosecdef,
    {SEARCHES_HERE},
    {EXECUTED_BY_OTHERS},
    p.proowner = (SELECT r.relowner FROM pg_class r
      WHERE r.relname = 'roost_' || c.relname || '_rows' AND r.relnamespace = c.relnamespace)) || p.prosrc
  FROM c JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
    JOIN pg_language l ON l.oid = p.prolang
  WHERE NOT t.tgisinternal"""
SHOWN = f"{THE_VIEW}SELECT attname::text FROM c JOIN pg_attribute ON attrelid = c.oid WHERE attnum > 0 ORDER BY attnum"
# What is to be said again of a view that is replaced. All else that the application has added to it stays.
OPTIONS = f"""\
{THE_VIEW}SELECT format('ALTER VIEW %%I SET (%%s)', c.relname, array_to_string(c.reloptions, ', '))
  FROM c WHERE c.reloptions IS NOT NULL"""

TAKEN = """\
SELECT CASE relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' WHEN 'i' THEN 'index '
    WHEN 'S' THEN 'sequence ' ELSE 'table ' END || relname
  FROM pg_class WHERE relname = %s AND relnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'type ' || typname FROM pg_type WHERE typname = %s AND typnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'function ' || proname FROM pg_proc
  WHERE proname IN (%s, %s, %s) AND pronargs = 0 AND pronamespace = quote_ident(current_schema())::regnamespace
    AND NOT (strpos(prosrc, %s) > 0 AND proowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass(%s)::oid)
      AND NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgfoid = pg_proc.oid))"""


def _view(plan: StructurePlan, _: bool) -> View:
    made = plan.relation().triggers(plan, PostgreSQLViewWords(plan))
    name = plan.structure.name
    view_name, literal = plan.dialect.quoted(name), plan.dialect.literal
    view = f"CREATE VIEW {view_name} AS {MARK}\n{made.view}"
    make, drop = [view], [f"DROP VIEW {view_name}"]
    hash_ = hashlib.sha256(view.encode()).hexdigest()
    objects = {name: hash_}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        function = f"roost_{name}_{event}"
        text = _text([_only_on(plan), *body, f"RETURN {'OLD' if event == 'delete' else 'NEW'};"])
        tag = dollar_tag(text)
        make += [
            # Whoever drops the view leaves its functions.
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            f"AS {tag}{text}{tag}",
            f"CREATE TRIGGER {function} INSTEAD OF {event.upper()} ON {view_name}\n"
            f"  FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]
        drop.append(f"DROP FUNCTION IF EXISTS {function}()")
        objects[function] = f"{TYPES[event]} O  {function} plpgsql t t f t{text}"
    make.append(
        BIND.format(
            name=name,
            quoted=view_name,
            literal=literal(name),
            rows=literal(plan.rows_table),
            dot_rows=literal(f".{plan.rows_table}"),
            functions="\n".join(
                BIND_FUNCTION.format(function=function, revoked=revoked(f"{function}()"))
                for function in _functions(name)
            ),
            hash=hash_,
            view=VIEW,
        )
    )
    return View(tuple(make), tuple(drop), objects)


def _functions(name: str) -> list[str]:
    return [f"roost_{name}_{event}" for event in TYPES]


def revoked(function: str) -> str:
    """Return the statements of a block with the variable `other`, a regrole, that let only its owner execute it."""
    return REVOKED.format(function=function, literal=POSTGRESQL.literal(function))


def only_on(schema: str, table: str, state: str, message: str) -> str:
    """Return the statement by which a trigger function refuses other tables; schema: an expression."""
    name = POSTGRESQL.literal(table)
    return refusing(f"TG_TABLE_NAME <> {name} OR TG_TABLE_SCHEMA IS DISTINCT FROM {schema}", state, message)


def refusing(condition: str, state: str, message: str) -> str:
    """Return the statement that refuses a row, by this SQLSTATE, under a condition."""
    raised = f"RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = {POSTGRESQL.literal(message)};"
    return f"IF {condition} THEN\n  {raised}\nEND IF;"


# A new entry of a primary key's index is compared with all that an old snapshot keeps of the same value. Where a row is
# written often, its last column, a number, moves on now and then (`MOVES`), up to this much, so that few have the same.
ROOM, MOVES = 2**40, 0.001


def newest_version(key: Mapping[str, str], moves: bool = False) -> str:
    """Return the condition, and more, of a query for the row of a primary key, whose index is read backwards.

    Forwards it would pass the dead versions, the oldest first: those of this transaction, or since an old snapshot.

    key: its values, by the quoted names of all its columns.
    moves: the last one may have moved on.
    """
    names, values = ", ".join(key), ", ".join(key.values())
    newest_first = ", ".join(f"{name} DESC" for name in key)
    last = f"{values} + {ROOM - 1}" if moves else values
    return f"({names}) >= ({values}) AND ({names}) <= ({last}) ORDER BY {newest_first} LIMIT 1"


def given_away(tables: Iterable[str], other: str = "false") -> str:
    """Return the condition that a function's owner is not that of these tables c any more, or another condition.

    The tables' new owner may have made triggers on them, which would run with the former owner's rights.
    """
    named = " OR ".join(f"c.oid = to_regclass({POSTGRESQL.literal(each)})::oid" for each in tables)
    changed = f"(pg_get_userbyid(c.relowner) <> current_user OR {other})"
    return f"EXISTS (SELECT FROM pg_class c WHERE ({named}) AND {changed})"


def _only_on(plan: StructurePlan) -> str:
    name = plan.structure.name
    message = f"{name}: its view was made for another schema; store.alter({name}, view=True) makes it anew"
    return only_on("current_schema()", name, "55000", message)


def _text(body: Sequence[str]) -> str:
    # Columns may have any name, so variables are always qualified with the name of their block.
    lines = indented("\n".join(body))
    declared = "<<it>>\nDECLARE outcome bigint;\n" if "it.outcome" in lines else ""
    return f"\n#variable_conflict use_column\n{MARK}\n{declared}BEGIN\n{lines}\nEND\n"


def _found(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    name = plan.structure.name
    ours = {name, *_functions(name)}
    found = yield from fetch(FOUND, name)
    objects = {name_: text for kind, name_, _, text in found if kind in ("view", "trigger") and name_ in ours}
    if not any(MARK in text for text in objects.values()):
        return NO_VIEW
    own = tuple(sql for kind, object_, sql, _ in found if kind == "trigger" and object_ not in ours)
    return FoundView(objects, own)


def _drops(plan: StructurePlan, *events: str) -> list[str]:
    view, name = plan.dialect.quoted(plan.structure.name), plan.structure.name
    return [f"DROP TRIGGER IF EXISTS roost_{name}_{event} ON {view}" for event in events]


def _lock(plan: StructurePlan) -> list[str]:
    return _drops(plan, "insert")  # the other triggers tell that the view is Roost's


def _replace(plan: StructurePlan, found: FoundView) -> Generator[Statement, Any, Sequence[str]]:
    # What is made of a view knows its columns by their places: they stay, and new ones come behind them.
    if not found.objects:
        return ()
    name, shown = plan.structure.name, [each.name for each in getattr(plan.relation(), "shown", ())]
    view, *others = _view(plan, True).make
    there = [column for (column,) in (yield from fetch(SHOWN, name))]
    if shown[: len(there)] != there and {*there} <= {*shown}:
        begin, query = view.split(MARK, 1)
        columns = ", ".join(map(plan.dialect.quoted, dict.fromkeys([*there, *shown])))
        view = f"{begin}{MARK}\nSELECT {columns} FROM ({query}) q"
    options = yield from fetch(OPTIONS, name)
    replaced = view.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
    return [*_drops(plan, *TYPES), replaced, *(sql for (sql,) in options), *others]


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    name = plan.structure.name
    found = yield from fetch(TAKEN, name, name, *_functions(name), MARK, plan.rows_table)
    return found[0][0] if found else ""


class PostgreSQLViewWords(ViewWords):
    """The parts of the triggers on PostgreSQL."""

    def __init__(self, plan: StructurePlan) -> None:
        super().__init__(plan)
        self.no_owner = (
            given_away(each for each in (plan.rows_table, plan.head_table) if each in plan.layout),
            "42501",
            f": its tables were given to another owner; store.alter({self.name}, view=True) makes its view anew",
        )

    def shown(self, columns: Sequence[Column]) -> str:
        """Return columns as the view shows them."""
        return self.dialect.names(columns)

    def call(self, verb: str, passes: Mapping[str, str] = NOTHING) -> list[str]:
        """Return the statements of a call of a program, whose outcome, `it.outcome`, may refuse the row."""
        called = f"{self.name}_{verb}({', '.join(self.called(verb, passes, self.new))});"
        if not self.plan.program(verb).gives:
            return [f"PERFORM {called}"]
        refusals = self.plan.refusals(verb).items()
        stops = [refusing(f"it.outcome = {outcome}", REFUSALS[outcome][0], message) for message, outcome in refusals]
        return [f"it.outcome := {called}", *stops]

    def told(self, relation: Any) -> list[str]:
        """Return the statements after an INSERT: whether it counts, and Roost's own columns, which RETURNING gives."""
        lines = ["IF it.outcome = 0 THEN\n  RETURN NULL;\nEND IF;"] if relation.skips else []
        own, place = [each for each in (SEQUENCE, AT) if each in relation.shown], self.is_new(relation.identity)
        if own and SEQUENCE in self.plan.program(relation.insert).gives:
            lines.append("NEW.sequence := it.outcome;")
            column, value = relation.place.format(sequence="NEW.sequence").split(" = ")
            key = {self.dialect.name_of(each): self.new(each) for each in self.key} | {column: value}
            own, place = [AT], newest_version(key)
        if own:
            lines.append(f"SELECT {self.dialect.names(own)} INTO {self.news(own)} FROM {self.rows} WHERE {place};")
        return lines

    def refuse(self, *cases: Case) -> str:
        """Return the statement that refuses a row in the first of these cases."""
        cases = (self.no_owner, *cases)
        any_ = "\n  OR ".join(f"({condition})" for condition, _, _ in cases)
        states, messages = (
            "".join(f"\n    WHEN {case[0]} THEN {self.dialect.literal(said(case))}" for case in cases)
            for said in (lambda case: case[1], lambda case: f"{self.name}{case[2]}")
        )
        raised = f"RAISE EXCEPTION USING ERRCODE = CASE{states} END, MESSAGE = CASE{messages} END;"
        return f"IF {any_} THEN\n  {raised}\nEND IF;"

    def lock(self) -> list[str]:
        """Return the statement that locks the head, if it exists; the rows of a structure without heads are theirs."""
        locked = self.head if getattr(self.plan, "heads", True) else self.rows
        return [f"PERFORM 1 FROM {locked} WHERE {self.is_old(self.key)} FOR UPDATE;"]

    def change(self, columns: Sequence[Column], place: str) -> list[str]:
        """Return the statements that update the changeable columns of a row, unless it has changed since it was read.

        place: the condition that finds the row, from OLD.
        """
        if not columns:
            return []
        return [
            *self.lock(),
            f"UPDATE {self.rows} SET ({self.dialect.names(columns)}) = ROW({self.news(columns)})\n"
            f"  WHERE {place}{self.as_it_was(columns)};",
            self.unless_changed(place),
        ]

    def as_it_was(self, columns: Sequence[Column]) -> str:
        """Return the condition that nobody has changed columns of a row since the client's statement found it."""
        unchanged = f"ROW({self.dialect.names(columns)}) IS NOT DISTINCT FROM ROW({self.olds(columns)})"
        return f" AND {unchanged}" if columns else ""

    def unless_changed(self, place: str) -> str:
        """Return the statement after a write to an unchanged row: an error if it has changed, nothing if it is gone."""
        text = self.dialect.literal(f"{self.name}: another client changes this row at the same time; try again")
        refused = f"RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = {text};"
        return (
            "IF NOT FOUND THEN\n"
            f"  PERFORM 1 FROM {self.rows} WHERE {place};\n"
            f"  IF FOUND THEN\n    {refused}\n  END IF;\n"
            "  RETURN NULL;\nEND IF;"
        )

    def remove(self, place: str, changes: Sequence[Column], verb: str) -> list[str]:
        """Return the statements that remove a row, by a program if there is one, unless it has changed."""
        unchanged = place + self.as_it_was(changes)
        found = f"PERFORM 1 FROM {self.rows} WHERE {unchanged} FOR UPDATE;"
        return [
            self.refuse(),
            *(self.lock() if self.plan.heads or not verb else ()),
            found if verb else f"DELETE FROM {self.rows} WHERE {unchanged};",
            self.unless_changed(place) if changes else GONE,
            *([f"PERFORM {self.name}_{verb}({', '.join(self.called(verb, {}, self.old))});"] if verb else ()),
        ]


POSTGRESQL_VIEWS = ViewDialect(_view, _found, _taken, replace=_replace, lock=_lock)
