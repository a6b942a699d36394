"""PostgreSQL's words: a routine is a function in PL/pgSQL, `NAME_VERB`, which returns the result.

Rules for all functions:

- Parameters are named as the columns, for whoever calls by name, and used by their number: a column may have any name.
  For the same reason variables are always qualified with the name of their block.
- They run with the rights of the tables' owner; nobody else has EXECUTE unless it is granted. Their search path is the
  schema in which they were made, and operators have operands of exactly the types for which the system defines them.
- Each statement of a function sees what was committed before it began (READ COMMITTED): what the first one has locked,
  the following ones read as it is then.
- A session goes on with the text of a function that `alter` replaces meanwhile. So each begins with a lock of the table
  that `alter` locks, and if the declaration is another one then, it calls the function of its name that is there now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from roost.dialects.conditions import refused, wanted
from roost.dialects.dialect import Answer, Gather, Template
from roost.structures import steps
from roost.structures.clock import SECOND
from roost.structures.steps import Program, Routine
from roost.structures.views.postgresql import given_away, newest_version, refusing, revoked
from roost.structures.views.view import dollar_tag, indented
from roost.structures.words.words import MARK, ServerWords
from roost.types.columns import Column

# The search path, the owner and the rights of a function. The path ends with a name that no schema can have, and that
# stays when a schema is renamed: the number of the table that is meant (`_guards`). A new function gets no rights from
# ALTER DEFAULT PRIVILEGES, but those of the one in whose place it comes; one that is replaced keeps them, if it has the
# comment and was the tables' owner's, and has any: a dump without rights is restored to be executed by everybody.
BIND = """\
DO $roost$ DECLARE owner name; old name; place name; other regrole; BEGIN
  SELECT pg_get_userbyid(r.relowner), 'pg_roost_' || r.oid INTO owner, place
    FROM pg_class r WHERE r.oid = to_regclass({rows})::oid;
  SELECT pg_get_userbyid(p.proowner) INTO old FROM pg_proc p
    WHERE p.oid = {literal}::regprocedure::oid AND p.proacl IS NOT NULL;
{settings}  IF old IS DISTINCT FROM owner OR obj_description({literal}::regprocedure::oid, 'pg_proc') IS NULL THEN
{revoked}
    IF current_setting('roost.granted', true) <> '' THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION {function} TO %s', current_setting('roost.granted'));
    END IF;
  END IF;
  COMMENT ON FUNCTION {function} IS 'a program, made by Roost';
  EXECUTE format('ALTER FUNCTION {function} OWNER TO %I', owner);
END $roost$"""

HERE = "  EXECUTE format('ALTER FUNCTION {function} SET search_path = %I, pg_temp, %I', current_schema(), place);\n"

# Drops functions of the same name that cannot be replaced: with other parameters, or another type of result. Before,
# it notes who may execute those of this name, or of the name without the ending for a former declaration.
OTHERS = """\
DO $roost$ DECLARE other regprocedure; BEGIN
  PERFORM set_config('roost.granted', (SELECT string_agg(DISTINCT g.grantee::regrole::text, ', ')
    FROM pg_proc p JOIN pg_class r ON r.relowner = p.proowner, aclexplode(p.proacl) g
    WHERE r.oid = to_regclass({rows})::oid AND p.proname IN ({name}, {base})
      AND p.pronamespace = quote_ident(current_schema())::regnamespace
      AND obj_description(p.oid, 'pg_proc') IS NOT NULL AND g.grantee NOT IN (0::oid, p.proowner)), true);
  FOR other IN SELECT p.oid FROM pg_proc p
      WHERE p.proname = {name} AND p.pronamespace = quote_ident(current_schema())::regnamespace
        AND strpos(p.prosrc, {mark}) > 0
        AND (p.oid IS DISTINCT FROM to_regprocedure(quote_ident(current_schema()) || '.' || {function})::oid
          OR pg_get_function_result(p.oid) <> {gives} OR p.proargnames IS DISTINCT FROM ARRAY[{named}]) LOOP
    EXECUTE format('DROP FUNCTION %s', other);
  END LOOP;
