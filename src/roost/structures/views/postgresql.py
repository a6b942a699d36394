"""Views on PostgreSQL: a view of the structure's name, with INSTEAD OF triggers in PL/pgSQL.

The triggers do what the plans do, for one row; the library writes the private tables directly, so no trigger fires.
Rules that hold for all of them:

- The head is locked first, in a statement of its own: what follows then sees all that was committed under that lock.
- A row that has gone since the client's statement began is skipped, and not counted. An entry that was replaced is
  another one, by its sequence. So whatever runs at once, the outcome is that of some order.
- They run with the rights of the tables' owner, as a view reads: who writes needs a GRANT on the view alone. Their
  search path is the schema they were made in, so a view writes its own tables whatever the client's path says.
- Operators and functions are called with exactly the types that the system's have: of two that fit equally well its own
  come first, so whoever may create operators in that schema gets none of his called with the owner's rights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.dialects.conditions import refused, stored, wanted
from roost.dialects.dialect import Statement
from roost.structures.capped.plan import CappedPlan
from roost.structures.counter.plan import CounterPlan
from roost.structures.plan import AT, SEQUENCE, StructurePlan, each
from roost.structures.ring.plan import RingPlan
from roost.structures.set.plan import SetPlan
from roost.structures.views.view import MARK, MARKS, NO_VIEW, Found, Powers, Room, View, dollar_tag
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))
TYPES = {"insert": 69, "update": 81, "delete": 73}  # pg_trigger.tgtype: INSTEAD OF, for each row

# A view's text is rewritten by the server. What it was made of, and what the server made of it, is kept as a comment;
# another major version may write the same view in other words.
VIEW = (
    "encode(sha256(convert_to(pg_get_viewdef(c.oid), 'UTF8')), 'hex') || ' '"
    " || current_setting('server_version_num')::integer / 10000"
)
BIND = """\
DO $roost$ DECLARE c pg_class; owner name; BEGIN
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
  REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;
  EXECUTE format('ALTER FUNCTION {function}() OWNER TO %I', owner);"""

# What is there, by kind: objects and triggers with what is compared; what makes triggers, rights and a comment again;
# views that are made of the view.
FOUND = f"""\
WITH c AS (
  SELECT * FROM pg_class
  WHERE relname = %s AND relkind = 'v' AND relnamespace = quote_ident(current_schema())::regnamespace
)
SELECT 'view', c.relname::text, '', coalesce((SELECT CASE
    WHEN split_part(d.description, ' ', 3) <> split_part({VIEW}, ' ', 2) THEN split_part(d.description, ' ', 1)
    WHEN substr(d.description, 66) = {VIEW} THEN split_part(d.description, ' ', 1) END
  FROM pg_trigger t JOIN pg_description d ON d.objoid = t.oid AND d.classoid = 'pg_trigger'::regclass
  WHERE t.tgrelid = c.oid AND t.tgname = 'roost_' || c.relname || '_insert'), 'changed')
  FROM c
UNION ALL
SELECT 'trigger', t.tgname, pg_get_triggerdef(t.oid, true), concat_ws(' ', t.tgtype, t.tgenabled, t.tgqual, t.tgattr,
    p.proname, l.lanname, p.prosecdef,
    p.proconfig = ARRAY['search_path=' || quote_ident(current_schema()) || ', pg_temp'],
    has_function_privilege('public', p.oid, 'EXECUTE'), p.proowner = (SELECT r.relowner FROM pg_class r
      WHERE r.relname = 'roost_' || c.relname || '_rows' AND r.relnamespace = c.relnamespace)) || p.prosrc
  FROM c JOIN pg_trigger t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid
    JOIN pg_language l ON l.oid = p.prolang
  WHERE NOT t.tgisinternal
