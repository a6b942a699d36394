"""The queries of `roost doctor` and their interpretation: how each guarantee is met, and what changes would gain."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from roost.catalog.catalog import Catalog, listed
from roost.dialects.dialect import Dialect, Statement, fetch
from roost.structures.structure import facts_of
from roost.structures.views.mysql import FORBIDS, LIMITS

Probing = Generator[Statement, Any, "list[Finding]"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    advice: what to change, and the gain; empty if nothing needs to be changed.
    """

    subject: str
    found: str
    means: str
    advice: str = ""


SAMPLE = 100  # values of a cache that are looked at
LONG = 60  # seconds after which a transaction that keeps dead rows is told

MARIADB = (
    """\
SELECT lower(variable_name), variable_value FROM information_schema.global_variables WHERE variable_name IN
  ('version', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', 'event_scheduler',
   'tx_isolation', 'transaction_isolation', 'innodb_deadlock_detect', 'log_bin_trust_function_creators', 'wsrep_on',
   'read_only', 'super_read_only', 'innodb_doublewrite', 'wsrep_mode', 'rpl_semi_sync_master_enabled',
   'rpl_semi_sync_master_timeout', 'rpl_semi_sync_master_wait_point', 'disabled_storage_engines',
   'sql_require_primary_key')""",
    "SELECT 'connection', CONNECTION_ID()",
    "SELECT 'collation', default_collation_name FROM information_schema.schemata WHERE schema_name = DATABASE()",
    "SELECT 'blackhole', support FROM information_schema.engines WHERE engine = 'BLACKHOLE'",
    "SELECT 'database', DATABASE()",
    """\
SELECT 'events off', GROUP_CONCAT('`roost cap ', SUBSTRING(EVENT_NAME, 10), '`' ORDER BY 1 SEPARATOR ', ')
  FROM information_schema.EVENTS
  WHERE EVENT_SCHEMA = DATABASE() AND LEFT(EVENT_NAME, 9) = 'roostcap_' AND STATUS <> 'ENABLED'
  HAVING COUNT(*) > 0""",
    """\
SELECT lower(variable_name), variable_value FROM information_schema.global_status WHERE variable_name IN
  ('slaves_connected', 'rpl_semi_sync_master_clients', 'rpl_semi_sync_master_status')""",
)
# Those of roles that are enabled, too, which information_schema tells nobody who has them.
GRANTS = "SHOW GRANTS"
GRANT = re.compile(r"GRANT (.+?) ON (?:\*|`((?:[^`]|``)+)`)\.\* TO ")
RIGHTS = ("TRIGGER", "EVENT", "SUPER", "CREATE", "READ_ONLY ADMIN", "CONNECTION_ADMIN", "PROCESS")
SNAPSHOT = f"""\
SELECT 'snapshot', CONCAT('session ', trx_mysql_thread_id, ', since ', trx_started) FROM information_schema.innodb_trx
  WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL {LONG} SECOND
  ORDER BY trx_started LIMIT 1"""  # who may not see it gets an error
MYSQL = (MARIADB[0].replace("information_schema.", "performance_schema."), *MARIADB[1:6])
POSTGRESQL = (
    """\
SELECT name, setting FROM pg_settings WHERE name IN
  ('server_version', 'fsync', 'synchronous_commit', 'statement_timeout', 'idle_in_transaction_session_timeout',
   'autovacuum', 'server_encoding', 'full_page_writes', 'default_transaction_read_only', 'transaction_timeout',
   'synchronous_standby_names')""",
    # Whatever this transaction says for itself.
    "SELECT 'isolation', reset_val FROM pg_settings WHERE name = 'default_transaction_isolation'",
    "SELECT 'product', version()",
    "SELECT 'connection', pg_backend_pid()::text",
    "SELECT 'collation', datcollate FROM pg_database WHERE datname = current_database()",
    "SELECT 'recovery', pg_is_in_recovery()::text",
    "SELECT 'standbys', string_agg(coalesce(sync_state, 'hidden'), ', ' ORDER BY sync_state) FROM pg_stat_replication",
    "SELECT 'may create', coalesce(has_schema_privilege(current_schema(), 'CREATE')::text, 'nowhere')",
    "SELECT 'plpgsql', count(*)::text FROM pg_language WHERE lanname = 'plpgsql'",
    "SELECT 'citus', extversion FROM pg_extension WHERE extname = 'citus'",
    # The holders of snapshots that keep dead rows, the oldest first. When a session of another account has begun is
    # hidden from those without the role pg_read_all_stats.
    f"""\
SELECT 'snapshot', holder FROM (
  SELECT backend_xmin AS xmin, format('session %s of %s (%s), %s', pid, usename, application_name,
      coalesce('since ' || date_trunc('second', xact_start)::text, 'since when is hidden')) AS holder
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND (xact_start IS NULL OR xact_start < now() - interval '{LONG} s')
  UNION ALL SELECT transaction, format('prepared transaction %s of %s, since %s', gid, owner,
      date_trunc('second', prepared)) FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL SELECT coalesce(xmin, catalog_xmin), format('replication slot %s', slot_name) FROM pg_replication_slots
) s WHERE xmin IS NOT NULL AND age(xmin) > 0 ORDER BY age(xmin) DESC LIMIT 1""",
)
SQLITE = (
    "SELECT 'server_version', sqlite_version()",
    "SELECT 'journal', journal_mode FROM pragma_journal_mode",
    "SELECT 'encoding', encoding FROM pragma_encoding",
)