END $roost$"""


class PostgreSQLWords(ServerWords):
    """One structure in PostgreSQL's words."""

    variable = "{} {}"

    clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    at = "clock_timestamp()"

    @property
    def now(self) -> str:
        # A query that is evaluated once: with the clock itself, which advances, a condition could not use an index.
        return f"(SELECT greatest({self.clock} + coalesce(max(t.ahead), 0), max(t.latest)) FROM {self.times} t)"

    def whole(self, value: int | None) -> str:
        return f"{value}::bigint" if value is None or value >= 0 else f"({value})::bigint"

    def type_of(self, column: Column) -> str:
        return re.split(r"\(| COLLATE", super().type_of(column))[0]

    def new(self, name: str) -> str:
        place = [each.name for each in self._program.given].index(name) + 1
        return f'q."{name}"' if self._program.many else f"${place}"

    def __getitem__(self, name: str) -> str:
        return f"it.{name}"

    @property
    def source(self) -> str:
        # The order of locks is that of single calls, which the library sorts, whatever the database's collation.
        given, bytewise = self._program.given, {"text": ' COLLATE "C"'}
        holes = ", ".join(f"${n}{bytewise.get(self.type_of(each), '')}" for n, each in enumerate(given, 1))
        return f"unnest({holes}) WITH ORDINALITY AS q ({self.names(given)}, ord)"

    @property
    def my_head(self) -> str:
        return f"ctid = (SELECT h.ctid FROM {self.head} h WHERE {newest_version(self.values(self.key))})"

    @property
    def marks(self) -> Sequence[Routine]:
        # It tells which declaration is stored. Calls of it become a constant of the plan, until it is replaced.
        function, text = f"{self._declared}()", f"SELECT {self.dialect.literal(self.declaration)}::text {MARK}"
        make = f"CREATE OR REPLACE FUNCTION {function} RETURNS text LANGUAGE sql STABLE AS $roost${text}$roost$"
        bound = (make, self._bound(function, ""))
        return [Routine(self._declared, bound, (f"DROP FUNCTION IF EXISTS {function}",), text)]

    @property
    def _declared(self) -> str:
        return f"roost_{self.name}_declaration"

    def _newest(self, name: str) -> list[str]:
        # Waits for an `alter`, and calls the function that it has left.
        program = self._program
        call = f"{name}({', '.join(f'${place}' for place in range(1, len(program.given) + 1))})"
        match program.gives:
            case ():
                again = f"PERFORM {call}; RETURN;"
            case (_,):
                again = f"RETURN QUERY SELECT * FROM {call}; RETURN;" if program.many else f"RETURN {call};"
            case several:
                first = len(program.given) + 1
                into = ", ".join(f"${place}" for place in range(first, first + len(several)))
                again = f"SELECT * INTO {into} FROM {call}; RETURN;"
        stale = f"{self._declared}() <> {self.dialect.literal(self.declaration)}"
        return [f"LOCK TABLE {self.head} IN ROW EXCLUSIVE MODE;", self._if(stale, again)]

    def _bound(self, function: str, settings: str = HERE) -> str:
        literal = self.dialect.literal
        return BIND.format(
            rows=literal(self.rows),
            function=function,
            literal=literal(function),
            revoked=revoked(function),
            settings=settings.format(function=function),
        )

    def write(
        self, table: str, values: Mapping[str, str], key: Sequence[str], change: Mapping[str, str], returning: str = ""
    ) -> str:
        """Return what does the same as `put`, by an UPDATE first, to a row that is there most of the time.

        It fails (40001) where the row was deleted since the snapshot of the application's transaction: an upsert would
        make a second one. The last column of the key may move on, if it is among what changes.
        """
        moves = key[-1] in change
        there = f"SELECT r.ctid FROM {table} r WHERE {newest_version({name: values[name] for name in key}, moves)}"
        assigned = ", ".join(f"{name} = {self._as_given(value, values)}" for name, value in change.items())
        update = f"UPDATE {table} SET {assigned} WHERE ctid = ({there}){returning};"
        put = f"{self.put(table, values, key, _staying(change, key))}{returning};"
        if moves:  # what somebody else has changed meanwhile is another version, and may have another key
            put = f"PERFORM FROM ({there} FOR UPDATE) q;\n{update}\n{self._if('NOT FOUND', put)}"
        return f"{update}\n{self._if('NOT FOUND', put)}".removesuffix(";")

    def write_all(
        self, table: str, values: Mapping[str, str], key: Sequence[str], change: Mapping[str, str]
    ) -> Iterator[steps.Step]:
        """Yield the step that does the same as `put` to rows of the source, of different keys.

        Those that are there have been locked in their order before one is written.
        """
        given = ", ".join(f"{value} AS {name}" for name, value in values.items())
        newest = newest_version({name: f"w.{name}" for name in key}, moves=key[-1] in change)
        assigned = ", ".join(
            f"{name} = {self._as_given(value, {each: f'w.{each}' for each in values})}"
            for name, value in change.items()
        )
        names, order = ", ".join(values), ", ".join(key)
        # What somebody else has made or changed since the statement began is another version, which is not updated; the
        # upsert meets it, at the key that it had when it was locked.
        last = f'coalesce("its last", {key[-1]})'
        put = ", ".join(last if name == key[-1] else name for name in values)
        yield steps.Do(f"""WITH w AS MATERIALIZED (
    SELECT w.*, r.* FROM (SELECT {given}, q.ord AS "its number" FROM {self.source} ORDER BY {order}) w
    LEFT JOIN LATERAL (
      SELECT r.ctid AS "its place", r.{key[-1]} AS "its last" FROM {table} r WHERE {newest} FOR UPDATE) r ON true),
  u AS (UPDATE {table} SET {assigned} FROM w WHERE {table}.ctid = w."its place" RETURNING w."its number")
  INSERT INTO {table} ({names})
    SELECT {put} FROM w WHERE NOT EXISTS (SELECT FROM u WHERE u."its number" = w."its number") ORDER BY {order}
    {self.upsert(key, _staying(change, key))}""")

    def heads(self, first: Mapping[str, str]) -> Iterator[steps.Step]:
        key = self.values(self.key)
        keys = ", ".join(f"{value} AS {name}" for name, value in key.items())
        newest = newest_version({name: f"k.{name}" for name in key})
        distinct = f"SELECT DISTINCT {keys} FROM {self.source} ORDER BY {', '.join(key)}"
        yield steps.Do(
            f"PERFORM count(*) FROM (SELECT 1 FROM ({distinct}) k\n"
            f"  CROSS JOIN LATERAL (SELECT 1 FROM {self.head} r WHERE {newest} FOR UPDATE) r) l"
        )
        # Locked, since it may have appeared after the others were.
        missing = f"(SELECT h.ctid FROM {self.head} h WHERE {newest} FOR UPDATE) IS NULL ORDER BY {', '.join(key)}"
        made = {**{name: f"k.{name}" for name in key}, **first}
        source = f"(SELECT DISTINCT {keys} FROM {self.source}) k WHERE {missing}"
        yield steps.Do(self.put(self.head, made, [*key], source=source))

    def _as_given(self, value: str, values: Mapping[str, str]) -> str:
        # What `proposed` says of a row, outside of an upsert.
        return re.sub(r'excluded\.("(?:[^"]|"")+"|\w+)', lambda found: f"({values[found[1]]})", value)

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        if change:
            return super().upsert(key, change)
        # A row that is there is locked, without a new version of it.
        return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {key[-1]} = excluded.{key[-1]} WHERE false"

    def door(self, program: Program) -> Routine | None:
        door = program.door
        if not _differs(program) or door is None:
            return None
        name, outcome = self.routine_name(program), program.gives
        self._program = program._replace(given=door.given or program.given, gives=tuple(door.gives))
        words = {each.name: self.new(each.name) for each in self._program.given}
        words |= {each.name: f"o.{self.dialect.name_of(each)}" for each in outcome}
        passed = [door.passes.get(each.name, f"{{{each.name}}}").format(**words) for each in program.given]
        first = len(self._program.given) + 1
        into = ", ".join(f"${place}" for place in range(first, first + len(door.gives)))
        row = ", ".join(value.format(**words) for value in door.gives.values())
        source = f"FROM {name}({', '.join(passed)}) AS o ({self.names(outcome)})"
        lines = [
            refusing(when.format(**words), "23514", f"{self.name}: {message}") for when, message in door.refuses.items()
        ]
        several = len(door.gives) > 1
        lines.append(f"SELECT {row} INTO {into} {source};" if several else f"RETURN (SELECT {row} {source});")
        return self._stored(name.removeprefix("roost_"), lines, [])

    def _stored(self, name: str, lines: Sequence[str], declared: Sequence[str]) -> Routine:
        program = self._program
        array = "[]" if program.many else ""
        parameters = [f'"{each.name}" {self.type_of(each)}{array}' for each in program.given]
        match program.gives:
            case ():
                gives = "void"
            case (only,):
                gives = f"{'SETOF ' if program.many else ''}{self.type_of(only)}"
            case several:
                gives = "record"
                parameters += [f'OUT "{each.name}" {self.type_of(each)}' for each in several]
        block = indented("\n".join([*self._guards(program), *self._newest(name), *lines]))
        settings = [f"{each} = off" for each in program.pinned]
        if program.many:  # the length of given arrays would make each call worth a plan of its own, which takes as long
            settings.append("plan_cache_mode = force_generic_plan")
        mark = f"{MARK} /* {', '.join(settings)} */" if settings else MARK  # as the text is compared
        head = f"<<it>>\nDECLARE {' '.join(f'{each};' for each in declared)}\n" if declared else ""
        text = f"\n#variable_conflict use_column\n{mark}\n{head}BEGIN\n{block}\nEND\n"
        tag = dollar_tag(text)
        pinned = "".join(f" SET {each}" for each in settings)
        types = ", ".join(f"{self.type_of(each)}{array}" for each in program.given)
        make = (
            f"CREATE OR REPLACE FUNCTION {name}({', '.join(parameters)}) RETURNS {gives}\n"
            f"  LANGUAGE plpgsql SECURITY DEFINER{pinned} AS {tag}{text}{tag}"
        )
        function = f"{name}({types})"
        literal = self.dialect.literal
        named = [*program.given, *(program.gives if len(program.gives) > 1 else ())]
        names = ", ".join(literal(each.name) for each in named)
        others = OTHERS.format(
            name=literal(name),
            base=literal(name.removesuffix(self.variant)),
            rows=literal(self.rows),
            mark=literal(MARK),
            function=literal(function),
            gives=literal(gives),
            named=names,
        )
        return Routine(name, (others, make, self._bound(function)), (f"DROP FUNCTION IF EXISTS {function}",), text)

    def _if(self, when: str, work: str) -> str:
        if not when:
            return work
        return f"IF {when} THEN\n{indented(work)}\nEND IF;"

    def _let(self, variable: str, value: str, locking: bool) -> str:
        return f"it.{variable} := ({value});"

    def _fetch(self, variables: Sequence[str], values: Sequence[str], source: str) -> str:
        work = f"SELECT {', '.join(values)} INTO {', '.join(variables)} {source};"
        if source.endswith("FOR UPDATE"):  # a row that was deleted and made again while it was waited for
            work += f"\n{self._if('NOT FOUND', work)}"
        return work

    def _do(self, sql: str, counts: str) -> str:
        return f"{sql};" + (f"\nGET DIAGNOSTICS it.{counts} = ROW_COUNT;" if counts else "")

    def _put(self, step: steps.Put) -> str:
        put = self.put(step.table, step.values, step.key, step.change)
        if step.change:
            return f"{put}\n  RETURNING (xmax = 0)::integer INTO it.{step.new};"
        return self._do(put, step.new)

    def _loop(self, step: steps.Each, declared: dict[str, str]) -> str:
        self._declare(declared, *step.columns)
        names = ", ".join(self[each.name] for each in step.columns)
        work = indented("\n".join(self._lines(step.steps, declared)))
        return f"FOR {names} IN {step.select} LOOP\n{work}\nEND LOOP;"

    def _store_time(self) -> list[str]:
        # At REPEATABLE READ the UPDATE would fail where somebody else has stored it since the snapshot.
        due = f"abs(it.clock + it.ahead - it.latest) >= {SECOND} AND {self.dialect.read_committed}"
        return [
            f"SELECT t.latest, t.ahead INTO it.latest, it.ahead FROM {self.times} t WHERE t.id = 0;",
            f"it.clock := {self.clock};",  # after it: who is held up between them does not take it for a jump back
            "it.now := greatest(it.clock + coalesce(it.ahead, 0), it.latest);",
            self._if(
                due,
                f"UPDATE {self.times} SET latest = it.now, ahead =\n"
                f"  CASE WHEN it.now - (it.clock + it.ahead) >= {SECOND} THEN it.now - it.clock ELSE it.ahead END\n"
                f"  WHERE id = (SELECT t.id FROM {self.times} t WHERE t.id = 0\n"
                f"    AND t.latest = it.latest AND t.ahead = it.ahead FOR UPDATE SKIP LOCKED);",
            ),
        ]

    def _raise_head(self, step: steps.Next) -> list[str]:
        into = ", ".join(self[each.name] for each in step.remembered)
        told = f"\n  RETURNING {', '.join(each.name for each in step.remembered)} INTO {into}"
        change = {step.column: f"{self.head}.{step.column} + 1"}
        values = {**self.values(self.key), step.column: "1", **step.first}
        return [f"{self.write(self.head, values, [*values][: len(self.key)], change, told)};"]

    def _lock_head(self, head: steps.Head) -> list[str]:
        # A head that exists is locked by a SELECT, which writes no new version of it. If the snapshot of the
        # application's transaction is older than the head's last version, that fails (40001).
        makes, into = head.makes, ", ".join(f"it.{each}" for each in head.first)
        read = f"SELECT {', '.join(head.first)} INTO {into} FROM {self.head}"
        read += f" WHERE {newest_version(self.values(self.key))}"
        lock = f"{read} FOR UPDATE;"
        if makes:
            values = {**self.values(self.key), **head.first}
            make = f"{self.put(self.head, values, [*values][: len(self.key)])};\n{read};"
            made = [lock, self._if("NOT FOUND", make)]
            return made if makes is True else [self._if(f"NOT ({makes})", self._look_twice(lock)), *made]
        # One that was deleted, and made again, while it was waited for is found by a second look.
        return [self._look_twice(lock)]

    def _look_twice(self, lock: str) -> str:
        return f"{lock}\n" + self._if("NOT FOUND", f"{lock}\n{self._if('NOT FOUND', self._give(['0']))}")

    def _leave(self, values: Sequence[str]) -> str:
        return self._give(values)

    def _give(self, values: Sequence[str]) -> str:
        if self._program.many:
            return f"RETURN QUERY {values[0]};"
        if not self._program.gives:
            return "RETURN;"
        if len(self._program.gives) == 1:
            return f"RETURN {values[0]};"
        first = len(self._program.given) + 1
        assigned = " ".join(f"${place} := {value};" for place, value in enumerate(values, first))
        return f"{assigned} RETURN;"

    def routine_name(self, program: Program) -> str:
        name = super().routine_name(program)
        return name if program.many or _differs(program) else name.removeprefix("roost_")

    def calls(self, program: Program) -> tuple[str, Template]:
        name, arrays = self.routine_name(program), self.dialect.arrays(program.given)
        text = f"{name}({self.dialect.holes(len(program.given))})"
        if not program.many:
            rows = (
                f'SELECT (q."#" - 1)::integer, o.*\n'
                f'  FROM unnest({arrays}) WITH ORDINALITY AS q ({self.names(program.given)}, "#")\n'
                f"  CROSS JOIN LATERAL {name}({self.names(program.given, 'q.')}) AS o"
            )
            return text, Template(rows, Gather.ARRAYS, Answer.ORDINAL)
        if program.gives:
            return text, Template(f"SELECT 0, o FROM {name}({arrays}) AS o", Gather.ARRAYS, Answer.ORDINAL)
        return text, Template(f"SELECT {name}({arrays})", Gather.ARRAYS)

    def _guards(self, program: Program) -> list[str]:
        # What is refused before the first step. Tables of another schema, which has the former name of this one: those
        # that are meant are still there, while those of a dump have other numbers where it was restored.
        number = "split_part(current_setting('search_path'), ', pg_roost_'::text, 2)"
        meant = f"c.oid = nullif({number}, '')::oid AND c.relname = {self.dialect.literal(self.rows)}::name"
        moved = f"{self.name}: its tables were given to another owner; store.create({self.name}) binds it anew"
        renamed = f"{self.name}: its programs were made for another schema; store.create({self.name}) makes them anew"
        refusals = [
            refusing(given_away([self.rows]), "42501", moved),
            refusing(f"EXISTS (SELECT FROM pg_class c WHERE {meant})", "55000", renamed),
        ]
        guards = [self._if(given_away([self.rows], f"c.oid::text <> {number}"), "\n".join(refusals))]
        for place, column in enumerate(() if program.many else program.given, 1):
            if condition := refused(self.dialect, column, f"${place}"):
                message = f"{self.name}.{column.name}: it takes {wanted(self.dialect, column)}"
                guards.append(refusing(condition, "23514", message))
        return guards


def _staying(change: Mapping[str, str], key: Sequence[str]) -> Mapping[str, str]:
    # Of an upsert: the row may be another one than the newest, and could move to where that is.
    return {name: value for name, value in change.items() if name not in key}


def _differs(program: Program) -> bool:
    # Whether SQL clients call something else than the program itself.
    return program.door not in (None, steps.Door())
