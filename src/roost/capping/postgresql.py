"""How tables are capped in PostgreSQL: a transaction deletes, at its COMMIT, what it has displaced or what is too old.

    AFTER INSERT, for the statement:  notes its keys in a setting of the transaction
    at COMMIT, by deferred triggers:  SELECT pg_advisory_xact_lock(…) FROM the keys' locks … ORDER BY 1;
      DELETE FROM visits d USING (… the keys, the rows of each ORDER BY at DESC, id DESC OFFSET 5 …) …;

One transaction at a time trims a key: under the lock, each sees what the previous one has committed. The locks are
taken at the end and in order, so that no two transactions wait for each other, and a key is locked only for the length
of COMMIT. Rejected: locks in each INSERT; measured with four rows of 20 keys in a transaction and four writers,
throughput fell from 2,500 rows/s to 120, by deadlocks of a second each. The keys of a table share 512 locks, since a
lock for each key of a large transaction could exhaust the server's locks; the locks of all tables are taken at once, in
one order.

The trimming runs as the table's owner, since an application may be allowed to INSERT alone; see `postgresql_sql.py`.

Excess rows that are locked are skipped (SKIP LOCKED); otherwise a transaction that holds an old row and then requests
the lock of its key would deadlock. The next INSERT of the key deletes what was skipped. Each row is checked again under
its lock (`at`), since it may have been changed since it was selected. Nor are locks on dependent rows of other tables
waited for for long: after 100 ms the row is left to the next INSERT.

By age a deferred trigger deletes, for the first row that a transaction has written, ten rows that are too old, twenty
for the sixth, and so on, doubling each time, until no row is too old. After that it only reads a setting of the
transaction for each row. The index entries of rows that the transaction itself has deleted, which each search passes
again, are as many as its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from roost.capping.adoption import KEPT, Adoption, Column
from roost.capping.cap import Asking
from roost.capping.postgresql_sql import CHANGED, CUT, PATH, Home, KeyType, PostgreSQLWords
from roost.dialects.dialect import Row, execute, fetch
from roost.dialects.postgresql import POSTGRESQL
from roost.errors import Invalid, Missing, StatementFailed
from roost.structures.adopted import Cap
from roost.structures.views.postgresql import EXECUTED_BY_OTHERS

LONGEST = 63  # bytes of a name; PostgreSQL would cut off what is longer
# What compares in PostgreSQL as it does when it has been in Python.
KEYS = frozenset(["int2", "int4", "int8", "numeric", "bool", "text", "varchar", "bpchar", "citext", "bytea", "uuid"])
KEYS |= {"date", "timestamp", "timestamptz"}
ACTIONS = "CASE c.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'"
ACTIONS += " WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END"
NAMED = "CASE WHEN pg_table_is_visible(r.oid) THEN r.relname ELSE r.relnamespace::regnamespace || '.' || r.relname END"
OID = f"(SELECT r.oid FROM pg_class r WHERE {NAMED} = %s)"
# The types of columns below their domains, what compares them in an index, and their collations.
TYPES = """\
WITH RECURSIVE below AS (
  SELECT a.attname, a.attcollation, t.oid, t.typname, t.typtype, t.typnamespace, t.typbasetype, false AS domain
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass(%s) AND a.attname = ANY (%s)
  UNION ALL
  SELECT b.attname, b.attcollation, t.oid, t.typname, t.typtype, t.typnamespace, t.typbasetype, true
    FROM below b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd'
)
SELECT b.attname, b.typname, b.typtype::text, n.nspname,
  coalesce((SELECT format('OPERATOR(%%I.%%s)', s.nspname, o.oprname)
    FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
      JOIN pg_amop x ON x.amopfamily = c.opcfamily AND x.amopstrategy = 3
        AND (x.amoplefttype, x.amoprighttype) = (c.opcintype, c.opcintype)
      JOIN pg_operator o ON o.oid = x.amopopr JOIN pg_namespace s ON s.oid = o.oprnamespace
    WHERE c.opcdefault AND c.opcintype = b.oid), 'OPERATOR(pg_catalog.=)'),
  coalesce((SELECT format('%%I.%%I', s.nspname, l.collname)
    FROM pg_collation l JOIN pg_namespace s ON s.oid = l.collnamespace WHERE l.oid = b.attcollation), ''),
  b.domain
  FROM below b JOIN pg_namespace n ON n.oid = b.typnamespace WHERE b.typtype <> 'd'"""
HOME = """\
SELECT n.nspname, o.rolname, o.rolsuper OR has_schema_privilege(o.oid, n.oid, 'USAGE'),
  o.rolsuper OR has_schema_privilege(o.oid, n.oid, 'CREATE'), pg_has_role(o.oid, 'USAGE')
  FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace JOIN pg_roles o ON o.oid = r.relowner
  WHERE r.oid = to_regclass(%s)"""
# As for private tables (`THERE`), every operator has operands of exactly the types for which the system has it.
OWNER = """\
SELECT o.rolname FROM pg_class r JOIN pg_roles o ON o.oid = r.relowner, pg_roles s, pg_roles u
  WHERE r.oid = to_regclass(%s::text)::oid AND s.rolname = session_user AND u.rolname = current_user
    AND (s.rolsuper OR u.rolsuper) AND NOT o.rolsuper"""
# The functions of a cap: what they are, whose, and what they do.
FUNCTIONS = f"""\
SELECT p.proname, format('%%I.%%I(%%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
  pg_get_userbyid(p.proowner), pg_has_role(p.proowner, 'USAGE'),
  p.prosrc, p.prosecdef, coalesce(array_to_string(p.proconfig, ';'), ''),
  {EXECUTED_BY_OTHERS}
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = ANY (%s)"""


class PostgreSQLAdoption(Adoption[PostgreSQLWords]):
    """Triggers on the table."""

    dialect = POSTGRESQL
    words_class = PostgreSQLWords
    integers = frozenset(["int4", "int8"])
    times: ClassVar = {"timestamptz": "zoned", "timestamp": "plain", "date": "date"}
    patience = ("SET LOCAL lock_timeout = '100ms'",)
    definition_sql = "SELECT definition FROM roost_catalog WHERE name = %s"
    table_sql = """\
SELECT r.relname, CASE
  WHEN r.relkind <> 'r' THEN 'is a ' || CASE r.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
      WHEN 'p' THEN 'partitioned table' WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence'
      ELSE r.relkind::text END || '; only a table can be capped'
  WHEN EXISTS (SELECT FROM pg_inherits WHERE r.oid IN (inhparent, inhrelid))
    THEN 'is part of other tables, or has parts: rows that go into a part fire no trigger'
  WHEN r.relpersistence = 't' THEN 'is a temporary table; only one that others see too can be capped'
  WHEN NOT (pg_has_role(r.relowner, 'USAGE') OR has_table_privilege(r.oid, 'SELECT')) THEN 'belongs to somebody else'
  WHEN r.relforcerowsecurity THEN 'has FORCE ROW LEVEL SECURITY: excess rows may be hidden' END
  FROM pg_class r WHERE r.relname = %s AND pg_table_is_visible(r.oid)"""
    columns_sql = """\
SELECT a.attname, CASE
    WHEN t.typtype = 'd' THEN 'domain over ' || (SELECT b.typname FROM pg_type b WHERE b.oid = t.typbasetype)
    WHEN n.nspname <> 'pg_catalog' THEN n.nspname || '.' || t.typname ELSE t.typname::text END,
  array_position(i.indkey::int2[], a.attnum) + 1, t.typname IN ('int2', 'int4', 'int8')
    AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%'), true
  FROM pg_class r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
  LEFT JOIN pg_index i ON i.indrelid = r.oid AND i.indisprimary
  LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
  WHERE r.relname = %s AND pg_table_is_visible(r.oid) ORDER BY a.attnum"""
    foreign_keys_sql = f"""\
SELECT {NAMED}, c.conname, a.attname, {ACTIONS}
  FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
  JOIN LATERAL unnest(c.conkey) WITH ORDINALITY u(attnum, place) ON true
  JOIN pg_attribute a ON (a.attrelid, a.attnum) = (c.conrelid, u.attnum)
  WHERE c.contype = 'f' AND c.confrelid = {OID} AND c.conparentid = 0 ORDER BY 1, 2, u.place"""
    made_sql = """\
SELECT 'trigger', t.tgname, r.relname FROM pg_trigger t JOIN pg_class r ON r.oid = t.tgrelid
  JOIN pg_proc p ON p.oid = t.tgfoid
  WHERE NOT t.tgisinternal AND starts_with(t.tgname, 'roostcap_') AND pg_table_is_visible(r.oid)
UNION ALL SELECT 'index', i.relname, r.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
  JOIN pg_class r ON r.oid = x.indrelid WHERE starts_with(i.relname, 'roostcap_') AND pg_table_is_visible(i.oid)"""
    # Those that can be used for every row; a column is NULL where it is an expression.
    indexes_sql = f"""\
SELECT i.relname, a.attname, x.indoption[k.place - 1] IN (0, 3) AND o.opcdefault
    AND x.indcollation[k.place - 1] = coalesce(a.attcollation, 0)
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam
  JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY k(attnum, place) ON k.place <= x.indnkeyatts
  JOIN pg_opclass o ON o.oid = x.indclass[k.place - 1]
  LEFT JOIN pg_attribute a ON k.attnum > 0 AND (a.attrelid, a.attnum) = (x.indrelid, k.attnum)
  WHERE x.indrelid = {OID} AND x.indisvalid AND x.indisready AND x.indpred IS NULL AND m.amname = 'btree'
  ORDER BY i.relname, k.place"""
    sorts_ties = True
    fixed_sql = f"SELECT attname FROM pg_attribute WHERE attrelid = {OID} AND attnum > 0 AND attnotnull"
    referring_sql = f"""\
SELECT {NAMED}, (SELECT attname FROM pg_attribute WHERE (attrelid, attnum) = (c.conrelid, c.conkey[1])), a.attname
  FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
  JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey)
  WHERE c.contype = 'f' AND c.confrelid = {OID} AND c.confupdtype NOT IN ('c', 'n')"""

    def safe(self, table: str) -> Asking:
        """Raise `Invalid` where a superuser would run code of the table's owner.

        The planner calls functions in the predicates of indexes, in constraints and statistics; and operators that the
        owner has made in the table's schema may be taken for the system's.
        """
        found = yield from fetch(OWNER, self.dialect.quoted(table))
        for (owner,) in found:
            raise Invalid(
                f"{table} belongs to {owner}, and code of {owner} would run with the rights of a superuser: run this "
                f"as {owner}, or as a member of {owner} that is no superuser"
            )

    def here(self, cap: Cap) -> Asking:
        yield from self.safe(cap.table)
        found = yield from fetch(HOME, self.dialect.quoted(cap.table))
        if not found:
            raise Missing(f"the database has no table {cap.table!r}")
        types = yield from self._types(cap, [*cap.per, *cap.order])
        if lost := [name for name in (*cap.per, *cap.order) if name not in types]:
            raise Invalid(f"{cap.table} has no column {lost[0]} any more")
        return PostgreSQLWords(cap, self.dialect, Home(types, *found[0]))

    def reading(self, cap: Cap) -> Asking:
        yield from self.safe(cap.table)
        return PostgreSQLWords(cap, self.dialect, Home((yield from self._types(cap, cap.per))))

    def folded(self, name: str) -> str:
        return name  # which PostgreSQL compares as it is

    def _fits(self, cap: Cap, columns: Sequence[Column]) -> Asking:
        if odd := [name for name in (cap.table, *cap.per, *cap.order) if "%" in name or "$roost$" in name]:
            raise Invalid(f"{cap.table}: a table whose names have % in them, as {odd[0]!r}, cannot be capped")
        words: PostgreSQLWords = yield from self.here(cap)
        long = max([*words.triggers, words.probe], key=len)
        if len(long.encode()) > LONGEST:
            raise Invalid(f"{cap.table}: its name is too long, since {long} has to be one of {LONGEST} bytes")
        for name in cap.per:
            type_ = words.home.types[name]
            known = (type_.name in KEYS and type_.system) or (type_.name == "citext" and type_.kind == "b")
            if not known and type_.kind != "e":
                raise Invalid(f"{cap.table}.{name} is a {type_.name}, which cannot be a key")
        home = words.home
        if not home.ours:
            raise Invalid(f"{cap.table} belongs to somebody else, and only its owner can cap it")
        if not (home.may_use and home.may_create):
            right = "CREATE" if home.may_use else "USAGE"
            raise Invalid(
                f"{cap.table} belongs to {home.owner}, and so do the functions that keep it short; {home.owner} has no "
                f"right {right} on the schema {home.schema} where they are: GRANT {right} ON SCHEMA {home.schema} TO "
                f"{home.owner}"
            )

    def _types(self, cap: Cap, names: Sequence[str]) -> Asking:
        found = yield from fetch(TYPES, self.dialect.quoted(cap.table), list(names))
        return {name: KeyType(*facts) for name, *facts in found}

    # Installing

    def before(self, cap: Cap, make_index: bool) -> Asking:
        """Make the index while writers go on; an earlier try that was broken off has left one that is not valid."""
        if make_index:
            words = self.words(cap)
            yield execute(words.drop_index_sql.replace("INDEX", "INDEX CONCURRENTLY", 1))
            yield execute(words.index_sql.replace("INDEX", "INDEX CONCURRENTLY", 1))

    def _make(self, cap: Cap, old: Cap | None, make_index: bool) -> Asking:
        # To make a trigger waits for all who write the table.
        yield from self.leads(cap)
        if old is not None and old.index and not cap.index:
            yield execute(self.words(cap).drop_index_sql)
        words: PostgreSQLWords = yield from self.here(cap)
        yield from self._drop_former(words)
        yield from self._drop_strangers(words)
        for sql in words.function_sql:
            yield execute(sql)
        stored = yield from self._stored(words)
        before = {} if old is None else PostgreSQLWords(old, self.dialect, words.home).triggers
        for name, (kind, function, sql) in words.triggers.items():
            if before.get(name, ())[2:] == (sql,) and stored.get(name) == [kind, "O", function, True]:
                continue
            if name in stored:
                yield execute(f"DROP TRIGGER {self.dialect.quoted(name)} ON {words.table}")
            yield execute(sql)
        # Before COMMIT: a function that fails would make every INSERT of the application fail.
        found = yield from fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped\n"
            "  AND attgenerated = '' ORDER BY attnum LIMIT 1",
            words.table,
        )
        yield from self._tried(words, words.working(found[0][0]), "with the triggers no row could be inserted")

    def _drop_strangers(self, words: PostgreSQLWords) -> Asking:
        # Functions of an earlier owner of the table, or of an earlier version of Roost; or somebody's who knew what
        # they would be called, and whose they would stay if they were but replaced.
        strangers = []
        for name, function, owner, ours, *_ in (yield from self._functions(words)):
            arguments = function.rpartition("(")[2]
            if owner == words.home.owner and arguments == (f"{words.takes})" if name == words.names[-1] else ")"):
                continue
            if ours:
                yield execute(f"DROP FUNCTION {function} CASCADE")
            else:
                strangers.append((function, owner))
        if strangers:
            function, owner = strangers[0]
            raise Invalid(
                f"{words.cap.table}: there is a function {function}, which belongs to {owner}; {owner}, or who may "
                f"drop it, says DROP FUNCTION {', '.join(each for each, _ in strangers)} CASCADE"
            )

    def _functions(self, words: PostgreSQLWords) -> Asking:
        return fetch(FUNCTIONS, words.home.schema, words.names)

    def _probe(self, cap: Cap) -> Asking:
        # By the rights of the table's owner, as it will be done in others' INSERT.
        words: PostgreSQLWords = yield from self.here(cap)
        path = PATH.replace("=", " = ")
        refused = f"its rows cannot be deleted by its owner's rights and with {path}, as it would be done"
        if (yield from self._tried(words, words.deleting_one, refused, f"SET {path}")):
            raise Invalid(f"{cap.table}: {KEPT}")

    def _tried(self, words: PostgreSQLWords, body: str, refused: str, path: str = "") -> Asking:
        yield execute("SAVEPOINT roost_probe")
        found = yield from fetch(FUNCTIONS, words.home.schema, [words.probe])
        for _, function, *_ in found:
            if function.endswith("()"):
                raise Invalid(f"{words.cap.table}: there is a function {function}, whose name is needed; drop it")
        *make, ask = words.probe_sql(body, path)
        for sql in make:
            yield execute(sql)
        try:
            found = yield from fetch(ask)
        except StatementFailed as error:
            raise Invalid(f"{words.cap.table}: {refused}, so it cannot be capped ({error})") from error
        yield execute("ROLLBACK TO SAVEPOINT roost_probe")
        yield execute("RELEASE SAVEPOINT roost_probe")
        return found[0][0]

    def _drop(self, cap: Cap, index: bool) -> Asking:
        # Wherever the table went.
        for sql in self.patience:
            yield execute(sql)
        words = self.words(cap)
        yield from self._drop_former(words)
        found = yield from fetch(
            "SELECT format('%%I.%%I', n.nspname, p.proname) FROM pg_proc p\n"
            "  JOIN pg_namespace n ON n.oid = p.pronamespace\n"
            "  WHERE p.proname = ANY (%s) AND pg_function_is_visible(p.oid)",
            words.names,
        )
        for (name,) in found:
            yield execute(f"DROP FUNCTION {name} CASCADE")
        if index:
            yield execute(words.drop_index_sql)

    def _drop_former(self, words: PostgreSQLWords) -> Asking:
        # A table that was moved to another schema takes its triggers along; their functions stay, and do not find it.
        found = yield from fetch(
            "SELECT t.tgname, p.pronamespace::bigint FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid\n"
            "  JOIN pg_class c ON c.oid = t.tgrelid\n"
            "  WHERE c.oid = to_regclass(%s) AND p.proname = ANY (%s) AND p.pronamespace <> c.relnamespace",
            *(words.table, words.names),
        )
        if not found:
            return
        for trigger, _ in found:
            yield execute(f"DROP TRIGGER {self.dialect.quoted(trigger)} ON {words.table}")
        found = yield from fetch(  # unless another table has that name there now, and is capped
            "SELECT p.oid::regprocedure::text FROM pg_proc p\n"
            "  WHERE p.proname = ANY (%s) AND p.pronamespace::bigint = ANY (%s) AND pg_has_role(p.proowner, 'USAGE')\n"
            "    AND NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid\n"
            "      WHERE f.pronamespace = p.pronamespace AND f.proname = ANY (%s))",
            *(words.names, [schema for _, schema in found], words.names),
        )
        for (function,) in found:
            yield execute(f"DROP FUNCTION {function}")

    # Trimming and checking

    def _cut(self, words: PostgreSQLWords, key: Row, is_over: Callable[[], bool]) -> Asking:
        # What nobody holds; the locks are on rows that nobody writes any more.
        found = yield from fetch(words.cut, *key)
        gone = found[0][0] if found else 0
        return gone, gone < CUT

    def _stored(self, words: PostgreSQLWords) -> Asking:
        # Our triggers on the table: kind, whether they fire, their function, and how they compare OLD and NEW.
        found = yield from fetch(
            "SELECT t.tgname, t.tgtype::int, t.tgenabled::text,\n"
            "  CASE WHEN p.pronamespace = c.relnamespace THEN p.proname ELSE 'of another schema' END,\n"
            f"  t.tgqual IS NULL OR strpos(pg_get_triggerdef(t.oid), ' WHEN ({CHANGED}(ROW(') > 0\n"
            "  FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid\n"
            "  WHERE t.tgrelid = to_regclass(%s) AND t.tgname = ANY (%s)",
            words.table,
            list(words.triggers),
        )
        return {name: facts for name, *facts in found}

    def _changed(self, cap: Cap) -> Asking:
        words: PostgreSQLWords = yield from self.here(cap)
        stored = yield from self._stored(words)
        functions = {name: facts for name, _, *facts in (yield from self._functions(words))}
        changed = [
            name
            for name, (kind, function, _) in words.triggers.items()
            if stored.get(name) != [kind, "O", function, True]
        ]
        for name, made in words.functions.items():
            owner, _, *facts = functions.get(name, ("", True))
            if owner not in ("", words.home.owner):
                changed.append(f"{name}, which belongs to {owner} while the table belongs to {words.home.owner},")
            elif facts != [f" {made.body} ", made.definer, made.settings, False] and name not in changed:
                changed.append(name)
        return changed
