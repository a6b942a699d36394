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
from dataclasses import dataclass, field, replace
from typing import Any

from roost.dialects.conditions import refused, stored, wanted
from roost.dialects.dialect import Statement
from roost.dialects.postgresql import POSTGRESQL
from roost.structures.clock import shown_now
from roost.structures.plan import AT, SEQUENCE, StructurePlan, each
from roost.structures.steps import REFUSALS
from roost.structures.views.view import MARK, MARKS, NO_VIEW, Capabilities, FoundView, View, ViewDialect, dollar_tag
from roost.types.column_types import ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))
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
# A recreated view gets the rights that the former one had, and none from ALTER DEFAULT PRIVILEGES.
ONLY_GIVEN = """\
DO $roost$ DECLARE other text; BEGIN
  FOR other IN SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
      FROM pg_class c, aclexplode(c.relacl) g WHERE c.oid = {literal}::regclass AND g.grantee <> c.relowner LOOP
    EXECUTE 'REVOKE ALL ON {quoted} FROM ' || other;
  END LOOP;
END $roost$"""

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
# What is lost when the view is dropped: the statements that restore its rights, options, defaults and comments, and the
# objects that depend on it. This is a separate statement, since each part of a query costs half a millisecond of
# planning.
GOES_WITH = f"""\
{THE_VIEW}SELECT 'said', format('GRANT %%s%%s ON %%I TO %%s%%s', a.privilege_type, a.columns, c.relname,
    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
    CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
  FROM c, LATERAL (
    SELECT '' AS columns, g.* FROM aclexplode(c.relacl) g
    UNION ALL
    SELECT format(' (%%I)', attname), g.* FROM pg_attribute, aclexplode(attacl) g WHERE attrelid = c.oid
  ) a WHERE a.grantee <> c.relowner
UNION ALL
SELECT 'said', format('COMMENT ON VIEW %%I IS %%L', c.relname, obj_description(c.oid, 'pg_class'))
  FROM c WHERE obj_description(c.oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT 'said', format('COMMENT ON COLUMN %%I.%%I IS %%L', c.relname, a.attname, col_description(c.oid, a.attnum))
  FROM c JOIN pg_attribute a ON a.attrelid = c.oid WHERE col_description(c.oid, a.attnum) IS NOT NULL
UNION ALL
SELECT 'said', format('COMMENT ON TRIGGER %%I ON %%I IS %%L', t.tgname, c.relname, obj_description(t.oid, 'pg_trigger'))
  FROM c JOIN pg_trigger t ON t.tgrelid = c.oid
  WHERE obj_description(t.oid, 'pg_trigger') IS NOT NULL AND t.tgname <> 'roost_' || c.relname || '_insert'
UNION ALL
SELECT 'said', format('ALTER VIEW %%I SET (%%s)', c.relname, array_to_string(c.reloptions, ', '))
  FROM c WHERE c.reloptions IS NOT NULL
UNION ALL
SELECT 'said', format('ALTER VIEW %%I ALTER COLUMN %%I SET DEFAULT %%s', c.relname, a.attname,
    pg_get_expr(d.adbin, d.adrelid))
  FROM c JOIN pg_attrdef d ON d.adrelid = c.oid JOIN pg_attribute a ON (a.attrelid, a.attnum) = (c.oid, d.adnum)
UNION ALL
SELECT DISTINCT 'user', CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, d.objsubid)
    ELSE r.ev_class::regclass::text END
  FROM c JOIN pg_type t ON t.oid = c.reltype JOIN pg_depend d ON d.deptype = 'n' AND (
      d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
      OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray))
    LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
  WHERE r.ev_class IS DISTINCT FROM c.oid"""

TAKEN = """\
SELECT CASE relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' WHEN 'i' THEN 'index '
    WHEN 'S' THEN 'sequence ' ELSE 'table ' END || relname
  FROM pg_class WHERE relname = %s AND relnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'type ' || typname FROM pg_type WHERE typname = %s AND typnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'function ' || proname FROM pg_proc
  WHERE proname IN (%s, %s, %s) AND pronargs = 0 AND pronamespace = quote_ident(current_schema())::regnamespace"""