UNION ALL
SELECT 'said', '', format('GRANT %%s%%s ON %%I TO %%s%%s', a.privilege_type, a.columns, c.relname,
    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
    CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), ''
  FROM c, LATERAL (
    SELECT '' AS columns, g.* FROM aclexplode(c.relacl) g
    UNION ALL
    SELECT format(' (%%I)', attname), g.* FROM pg_attribute, aclexplode(attacl) g WHERE attrelid = c.oid
  ) a WHERE a.grantee <> c.relowner
UNION ALL
SELECT 'said', '', format('COMMENT ON VIEW %%I IS %%L', c.relname, obj_description(c.oid, 'pg_class')), ''
  FROM c WHERE obj_description(c.oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT DISTINCT 'user', v.oid::regclass::text, '', ''
  FROM c JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
    JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    JOIN pg_class v ON v.oid = r.ev_class AND v.oid <> c.oid"""

TAKEN = """\
SELECT CASE relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' WHEN 'i' THEN 'index '
    WHEN 'S' THEN 'sequence ' ELSE 'table ' END || relname
  FROM pg_class WHERE relname = %s AND relnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'type ' || typname FROM pg_type WHERE typname = %s AND typnamespace = quote_ident(current_schema())::regnamespace
UNION ALL
SELECT 'function ' || proname FROM pg_proc
  WHERE proname IN (%s, %s, %s) AND pronargs = 0 AND pronamespace = quote_ident(current_schema())::regnamespace"""


def _view(plan: StructurePlan, _: Powers | None) -> View:
    made = _MAKERS[type(plan)](plan)
    name = plan.structure.name
    quoted, literal = _quoted(name), plan.dialect.literal
    view = f"CREATE VIEW {quoted} AS {MARK}\n{made.view}"
    make, drop = [view], [f"DROP VIEW {quoted}"]
    hash_ = hashlib.sha256(view.encode()).hexdigest()
    objects = {name: hash_}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        function = f"roost_{name}_{event}"
        text = _text(body, made.variables)
        tag = dollar_tag(text)
        make += [
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {tag}{text}{tag}",
            f"CREATE TRIGGER {function} INSTEAD OF {event.upper()} ON {quoted}\n"
            f"  FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]
        drop.append(f"DROP FUNCTION IF EXISTS {function}()")
        objects[function] = f"{TYPES[event]} O  {function} plpgsql t t f t{text}"
    make.append(
        BIND.format(
            name=name,
            quoted=quoted,
            literal=literal(name),
            rows=literal(plan.rows_table),
            dot_rows=literal(f".{plan.rows_table}"),
            functions="\n".join(BIND_FUNCTION.format(function=function) for function in _functions(name)),
            hash=hash_,
            view=VIEW,
        )
    )
    return View(tuple(make), tuple(drop), objects)


def _functions(name: str) -> list[str]:
    return [f"roost_{name}_{event}" for event in TYPES]


def _text(body: Sequence[str], variables: Sequence[str]) -> str:
    # Columns may have any name: variables are always named with their block.
    lines = "\n".join(f"  {line}" for line in "\n".join(body).split("\n"))
    declared = f"<<it>>\nDECLARE {' '.join(f'{each};' for each in variables)}\n" if variables else ""
    return f"\n#variable_conflict use_column\n{MARK}\n{declared}BEGIN\n{lines}\nEND\n"


def _found(plan: StructurePlan) -> Generator[Statement, Any, Found]:
    name = plan.structure.name
    ours = {name, *_functions(name)}
    found = yield Statement(each(FOUND), [(name,)])
    objects = {object_: told for kind, object_, _, told in found[0] if kind in ("view", "trigger") and object_ in ours}
    if not any(mark in told for told in objects.values() for mark in MARKS):
        return NO_VIEW
    return Found(
        objects,
        own=tuple(sql for kind, object_, sql, _ in found[0] if kind == "trigger" and object_ not in ours),
        said=tuple(sql for kind, _, sql, _ in found[0] if kind == "said"),
        users=tuple(object_ for kind, object_, _, _ in found[0] if kind == "user"),
    )


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    name = plan.structure.name
    found = yield Statement(each(TAKEN), [(name, name, *_functions(name))])
    return found[0][0][0] if found[0] else ""


@dataclass(frozen=True, slots=True)
class _Made:
    """One view before it has its name: the query of the view, and the statements of each trigger."""

    view: str
    insert: Sequence[str]
    update: Sequence[str]
    delete: Sequence[str]
    variables: Sequence[str] = field(default=())


Case = tuple[str, str, str]  # a condition under which a row is refused, the SQLSTATE, and what is said


class _Words:
    """What the triggers of one structure are made of."""

    def __init__(self, plan: StructurePlan) -> None:
        self.dialect = plan.dialect
        self.name = plan.structure.name
        self.key = plan.structure.key.columns
        self.rows, self.head = plan.rows_table, plan.head_table
        self.moved = (
            "TG_TABLE_SCHEMA <> current_schema()",
            "55000",
            f": its view was made for another schema; store.alter({self.name}, view=True) makes it anew",
        )
        # Who owns the tables now may have made triggers on them, which would run by the rights of who did before.
        own = [each for each in (plan.rows_table, plan.head_table) if each in plan.layout]
        tables = " OR ".join(f"c.oid = to_regclass({self.dialect.literal(each)})::oid" for each in own)
        self.given = (
            f"EXISTS (SELECT FROM pg_class c WHERE ({tables}) AND pg_get_userbyid(c.relowner) <> current_user)",
            "42501",
            f": its tables were given to another owner; store.alter({self.name}, view=True) makes its view anew",
        )

    def names(self, columns: Sequence[Column]) -> str:
        return self.dialect.names(columns)

    def values(self, columns: Iterable[Column], row: str = "NEW") -> str:
        return ", ".join(f"{row}.{_quoted(each.name)}" for each in columns)

    def equal(self, columns: Iterable[Column], row: str = "NEW") -> str:
        return " AND ".join(f"{_quoted(each.name)} = {row}.{_quoted(each.name)}" for each in columns)

    def excluded(self, columns: Iterable[Column]) -> str:
        return ", ".join(f"{_quoted(each.name)} = excluded.{_quoted(each.name)}" for each in columns)

    def refuse(self, *cases: Case) -> str:
        """Return the statement that refuses a row in the first of these cases."""
        cases = (self.moved, self.given, *cases)
        any_ = "\n  OR ".join(f"({condition})" for condition, _, _ in cases)
        state, told = (
            "".join(f"\n    WHEN {case[0]} THEN {self.dialect.literal(said(case))}" for case in cases)
            for said in (lambda case: case[1], lambda case: f"{self.name}{case[2]}")
        )
        return f"IF {any_} THEN\n  RAISE EXCEPTION USING ERRCODE = CASE{state} END, MESSAGE = CASE{told} END;\nEND IF;"

    def stop(self, state: str, message: str) -> str:
        """Return the statement that refuses the row."""
        told = self.dialect.literal(f"{self.name}{message}")
        return f"RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = {told};"

    def rules(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value is not allowed; the types of the columns refuse the others."""
        return [
            (condition, "23514", f".{each.name}: it takes {wanted(self.dialect, each)}")
            for each in columns
            if (condition := refused(self.dialect, each, f"NEW.{_quoted(each.name)}"))
        ]

    def changes(self, columns: Iterable[Column]) -> list[Case]:
        """Return the cases in which a value that an UPDATE changes is not allowed: what is stored is not its doing."""
        return [
            (f"{self._differ(each)} AND ({condition})", state, told)
            for each in columns
            for condition, state, told in self.rules([each])
        ]

    def fixed(self, columns: Iterable[Column], why: str) -> Case:
        """Return the case in which an UPDATE changes what it may not."""
        return " OR ".join(map(self._differ, columns)), "0A000", f": {why}"

    def fixed_row(self, columns: Sequence[Column]) -> Case:
        names = ", ".join(each.name for each in columns)
        return self.fixed(
            [*columns, SEQUENCE, AT], f"{names}, sequence and at cannot be changed; delete the row and insert another"
        )

    def _differ(self, column: Column) -> str:
        return f"NEW.{_quoted(column.name)} IS DISTINCT FROM OLD.{_quoted(column.name)}"

    @property
    def own(self) -> Case:
        """The case in which an INSERT names what only Roost sets."""
        return (
            "NEW.sequence IS NOT NULL OR NEW.at IS NOT NULL",
            "0A000",
            ": sequence and at are set by Roost; leave them out",
        )

    def normal(self, columns: Iterable[Column]) -> list[str]:
        """Return the statements that bring what may be written in several ways to what is stored."""
        named = [(each, f"NEW.{_quoted(each.name)}") for each in columns]
        return [
            f"{name} := {stored(self.dialect, each, name)};"
            for each, name in named
            if stored(self.dialect, each, name) != name
        ]

    def lock(self, row: str) -> str:
        """Return the statement that locks the head, where it is there."""
        return f"PERFORM 1 FROM {self.head} WHERE {self.equal(self.key, row)} FOR UPDATE;"

    def change(self, columns: Sequence[Column], place: str) -> list[str]:
        """Return the statements that write the columns of a row that an UPDATE may change, as long as it is as it was.

        place: where the row is, as OLD has it.
        """
        if not columns:
            return ["RETURN NEW;"]
        to, as_it_was = self.values(columns), self.values(columns, "OLD")
        return [
            *self.normal(columns),
            self.lock("OLD"),
            f"UPDATE {self.rows} SET ({self.names(columns)}) = ROW({to})\n"
            f"  WHERE {place} AND ROW({self.names(columns)}) IS NOT DISTINCT FROM ROW({as_it_was});",
            "IF FOUND THEN\n  RETURN NEW;\nEND IF;",
            f"PERFORM 1 FROM {self.rows} WHERE {place};",
            f"IF FOUND THEN\n  {self.stop('40001', ': another client changes this row at the same time; try again')}\n"
            "END IF;",
            "RETURN NULL;",
        ]


def _counter(plan: StructurePlan) -> _Made:
    assert isinstance(plan, CounterPlan)
    words = _Words(plan)
    key, rows, mine = words.names(words.key), words.rows, words.equal(words.key, "OLD")
    slot = f"pg_backend_pid() % {plan.slots}" if plan.slots > 1 else "0"
    in_range = f"BETWEEN {INT_MIN}::numeric AND {INT_MAX}::numeric"
    beyond = words.stop("22003", ": the sum would leave 64 bits")
    total = (
        f"NEW.total IS NULL OR NEW.total <> trunc(NEW.total) OR NEW.total NOT {in_range}",
        "23514",
        f".total: it takes {wanted(words.dialect, TOTAL)}",
    )
    # All slots are locked, those that are not there by making them; where all had to be made, the key was gone. Then
    # what it has goes, in one statement that tells how much it was.
    take = [
        f"INSERT INTO {rows} ({key}, slot, n)\n"
        f"  SELECT {words.values(words.key, 'OLD')}, s, 0 FROM generate_series(0, {plan.slots - 1}) s\n"
        f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = 0 WHERE false;",
        "GET DIAGNOSTICS it.made = ROW_COUNT;",
        f"WITH gone AS (DELETE FROM {rows} WHERE {mine} RETURNING n) SELECT sum(n) INTO it.had FROM gone;",
        f"IF it.made = {plan.slots} THEN\n  RETURN NULL;\nEND IF;",
    ]
    return _Made(
        view=f"SELECT {key}, n::numeric AS total FROM {rows}"
        if plan.slots == 1
        else f"SELECT {key}, sum(n) AS total FROM {rows} GROUP BY {key}",
        insert=[
            words.refuse(*words.rules(words.key), total),
            f"INSERT INTO {rows} AS r ({key}, slot, n) VALUES ({words.values(words.key)}, {slot}, NEW.total)\n"
            f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n\n"
            f"  WHERE r.n::numeric + excluded.n::numeric {in_range};",
            f"IF NOT FOUND THEN\n  {beyond}\nEND IF;",
            "RETURN NEW;",
        ],
        # An UPDATE counts the difference to the total that it read, so what others add meanwhile is not lost.
        update=[
            words.refuse(
                words.fixed(words.key, "a key cannot be changed; delete it and insert the other one"),
                total,
            ),
            *take,
            "NEW.total := it.had + NEW.total - OLD.total;",
            f"IF NEW.total NOT {in_range} THEN\n  {beyond}\nEND IF;",
            f"INSERT INTO {rows} ({key}, slot, n) VALUES ({words.values(words.key, 'OLD')}, {slot}, NEW.total);",
            "RETURN NEW;",
        ],
        delete=[words.refuse(), *take, "RETURN OLD;"],
        variables=("made bigint", "had numeric"),
    )


def _ring(plan: StructurePlan) -> _Made:
    assert isinstance(plan, RingPlan)
    words, keep = _Words(plan), f"{plan.structure.keep}::bigint"
    rows, head, key = words.rows, words.head, words.names(words.key)
    others = [each for each in plan.structure.columns if each not in words.key]
    shown, written = [*words.key, SEQUENCE, AT, *others], [SEQUENCE, AT, *others]
    place = f"{words.equal(words.key, 'OLD')} AND slot = OLD.sequence % {keep} AND sequence = OLD.sequence"
    return _Made(
        view=f"SELECT {words.names(shown)} FROM {rows}",
        insert=[
            words.refuse(words.own, *words.rules([*words.key, *others])),
            *words.normal([*words.key, *others]),
            f"INSERT INTO {head} AS h ({key}, sequence) VALUES ({words.values(words.key)}, 1)\n"
            f"  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + 1 RETURNING sequence INTO NEW.sequence;",
            "NEW.at := clock_timestamp();",
            f"INSERT INTO {rows} ({key}, slot, {words.names(written)})\n"
            f"  VALUES ({words.values(words.key)}, NEW.sequence % {keep}, {words.values(written)})\n"
            f"  ON CONFLICT ({key}, slot) DO UPDATE SET {words.excluded(written)};",
            "RETURN NEW;",
        ],
        update=[words.refuse(words.fixed_row(words.key), *words.changes(others)), *words.change(others, place)],
        delete=[
            words.refuse(),
            words.lock("OLD"),
            f"DELETE FROM {rows} WHERE {place};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _capped(plan: StructurePlan) -> _Made:
    assert isinstance(plan, CappedPlan)
    words, structure = _Words(plan), plan.structure
    rows, head, key, keep = words.rows, words.head, words.names(words.key), structure.keep
    ids = structure.id.columns
    others = [each for each in structure.columns if each not in words.key and each not in ids]
    written = [*others, SEQUENCE, AT]
    mine, this = words.equal(words.key), words.equal([*words.key, *ids])
    count = f"SELECT count(*) INTO it.n FROM {rows} WHERE {mine};"
    look = f"SELECT sequence, n INTO it.last, it.n FROM {head} WHERE {mine}"
    insert = [
        words.refuse(words.own, *words.rules(structure.columns)),
        *words.normal(structure.columns),
        f"{look} FOR UPDATE;",
        "IF NOT FOUND THEN\n"
        f"  INSERT INTO {head} ({key}, sequence, n) VALUES ({words.values(words.key)}, 0, 0)\n"
        f"    ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false;\n"
        f"  {look};\nEND IF;",
        "NEW.sequence := it.last + 1;",
        "NEW.at := clock_timestamp();",
    ]
    if structure.on_duplicate == "refresh":
        insert += [
            f"UPDATE {rows} SET ({words.names(written)}) = ROW({words.values(written)}) WHERE {this};",
            f"IF FOUND THEN\n  UPDATE {head} SET sequence = NEW.sequence WHERE {mine};\n  RETURN NEW;\nEND IF;",
        ]
    else:
        there = words.stop("23505", f": {' and '.join(each.name for each in ids)} is there already")
        insert += [f"PERFORM 1 FROM {rows} WHERE {this};", f"IF FOUND THEN\n  {there}\nEND IF;"]
    if structure.on_full == "reject":  # the count may be too high: somebody has emptied the table
        full = words.stop("23514", f": the collection is full; keep is {keep}")
        insert.append(f"IF it.n >= {keep} THEN\n  {count}\n  IF it.n >= {keep} THEN\n    {full}\n  END IF;\nEND IF;")
    else:
        # The guard: the newest `keep` sequences never go, whatever the count says. Where it demanded more than went, it
        # was wrong, and is counted anew.
        insert.append(
            f"IF it.n >= {keep} THEN\n"
            f"  DELETE FROM {rows} WHERE {mine} AND sequence <= NEW.sequence - {keep} AND sequence <= (\n"
            f"    SELECT sequence FROM {rows} WHERE {mine} ORDER BY sequence LIMIT 1 OFFSET it.n - {keep});\n"
            f"  GET DIAGNOSTICS it.gone = ROW_COUNT;\n"
            f"  IF it.gone = it.n + 1 - {keep} THEN\n    it.n := {keep} - 1;\n  ELSE\n    {count}\n  END IF;\nEND IF;"
        )
    insert += [
        f"INSERT INTO {rows} ({key}, {words.names([*ids, *written])})\n"
        f"  VALUES ({words.values([*words.key, *ids, *written])});",
        f"UPDATE {head} SET sequence = NEW.sequence, n = it.n + 1 WHERE {mine};",
        "RETURN NEW;",
    ]
    place = f"{words.equal([*words.key, *ids], 'OLD')} AND sequence = OLD.sequence"
    return _Made(
        view=f"SELECT {words.names([*structure.columns, SEQUENCE, AT])} FROM {rows}",
        insert=insert,
        update=[
            words.refuse(words.fixed_row([*words.key, *ids]), *words.changes(others)),
            *words.change(others, place),
        ],
        delete=[words.refuse(), *_delete(words, place)],
        variables=("last bigint", "n bigint", "gone bigint"),
    )


def _set(plan: StructurePlan) -> _Made:
    assert isinstance(plan, SetPlan)
    words = _Words(plan)
    rows, head, key = words.rows, words.head, words.names(words.key)
    pair = [*words.key, *plan.structure.member.columns]
    return _Made(
        view=f"SELECT {words.names(pair)} FROM {rows}",
        insert=[
            words.refuse(*words.rules(pair)),
            *words.normal(pair),
            f"INSERT INTO {head} ({key}, n) VALUES ({words.values(words.key)}, 0)\n"
            f"  ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false;",
            f"INSERT INTO {rows} ({words.names(pair)}) VALUES ({words.values(pair)}) ON CONFLICT DO NOTHING;",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            f"UPDATE {head} SET n = n + 1 WHERE {words.equal(words.key)};",
            "RETURN NEW;",
        ],
        update=[words.stop("0A000", ": a member cannot be changed; delete it and insert the other one")],
        delete=[words.refuse(), *_delete(words, words.equal(pair, "OLD"))],
    )


def _delete(words: _Words, place: str) -> list[str]:
    return [
        words.lock("OLD"),
        f"DELETE FROM {words.rows} WHERE {place};",
        "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
        f"UPDATE {words.head} SET n = n - 1 WHERE {words.equal(words.key, 'OLD')};",
        "RETURN OLD;",
    ]


def _quoted(name: str) -> str:
    return f'"{name}"'


_MAKERS: dict[type[StructurePlan], Callable[[StructurePlan], _Made]] = {
    CounterPlan: _counter,
    RingPlan: _ring,
    CappedPlan: _capped,
    SetPlan: _set,
}

POSTGRESQL_VIEWS = Room(_view, _found, _taken)
