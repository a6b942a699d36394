"""The queries of `roost doctor` and their interpretation: how each guarantee is met, and what changes would gain.

Longer than 500 lines: what each database is asked and what follows from its answers are read together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roost.catalog.catalog import Catalog, listed
from roost.dialects.dialect import Dialect, Statement
from roost.structures.plan import each
from roost.structures.structure import facts_of
from roost.structures.views.mysql import FORBIDS, LIMITS

Facts = Mapping[str, str]
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
LOST_COMMIT = Finding(
    "lost COMMIT",
    "roost_writers",
    "looked up: each batch leaves its number in the row of its writer; OutcomeUnknown only where the server cannot be "
    "asked",
)

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


def examine(dialect: Dialect, synchronous: str | None, session: int | None) -> Probing:
    """Ask the engine; return what was found, the most important first.

    synchronous: what a SQLite connection of the store runs with.
    session: the number that the driver believes its session to have; None where there is none.
    """
    asked, judged = {
        "sqlite": (SQLITE, _sqlite),
        "mariadb": (MARIADB, _mariadb),
        "mysql": (MYSQL, _mysql),
        "postgresql": (POSTGRESQL, _postgresql),
    }[dialect.name]
    facts: dict[str, str] = {}
    for sql in asked:
        found = yield Statement(each(sql), [()])
        facts.update({str(name): str(value) for name, value in found[0]})
    if dialect.family == "mariadb":
        found = yield Statement(each(GRANTS), [()])
        facts.update(_rights([str(line) for (line,) in found[0]], facts.get("database", "")))
        if facts.get("may process"):
            found = yield Statement(each(SNAPSHOT), [()])
            facts.update({str(name): str(value) for name, value in found[0]})
    if synchronous is not None:
        facts["synchronous"] = synchronous
    if session is not None and facts.get("connection") != str(session):
        facts["pooler"] = "yes"
    judge: Callable[[Facts], Iterator[Finding]] = judged
    return [*judge(facts), *_snapshot(facts)]


def pickled(catalog: Catalog) -> Probing:
    """Return a finding for each cache that has pickles among some of its values."""
    found: list[Finding] = []
    for name, _, definition in (yield from listed(catalog)):
        facts = facts_of(definition)
        if facts["kind"] != "cache" or not str(facts["value"][0][1]).startswith("binary"):
            continue
        mark = "'\\x80'::bytea" if catalog.dialect.name == "postgresql" else "X'80'"
        some = f"SELECT value FROM roost_{name}_rows WHERE value IS NOT NULL LIMIT {SAMPLE}"
        count = f"SELECT count(*) FROM ({some}) q WHERE substr(q.value, 1, 1) = {mark}"
        ((number,),) = (yield Statement(each(count), [()]))[0]
        if number:
            advice = 'serializer="json", or Signed(secret): no stored byte is executed then'
            means = "whoever can write to its table can run code in the applications that read it"
            found.append(Finding(name, "a cache of pickles", means, advice))
    return found


def _rights(grants: list[str], database: str) -> Facts:
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
            if right in rights.replace("READ ONLY", "READ_ONLY").split(", ") or (
                rights == "ALL PRIVILEGES" and not (of_server and place)
            ):
                found[f"may {right.lower()}"] = "yes"
    return found


def _is_like(name: str, pattern: str) -> bool:
    # As a grant names databases: % and _ are any, unless there is a backslash before them.
    parts = re.findall(r"(?s)\\[%_\\]|.", pattern)
    words = {"%": "(?s:.*)", "_": "(?s:.)"}
    return bool(re.fullmatch("".join([words.get(part) or re.escape(part[-1]) for part in parts]), name))


def _mariadb(facts: Facts) -> Iterator[Finding]:
    version = facts.get("version", "unknown")
    yield Finding(
        "version", version, "MariaDB's statements: RETURNING, SKIP LOCKED",
        "Roost needs MariaDB 10.6 (SKIP LOCKED)" if _numbers(version)[:2] < (10, 6) else "",
    )  # fmt: skip
    yield from _innodb(facts)
    yield from _replicas(facts)
    yield from _inlets(facts)
    yield from _passes(facts)
    yield from _rarities(facts)


def _mysql(facts: Facts) -> Iterator[Finding]:
    version = facts.get("version", "unknown")
    product = "TiDB" if "TiDB" in version else "MySQL"
    if product == "TiDB":
        advice = "use MariaDB 10.6 or newer, PostgreSQL or SQLite"
    else:
        advice = "Roost needs MySQL 8.0.20" if _numbers(version) < (8, 0, 20) else ""
    yield Finding("version", f"{product} {version}", "MySQL's statements: NOWAIT, SKIP LOCKED, no RETURNING", advice)
    yield from _innodb(facts)
    yield from _inlets(facts)
    yield Finding("waiting", "no limit for statements that write", "`lock_wait` is rounded up to whole seconds")
    yield from _passes(facts)
    yield from _rarities(facts)


def _passes(facts: Facts) -> Iterator[Finding]:
    if facts.get("mighty"):
        yield Finding(
            "rights", "rights on the whole server",
            "what this account makes (views, triggers, events) runs with them, and others may have their code in it",
            "make structures by an account with rights on this database alone, and say `roost cap --definer`",
        )  # fmt: skip
    events = facts.get("event_scheduler", "")
    if events == "ON" and facts.get("events off") and facts.get("read_only") in ("0", "OFF"):
        yield Finding(
            "roost cap", "an event is not ENABLED on this server", "it trims nothing here: it was made on another one",
            f"{facts['events off']}, on each server that becomes the primary",
        )  # fmt: skip
    elif events == "ON" and facts.get("may event"):
        yield Finding("roost cap", "event_scheduler = ON", "tables of your own are trimmed by a server event")
    else:
        yield Finding(
            "roost cap", f"event_scheduler = {events}, EVENT {'granted' if facts.get('may event') else 'not granted'}",
            "tables of your own are trimmed by `roost cap --watch`",
            "SET GLOBAL event_scheduler = ON and GRANT EVENT: the server trims them by itself",
        )  # fmt: skip


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.removeprefix("5.5.5-"))[:3])


def _innodb(facts: Facts) -> Iterator[Finding]:
    flush, sync = facts.get("innodb_flush_log_at_trx_commit", ""), facts.get("sync_binlog", "")
    logged = facts.get("log_bin") in ("1", "ON")
    if flush in ("1", "3") and logged and sync not in ("", "1"):
        yield Finding(
            "durability", f"innodb_flush_log_at_trx_commit = {flush}, binary log on, sync_binlog = {sync}",
            "a power failure can lose the last answered writes: after it InnoDB keeps what the binary log has",
            "SET GLOBAL sync_binlog = 1: every answered write is on disk",
        )  # fmt: skip
    elif flush in ("1", "3"):
        yield Finding("durability", f"innodb_flush_log_at_trx_commit = {flush}", "every answered write is on disk")
    else:
        yield Finding(
            "durability", f"innodb_flush_log_at_trx_commit = {flush}", "a crash can lose the writes of the last second",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1: every answered write is on disk",
        )  # fmt: skip
    if logged:
        form = facts.get("binlog_format", "ROW")  # which MySQL is about to have alone
        exact = form != "STATEMENT"  # MIXED logs rows at READ COMMITTED, at which Roost writes
        yield Finding(
            "binary log", f"on, {form}, sync_binlog = {sync}",
            "replicas get every change, after it was answered" if exact else "nothing can be written (error 1665)",
            "" if exact else "SET GLOBAL binlog_format = ROW",
        )  # fmt: skip
    elif facts.get("wsrep_on") in ("ON", "1"):
        yield Finding("binary log", "off", "the nodes of Galera get every change without it")
    else:
        yield Finding("binary log", "off", "no replica, nothing to keep exact")
    yield LOST_COMMIT
    yield _isolation(facts.get("tx_isolation") or facts.get("transaction_isolation", ""))
    yield _keys(facts.get("collation", ""))


def _replicas(facts: Facts) -> Iterator[Finding]:
    setting, number = "rpl_semi_sync_master", facts.get("slaves_connected", "0")
    if facts.get(f"{setting}_enabled") not in ("ON", "1"):
        if number != "0":
            yield Finding(
                "replicas", f"{number}, {setting}_enabled = OFF",
                "COMMIT waits for none of them: what was answered last may be lost in a failover",
                f"SET GLOBAL {setting}_enabled = ON, rpl_semi_sync_slave_enabled = ON on the replicas: every answered "
                "write is on a replica, too",
            )  # fmt: skip
        return
    clients, given_up = facts.get(f"{setting}_clients", "0"), facts.get(f"{setting}_status") == "OFF"
    timeout = f"{setting}_timeout = {facts.get(f'{setting}_timeout')} ms"
    if clients == "0" or given_up:
        means = "COMMIT waits for none any more" if given_up else "COMMIT waits for one until that is over"
        yield Finding(
            "replicas", f"{setting}_enabled = ON, {clients} of them answer, {timeout}",
            f"{means}: what is answered meanwhile is on no replica",
            "start the replicas with rpl_semi_sync_slave_enabled = ON",
        )  # fmt: skip
        return
    sync = facts.get(f"{setting}_wait_point") == "AFTER_SYNC"
    yield Finding(
        "replicas", f"{setting}_enabled = ON, {clients} of them answer, {timeout}",
        "every answered write is on a replica, too, unless none answers for that long",
        "" if sync else f"SET GLOBAL {setting}_wait_point = AFTER_SYNC: nobody reads what a failover may lose",
    )  # fmt: skip


def _rarities(facts: Facts) -> Iterator[Finding]:
    if facts.get("innodb_doublewrite") in ("OFF", "0"):
        yield Finding(
            "pages", "innodb_doublewrite = OFF", "a power failure while a page is written can destroy it",
            "innodb_doublewrite = ON",
        )  # fmt: skip
    if facts.get("innodb_deadlock_detect") not in ("ON", "1", None):
        yield Finding(
            "deadlocks", "innodb_deadlock_detect = OFF", "a deadlock is found only by a timeout",
            "SET GLOBAL innodb_deadlock_detect = ON: a deadlock ends at once",
        )  # fmt: skip
    if facts.get("wsrep_on") in ("ON", "1"):
        yield Finding(
            "Galera", "wsrep_on = ON",
            "all nodes may write; conflicts are found at COMMIT, and the batch is run again; reads see their own node",
            "send the writes of one key to one node: fewer conflicts",
        )  # fmt: skip
    right = next((right for right in ("READ_ONLY ADMIN", "CONNECTION_ADMIN") if facts.get(f"may {right.lower()}")), "")
    if not right and facts.get("may super") and _numbers(facts.get("version", ""))[:2] < (10, 11):
        right = "READ_ONLY ADMIN"
    if facts.get("read_only") in ("ON", "1") and right and facts.get("super_read_only") != "ON":
        right = right.replace("READ_ONLY", "READ ONLY")
        yield Finding(
            "writing", f"read_only = ON, and the account has {right}",
            "it writes nevertheless: on a replica, what the primary never hears of",
            f"REVOKE {right} (and SUPER) from the account, and name the primary in the URL",
        )  # fmt: skip
    elif facts.get("read_only") in ("ON", "1"):
        yield Finding("writing", "read_only = ON", "ReadOnly for every write", "name the primary in the URL")
    yield from _pooler(facts, "ProxySQL, MaxScale or the like")


def _creating(facts: Facts) -> Iterator[Finding]:
    if not facts.get("may create"):
        yield Finding(
            "structures", "CREATE not granted", "structures cannot be made by this account, nor the table of once=",
            "GRANT CREATE ON the database, or make them by another account",
        )  # fmt: skip


def _inlets(facts: Facts) -> Iterator[Finding]:
    blackhole = facts.get("blackhole") in ("YES", "DEFAULT")
    logged = facts.get("log_bin") in ("1", "ON") and facts.get("log_bin_trust_function_creators") not in ("ON", "1")
    yield from _creating(facts)
    if not facts.get("may trigger"):
        yield Finding(
            "views", "TRIGGER not granted", "SQL clients can read structures, not write them",
            "GRANT TRIGGER ON the database: NAME_in and NAME_out",
        )  # fmt: skip
    elif logged and not facts.get("may super"):
        yield Finding(
            "views", "log_bin = ON, log_bin_trust_function_creators = OFF", "triggers need SUPER (error 1419)",
            "SET GLOBAL log_bin_trust_function_creators = ON: the account may make them",
        )  # fmt: skip
    elif no_inlets := [f"{name} = {facts[name]}" for name in LIMITS if FORBIDS.search(facts.get(name, ""))]:
        yield Finding(
            "views", ", ".join(no_inlets), "no BLACKHOLE table can be made: SQL clients write by procedures"
        )  # fmt: skip
    elif not blackhole:
        yield Finding(
            "views", "no BLACKHOLE", "SQL clients write by procedures: CALL NAME_add(…)",
            "INSTALL SONAME 'ha_blackhole': INSERT INTO NAME_in and NAME_out",
        )  # fmt: skip
    else:
        yield Finding("views", "BLACKHOLE, TRIGGER granted", "SQL clients write by NAME_in and NAME_out")


def _postgresql(facts: Facts) -> Iterator[Finding]:
    product = facts.get("product", "")
    other = next((name for name in ("CockroachDB", "YugabyteDB") if name in product), None)
    version = facts.get("server_version", "0")
    old = int(re.findall(r"\d+", version)[0]) < 13
    if other is not None:
        yield Finding("version", product.split(" (")[0], f"{other} only speaks PostgreSQL's protocol: not tested")
    else:
        yield Finding(
            "version", f"PostgreSQL {version}", "all of Roost's statements",
            "Roost needs PostgreSQL 13" if old else "",
        )  # fmt: skip
    fsync, commit = facts.get("fsync", ""), facts.get("synchronous_commit", "")
    if fsync == "on" and commit not in ("off",):
        yield Finding("durability", f"fsync = on, synchronous_commit = {commit}", "every answered write is on disk")
    else:
        yield Finding(
            "durability", f"fsync = {fsync}, synchronous_commit = {commit}",
            "a crash can lose the last writes" if fsync == "on" else "a crash can destroy the database",
            "fsync = on and synchronous_commit = on: every answered write is on disk",
        )  # fmt: skip
    if facts.get("full_page_writes") == "off":
        yield Finding(
            "pages", "full_page_writes = off", "a power failure while a page is written can destroy it",
            "full_page_writes = on",
        )  # fmt: skip
    yield LOST_COMMIT
    yield _isolation(facts.get("isolation", ""))
    yield _keys(facts.get("collation", ""))
    if facts.get("server_encoding") != "UTF8":
        yield Finding(
            "text", f"server_encoding = {facts.get('server_encoding')}", "not every text can be stored",
            "make the database with ENCODING 'UTF8'",
        )  # fmt: skip
    if "citus" in facts or other is not None:
        yield Finding("views", "not tested here", "write with Python only; create with view=False")
    elif facts.get("may create") == "nowhere":
        yield Finding(
            "views", "no schema in search_path exists", "nothing can be made or found by this account",
            "ALTER ROLE … SET search_path to a schema that exists",
        )  # fmt: skip
    elif facts.get("may create") == "true" and facts.get("plpgsql") == "1":
        yield Finding("views", "views with INSTEAD OF triggers", "SQL clients write structures by their own names")
    else:
        yield Finding(
            "views", "CREATE not granted" if facts.get("plpgsql") == "1" else "no plpgsql",
            "structures and views cannot be made by this account",
            "GRANT CREATE ON the schema, or run `roost ddl` as its owner",
        )  # fmt: skip
    for name in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        if facts.get(name, "0") != "0":
            yield Finding(
                "timeouts", f"{name} = {facts[name]} ms", "a batch that it cancels is run again, or is Busy",
                f"ALTER ROLE … SET {name} = 0 for the account of the store",
            )  # fmt: skip
    if facts.get("autovacuum") != "on":
        yield Finding(
            "space", "autovacuum = off", "tables that are updated all the time grow", "autovacuum = on",
        )  # fmt: skip
    replica, found = facts.get("recovery") == "true", facts.get("standbys", "None")
    if not replica:
        yield from _standbys(found, commit, facts.get("synchronous_standby_names", ""))
    elif found != "None":
        yield Finding("standbys", "there are some of this replica", "they have what it has, later")
    if replica:
        yield Finding("writing", "a replica", "ReadOnly for every write", "name the primary in the URL")
    elif facts.get("default_transaction_read_only") == "on":
        yield Finding(
            "writing", "default_transaction_read_only = on", "ReadOnly for every write",
            "ALTER ROLE … SET default_transaction_read_only = off for the account of the store",
        )  # fmt: skip
    yield from _pooler(facts, "PgBouncer or the like")


def _standbys(found: str, commit: str, names: str) -> Iterator[Finding]:
    waits = commit not in ("off", "local")
    if found.startswith("hidden"):
        yield Finding("standbys", "there are some", "whether COMMIT waits for them is hidden from this account")
    elif ("sync" in found.split(", ") or "quorum" in found) and waits:
        yield Finding("standbys", found, "every answered write is on a standby, too: a failover to it loses nothing")
    elif names and waits:
        yield Finding(
            "standbys", f"synchronous_standby_names = {names}, and none of them is there",
            "COMMIT waits for one: each write ends in OutcomeUnknown, after `timeout`",
            "start the standby, or take it out of synchronous_standby_names",
        )  # fmt: skip
    elif found == "None":
        yield Finding("standbys", "none", "no other server has what was answered")
    else:
        yield Finding(
            "standbys", found, "COMMIT waits for none of them: what was answered last may be lost in a failover",
            "set synchronous_standby_names: every answered write is on a standby, too",
        )  # fmt: skip


def _sqlite(facts: Facts) -> Iterator[Finding]:
    yield Finding("version", f"SQLite {facts['server_version']}", "all of Roost's statements")
    if facts["synchronous"] in ("FULL", "EXTRA"):
        yield Finding("durability", f"synchronous = {facts['synchronous']}", "every answered write is on disk")
    else:
        yield Finding(
            "durability", f"synchronous = {facts['synchronous']}",
            "a power failure can lose the last writes",
            "leave out ?synchronous= in the URL: every answered write is on disk",
        )  # fmt: skip
    wal = facts["journal"] in ("wal", "memory")
    yield Finding(
        "waiting", f"journal_mode = {facts['journal']}",
        "readers never wait for writers" if wal else "readers and writers wait for each other",
        "" if wal else "the first write of a store turns WAL on",
    )  # fmt: skip
    yield Finding("lost COMMIT", "in this process", "the outcome is known at once: no connection can be lost")
    yield Finding("keys", facts["encoding"], "compared byte for byte")
    yield Finding("views", "views with INSTEAD OF triggers", "SQL clients write structures by their own names")


def _snapshot(facts: Facts) -> Iterator[Finding]:
    if facts.get("snapshot"):
        yield Finding(
            "oldest snapshot", facts["snapshot"],
            "what is overwritten or deleted meanwhile stays: tables grow, and rows that are written often slow down",
            "end it, or run long reads (pg_dump) on a replica",
        )  # fmt: skip


def _isolation(level: str) -> Finding:
    return Finding(
        "isolation", f"{level.replace('-', ' ').lower()} by default",
        "batches set READ COMMITTED; store.on works at the level of your transaction",
    )  # fmt: skip


def _keys(collation: str) -> Finding:
    return Finding("keys", f"the database's collation is {collation}", "keys are compared byte for byte nevertheless")


def _pooler(facts: Facts, names: str) -> Iterator[Finding]:
    if facts.get("pooler"):
        means = "it may give each transaction another session: none keeps any state, and nothing is prepared"
        yield Finding("pooler", f"there is one between: {names}", means)