def _view(plan: StructurePlan, _: Capabilities | None) -> View:
    made = plan.views["postgresql"](plan)
    name = plan.structure.name
    view_name, literal = quoted(name), plan.dialect.literal
    view = f"CREATE VIEW {view_name} AS {MARK}\n{made.view}"
    make, drop = [view], [f"DROP VIEW {view_name}"]
    hash_ = hashlib.sha256(view.encode()).hexdigest()
    objects = {name: hash_}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        function = f"roost_{name}_{event}"
        text = _text([_only_on(plan), *body], made.variables)
        tag = dollar_tag(text)
        make += [
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {tag}{text}{tag}",
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


def newest_version(key: Mapping[str, str]) -> str:
    """Return the condition, and more, of a query for the row of a primary key, whose index is read backwards.

    Forwards it would pass the dead versions, the oldest first: those of this transaction, or since an old snapshot.

    key: its values, by the quoted names of all its columns.
    """
    names, values = ", ".join(key), ", ".join(key.values())
    newest_first = ", ".join(f"{name} DESC" for name in key)
    return f"({names}) >= ({values}) AND ({names}) <= ({values}) ORDER BY {newest_first} LIMIT 1"


def given_away(tables: Iterable[str]) -> str:
    """Return the condition that a function's owner is not that of these tables any more.

    The tables' new owner may have made triggers on them, which would run with the former owner's rights.
    """
    named = " OR ".join(f"c.oid = to_regclass({POSTGRESQL.literal(each)})::oid" for each in tables)
    return f"EXISTS (SELECT FROM pg_class c WHERE ({named}) AND pg_get_userbyid(c.relowner) <> current_user)"


def _only_on(plan: StructurePlan) -> str:
    name = plan.structure.name
    message = f"{name}: its view was made for another schema; store.alter({name}, view=True) makes it anew"
    return only_on("current_schema()", name, "55000", message)


def _text(body: Sequence[str], variables: Sequence[str]) -> str:
    # Columns may have any name, so variables are always qualified with the name of their block.
    lines = "\n".join(f"  {line}" for line in "\n".join(body).split("\n"))
    declared = f"<<it>>\nDECLARE {' '.join(f'{each};' for each in variables)}\n" if variables else ""
    return f"\n#variable_conflict use_column\n{MARK}\n{declared}BEGIN\n{lines}\nEND\n"


def _found(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    name = plan.structure.name
    ours = {name, *_functions(name)}
    found = yield Statement(each(FOUND), [(name,)])
    objects = {name_: text for kind, name_, _, text in found[0] if kind in ("view", "trigger") and name_ in ours}
    if not any(mark in text for text in objects.values() for mark in MARKS):
        return NO_VIEW
    return FoundView(
        objects,
        own=tuple(sql for kind, object_, sql, _ in found[0] if kind == "trigger" and object_ not in ours),
    )


def _goes_with(plan: StructurePlan, found: FoundView) -> Generator[Statement, Any, FoundView]:
    name = plan.structure.name
    rows = yield Statement(each(GOES_WITH), [(name,)])
    only_given = ONLY_GIVEN.format(literal=plan.dialect.literal(quoted(name)), quoted=quoted(name))
    return replace(
        found,
        said=(only_given, *(text for kind, text in rows[0] if kind == "said")),
        users=tuple(text for kind, text in rows[0] if kind == "user"),
    )


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    name = plan.structure.name
    found = yield Statement(each(TAKEN), [(name, name, *_functions(name))])
    return found[0][0][0] if found[0] else ""


@dataclass(frozen=True, slots=True)
class Made:
    """One view before it has its name: the query of the view, and the statements of each trigger."""

    view: str
    insert: Sequence[str]
    update: Sequence[str]
    delete: Sequence[str]
    variables: Sequence[str] = field(default=())


Case = tuple[str, str, str]  # a condition under which a row is refused, the SQLSTATE, and the message


class ViewWords:
    """The parts of the triggers of one structure."""

    def __init__(self, plan: StructurePlan) -> None:
        self.plan = plan
        self.dialect = plan.dialect
        self.name = plan.structure.name
        self.key = plan.structure.key.columns
        self.rows, self.head = plan.rows_table, plan.head_table
        self.given = (
            given_away(each for each in (plan.rows_table, plan.head_table) if each in plan.layout),
            "42501",
            f": its tables were given to another owner; store.alter({self.name}, view=True) makes its view anew",
        )

    @property
    def living(self) -> str:
        """The WHERE clause of a query for rows that have not expired; "" where none does."""
        return f" WHERE until > {shown_now(self.plan)}" if getattr(self.plan, "expires", False) else ""

    def call(self, verb: str, columns: Sequence[Column], row: str = "NEW") -> list[str]:
        """Return the statements of a call of a program, whose outcome, `it.outcome`, may refuse the row."""
        plan: Any = self.plan
        refusals = plan.refusals(verb)
        if not plan.gives(verb):
            return [f"PERFORM {self.name}_{verb}({self.values(columns, row)});"]
        return [
            f"it.outcome := {self.name}_{verb}({self.values(columns, row)});",
            *(
                refusing(f"it.outcome = {outcome}", REFUSALS[outcome][0], message)
                for message, outcome in refusals.items()
            ),
        ]

    def names(self, columns: Sequence[Column]) -> str:
        """Return the names of columns, quoted."""
        return self.dialect.names(columns)

    def values(self, columns: Iterable[Column], row: str = "NEW") -> str:
        """Return columns of a trigger's row."""
        return ", ".join(f"{row}.{quoted(each.name)}" for each in columns)

    def equal(self, columns: Iterable[Column], row: str = "NEW") -> str:
        """Return the condition that columns equal those of a trigger's row."""
        return " AND ".join(f"{quoted(each.name)} = {row}.{quoted(each.name)}" for each in columns)

    def excluded(self, columns: Iterable[Column]) -> str:
        """Return the assignments of an upsert."""
        return ", ".join(f"{quoted(each.name)} = excluded.{quoted(each.name)}" for each in columns)

    def refuse(self, *cases: Case) -> str:
        """Return the statement that refuses a row in the first of these cases."""
        cases = (self.given, *cases)
        any_ = "\n  OR ".join(f"({condition})" for condition, _, _ in cases)
        states, messages = (
            "".join(f"\n    WHEN {case[0]} THEN {self.dialect.literal(said(case))}" for case in cases)
            for said in (lambda case: case[1], lambda case: f"{self.name}{case[2]}")
        )
        raised = f"RAISE EXCEPTION USING ERRCODE = CASE{states} END, MESSAGE = CASE{messages} END;"
        return f"IF {any_} THEN\n  {raised}\nEND IF;"

    def stop(self, state: str, message: str) -> str:
        """Return the statement that refuses the row."""
        text = self.dialect.literal(f"{self.name}{message}")
        return f"RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = {text};"

    def rules(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value is not allowed, except those that the column's type refuses itself."""
        return [
            (condition, "23514", f".{each.name}: it takes {wanted(self.dialect, each)}")
            for each in columns
            if (condition := refused(self.dialect, each, f"NEW.{quoted(each.name)}"))
        ]

    def changes(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value that an UPDATE changes is not allowed; unchanged values are not checked."""
        return [
            (f"{self._differ(each)} AND ({condition})", state, message)
            for each in columns
            for condition, state, message in self.rules([each])
        ]

    def fixed(self, columns: Iterable[Column], why: str) -> Case:
        """Return the case in which an UPDATE changes columns that cannot be changed."""
        return " OR ".join(map(self._differ, columns)), "0A000", f": {why}"

    def fixed_row(self, columns: Sequence[Column]) -> Case:
        """Return the case in which an UPDATE changes the columns that identify a row."""
        names = ", ".join(each.name for each in columns)
        return self.fixed(
            [*columns, SEQUENCE, AT], f"{names}, sequence and at cannot be changed; delete the row and insert another"
        )

    def _differ(self, column: Column) -> str:
        return f"NEW.{quoted(column.name)} IS DISTINCT FROM OLD.{quoted(column.name)}"

    @property
    def own(self) -> Case:
        """The case in which an INSERT sets a column that only Roost may set."""
        return (
            "NEW.sequence IS NOT NULL OR NEW.at IS NOT NULL",
            "0A000",
            ": sequence and at are set by Roost; leave them out",
        )

    def normal(self, columns: Iterable[Column]) -> list[str]:
        """Return the statements that convert values which can be written in several ways to the stored form."""
        named = [(each, f"NEW.{quoted(each.name)}") for each in columns]
        return [
            f"{name} := {stored(self.dialect, each, name)};"
            for each, name in named
            if stored(self.dialect, each, name) != name
        ]

    def lock(self, row: str) -> str:
        """Return the statement that locks the head, if it exists; the rows of a structure without heads are theirs."""
        if not getattr(self.plan, "heads", True):
            return f"PERFORM 1 FROM {self.rows} WHERE {self.equal(self.key, row)} FOR UPDATE;"
        return f"PERFORM 1 FROM {self.head} WHERE {self.equal(self.key, row)} FOR UPDATE;"

    def change(self, columns: Sequence[Column], place: str) -> list[str]:
        """Return the statements that update the changeable columns of a row, unless it has changed since it was read.

        place: the condition that finds the row, from OLD.
        """
        if not columns:
            return ["RETURN NEW;"]
        return [
            *self.normal(columns),
            self.lock("OLD"),
            f"UPDATE {self.rows} SET ({self.names(columns)}) = ROW({self.values(columns)})\n"
            f"  WHERE {place} AND {self.as_it_was(columns)};",
            self.unless_changed(place),
            "RETURN NEW;",
        ]

    def as_it_was(self, columns: Sequence[Column]) -> str:
        """Return the condition that nobody has changed columns of a row since the client's statement found it."""
        return f"ROW({self.names(columns)}) IS NOT DISTINCT FROM ROW({self.values(columns, 'OLD')})"

    def unless_changed(self, place: str) -> str:
        """Return the statement after a write to an unchanged row: an error if it has changed, nothing if it is gone."""
        refused = self.stop("40001", ": another client changes this row at the same time; try again")
        return (
            "IF NOT FOUND THEN\n"
            f"  PERFORM 1 FROM {self.rows} WHERE {place};\n"
            f"  IF FOUND THEN\n    {refused}\n  END IF;\n"
            "  RETURN NULL;\nEND IF;"
        )

    def remove(self, place: str, columns: Sequence[Column]) -> list[str]:
        """Return the statements that delete a row, as long as these columns of it are as they were."""
        if not columns:
            return [
                self.lock("OLD"),
                f"DELETE FROM {self.rows} WHERE {place};",
                "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            ]
        return [
            self.lock("OLD"),
            f"DELETE FROM {self.rows}\n  WHERE {place} AND {self.as_it_was(columns)};",
            self.unless_changed(place),
        ]


def delete(words: ViewWords, place: str, columns: Sequence[Column] = ()) -> list[str]:
    """Return the statements that delete one row and count it.

    columns: those that an UPDATE may change.
    """
    return [
        *words.remove(place, columns),
        f"UPDATE {words.head} SET n = n - 1 WHERE {words.equal(words.key, 'OLD')};",
        "RETURN OLD;",
    ]


def quoted(name: str) -> str:
    """Return a name that needs no escape, quoted."""
    return f'"{name}"'


POSTGRESQL_VIEWS = ViewDialect(_view, _found, _taken, goes_with=_goes_with)
