"""A cap's SQL for PostgreSQL: the functions and the triggers that `postgresql.py` installs.

With whose rights they run, and which names they use:

- The functions belong to the table's owner, whoever caps it. The function that deletes is SECURITY DEFINER, since an
  account may have only the right to INSERT, and so are those that call it; one that only notes keys is not, and needs
  no right. A superuser's function would run the owner's DELETE triggers as a superuser. If the table was given to
  another owner since, it is not trimmed: `check` says so.
- Their search path has only the system's schemas. Operators of other schemas are named with their schema, and called
  with exactly the types for which they were made, so that no other operator can fit as well and be taken instead.
  Nothing is cast, since the owner of a type may make casts.
- Columns are always qualified with their table, variables with their block, and a key's values are k0, k1, …, since
  columns may have any name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.capping.cap import Words
from roost.dialects.dialect import Dialect
from roost.dialects.postgresql import POSTGRESQL
from roost.structures.adopted import Cap
from roost.structures.views.postgresql import only_on, revoked

CUT = 500  # rows that one statement of a burst deletes at most: a few milliseconds
SPARE = 10  # rows that an INSERT deletes beyond its own: an earlier one may have had to leave some
NOTES = 8_000  # bytes of one setting: each addition to a setting copies it
BUCKETS = 512  # locks that all transactions on one table share; a server has about 8,000 for all tables
NONE_LEFT = 2_000_000_000
MOST = 1_000_000  # rows that are deleted at once by their age
# Limits of the wait for locks that cannot be checked in advance: on rows of other tables that are deleted with a row,
# and in triggers of the application.
PATIENCE, SHORT, TRIES = 100, 10, 10  # milliseconds, milliseconds of each further attempt, and their number
HELD = "lock_not_available OR deadlock_detected OR serialization_failure"
NO_XID = "invalid_parameter_value"  # of `_unchanged`: the number of several lockers, and no transaction has it yet
STATEMENT_INSERTED, INSERTED, UPDATED, TIMED = 4, 5, 17, 21  # pg_trigger.tgtype; the last: for each row, either
PATH = "search_path=pg_catalog, pg_temp"
# A plan that was made when the table was small is kept until the session ends: other plans than the one by the index on
# the time are disabled.
PLANS = ";enable_indexscan=on;enable_seqscan=off;enable_sort=off;enable_bitmapscan=off"
CHANGED = "record_image_ne"  # compares OLD and NEW, byte by byte
TYPES = {"zoned": "timestamptz", "plain": "timestamp", "date": "date"}


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of a column that the functions compare."""

    name: str  # of the type, or of a domain's base type
    kind: str  # pg_type.typtype
    schema: str
    operator: str  # equality in an index
    collation: str
    domain: bool

    @property
    def system(self) -> bool:
        return self.schema == "pg_catalog"

    @property
    def named(self) -> str:
        return f"{POSTGRESQL.quoted(self.schema)}.{POSTGRESQL.quoted(self.name)}"

    @property
    def cast(self) -> str:
        """The cast of a domain's value to its base type, which the operator takes; it calls no function."""
        return f"::{self.named}" if self.domain and not self.system else ""


@dataclass(frozen=True, slots=True)
class Home:
    """Facts about a table that is to be capped, from the server's catalog."""

    types: Mapping[str, KeyType] = field(default_factory=dict)
    schema: str = ""
    owner: str = ""
    may_use: bool = True  # whether the owner has USAGE on the schema
    may_create: bool = True
    ours: bool = True  # whether this account is the owner, or a member of it


class Function(NamedTuple):
    """A function of a cap."""

    body: str
    definer: bool = True  # whether it runs as its owner
    settings: str = PATH  # while it runs, as the server returns them


def _unchanged(row: str) -> str:
    # Whether a snapshot's row is still there: what has changed or locked it, if anything, was rolled back.
    return f"""CASE WHEN current_setting('transaction_isolation') = 'read committed' OR {row}.xmax = '0' THEN true
      ELSE txid_status(roostcap.latest - 2147483648
        + (({row}.xmax::text::bigint - roostcap.latest + 2147483648) & 4294967295)) = 'aborted' END"""