class Facts(dict[str, str]):
    """What a database has answered, by name; "" is what it has not."""

    def __missing__(self, name: str) -> str:
        return ""

    def on(self, name: str) -> bool:
        return self[name] in ("ON", "1")


# By subject, the lines of which the first that applies is told: when it does, what was found, what it means, and what
# to change.
Line = tuple[Callable[[Facts], object], str, str, str]
Table = Sequence[tuple[str, Sequence[Line]]]


def examine(dialect: Dialect, synchronous: str | None, session: int | None) -> Probing:
    """Ask the engine; return what was found, the most important first.

    synchronous: what a SQLite connection of the store runs with.
    session: the number that the driver believes its session to have; None where there is none.
    """
    asked, table = {
        "sqlite": (SQLITE, OF_SQLITE),
        "mariadb": (MARIADB, OF_MARIADB),
        "mysql": (MYSQL, OF_MYSQL),
        "postgresql": (POSTGRESQL, OF_POSTGRESQL),
    }[dialect.name]
    facts = Facts(synchronous=synchronous or "")
    for sql in asked:
        facts.update((yield from _named(sql)))
    if dialect.family == "mariadb":
        facts.update(_rights([str(line) for (line,) in (yield from fetch(GRANTS))], facts["database"]))
        if facts["may process"]:
            facts.update((yield from _named(SNAPSHOT)))
    if session is not None and facts["connection"] != str(session):
        facts["pooler"] = "ProxySQL, MaxScale or the like" if dialect.family == "mariadb" else "PgBouncer or the like"
    _conclude(facts)
    findings = []
    for subject, lines in (*table, *OF_ALL):
        for applies, *texts in lines:
            if applies(facts):
                found, *more = [text.format_map(facts) for text in texts]
                findings += [Finding(subject, found, *more)] if found else []
                break
    return findings


def _named(sql: str) -> Generator[Statement, Any, dict[str, str]]:
    return {str(name): str(value) for name, value in (yield from fetch(sql))}


def pickled(catalog: Catalog) -> Probing:
    """Return a finding for each cache that has pickles among some of its values."""
    found: list[Finding] = []
    for name, _, definition in (yield from listed(catalog)):
        facts = facts_of(definition)
        if facts["kind"] != "cache" or not str(facts["value"][0][1]).startswith("binary"):
            continue
        # A pickle, and one that a serializer of the application's own (dill, cloudpickle) has made.
        marks = r"'\x80'::bytea, '\xff80'" if catalog.dialect.name == "postgresql" else "X'80', X'FF80'"
        some = f"SELECT value FROM roost_{name}_rows WHERE value IS NOT NULL LIMIT {SAMPLE}"
        begins = " OR ".join(f"substr(q.value, 1, {n}) IN ({marks})" for n in (1, 2))
        count = f"SELECT count(*) FROM ({some}) q WHERE {begins}"
        ((number,),) = yield from fetch(count)
        if number:
            advice = 'serializer="json", or Signed(secret): no stored byte is executed then'
            means = "whoever can write to its table can run code in the applications that read it"
            found.append(Finding(name, "a cache of pickles", means, advice))
    return found


