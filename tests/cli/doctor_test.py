"""roost doctor: what holds on a database, by real ones."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import pytest

import roost
from roost.catalog import doctor
from roost.catalog.doctor import Finding, examine
from roost.contrib.serializers import Codec, Signed
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Dialect
from tests import servers
from tests.campaigns.processes import until
from tests.cli.conftest import Shell
from tests.suite import clients


def told(shell: Shell, url: str) -> dict[str, dict[str, str]]:
    return {each["subject"]: each for each in json.loads(shell("doctor", url, "--json"))}


def test_a_file_of_sqlite(shell: Shell) -> None:
    shell("create", "counter", "hits")
    found = told(shell, "sqlite:///roost.db")
    assert found["durability"]["means"] == "every answered write is on disk"
    assert found["waiting"]["found"] == "journal_mode = wal"
    assert {each["advice"] for each in found.values()} == {""}
    careless = told(shell, "sqlite:///roost.db?synchronous=normal")["durability"]
    assert careless["means"] == "a power failure can lose the last writes"
    assert careless["advice"]


def test_a_server(shell: Shell, server_url: str) -> None:
    found = told(shell, server_url)
    assert found["durability"]["means"] == "every answered write is on disk"
    assert found["durability"]["advice"] == found["version"]["advice"] == found["views"]["advice"] == ""
    assert found["lost COMMIT"]["found"] == "roost_writers"
    assert not {"pooler", "oldest snapshot"} & found.keys()
    text = shell("doctor", "--store", server_url)
    assert text.startswith("\tfound\tso\tto gain more\nversion\t")


@pytest.mark.parametrize("database", ["sqlite", *servers.SERVERS])
def test_caches_that_pickle_are_named(shell: Shell, database: str, any_url: str) -> None:
    own = SimpleNamespace(dumps=pickle.dumps, loads=pickle.loads)
    serializers = {"plain": "json", "packed": "msgpack", "signed": Signed("s"), "careless": "pickle", "likewise": own}
    with roost.Store(any_url) as store:
        for name, serializer in serializers.items():
            cache = roost.Cache(name, max_items=9)
            store.create(cache)
            store.run_all(*[cache.set(f"{n}", Codec(serializer, name).dumps(f"{n}", n or [n])) for n in range(2)])
        store.create(roost.Cache("texts", value=str))
    found = told(shell, any_url)
    assert [name for name in (*serializers, "texts") if name in found] == ["careless", "likewise"]
    assert "can run code" in found["careless"]["means"]


def test_memcached(shell: Shell) -> None:
    url = servers.emptied(servers.memcached())
    found = json.loads(shell("doctor", url, "--json"))
    assert [each["subject"] for each in found] == ["version", "size", "evictions"] * 2
    assert found[1]["found"].endswith("item_size_max = 1,048,576")
    assert {each["advice"] for each in found} == {""}


@pytest.mark.parametrize(
    "command",
    [["list"], ["show", "likes"], ["check"], ["create", "set", "likes"], ["clear", "likes", "7"]],
    ids=" ".join,
)
def test_what_needs_a_catalog_says_that_memcached_has_none(shell: Shell, command: list[str]) -> None:
    shell(*command, "--store", "memcached://127.0.0.1:1", code=1)
    assert "memcached has no catalog" in shell.error
    assert "roost doctor" in shell.error


def judged(dialect: Dialect, facts: dict[str, str], session: int | None = None) -> dict[str, Finding]:
    """What follows from facts that no server here has."""
    work = examine(dialect, "FULL" if dialect is SQLITE else None, session)
    next(work)
    try:
        work.send([list(facts.items())])
        while True:
            work.send([[]])
    except StopIteration as stop:
        return {each.subject: each for each in stop.value}


GOOD = {
    MARIADB.name: {"version": "10.11.19-MariaDB", "innodb_flush_log_at_trx_commit": "1", "may trigger": "yes",
                   "may create": "yes", "blackhole": "YES", "may event": "yes", "event_scheduler": "ON"},
    MYSQL.name: {"version": "8.0.40", "innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "binlog_format": "ROW",
                 "may create": "yes", "may trigger": "yes", "blackhole": "YES", "may event": "yes",
                 "event_scheduler": "ON", "log_bin_trust_function_creators": "ON"},
    POSTGRESQL.name: {"server_version": "15.18", "product": "PostgreSQL 15", "fsync": "on", "synchronous_commit": "on",
                      "may create": "true", "plpgsql": "1", "autovacuum": "on", "server_encoding": "UTF8"},
}  # fmt: skip
SEMI_SYNC = {"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_clients": "1",
             "rpl_semi_sync_master_wait_point": "AFTER_SYNC"}  # fmt: skip
WORSE: list[tuple[Dialect, dict[str, str], str, str]] = [
    (MARIADB, {"version": "10.5.1-MariaDB"}, "version", "10.6"),
    (MYSQL, {"version": "8.0.19"}, "version", "8.0.20"),
    (MYSQL, {"version": "8.0.11-TiDB-v7.5.0"}, "version", "MariaDB 10.6"),
    (MYSQL, {"innodb_flush_log_at_trx_commit": "2"}, "durability", "= 1"),
    (MYSQL, {"read_only": "ON"}, "writing", "primary"),
    (MYSQL, {"read_only": "ON", "may connection_admin": "yes"}, "writing", "REVOKE CONNECTION_ADMIN"),
    (MYSQL, {"may create": ""}, "structures", "GRANT CREATE"),
    (MARIADB, {"innodb_flush_log_at_trx_commit": "2"}, "durability", "= 1"),
    (MARIADB, {"log_bin": "ON", "sync_binlog": "0"}, "durability", "sync_binlog = 1"),
    (MARIADB, {"log_bin": "ON", "binlog_format": "STATEMENT"}, "binary log", "ROW"),
    (MARIADB, {"slaves_connected": "1"}, "replicas", "rpl_semi_sync_master_enabled = ON"),
    (MARIADB, {"rpl_semi_sync_master_enabled": "ON"}, "replicas", "start the replicas"),
    (MARIADB, SEMI_SYNC | {"rpl_semi_sync_master_status": "OFF"}, "replicas", "start the replicas"),
    (MARIADB, SEMI_SYNC | {"rpl_semi_sync_master_wait_point": "AFTER_COMMIT"}, "replicas", "AFTER_SYNC"),
    (MARIADB, {"may trigger": ""}, "views", "GRANT TRIGGER"),
    (MYSQL, {"log_bin_trust_function_creators": "OFF"}, "views", "log_bin_trust_function_creators"),
    (MARIADB, {"log_bin": "ON", "log_bin_trust_function_creators": "OFF"}, "views", "log_bin_trust_function_creators"),
    (MARIADB, {"blackhole": "NO"}, "views", "ha_blackhole"),
    (MARIADB, {"event_scheduler": "OFF"}, "roost cap", "event_scheduler = ON"),
    (MYSQL, {"event_scheduler": "OFF"}, "roost cap", "event_scheduler = ON"),
    (MARIADB, {"events off": "`roost cap a`", "read_only": "OFF"}, "roost cap", "`roost cap a`, on each server"),
    (MARIADB, {"mighty": "yes"}, "rights", "--definer"),
    (MARIADB, {"innodb_deadlock_detect": "OFF"}, "deadlocks", "innodb_deadlock_detect"),
    (MARIADB, {"wsrep_on": "ON"}, "Galera", "one node"),
    (MARIADB, {"read_only": "ON"}, "writing", "primary"),
    (MARIADB, {"read_only": "ON", "may read_only admin": "yes"}, "writing", "REVOKE READ ONLY ADMIN"),
    (MARIADB, {"read_only": "ON", "may super": "yes", "version": "10.6.9-MariaDB"}, "writing", "REVOKE"),
    (MARIADB, {"innodb_doublewrite": "OFF"}, "pages", "innodb_doublewrite = ON"),
    (MARIADB, {"may create": ""}, "structures", "GRANT CREATE"),
    (POSTGRESQL, {"server_version": "12.4"}, "version", "13"),
    (POSTGRESQL, {"fsync": "off"}, "durability", "fsync = on"),
    (POSTGRESQL, {"synchronous_commit": "off"}, "durability", "synchronous_commit = on"),
    (POSTGRESQL, {"may create": "false"}, "views", "GRANT CREATE"),
    (POSTGRESQL, {"statement_timeout": "500"}, "timeouts", "statement_timeout = 0"),
    (POSTGRESQL, {"autovacuum": "off"}, "space", "autovacuum = on"),
    (POSTGRESQL, {"recovery": "true"}, "writing", "primary"),
    (POSTGRESQL, {"server_encoding": "LATIN1"}, "text", "UTF8"),
    (POSTGRESQL, {"standbys": "async, async"}, "standbys", "synchronous_standby_names"),
    (POSTGRESQL, {"synchronous_standby_names": "*"}, "standbys", "start the standby"),
    (POSTGRESQL, {"synchronous_standby_names": "a", "standbys": "async"}, "standbys", "start the standby"),
    (POSTGRESQL, {"full_page_writes": "off"}, "pages", "full_page_writes = on"),
    (POSTGRESQL, {"may create": "nowhere"}, "views", "search_path"),
    (POSTGRESQL, {"default_transaction_read_only": "on"}, "writing", "default_transaction_read_only = off"),
    (POSTGRESQL, {"transaction_timeout": "500"}, "timeouts", "transaction_timeout = 0"),
    (POSTGRESQL, {"standbys": "sync", "synchronous_commit": "local"}, "standbys", "synchronous_standby_names"),
]


@pytest.mark.parametrize(("dialect", "facts", "subject", "advice"), WORSE, ids=[str(facts) for _, facts, *_ in WORSE])
def test_what_would_be_gained_is_said(dialect: Dialect, facts: dict[str, str], subject: str, advice: str) -> None:
    good = judged(dialect, GOOD[dialect.name])
    assert {each.advice for each in good.values()} == {""}
    assert advice in judged(dialect, GOOD[dialect.name] | facts)[subject].advice


def test_a_replica_that_commit_waits_for_is_named() -> None:
    found = judged(MARIADB, GOOD[MARIADB.name] | SEMI_SYNC)["replicas"]
    assert found.means.startswith("every answered write is on a replica")
    assert found.advice == ""


def test_a_replica_is_not_said_to_have_no_other_server_beside_it() -> None:
    assert "standbys" not in judged(POSTGRESQL, GOOD[POSTGRESQL.name] | {"recovery": "true"})
    assert judged(MARIADB, GOOD[MARIADB.name] | {"innodb_flush_log_at_trx_commit": "3"})["durability"].advice == ""


@pytest.mark.parametrize("right", ["ALL", "TRIGGER", "SELECT"])
@pytest.mark.parametrize("account", ["o'quote", "by@role", "back`tick"])
def test_the_rights_of_an_account_of_mariadb_are_found_whatever_its_name_and_by_its_roles(
    account: str, right: str
) -> None:
    server = servers.mariadb()
    server.run("DROP DATABASE IF EXISTS doc_tor")
    url = server.database("doc_tor")
    named = f"`{account.replace('`', '``')}`@'%'"
    server.run(f"CREATE OR REPLACE USER {named}")
    server.run("CREATE OR REPLACE ROLE doctors")
    to = "doctors" if account == "by@role" else named
    server.run(f"GRANT doctors TO {named}")
    server.run(f"SET DEFAULT ROLE doctors FOR {named}")
    server.run(f"GRANT {right} ON `doc\\_tor%`.* TO {to}")
    server.run(f"GRANT ALL ON `docXtor`.* TO {to}")
    parts = urlsplit(url)
    asked = parts._replace(netloc=f"{quote(account)}@{parts.hostname}:{parts.port}").geturl()
    with roost.Store(asked) as store:
        found = {each.subject: each for each in store.doctor()}
    assert (found["views"].found == "TRIGGER not granted") == (right == "SELECT")
    assert ("structures" in found) == (right != "ALL")
    assert ("EVENT granted" in found["roost cap"].found) == (right == "ALL")


def test_on_mysql_it_says_what_is_not_there() -> None:
    found = judged(MYSQL, GOOD[MYSQL.name])
    assert "whole seconds" in found["waiting"].means
    assert "performance_schema.global_variables" in next(examine(MYSQL, None, None)).template.sql


@pytest.mark.parametrize("dialect", [MARIADB, MYSQL, POSTGRESQL], ids=lambda dialect: dialect.name)
def test_a_pooler_shows_by_the_number_of_the_session(dialect: Dialect) -> None:
    assert "pooler" not in judged(dialect, GOOD[dialect.name] | {"connection": "7"}, session=7)
    assert "pooler" in judged(dialect, GOOD[dialect.name] | {"connection": "8"}, session=7)


def test_f96_who_holds_the_oldest_snapshot_is_named(monkeypatch: pytest.MonkeyPatch, server_url: str) -> None:
    for name in ("POSTGRESQL", "SNAPSHOT"):  # what is asked of transactions of a minute is asked of all
        asked = getattr(doctor, name)
        monkeypatch.setattr(doctor, name, _sooner(asked) if isinstance(asked, str) else tuple(map(_sooner, asked)))
    with roost.Store(server_url) as store, contextlib.ExitStack() as stack:
        store.create(roost.Counter("hits"))
        sql = clients.connect(server_url)
        stack.callback(sql.close)
        if server_url.startswith("postgresql"):
            sql.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            session = sql.info.backend_pid
        else:
            sql.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            session = sql.thread_id()
        sql.execute("SELECT count(*) FROM roost_catalog")
        store.run(roost.Counter("hits").add("a"))

        def ours() -> bool:  # other tests on the same server may have begun sooner, and end
            found = {each.subject: each for each in store.doctor()}.get("oldest snapshot")
            if found is None:
                return False  # MariaDB renews its list of transactions only while nobody has read it for 0.1 s
            assert "since 20" in found.found
            assert "end it" in found.advice
            return re.search(rf"session {session}\b", found.found) is not None

        until(ours, "the oldest snapshot to be this one")


def _sooner(query: str) -> str:
    return query.replace("interval '60 s'", "interval '0 s'").replace("INTERVAL 60 SECOND", "INTERVAL -1 SECOND")
