"""How tables are capped in PostgreSQL: a transaction deletes, at its COMMIT, the rows that it has pushed out.

    AFTER INSERT, for the statement:  notes its keys in a setting of the transaction
    at COMMIT, by deferred triggers:  SELECT pg_advisory_xact_lock(…) FROM the keys … ORDER BY 1;
      DELETE FROM visits d USING (… the keys, the rows of each ORDER BY at DESC, id DESC OFFSET 5 …) …;

One transaction at a time decides on a key: each sees, behind the lock, what the one before has committed. The locks are
taken at the end and in order, so that no two transactions wait for each other, and a key is held no longer than COMMIT
takes. Locks at once, in each INSERT, were measured: four rows of 20 keys in a transaction, four writers, went from
2,500 rows/s to 120, by deadlocks of a second each. The trimming runs as the one who capped the table, since an
application may be allowed to INSERT alone.

No victim is waited for (SKIP LOCKED), or a transaction that holds an old row, and then comes for the lock of its key,
would be a deadlock: the next INSERT of the key takes what was skipped. Victims are compared again with what made them
victims (`at`), since a row may have been changed between the look and its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from roost.dialects.dialect import Control, Row, Statement
from roost.dialects.postgresql import POSTGRESQL
from roost.errors import Invalid, Missing
from roost.plans.adoption import PRIVATE, Adoption, Asking, Layout, Making
from roost.plans.caps import Cap, Words, read, write
from roost.plans.catalog import Catalog

CUT = 500  # rows that one statement of a burst deletes at most: a few milliseconds
# What an INSERT deletes at most: as many as have come, and some that an earlier one had to leave. Not all there are, as
# a key may have millions until it is trimmed.
MORE = " LIMIT k.roost_n + 10"
LONGEST = 63  # bytes of a name; PostgreSQL would cut off what is longer
NOTES = 60_000  # bytes; a transaction that has more of them trims before its end, and begins anew
STATEMENT_INSERTED, INSERTED, UPDATED = 4, 5, 17  # pg_trigger.tgtype
KINDS = {"v": "view", "m": "materialized view", "p": "partitioned table", "f": "foreign table", "S": "sequence"}
NUMBERS = ("int2", "int4", "int8")
# What compares in PostgreSQL as it does when it has been in Python.
KEYS = frozenset(NUMBERS) | {"numeric", "bool", "text", "varchar", "bpchar", "citext", "bytea", "uuid"}
KEYS |= {"date", "timestamp", "timestamptz"}
ACTIONS = "CASE c.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'"
ACTIONS += " WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END"
NAMED = "CASE WHEN pg_table_is_visible(r.oid) THEN r.relname ELSE r.relnamespace::regnamespace || '.' || r.relname END"


class PostgreSQLWords(Words):
    """A cap in PostgreSQL's words."""

    @property
    def functions(self) -> tuple[str, str, str, str]:
        """The functions: those that note, the one that COMMIT calls, and the one that deletes."""
        insert, update, commit, trim = (
            f"roostcap_{self.cap.table}_{what}" for what in ("insert", "update", "commit", "trim")
        )
        return insert, update, commit, trim

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns of the index that Roost makes where none leads to a key's rows in their order."""
        return tuple(dict.fromkeys([*self.cap.per, *self.cap.order]))

    def victims(self, table: str, is_key: Callable[[str], str], limit: str) -> str:
        """Return the query for rows that are too many, locked, by what tells them apart."""
        quoted, cap = self.dialect.quoted, self.cap
        order = ", ".join(f"i.{quoted(name)} DESC" for name in cap.order)
        same = " AND ".join(f"v.{quoted(name)} IS NOT DISTINCT FROM o.{quoted(name)}" for name in cap.order)
        same_id = " AND ".join(f"v.{quoted(name)} = o.{quoted(name)}" for name in cap.id)
        return (
            f"(SELECT {self.columns(cap.order, 'i.')} FROM {table} i WHERE {is_key('i')}\n"
            f"      ORDER BY {order}{limit} OFFSET {cap.keep}) o\n"
            f"    JOIN {table} v ON {same_id} AND {same} AND {is_key('v')} FOR UPDATE OF v SKIP LOCKED"
        )

    def delete_victims(self, table: str, keys: str, is_key: Callable[[str], str], limit: str) -> str:
        """Return the statement that deletes what some keys have too many."""
        quoted = self.dialect.quoted
        ids = " AND ".join(f"d.{quoted(name)} = g.{quoted(name)}" for name in self.cap.id)
        return (
            f"DELETE FROM {table} d USING (SELECT {self.columns(self.cap.id, 'v.')}\n"
            f"    FROM {keys}{self.victims(table, is_key, limit)}) g WHERE {ids}"
        )

    @property
    def cut(self) -> str:
        """The statement that deletes some of what one key has too many; takes the key twice."""
        return self.delete_victims(self.table, "", lambda row: self._equal(row, "%s"), f" LIMIT {CUT}")

    def _equal(self, row: str, other: str) -> str:
        quoted = self.dialect.quoted
        return " AND ".join(
            f"{row}.{quoted(name)} = {other if other == '%s' else f'{other}.{quoted(name)}'}" for name in self.cap.per
        )

    def bodies(self, schema: str) -> dict[str, str]:
        """What the functions do, by name."""
        insert, update, commit, trim = self.functions
        per = self.columns(self.cap.per, "n.")
        rows = f"(SELECT {per}, count(*) AS roost_n FROM new_rows n WHERE {self._has_key('n')} GROUP BY {per}) k"
        row = f"(SELECT {self.columns(self.cap.per, 'NEW.')}, 1 AS roost_n) k WHERE {self._has_key('k')}"
        trimmed = f"PERFORM {self._named(schema, trim)}(TG_RELID::bigint);"
        return {
            insert: self._note(rows, trimmed),
            update: self._note(row, trimmed),
            commit: f"""BEGIN
  IF coalesce(current_setting('roostcap.t' || TG_RELID, true), '') <> '' THEN {trimmed} END IF;
  RETURN NULL;
END""",
            trim: self._trim(self._named(schema, self.cap.table)),
        }

    def _named(self, schema: str, name: str) -> str:
        return f"{self.dialect.quoted(schema)}.{self.dialect.quoted(name)}"

    def _has_key(self, row: str) -> str:
        return " AND ".join(f"{row}.{self.dialect.quoted(name)} IS NOT NULL" for name in self.cap.per)

    def _note(self, keys: str, trimmed: str) -> str:
        return f"""DECLARE
  setting text := 'roostcap.t' || TG_RELID;
  noted text := coalesce(current_setting(setting, true), '');
BEGIN
  SELECT noted || coalesce(string_agg(',' || json_build_array(k.roost_n, k)::text, ''), '') INTO noted FROM {keys};
  PERFORM set_config(setting, noted, true);
  IF length(noted) > {NOTES} THEN {trimmed} END IF;
  RETURN NULL;
END"""

    def _trim(self, table: str) -> str:
        per = self.columns(self.cap.per, "r.")
        keys = f"""(SELECT {per}, sum((e.v->>0)::bigint) AS roost_n
      FROM json_array_elements(('[' || substr(noted, 2) || ']')::json) e(v),
        LATERAL json_populate_record(NULL::{table}, e.v->1) r GROUP BY {per}) k"""
        delete = self.delete_victims(table, f"{keys} CROSS JOIN LATERAL ", lambda row: self._equal(row, "k"), MORE)
        return f"""DECLARE
  noted text := current_setting('roostcap.t' || relation);
BEGIN
  PERFORM set_config('roostcap.t' || relation, '', true);
  PERFORM pg_advisory_xact_lock(h.lock) FROM (
    SELECT DISTINCT hash_record_extended(ROW({self.columns(self.cap.per, "k.")}), relation) AS lock
    FROM {keys} ORDER BY 1) h;
  IF current_setting('transaction_isolation') = 'read committed' THEN
    {delete};
  ELSE  -- its snapshot may be older than what others have deleted: then the next INSERT of the key takes what is left
    BEGIN
    {delete};
    EXCEPTION WHEN serialization_failure THEN NULL;
    END;
  END IF;
END"""

    def function_sql(self, schema: str, path: Sequence[str]) -> dict[str, str]:
        """Return the statements that make the functions."""
        # Only what the key's types are compared by: nobody else's functions and operators are found.
        search = ", ".join(map(self.dialect.quoted, ["pg_catalog", *path, "pg_temp"]))
        made = {}
        for name, body in self.bodies(schema).items():
            deletes = name == self.functions[3]
            made[name] = (
                f"CREATE OR REPLACE FUNCTION {self._named(schema, name)}({'relation bigint' if deletes else ''})\n"
                f"  RETURNS {'void' if deletes else 'trigger'} LANGUAGE plpgsql "
                f"{f'SECURITY DEFINER SET search_path = {search} ' if deletes else ''}AS $roost$ {body} $roost$"
            )
        return made

    def triggers(self, schema: str) -> dict[str, tuple[int, str, str]]:
        """What keeps the table short, by name: its kind, its function, and the statement that makes it."""
        quoted = self.dialect.quoted
        insert, update, commit, _ = self.functions
        table = self._named(schema, self.cap.table)
        old, new = self.columns(self.cap.per, "OLD."), self.columns(self.cap.per, "NEW.")
        changed = f"FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new}))"
        deferred = "DEFERRABLE INITIALLY DEFERRED"
        made = {
            insert: (STATEMENT_INSERTED, insert, "AFTER INSERT", "REFERENCING NEW TABLE AS new_rows"),
            update: (UPDATED, update, "AFTER UPDATE", changed),
            f"{insert}ed": (INSERTED, commit, "AFTER INSERT", f"{deferred} FOR EACH ROW"),
            f"{update}d": (UPDATED, commit, "AFTER UPDATE", f"{deferred} {changed}"),
        }
        return {
            name: (
                kind,
                function,
                f"CREATE {'CONSTRAINT ' if deferred in how else ''}TRIGGER {quoted(name)} {when} ON {table}\n"
                f"  {how} EXECUTE FUNCTION {self._named(schema, function)}()",
            )
            for name, (kind, function, when, how) in made.items()
        }