def _rights(grants: list[str], database: str) -> dict[str, str]:
    found = {}
    for line in grants:
        grant = GRANT.match(line)
        if grant is None:
            continue
        rights, place = grant.groups()
        if place is not None and not _is_like(database, place.replace("``", "`")):
            continue
        if place is None and rights != "USAGE":
            found["mighty"] = "yes"
        for right in RIGHTS:
            # GRANT ALL ON a database has no rights of the server, which are those of several words and SUPER.
            of_server = right in ("SUPER", "READ_ONLY ADMIN", "CONNECTION_ADMIN", "PROCESS")
            named = right in rights.replace("READ ONLY", "READ_ONLY").split(", ")
            if named or (rights == "ALL PRIVILEGES" and not (of_server and place)):
                found[f"may {right.lower()}"] = "yes"
    return found


def _is_like(name: str, pattern: str) -> bool:
    # As a grant names databases: % and _ are any, unless there is a backslash before them.
    parts = re.findall(r"(?s)\\[%_\\]|.", pattern)
    words = {"%": "(?s:.*)", "_": "(?s:.)"}
    return bool(re.fullmatch("".join([words.get(part) or re.escape(part[-1]) for part in parts]), name))


def _conclude(facts: Facts) -> None:
    # Add what follows from several facts.
    version, commit = facts["version"] or "unknown", facts["synchronous_commit"]
    numbers = tuple(int(n) for n in re.findall(r"\d+", version.removeprefix("5.5.5-"))[:3])
    other = next((name for name in ("CockroachDB", "YugabyteDB") if name in facts["product"]), "")
    rights = [right for right in ("READ_ONLY ADMIN", "CONNECTION_ADMIN") if facts[f"may {right.lower()}"]]
    if not rights and facts["may super"] and numbers[:2] < (10, 11):
        rights = ["READ_ONLY ADMIN"]
    standbys = facts["standbys"].split(", ")
    level = facts["isolation"] or facts["tx_isolation"] or facts["transaction_isolation"]
    concluded = {
        "version": version,
        "is TiDB": "TiDB" in version,
        "before 10.6": numbers[:2] < (10, 6),
        "before 8.0.20": numbers < (8, 0, 20),
        "before 13": int((re.findall(r"\d+", facts["server_version"]) or [0])[0]) < 13,
        "other": other,
        "its product": facts["product"].split(" (")[0],
        "flush": (flush := facts["innodb_flush_log_at_trx_commit"]),
        "flushes": flush in ("1", "3"),
        "form": facts["binlog_format"] or "ROW",  # which MySQL is about to have alone
        "semi": f"rpl_semi_sync_master_enabled = ON, {facts['rpl_semi_sync_master_clients'] or 0} of them answer, "
        f"rpl_semi_sync_master_timeout = {facts['rpl_semi_sync_master_timeout'] or None} ms",
        "nobody answers": facts["rpl_semi_sync_master_clients"] in ("", "0"),
        "event": "granted" if facts["may event"] else "not granted",
        "writes all the same": (rights or [""])[0].replace("READ_ONLY", "READ ONLY"),
        "no inlets": ", ".join(f"{name} = {facts[name]}" for name in LIMITS if FORBIDS.search(facts[name])),
        "isolation": level.replace("-", " ").lower(),
        "waits": commit not in ("off", "local"),
        "on a standby": "sync" in standbys or "quorum" in standbys,
        "is primary": facts["recovery"] != "true",
    }
    facts.update({name: str(value) if value else "" for name, value in concluded.items()})


# fmt: off
ON_DISK = "every answered write is on disk"


def always(_: Facts) -> bool:
    """Whether the last line of a subject applies: it does."""
    return True


OF_SERVERS: Table = (
    ("lost COMMIT", [(
        always, "roost_writers",
        "looked up: each batch leaves its number in the row of its writer; OutcomeUnknown only where the server cannot "
        "be asked", "")]),
    ("isolation", [(
        always, "{isolation} by default",
        "batches set READ COMMITTED; store.on works at the level of your transaction", "")]),
    ("keys", [(
        always, "the database's collation is {collation}", "keys are compared byte for byte nevertheless", "")]),
)
OF_ALL: Table = (
    ("pooler", [(
        lambda f: f["pooler"], "there is one between: {pooler}",
        "it may give each transaction another session: none keeps any state, and nothing is prepared", "")]),
    ("oldest snapshot", [(
        lambda f: f["snapshot"], "{snapshot}",
        "what is overwritten or deleted meanwhile stays: tables grow, and rows that are written often slow down",
        "end it, or run long reads (pg_dump) on a replica")]),
)