class PostgreSQLWords(Words):
    """A cap's SQL for PostgreSQL."""

    def __init__(self, cap: Cap, dialect: Dialect, home: Home | None = None) -> None:
        super().__init__(cap, dialect)
        self.home = home or Home()
        # The functions that note keys, the one that COMMIT calls, and the one that deletes; its parameter.
        whats = ("age", "trim") if cap.older_than else ("insert", "update", "commit", "trim")
        self.names = [f"roostcap_{cap.table}_{what}" for what in whats]
        self.takes, self.nothing = ("bigint", "0") if cap.older_than else ("json", "'[]'")

    def column(self, name: str) -> str:
        """Return a column with the type that its operator takes: none is found for a domain over an enum."""
        return super().column(name) + (self.home.types[name].cast if name in self.home.types else "")

    @property
    def index_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.cap.per, *(self.cap.order[:1] if self.cap.older_than else self.cap.order)]))

    def named(self, name: str) -> str:
        return f"{self.dialect.quoted(self.home.schema)}.{self.dialect.quoted(name)}"

    @property
    def only(self) -> str:
        """The table without those that inherit from it: they may have other rows with the same primary keys."""
        return f"ONLY {self.named(self.cap.table)}"

    @property
    def first(self) -> str:
        return super().first if self.unit else f"{super().first}::{TYPES[self.cap.time]}"

    def limit(self, by: str) -> str:
        if self.unit:
            return f"floor(extract(epoch FROM now()) * {self.unit})::bigint - {self.cap.older_than * self.unit}"
        now = "now()" if self.cap.time == "zoned" else "(now() AT TIME ZONE 'UTC')"
        now = f"{now} - '{self.seconds} seconds'::interval"
        return f"({now})::date" if self.cap.time == "date" else now

    def shown(self, expression: str) -> str:
        """Return a time in a form that a driver can read: Python does not support all of them."""
        return f"{expression}::text"

    @property
    def cut(self) -> str:
        """The statement that deletes some of the excess rows: of one key, which is its parameter, or by age."""
        trim = self.named(self.names[-1])
        if self.cap.older_than:
            return f"SELECT {trim}({CUT})"
        note = self._note(self._row("i"), str(CUT - SPARE))
        return (
            f"SELECT {trim}(json_build_array({note})) FROM {self.only} i\n"
            f"  WHERE {self._same(self.cap.per, 'i', lambda *_: '%s')} LIMIT 1"
        )

    def compares(self, name: str, how: str) -> str:
        """Return an operator for a column; if the column's type is known, qualified so that no other can be taken."""
        return f"{self.home.types[name].operator[:-2]}{how})" if name in self.home.types else how

    def _note(self, values: Sequence[str], n: str) -> str:
        # A key, and the number of its new rows. The server's own types are converted to JSON; other types to text,
        # since a conversion to JSON would use a cast of the type's owner.
        pairs = [
            f"'k{i}', {value if self.home.types[name].system else f'concat({value})'}"
            for i, (name, value) in enumerate(zip(self.cap.per, values, strict=True))
        ]
        return f"json_build_object('n', {n}, {', '.join(pairs)})"

    def _same(self, names: Sequence[str], row: str, other: Callable[[int, str], str]) -> str:
        quoted, types = self.dialect.quoted, self.home.types
        return " AND ".join(
            f"{row}.{quoted(name)}{types[name].cast} {types[name].operator} {other(i, name)}"
            for i, name in enumerate(names)
        )

    def _same_id(self, row: str, other: str) -> str:
        types, quoted = self.home.types, self.dialect.quoted
        return self._same(self.cap.id, row, lambda _, name: f"{other}.{quoted(name)}{types[name].cast}")

    def _row(self, row: str) -> list[str]:
        return [f"{row}.{self.dialect.quoted(name)}" for name in self.cap.per]

    def too_old(self, limit: str, which: str = "") -> str:
        return (
            f"SELECT {self.columns(self.cap.id, 'v.')} FROM {self.only} v WHERE {self.over('v')}{which}\n"
            f"    ORDER BY v.{self.by} LIMIT {limit} FOR UPDATE SKIP LOCKED"
        )

    def _too_many(self, which: str = "") -> str:
        # Excess rows of some keys, but not all of them: a key may have millions until `cap` has trimmed it.
        cap, quoted, types, table = self.cap, self.dialect.quoted, self.home.types, self.only
        ks = ", ".join(f"r.k{i}" for i in range(len(cap.per)))
        columns = ", ".join(
            f"k{i} {types[name].named}{types[name].collation and f' COLLATE {types[name].collation}'}"
            for i, name in enumerate(cap.per)
        )
        order = ", ".join(f"i.{quoted(name)} DESC" for name in cap.order)
        is_key = [self._same(cap.per, row, lambda i, _: f"k.k{i}") for row in ("i", "v")]
        return f"""SELECT {self.columns(cap.id, "v.")}
    FROM (SELECT {ks}, sum(r.n) AS n FROM json_to_recordset(roostcap.given) r(n bigint, {columns}) GROUP BY {ks}) k
    CROSS JOIN LATERAL (SELECT {self.columns(cap.order, "i.")} FROM {table} i WHERE {is_key[0]}{which}
      ORDER BY {order} LIMIT k.n + {SPARE} OFFSET {cap.keep}) o
    JOIN {table} v ON {self._same_id("v", "o")}
      AND ROW({self.columns(cap.order, "v.")})::record *= ROW({self.columns(cap.order, "o.")})::record AND {is_key[1]}
    FOR UPDATE OF v SKIP LOCKED"""

    @property
    def functions(self) -> dict[str, Function]:
        limited = f"{PATH};lock_timeout={PATIENCE}"
        if self.cap.older_than:
            commit, trim = self.names
            return {commit: Function(self._aging), trim: Function(self._trimming, True, limited + PLANS)}
        insert, update, commit, trim = self.names
        ks = [f"{value} AS k{i}" for i, value in enumerate(self._row("n"))]
        has_key = " AND ".join(f"{value} IS NOT NULL" for value in self._row("n"))
        rows = f"SELECT {', '.join(ks)}, count(*) AS n FROM new_rows n WHERE {has_key}"
        row = ", ".join(f"{value} AS k{i}" for i, value in enumerate(self._row("NEW")))
        return {
            insert: Function(self._noting(f"{rows} GROUP BY {', '.join(self._row('n'))}", self._at_once)),
            update: Function(self._noting(f"SELECT {row}, 1 AS n"), False),
            commit: Function(self._committing),
            trim: Function(self._trimming, True, limited),
        }

    def _noting(self, keys: str, at_once: str = "") -> str:
        ks = [f"k.k{i}" for i in range(len(self.cap.per))]
        # Arrays, since PostgreSQL 13 hashes no records.
        hashed = " # ".join(f"hash_array_extended(ARRAY[{each}], {i})" for i, each in enumerate(ks))
        bucket = f"(({hashed}) & {BUCKETS - 1})"
        return f"""<<roostcap>>
DECLARE
  relation bigint := TG_RELID;
  setting text := 'roostcap.t' || TG_RELID;
  locks text := coalesce(current_setting('roostcap.locks', true), '');
  noted text;
  came text;
  more text;
  part integer;
BEGIN
  {self._only_here}
  SELECT string_agg(f.note, ''), string_agg(DISTINCT f.lock, '') FILTER (WHERE strpos(roostcap.locks, f.lock) = 0)
    INTO roostcap.came, roostcap.more FROM (
    SELECT ',' || {self._note(ks, "k.n")} AS note,
      ' ' || hashint8extended(roostcap.relation * {BUCKETS} + {bucket}, 0) || ',' AS lock
    FROM ({keys}) k WHERE {" AND ".join(f"{each} IS NOT NULL" for each in ks)}) f;
  IF came IS NULL THEN RETURN NULL; END IF;
  noted := coalesce(current_setting(setting, true), '');
  IF length(noted) > {NOTES} THEN
    part := coalesce(nullif(current_setting(setting || '_parts', true), ''), '0')::integer + 1;
    PERFORM set_config(setting || '_parts', part::text, true), set_config(setting || '_' || part, noted, true);
    noted := '';
  END IF;
  PERFORM set_config(setting, noted || came, true);
  IF more IS NOT NULL THEN PERFORM set_config('roostcap.locks', locks || more, true); END IF;{at_once}
  RETURN NULL;
END"""

    @property
    def _at_once(self) -> str:
        # After SET CONSTRAINTS … IMMEDIATE the row triggers run before the statement trigger, when nothing is noted
        # yet. An UPDATE notes each row right before its deferred trigger.
        return f"""
  IF current_setting(setting || '_early', true) = '1' THEN
    PERFORM set_config(setting || '_early', '', true);
    noted := noted || came;
{self._working_off}
  END IF;"""

    @property
    def _working_off(self) -> str:
        # Takes the locks of all tables, in one order, whichever table's trigger runs first.
        parts = "coalesce(nullif(current_setting(setting || '_parts', true), ''), '0')::integer"
        return f"""\
  noted := noted || coalesce((
    SELECT string_agg(current_setting(setting || '_' || p.n), '') FROM generate_series(1, {parts}) p(n)), '');
  PERFORM set_config(setting || '_' || p.n, '', true) FROM generate_series(1, {parts}) p(n);
  PERFORM set_config(setting, '', true), set_config(setting || '_parts', '', true);
  PERFORM pg_advisory_xact_lock(l.lock) FROM (
    SELECT e.lock::bigint AS lock FROM unnest(string_to_array(
      btrim(current_setting('roostcap.locks', true), ' ,'), ', ')) e(lock) ORDER BY 1) l;
  PERFORM set_config('roostcap.locks', '', true);
  PERFORM {self.named(self.names[-1])}(('[' || substr(noted, 2) || ']')::json);"""

    @property
    def _committing(self) -> str:
        return f"""<<roostcap>>
DECLARE
  setting text := 'roostcap.t' || TG_RELID;
  noted text := coalesce(current_setting('roostcap.t' || TG_RELID, true), '');
BEGIN
  {self._only_here}
  IF noted = '' THEN
    IF TG_OP = 'INSERT' AND current_setting(setting || '_early', true) IS DISTINCT FROM '1' THEN
      PERFORM set_config(setting || '_early', '1', true);
    END IF;
    RETURN NULL;
  END IF;
{self._working_off}
  RETURN NULL;
END"""

    @property
    def _aging(self) -> str:
        return f"""<<roostcap>>
DECLARE
  setting text := 'roostcap.a' || TG_RELID;
  free integer := coalesce(nullif(current_setting('roostcap.a' || TG_RELID, true), ''), '0')::integer;
  lot integer;
BEGIN
  {self._only_here}
  IF free = {NONE_LEFT} THEN RETURN NULL; END IF;
  IF free = 0 THEN  -- two rows go for each that comes, or more
    lot := coalesce(nullif(current_setting('roostcap.l' || TG_RELID, true), ''), '{SPARE}')::integer;
    free := CASE WHEN {self.named(self.names[-1])}(lot) < lot THEN {NONE_LEFT + 1} ELSE lot / 2 END;
    PERFORM set_config('roostcap.l' || TG_RELID, least(lot * 2, {MOST})::text, true);
  END IF;
  PERFORM set_config(setting, (free - 1)::text, true);
  RETURN NULL;
END"""

    @property
    def _only_here(self) -> str:
        # Whoever may execute the function could put it on a table of their own, whose types have casts of their own.
        table = self.named(self.cap.table)
        return only_on(
            self.dialect.literal(self.home.schema), self.cap.table, "42501", f"this function is for the table {table}"
        )

    @property
    def _trimming(self) -> str:
        # First all at once. If a lock is held on something that is deleted with a row, each key alone, or each row that
        # is too old; what is left then is deleted by the next write. A subtransaction uses up a transaction id, which
        # VACUUM has to freeze later, so there is one only if it may have to wait. A snapshot may be older than a change
        # of the table's owner: then the table's row in pg_class was deleted since. A snapshot in which there are rows
        # that others have deleted since fails, and then they are passed over: otherwise nobody's would be deleted while
        # several write a key.
        oid, table = f"{self.dialect.literal(self.named(self.cap.table))}::regclass", self.only
        done = "GET DIAGNOSTICS gone = ROW_COUNT;"
        here = [f" AND {_unchanged(row)}" for row in "iv"]
        if self.cap.older_than:
            at_once, each = self._deleting(self.too_old("$1")), self.too_old("$1", here[1])
            alone = f"DELETE FROM {table} d WHERE {self._same_id('d', 'roostcap.each')};"
        else:
            at_once = self._deleting(self._too_many())
            each = "SELECT json_build_array(e.v) AS key FROM json_array_elements($1) e(v)"
            alone = f"given := each.key;\n        {self._deleting(self._too_many(here[0]))}"
        return f"""<<roostcap>>
DECLARE
  given {self.takes} := $1;
  each record;
  gone bigint := 0;
  deleted bigint := 0;
  failed integer := 0;
  latest bigint := txid_snapshot_xmax(txid_current_snapshot());
BEGIN
  IF NOT has_table_privilege({oid}, 'DELETE') THEN RETURN 0; END IF;
  LOCK TABLE {table} IN ROW EXCLUSIVE MODE;
  IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = {oid} AND pg_get_userbyid(c.relowner) = current_user
    AND {_unchanged("c")}) THEN
    RETURN 0;
  END IF;
  IF current_setting('transaction_isolation') = 'read committed'
    AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = {oid} AND t.tgtype & 8 <> 0) THEN
    {at_once}
    {done}
    RETURN gone;
  END IF;
  BEGIN
    {at_once}
    {done}
    RETURN gone;
  EXCEPTION WHEN {HELD} THEN
    PERFORM set_config('lock_timeout', '{SHORT}', true);
  END;
  BEGIN
    FOR each IN {each} LOOP
      BEGIN
        {alone}
        {done}
        deleted := deleted + gone;
      EXCEPTION WHEN {HELD} OR {NO_XID} THEN
        failed := failed + 1;
        EXIT WHEN failed > {TRIES};
      END;
    END LOOP;
  EXCEPTION WHEN {HELD} OR {NO_XID} THEN
    RETURN 0;
  END;
  RETURN deleted;
END"""

    def _deleting(self, victims: str) -> str:
        delete = f"DELETE FROM {self.only} d USING g WHERE {self._same_id('d', 'g')};"
        return f"WITH g AS MATERIALIZED ({victims})\n    {delete}"

    @property
    def function_sql(self) -> list[str]:
        made = []
        for name, function in self.functions.items():
            deletes = name == self.names[-1]
            takes = self.takes if deletes else ""
            made.append(
                f"CREATE OR REPLACE FUNCTION {self.named(name)}({takes})\n"
                f"  RETURNS {'bigint' if deletes else 'trigger'} LANGUAGE plpgsql"
                f"{' SECURITY DEFINER' if function.definer else ''} SET {function.settings.replace(';', ' SET ')}\n"
                f"  AS $roost$ {function.body} $roost$"
            )
            made += self._give(f"{self.named(name)}({takes})")
        return made

    def _give(self, function: str) -> list[str]:
        # To the table's owner, and nobody else can call it.
        return [
            f"DO $roost$ DECLARE other regrole; BEGIN\n{revoked(function)}\nEND $roost$",
            f"ALTER FUNCTION {function} OWNER TO {self.dialect.quoted(self.home.owner)}",
        ]

    @property
    def probe(self) -> str:
        """The name of the function that tries something; it does not exist any more when the table is capped."""
        return f"roostcap_{self.cap.table}_probe"

    def probe_sql(self, body: str, path: str) -> list[str]:
        """Return the statements that run something by the rights of the table's owner.

        path: the setting of its search path, "" for that of the session.
        """
        function = f"{self.named(self.probe)}()"
        return [
            f"CREATE FUNCTION {function} RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER {path}\n"
            f"  AS $roost$ DECLARE gone bigint; BEGIN\n{body}\nEND $roost$",
            *self._give(function),
            f"SELECT {function}",
        ]

    @property
    def deleting_one(self) -> str:
        """What tells whether a row still exists after it was deleted."""
        table, ids = self.only, self.columns(self.cap.id, "i.")
        return (
            f"  DELETE FROM {table} d USING (SELECT {ids} FROM {table} i ORDER BY {ids} LIMIT 1) g\n"
            f"    WHERE {self._same_id('d', 'g')};\n"
            f"  GET DIAGNOSTICS gone = ROW_COUNT;\n"
            f"  RETURN gone = 0 AND EXISTS (SELECT FROM {table} i);"
        )

    def working(self, column: str) -> str:
        """Return what runs the functions once, with no row: what this server does not know is an error.

        column: one that is not generated.
        """
        table, name = self.named(self.cap.table), self.dialect.quoted(column)
        return (
            f"  INSERT INTO {table} ({name}) OVERRIDING SYSTEM VALUE SELECT i.{name} FROM {self.only} i WHERE false;\n"
            f"  PERFORM {self.named(self.names[-1])}({self.nothing});\n  RETURN false;"
        )

    @property
    def triggers(self) -> dict[str, tuple[int, str, str]]:
        """The triggers by name: their type, their function, and the statement that creates them."""
        deferred = "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        if self.cap.older_than:
            commit, _ = self.names
            made = {commit: (TIMED, commit, f"AFTER INSERT OR UPDATE OF {self.by}", deferred)}
        else:
            insert, update, commit, _ = self.names
            old, new = ", ".join(self._row("OLD")), ", ".join(self._row("NEW"))
            # A function, since the server returns operators without their schema, and pg_dump writes them so. IS
            # DISTINCT FROM looks its operators up in any search path, and rows that *<> compares lose the cast that
            # they need.
            changed = f" WHEN (pg_catalog.{CHANGED}(ROW({old}), ROW({new})))"
            made = {
                insert: (STATEMENT_INSERTED, insert, "AFTER INSERT", "REFERENCING NEW TABLE AS new_rows"),
                update: (UPDATED, update, "AFTER UPDATE", f"FOR EACH ROW{changed}"),
                f"{insert}ed": (INSERTED, commit, "AFTER INSERT", deferred),
                f"{update}d": (UPDATED, commit, "AFTER UPDATE", deferred + changed),
            }
        return {
            name: (
                kind,
                function,
                f"CREATE {'CONSTRAINT ' if deferred in how else ''}TRIGGER {self.dialect.quoted(name)} {when} "
                f"ON {self.named(self.cap.table)}\n  {how} EXECUTE FUNCTION {self.named(function)}()",
            )
            for name, (kind, function, when, how) in made.items()
        }