class PostgreSQLAdoption(Adoption):
    """Triggers on the table."""

    dialect = POSTGRESQL
    definition_of = "SELECT definition FROM roost_catalog WHERE name = %s"
    patience = ("SET LOCAL lock_timeout = '100ms'",)

    def words(self, cap: Cap) -> PostgreSQLWords:
        """Return a cap in PostgreSQL's words."""
        return PostgreSQLWords(cap, POSTGRESQL)

    def folded(self, name: str) -> str:
        """Return the name: PostgreSQL compares it as it is."""
        return name

    def layout(self, table: str, newest_by: str | None) -> Asking:
        """Return a table's `Layout`, or raise what keeps it from being capped."""
        found = yield read(
            "SELECT r.oid::bigint, r.relkind::text, r.relpersistence::text, pg_has_role(r.relowner, 'USAGE'),\n"
            "  EXISTS (SELECT FROM pg_inherits WHERE r.oid IN (inhparent, inhrelid)), r.relforcerowsecurity\n"
            "  FROM pg_class r WHERE r.relname = %s AND pg_table_is_visible(r.oid)",
            table,
        )
        if not found[0]:
            raise Missing(f"the database has no table {table!r}")
        oid, kind, persistence, owned, inherits, hidden = found[0][0]
        if kind != "r":
            raise Invalid(f"{table} is a {KINDS.get(kind, kind)}; only a table can be capped")
        if table.startswith(PRIVATE):
            raise Invalid(f"{table} belongs to roost; only a table of your own can be capped")
        if inherits:
            raise Invalid(f"{table} is part of other tables, or has parts: rows that go into a part fire no trigger")
        if persistence == "t":
            raise Invalid(f"{table} is a temporary table; only one that others see too can be capped")
        if not owned:
            raise Invalid(f"{table} belongs to somebody else, and only its owner can cap it")
        if hidden:
            raise Invalid(f"{table} has FORCE ROW LEVEL SECURITY: rows that are too many may be hidden")
        found = yield read(
            "SELECT a.attname, t.typname, a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%'\n"
            "  FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)\n"
            "  JOIN pg_type t ON t.oid = a.atttypid\n"
            "  LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)\n"
            "  WHERE i.indrelid = %s AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)",
            oid,
        )
        primary = found[0]
        if not primary:
            raise Invalid(f"{table} has no primary key, so nothing tells its rows apart")
        if newest_by is None and not (len(primary) == 1 and primary[0][1] in NUMBERS and primary[0][2]):
            raise Invalid(
                f"{table}: its primary key is not numbered by the database, so nothing tells which row is newer: "
                "say --newest-by COLUMN"
            )
        columns = yield from self._columns(table)
        return Layout(table, columns, tuple(name for name, *_ in primary))

    def _columns(self, table: str) -> Asking:
        found = yield read(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped\n"
            "  ORDER BY attnum",
            self.dialect.quoted(table),
        )
        return tuple([name for (name,) in found[0]])

    def fits(self, cap: Cap) -> Asking:
        """Raise `Invalid` when a name or a type cannot be used."""
        odd = [name for name in (cap.table, *cap.per, *cap.order) if "%" in name or "$roost$" in name]
        if odd:
            raise Invalid(f"{cap.table}: a table whose names have % in them, as {odd[0]!r}, cannot be capped")
        long = max(self.words(cap).triggers(""), key=len)
        if len(long.encode()) > LONGEST:
            raise Invalid(f"{cap.table}: its name is too long, since {long} has to be one of {LONGEST} bytes")
        for name, type_, kind, _ in (yield from self._types(cap, cap.per)):
            if type_ not in KEYS and kind != "e":
                raise Invalid(f"{cap.table}.{name} is a {type_}, which cannot be a key")

    def _types(self, cap: Cap, names: Sequence[str]) -> Asking:
        found = yield read(
            "SELECT a.attname, coalesce(b.typname, t.typname), t.typtype::text, t.typnamespace::regnamespace::text\n"
            "  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype\n"
            "  WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY (%s)",
            self.dialect.quoted(cap.table),
            list(names),
        )
        return found[0]

    def none_in_the_way(self, cap: Cap) -> Asking:
        """Raise `Invalid` for what a renamed table has kept: objects of a cap stay, under the names that they had."""
        words, table = self.words(cap), self.dialect.quoted(cap.table)
        found = yield read(
            "SELECT 'trigger', t.tgname, r.relname FROM pg_trigger t JOIN pg_class r ON r.oid = t.tgrelid\n"
            "  JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal AND CASE WHEN r.oid = to_regclass(%s)\n"
            "    THEN starts_with(t.tgname, 'roostcap_') AND t.tgname <> ALL (%s)\n"
            "    ELSE p.proname = ANY (%s) AND p.pronamespace = r.relnamespace AND pg_table_is_visible(r.oid) END\n"
            "UNION ALL SELECT 'index', i.relname, r.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid\n"
            "  JOIN pg_class r ON r.oid = x.indrelid\n"
            "  WHERE i.relname = %s AND pg_table_is_visible(i.oid) AND r.oid <> to_regclass(%s)",
            *(table, list(words.triggers("")), list(words.functions), cap.index_name, table),
        )
        if found[0]:
            type_, name, other = found[0][0]
            raise Invalid(
                f"{cap.table}: there is {type_} {name} on {other}, of a cap from before a table was renamed; `roost "
                "uncap` of the name that the table had removes it"
            )

    def foreign_keys(self, parent: str) -> Asking:
        """Return the foreign keys to a table: rows of table, name, column and what ON DELETE says."""
        found = yield read(
            f"SELECT {NAMED}, c.conname, a.attname, {ACTIONS}\n"
            "  FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid\n"
            "  JOIN LATERAL unnest(c.conkey) WITH ORDINALITY u(attnum, place) ON true\n"
            "  JOIN pg_attribute a ON (a.attrelid, a.attnum) = (c.conrelid, u.attnum)\n"
            f"  WHERE c.contype = 'f' AND c.confrelid = ({self._oid}) AND c.conparentid = 0 ORDER BY 1, 2, u.place",
            parent,
        )
        return found[0]

    _oid = f"SELECT r.oid FROM pg_class r WHERE {NAMED} = %s"

    def fixed_columns(self, table: str) -> Asking:
        """Return the names of the columns that may not be NULL."""
        found = yield read(
            f"SELECT attname FROM pg_attribute WHERE attrelid = ({self._oid}) AND attnum > 0 AND attnotnull", table
        )
        return [name for (name,) in found[0]]

    def referring(self, table: str, columns: Sequence[str]) -> Asking:
        """Return table and column of the foreign keys that forbid to change some columns."""
        found = yield read(
            f"SELECT {NAMED}, (SELECT attname FROM pg_attribute WHERE (attrelid, attnum) = (c.conrelid, c.conkey[1]))\n"
            "  FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid\n"
            "  JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey)\n"
            f"  WHERE c.contype = 'f' AND c.confrelid = ({self._oid}) AND a.attname = ANY (%s)\n"
            "    AND c.confupdtype NOT IN ('c', 'n')",
            table,
            list(columns),
        )
        return found[0]

    def is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        """Return whether rows are found by these columns without reading all of them."""
        found = yield from self._indexes(f"({self._oid})", table)
        return any(set(names[: len(columns)]) == set(columns) for _, names, _ in found)

    def _indexes(self, of: str, table: str) -> Asking:
        # Those that can be used for every row: name, columns (None: an expression), and whether they are in order.
        found = yield read(
            "SELECT i.relname, array_agg(a.attname::text ORDER BY k.place),\n"
            "  array_agg(x.indoption[k.place - 1] IN (0, 3) AND o.opcdefault\n"
            "    AND x.indcollation[k.place - 1] = coalesce(a.attcollation, 0) ORDER BY k.place)\n"
            "  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam\n"
            "  JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY k(attnum, place) ON k.place <= x.indnkeyatts\n"
            "  JOIN pg_opclass o ON o.oid = x.indclass[k.place - 1]\n"
            "  LEFT JOIN pg_attribute a ON k.attnum > 0 AND (a.attrelid, a.attnum) = (x.indrelid, k.attnum)\n"
            f"  WHERE x.indrelid = {of} AND x.indisvalid AND x.indisready AND x.indpred IS NULL\n"
            "    AND m.amname = 'btree' GROUP BY 1 ORDER BY 1",
            table,
        )
        return found[0]

    def index(self, cap: Cap) -> Asking:
        """Return the index that has a key's rows in their order; only rows that are equal in it are sorted."""
        width = len(cap.per)
        for name, columns, ordered in (yield from self._indexes("to_regclass(%s)", self.dialect.quoted(cap.table))):
            if set(columns[:width]) == set(cap.per) and columns[width : width + 1] in ([cap.order[0]], []):
                led = columns[width:] or cap.order[0] in cap.per
                if led and all(ordered[: width + 1]):
                    return f"{name} ({', '.join(column or '…' for column in columns)})"
        return ""

    def before(self, cap: Cap, make_index: bool) -> Generator[Statement, Any, None]:
        """Make the index while writers go on; an earlier try that was broken off has left one that is not valid."""
        if make_index:
            words = self.words(cap)
            yield write(f"DROP INDEX CONCURRENTLY IF EXISTS {self.dialect.quoted(cap.index_name)}")
            yield write(words.index_sql.replace("INDEX", "INDEX CONCURRENTLY", 1))

    def install(self, catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Making:
        """Make the triggers: from then on no key gets more rows. To make one waits for all who write the table."""
        yield Control.LOCK_CATALOG
        for sql in self.patience:
            yield write(sql)
        yield from self.probe(cap)
        for sql in catalog.tables.values():
            yield write(sql)
        yield from self.still(cap, old)
        cap = replace(cap, index=cap.index or make_index)
        yield from self.leads(cap)
        if old is not None and old.index and not cap.index:
            yield write(f"DROP INDEX IF EXISTS {self.dialect.quoted(cap.index_name)}")
        words, schema = self.words(cap), (yield from self._schema(cap))
        types = yield from self._types(cap, [*cap.per, *cap.order])
        path = sorted({space for *_, space in types} - {"pg_catalog"})
        for sql in words.function_sql(schema, path).values():
            yield write(sql)
        stored = yield from self._stored(cap)
        for name, (_, _, sql) in words.triggers(schema).items():
            if old is not None and old.per == cap.per and stored.get(name, ["", ""])[1] == "O":
                continue  # to replace a trigger would wait for all who write the table
            if name in stored:
                yield write(f"DROP TRIGGER {self.dialect.quoted(name)} ON {words.table}")
            yield write(sql)
        yield from self.entered(catalog, cap, old)
        return cap

    def _schema(self, cap: Cap) -> Asking:
        found = yield read(
            "SELECT n.nspname FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace\n"
            "  WHERE r.oid = to_regclass(%s)",
            self.dialect.quoted(cap.table),
        )
        return found[0][0][0] if found[0] else ""

    def drop(self, cap: Cap, keep_index: bool) -> Asking:
        """Remove triggers and functions, wherever the table went, and the index if Roost has made it."""
        for sql in self.patience:
            yield write(sql)
        found = yield read(
            "SELECT format('%%I.%%I', n.nspname, p.proname) FROM pg_proc p\n"
            "  JOIN pg_namespace n ON n.oid = p.pronamespace\n"
            "  WHERE p.proname = ANY (%s) AND pg_function_is_visible(p.oid)",
            list(self.words(cap).functions),
        )
        for (name,) in found[0]:
            yield write(f"DROP FUNCTION {name} CASCADE")
        if cap.index and not keep_index:
            yield write(f"DROP INDEX IF EXISTS {self.dialect.quoted(cap.index_name)}")

    def cut(self, cap: Cap, key: Row, is_over: Callable[[], bool]) -> Asking:
        """Delete what nobody holds; the locks are on rows that nobody writes any more."""
        gone = yield write(self.words(cap).cut, *key, *key)
        return gone, gone < CUT

    def _stored(self, cap: Cap) -> Asking:
        # Our triggers on the table: kind, whether they fire, and what their functions do.
        found = yield read(
            "SELECT t.tgname, t.tgtype::int, t.tgenabled::text, p.prosrc FROM pg_trigger t\n"
            "  JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = to_regclass(%s) AND t.tgname = ANY (%s)",
            self.dialect.quoted(cap.table),
            list(self.words(cap).triggers("")),
        )
        return {name: facts for name, *facts in found[0]}

    def changed(self, cap: Cap) -> Asking:
        """Return the names of the triggers that are not as Roost makes them."""
        words, schema = self.words(cap), (yield from self._schema(cap))
        stored, bodies = (yield from self._stored(cap)), words.bodies(schema)
        wanted = {
            name: [kind, "O", f" {bodies[function]} "] for name, (kind, function, _) in words.triggers(schema).items()
        }
        changed = [name for name, facts in wanted.items() if stored.get(name) != facts]
        trim = words.functions[3]
        found = yield read(
            "SELECT p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace\n"
            "  WHERE n.nspname = %s AND p.proname = %s",
            *(schema, trim),
        )
        return changed if found[0] == [(f" {bodies[trim]} ",)] else [*changed, trim]

    def shown_columns(self, cap: Cap) -> Asking:
        """Return the names of the columns that SELECT * shows."""
        return (yield from self._columns(cap.table))