INNODB: Table = (
    ("durability", [
        (lambda f: f["flushes"] and f.on("log_bin") and f["sync_binlog"] not in ("", "1"),
         "innodb_flush_log_at_trx_commit = {flush}, binary log on, sync_binlog = {sync_binlog}",
         "a power failure can lose the last answered writes: after it InnoDB keeps what the binary log has",
         f"SET GLOBAL sync_binlog = 1: {ON_DISK}"),
        (lambda f: f["flushes"], "innodb_flush_log_at_trx_commit = {flush}", ON_DISK, ""),
        (always, "innodb_flush_log_at_trx_commit = {flush}", "a crash can lose the writes of the last second",
         f"SET GLOBAL innodb_flush_log_at_trx_commit = 1: {ON_DISK}")]),
    ("binary log", [
        (lambda f: f.on("log_bin") and f["form"] == "STATEMENT", "on, {form}, sync_binlog = {sync_binlog}",
         "nothing can be written (error 1665)", "SET GLOBAL binlog_format = ROW"),
        # MIXED logs rows at READ COMMITTED, at which Roost writes.
        (lambda f: f.on("log_bin"), "on, {form}, sync_binlog = {sync_binlog}",
         "replicas get every change, after it was answered", ""),
        (lambda f: f.on("wsrep_on"), "off", "the nodes of Galera get every change without it", ""),
        (always, "off", "no replica, nothing to keep exact", "")]),
    *OF_SERVERS,
)
REPLICAS: Table = (("replicas", [
    (lambda f: not f.on("rpl_semi_sync_master_enabled") and f["slaves_connected"] not in ("", "0"),
     "{slaves_connected}, rpl_semi_sync_master_enabled = OFF",
     "COMMIT waits for none of them: what was answered last may be lost in a failover",
     "SET GLOBAL rpl_semi_sync_master_enabled = ON, rpl_semi_sync_slave_enabled = ON on the replicas: every answered "
     "write is on a replica, too"),
    (lambda f: f.on("rpl_semi_sync_master_enabled") and f["rpl_semi_sync_master_status"] == "OFF", "{semi}",
     "COMMIT waits for none any more: what is answered meanwhile is on no replica",
     "start the replicas with rpl_semi_sync_slave_enabled = ON"),
    (lambda f: f.on("rpl_semi_sync_master_enabled") and f["nobody answers"], "{semi}",
     "COMMIT waits for one until that is over: what is answered meanwhile is on no replica",
     "start the replicas with rpl_semi_sync_slave_enabled = ON"),
    (lambda f: f.on("rpl_semi_sync_master_enabled") and f["rpl_semi_sync_master_wait_point"] != "AFTER_SYNC", "{semi}",
     "every answered write is on a replica, too, unless none answers for that long",
     "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC: nobody reads what a failover may lose"),
    (lambda f: f.on("rpl_semi_sync_master_enabled"), "{semi}",
     "every answered write is on a replica, too, unless none answers for that long", "")]),)
INLETS: Table = (
    ("structures", [
        (lambda f: not f["may create"], "CREATE not granted",
         "structures cannot be made by this account, nor the table of once=",
         "GRANT CREATE ON the database, or make them by another account")]),
    ("views", [
        (lambda f: not f["may trigger"], "TRIGGER not granted", "SQL clients can read structures, not write them",
         "GRANT TRIGGER ON the database: NAME_in and NAME_out"),
        (lambda f: f.on("log_bin") and not f.on("log_bin_trust_function_creators") and not f["may super"],
         "log_bin = ON, log_bin_trust_function_creators = OFF", "triggers need SUPER (error 1419)",
         "SET GLOBAL log_bin_trust_function_creators = ON: the account may make them"),
        (lambda f: f["no inlets"], "{no inlets}", "no BLACKHOLE table can be made: SQL clients write by procedures",
         ""),
        (lambda f: f["blackhole"] in ("YES", "DEFAULT"), "BLACKHOLE, TRIGGER granted",
         "SQL clients write by NAME_in and NAME_out", ""),
        (always, "no BLACKHOLE", "SQL clients write by procedures: CALL NAME_add(…)",
         "INSTALL SONAME 'ha_blackhole': INSERT INTO NAME_in and NAME_out")]),
)
RIGHTS_AND_RARITIES: Table = (
    ("rights", [
        (lambda f: f["mighty"], "rights on the whole server",
         "what this account makes (views, triggers, events) runs with them, and others may have their code in it",
         "make structures by an account with rights on this database alone, and say `roost cap --definer`")]),
    ("roost cap", [
        (lambda f: f["event_scheduler"] == "ON" and f["events off"] and f["read_only"] in ("0", "OFF"),
         "an event is not ENABLED on this server", "it trims nothing here: it was made on another one",
         "{events off}, on each server that becomes the primary"),
        (lambda f: f["event_scheduler"] == "ON" and f["may event"], "event_scheduler = ON",
         "tables of your own are trimmed by a server event", ""),
        (always, "event_scheduler = {event_scheduler}, EVENT {event}",
         "tables of your own are trimmed by `roost cap --watch`",
         "SET GLOBAL event_scheduler = ON and GRANT EVENT: the server trims them by itself")]),
    ("pages", [
        (lambda f: f["innodb_doublewrite"] in ("OFF", "0"), "innodb_doublewrite = OFF",
         "a power failure while a page is written can destroy it", "innodb_doublewrite = ON")]),
    ("deadlocks", [
        (lambda f: f["innodb_deadlock_detect"] and not f.on("innodb_deadlock_detect"), "innodb_deadlock_detect = OFF",
         "a deadlock is found only by a timeout",
         "SET GLOBAL innodb_deadlock_detect = ON: a deadlock ends at once")]),
    ("Galera", [
        (lambda f: f.on("wsrep_on"), "wsrep_on = ON",
         "all nodes may write; conflicts are found at COMMIT, and the batch is run again; reads see their own node",
         "send the writes of one key to one node: fewer conflicts")]),
    ("writing", [
        (lambda f: f.on("read_only") and f["writes all the same"] and f["super_read_only"] != "ON",
         "read_only = ON, and the account has {writes all the same}",
         "it writes nevertheless: on a replica, what the primary never hears of",
         "REVOKE {writes all the same} (and SUPER) from the account, and name the primary in the URL"),
        (lambda f: f.on("read_only"), "read_only = ON", "ReadOnly for every write", "name the primary in the URL")]),
)
OF_MARIADB: Table = (
    ("version", [
        (lambda f: f["before 10.6"], "{version}", "MariaDB's statements: RETURNING, SKIP LOCKED",
         "Roost needs MariaDB 10.6 (SKIP LOCKED)"),
        (always, "{version}", "MariaDB's statements: RETURNING, SKIP LOCKED", "")]),
    *INNODB, *REPLICAS, *INLETS, *RIGHTS_AND_RARITIES,
)
OF_MYSQL: Table = (
    ("version", [
        (lambda f: f["is TiDB"], "TiDB {version}", "MySQL's statements: NOWAIT, SKIP LOCKED, no RETURNING",
         "use MariaDB 10.6 or newer, PostgreSQL or SQLite"),
        (lambda f: f["before 8.0.20"], "MySQL {version}", "MySQL's statements: NOWAIT, SKIP LOCKED, no RETURNING",
         "Roost needs MySQL 8.0.20"),
        (always, "MySQL {version}", "MySQL's statements: NOWAIT, SKIP LOCKED, no RETURNING", "")]),
    *INNODB, *INLETS,
    ("waiting", [(always, "no limit for statements that write", "`lock_wait` is rounded up to whole seconds", "")]),
    *RIGHTS_AND_RARITIES,
)


def _timeout(name: str) -> tuple[str, list[Line]]:
    return "timeouts", [(
        lambda f: f[name] not in ("", "0"), f"{name} = {{{name}}} ms",
        "a batch that it cancels is run again, or is Busy",
        f"ALTER ROLE … SET {name} = 0 for the account of the store")]


OF_POSTGRESQL: Table = (
    ("version", [
        (lambda f: f["other"], "{its product}", "{other} only speaks PostgreSQL's protocol: not tested", ""),
        (lambda f: f["before 13"], "PostgreSQL {server_version}", "all of Roost's statements",
         "Roost needs PostgreSQL 13"),
        (always, "PostgreSQL {server_version}", "all of Roost's statements", "")]),
    ("durability", [
        (lambda f: f["fsync"] == "on" and f["synchronous_commit"] != "off",
         "fsync = on, synchronous_commit = {synchronous_commit}", ON_DISK, ""),
        (lambda f: f["fsync"] == "on", "fsync = on, synchronous_commit = off", "a crash can lose the last writes",
         f"fsync = on and synchronous_commit = on: {ON_DISK}"),
        (always, "fsync = {fsync}, synchronous_commit = {synchronous_commit}", "a crash can destroy the database",
         f"fsync = on and synchronous_commit = on: {ON_DISK}")]),
    ("pages", [
        (lambda f: f["full_page_writes"] == "off", "full_page_writes = off",
         "a power failure while a page is written can destroy it", "full_page_writes = on")]),
    *OF_SERVERS,
    ("text", [
        (lambda f: f["server_encoding"] != "UTF8", "server_encoding = {server_encoding}",
         "not every text can be stored", "make the database with ENCODING 'UTF8'")]),
    ("views", [
        (lambda f: f["citus"] or f["other"], "not tested here", "write with Python only; create with view=False", ""),
        (lambda f: f["may create"] == "nowhere", "no schema in search_path exists",
         "nothing can be made or found by this account", "ALTER ROLE … SET search_path to a schema that exists"),
        (lambda f: f["may create"] == "true" and f["plpgsql"] == "1", "views with INSTEAD OF triggers",
         "SQL clients write structures by their own names", ""),
        (lambda f: f["plpgsql"] == "1", "CREATE not granted", "structures and views cannot be made by this account",
         "GRANT CREATE ON the schema, or run `roost ddl` as its owner"),
        (always, "no plpgsql", "structures and views cannot be made by this account",
         "GRANT CREATE ON the schema, or run `roost ddl` as its owner")]),
    *map(_timeout, ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")),
    ("space", [
        (lambda f: f["autovacuum"] != "on", "autovacuum = off", "tables that are updated all the time grow",
         "autovacuum = on")]),
    ("standbys", [
        (lambda f: not f["is primary"] and f["standbys"] in ("", "None"), "", "", ""),
        (lambda f: not f["is primary"], "there are some of this replica", "they have what it has, later", ""),
        (lambda f: f["standbys"].startswith("hidden"), "there are some",
         "whether COMMIT waits for them is hidden from this account", ""),
        (lambda f: f["on a standby"] and f["waits"], "{standbys}",
         "every answered write is on a standby, too: a failover to it loses nothing", ""),
        (lambda f: f["synchronous_standby_names"] and f["waits"],
         "synchronous_standby_names = {synchronous_standby_names}, and none of them is there",
         "COMMIT waits for one: each write ends in OutcomeUnknown, after `timeout`",
         "start the standby, or take it out of synchronous_standby_names"),
        (lambda f: f["standbys"] in ("", "None"), "none", "no other server has what was answered", ""),
        (always, "{standbys}", "COMMIT waits for none of them: what was answered last may be lost in a failover",
         "set synchronous_standby_names: every answered write is on a standby, too")]),
    ("writing", [
        (lambda f: not f["is primary"], "a replica", "ReadOnly for every write", "name the primary in the URL"),
        (lambda f: f["default_transaction_read_only"] == "on", "default_transaction_read_only = on",
         "ReadOnly for every write",
         "ALTER ROLE … SET default_transaction_read_only = off for the account of the store")]),
)
OF_SQLITE: Table = (
    ("version", [(always, "SQLite {server_version}", "all of Roost's statements", "")]),
    ("durability", [
        (lambda f: f["synchronous"] in ("FULL", "EXTRA"), "synchronous = {synchronous}", ON_DISK, ""),
        (always, "synchronous = {synchronous}", "a power failure can lose the last writes",
         f"leave out ?synchronous= in the URL: {ON_DISK}")]),
    ("waiting", [
        (lambda f: f["journal"] in ("wal", "memory"), "journal_mode = {journal}", "readers never wait for writers", ""),
        (always, "journal_mode = {journal}", "readers and writers wait for each other",
         "the first write of a store turns WAL on")]),
    ("lost COMMIT", [
        (always, "in this process", "the outcome is known at once: no connection can be lost", "")]),
    ("keys", [(always, "{encoding}", "compared byte for byte", "")]),
    ("views", [
        (always, "views with INSTEAD OF triggers", "SQL clients write structures by their own names", "")]),
)
