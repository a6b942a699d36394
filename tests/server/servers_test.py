"""`roost serve` on MariaDB and PostgreSQL, by sockets: locks, changed tables, databases that go away, processes."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import roost
from roost.server.players import SLOW_PATH
from tests import servers
from tests.campaigns.processes import until
from tests.index.databases import Database, database
from tests.proxy import Cut, Proxy
from tests.server.http_test import metrics
from tests.server.playing import bench
from tests.server.serving import Client, Serving, serving

KINDS = ("mariadb", "mysql", "postgresql")
TABLE = {
    "mariadb": "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20) CHARACTER SET utf8mb4, n BIGINT)",
    "postgresql": "CREATE TABLE t (id serial PRIMARY KEY, v varchar(20), n int8)",
}
TABLE["mysql"] = TABLE["mariadb"]
ROWS = "INSERT INTO t (v, n) VALUES ('one', 10), ('two', 20), ('three', 30)"
LOCK = "SELECT n FROM t WHERE id = 1 FOR UPDATE"


def add(key: int, n: int = 1) -> str:
    """Return a line that adds to a row."""
    return f"0\t=\t1\t{key}\t1\t0\t+\t\0\t\0\t{n}"


def opening(db: Database, table: str = "t") -> str:
    """Return the line that opens a table."""
    return f"P\t0\t{db.url.rpartition('/')[2].partition('?')[0]}\t{table}\tPRIMARY\tid,v,n"


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of each kind with a table."""
    with database(request.param, tmp_path) as made:
        made.script(TABLE[made.name], ROWS)
        yield made


Serve = Callable[..., Serving]


@pytest.fixture
def serve(db: Database, tmp_path: Path) -> Iterator[Serve]:
    """Run `roost serve` on it."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(
            serving(tmp_path, db.url, "--workers", "1", "--timeout", "60", *arguments, module="roost.cli")
        )


def connect(served: Serving, db: Database, role: str = "write") -> Client:
    """Connect, and open the table."""
    made = served.connect(role)
    try:
        assert made.ask(opening(db)) == ["0\t1"]
    except BaseException:  # its worker may have been killed
        made.close()
        raise
    return made


@contextlib.contextmanager
def locking(db: Database, text: str = LOCK) -> Iterator[Any]:
    """Hold a lock in a session of SQL, until it is committed, at the end at the latest."""
    with contextlib.closing(db.connect()) as connection:
        connection.cursor().execute(text)
        yield connection
        connection.commit()


@contextlib.contextmanager
def counted(db: Database, folder: Path, role: str = "write") -> Iterator[tuple[Proxy, Client]]:
    """A client of `roost serve`, and what counts the server's messages to the database."""
    with (
        Proxy(urlsplit(db.url).port or 0) as proxy,
        serving(folder, proxy.url(db.url), "--workers", "1", "--connections", "2", module="roost.cli") as served,
        connect(served, db, role) as client,
    ):
        yield proxy, client


def test_finds_by_themselves_are_one_message_to_the_database(db: Database, tmp_path: Path) -> None:
    with counted(db, tmp_path, "read") as (proxy, client):
        for lines, answers in [
            (["0\t=\t1\t1"], ["0\t3\t1\tone\t10"]),
            (["0\t>=\t1\t2\t1\t1"], ["0\t3\t3\tthree\t30"]),
            (["0\t=\t1\t3", "0\t=\t1\t1", "0\t=\t1\t7"], ["0\t3\t3\tthree\t30", "0\t3\t1\tone\t10", "0\t3"]),
        ]:
            for _ in range(8):  # until what is prepared is prepared
                assert client.ask(*lines) == answers
            found: list[list[str]] = []
            asked = lambda lines=lines, found=found: found.append(client.ask(*lines))  # noqa: E731
            assert 1 in [proxy.counted(asked) for _ in range(3)]  # on a busy machine one of them may go through a batch
            assert found == [answers] * 3
            proxy.arm(0, Cut.AFTER)
            assert client.ask(*lines) == answers
            assert not proxy.disarm()


def test_a_modification_by_itself_is_two_or_three_messages_to_the_database(db: Database, tmp_path: Path) -> None:
    with roost.Store(db.url) as store:
        store.create(roost.Counter("pageviews", key=int))
    with counted(db, tmp_path) as (proxy, client):
        assert client.ask(opening(db, "pageviews").replace("P\t0", "P\t1").replace("id,v,n", "key,total")) == ["0\t1"]
        for line, messages in [
            ("0\t+\t3\t\0\tnew\t1", 2),
            ("0\t=\t1\t1\t1\t0\tU\t1\tone\t11", 3),
            (add(1), 3),
            ("0\t=\t1\t7\t1\t0\tD", 2),  # it is not there any more
            ("1\t+\t2\t7\t1", 2),  # to a structure
        ]:
            for _ in range(8):
                assert client.ask(line)[0].startswith("0\t1")
            # On a busy machine one of them may go through a batch.
            assert min(proxy.counted(partial(client.ask, line)) for _ in range(4)) == messages, line


def test_the_last_attempt_refuses_only_the_lines_whose_lock_is_held(db: Database) -> None:
    with contextlib.closing(bench(db, "write")) as played:
        sessions = [played.session() for _ in range(4)]
        for session in sessions:
            assert played.say(session, opening(db)) == ["0\t1"]
        with locking(db):
            lines = [(session, add(key)) for session, key in zip(sessions, (2, 1, 3, 1), strict=True)]
            answered = played.play(*lines, slow_path=SLOW_PATH, waits=False, deadline=0.0)
        assert answered.texts == ["0\t1\t1\n", "1\t1\t146\n", "0\t1\t1\n", "1\t1\t146\n"]
        assert not answered.blocked
        assert db.sql("SELECT n FROM t ORDER BY id") == [(10,), (21,), (31,)]


def test_a_structure_that_is_made_anew_is_open_by_its_new_types(db: Database, serve: Serve) -> None:
    """What the former types could not hold was refused, or found nothing, until a restart."""
    served = serve()
    numbers, names = roost.Set("likes", key=int, member=int), roost.Set("likes", key=str, member=str)
    line = opening(db, "likes").replace("id,v,n", "key,member")
    with roost.Store(db.url) as store, served.connect("write") as writing, served.connect("read") as reading:
        store.create(numbers)
        assert writing.ask(line, "0\t+\t2\t7\t8") == [*reading.ask(line), "0\t1"]
        assert reading.ask("0\t=\t1\t7", "0\t=\t1\tada") == ["0\t2\t7\t8", "0\t2"]
        store.drop(numbers)
        store.create(names)
        store.run(names.add("ada", "bob"))
        until(lambda: writing.ask("0\t+\t2\tada\teve") == ["0\t1"], "its new types")
        until(lambda: reading.ask("0\t=\t2\tada\teve") == ["0\t2\tada\teve"], "its new types")
        assert store.run(names.members("ada")) == {"bob", "eve"}


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


def test_what_several_clients_ask_of_a_structure_is_done_together(db: Database, tmp_path: Path) -> None:
    with roost.Store(db.url) as store:
        store.create(roost.Ring("visits", Visit, per="uid", keep=3))
    opens = opening(db, "visits").replace("id,v,n", "uid,visitor")
    with counted(db, tmp_path) as (proxy, client):
        for number in range(3):  # as three clients would
            assert client.ask(opens.replace("P\t0", f"P\t{number}")) == ["0\t1"]
        lines = [f"{number}\t+\t2\t{number}\t5" for number in range(3)]
        for sequence in range(1, 9):
            assert client.ask(*lines) == [f"0\t1\t{sequence}"] * 3
        # One call of the program for all of them, and COMMIT.
        assert min(proxy.counted(partial(client.ask, *lines)) for _ in range(4)) == 2
        assert client.ask("0\t=\t1\t2\t9\t0") == ["0\t2" + "\t2\t5" * 3]


def test_a_lock_costs_those_alone_who_need_it(db: Database, serve: Serve) -> None:
    served = serve("--connections", "2", "--timeout", "30")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(served, db)) for _ in range(6)]
        with locking(db) as holder:
            for client in clients[:3]:  # in one turn, or several
                client.send(add(1), "0\t=\t1\t1")
            for _ in range(5):
                for client in clients[3:]:
                    client.send(add(2), "0\t=\t1\t1", add(3))
                for client in clients[3:]:
                    assert [client.answer() for _ in range(3)] == ["0\t1\t1", "0\t3\t1\tone\t10", "0\t1\t1"]
            holder.commit()
        for client in clients[:3]:
            counted, found = client.answer(), client.answer()
            assert counted == "0\t1\t1"
            assert found in [f"0\t3\t1\tone\t{n}" for n in (11, 12, 13)]
    assert db.sql("SELECT n FROM t ORDER BY id") == [(13,), (35,), (45,)]


def test_a_lock_that_is_held_for_too_long_is_an_answer(db: Database, serve: Serve) -> None:
    served = serve("--timeout", "0.5")
    with connect(served, db) as one, connect(served, db) as other, locking(db):
        one.send(add(2), add(1), add(3))
        other.send(add(1))
        assert [one.answer() for _ in range(3)] == ["0\t1\t1", "1\t1\t146", "0\t1\t1"]
        assert other.answer() == "1\t1\t146"
    assert db.sql("SELECT n FROM t ORDER BY id") == [(10,), (21,), (31,)]


def test_a_line_that_waits_for_a_lock_has_its_turn_however_busy_the_connection_is(db: Database, serve: Serve) -> None:
    served = serve("--connections", "2", "--timeout", "0.3")  # one that writes
    answered = threading.Event()

    def load(key: int) -> bool:
        with connect(served, db) as client:
            client.send(*[add(key)] * 20)  # so that something always waits
            for _ in range(3_000):
                if answered.is_set():
                    return True
                client.send(add(key))
                assert client.answer() == "0\t1\t1"
        return False

    with connect(served, db) as blocked, locking(db), ThreadPoolExecutor() as threads:
        loading = [threads.submit(load, key) for key in (2, 2, 3, 3)]
        blocked.send(add(1))
        said = blocked.answer()
        answered.set()
        assert (said, [each.result() for each in loading]) == ("1\t1\t146", [True] * 4)


def test_a_statement_that_takes_too_long_is_an_answer_and_others_have_theirs(db: Database, serve: Serve) -> None:
    slow = {
        "mariadb": "CREATE VIEW slow AS SELECT id, SLEEP(20) AS v, n FROM t",
        "postgresql": "CREATE VIEW slow AS SELECT id, pg_sleep(20)::text AS v, n FROM t",
    }
    # In MySQL, SLEEP just ends when its time is over.
    many = ", ".join([f"t t{n}" for n in range(19)])
    slow["mysql"] = slow["mariadb"].replace("SLEEP(20)", f"(SELECT count(*) FROM {many} WHERE t0.id + t18.n > t.id)")
    db.script(slow[db.name])
    served = serve("--timeout", "0.3")
    with connect(served, db, "read") as one, connect(served, db, "read") as other:
        assert one.ask(opening(db, "slow").replace("P\t0", "P\t1")) == ["0\t1"]
        one.send("0\t=\t1\t1", "1\t=\t1\t1", "0\t=\t1\t2")
        other.send("0\t=\t1\t3")
        assert [one.answer() for _ in range(3)] == ["0\t3\t1\tone\t10", "1\t1\ttimeout", "0\t3\t2\ttwo\t20"]
        assert other.answer() == "0\t3\t3\tthree\t30"


def test_idle_clients_do_not_hinder_an_alter_and_see_it(db: Database, serve: Serve) -> None:
    served = serve()
    waits = "SET lock_timeout = 1000" if db.name == "postgresql" else "SET lock_wait_timeout = 1"
    with connect(served, db, "read") as reader, connect(served, db) as writer:
        for _ in range(6):  # until what is prepared is prepared
            assert reader.ask("0\t=\t1\t1") == ["0\t3\t1\tone\t10"]
            assert writer.ask(add(2, 0), "0\t=\t1\t1") == ["0\t1\t1", "0\t3\t1\tone\t10"]
        db.script(waits, "ALTER TABLE t ALTER COLUMN v DROP DEFAULT", "ALTER TABLE t ADD COLUMN more INT")
        for client in (reader, writer):
            assert client.ask("0\t=\t1\t1", "0\t>=\t1\t3\t9\t0") == ["0\t3\t1\tone\t10", "0\t3\t3\tthree\t30"]
        db.script(waits, "DROP TABLE t")
        for client in (reader, writer):
            assert client.ask("0\t=\t1\t1", opening(db), "0\t=\t1\t1") == ["1\t1\topen_table"] * 3
        assert writer.ask(add(1)) == ["1\t1\topen_table"]
        db.script("CREATE TABLE t (n BIGINT, id INT PRIMARY KEY, v CHAR(3))", "INSERT INTO t VALUES (7, 1, 'new')")
        assert writer.ask(add(1), "0\t+\t2\t2\tabcd") == ["0\t1\t1", "1\t1\ttype"]
        assert reader.ask("0\t=\t1\t1") == ["0\t3\t1\tnew\t8"]


def test_a_database_that_goes_away_and_comes_back(own_server: str, tmp_path: Path) -> None:
    with servers.killable(own_server) as (daemon, _, url):
        db = Database(own_server, url)
        db.script(TABLE[own_server], ROWS)
        places = [word for place in ("read", "write", "http") for word in (f"--{place}", "127.0.0.1:0")]
        options = ("--workers", "1", "--timeout", "0.5", *places)
        with serving(tmp_path, db.url, *options, module="roost.cli", listeners=3) as served:
            with connect(served, db, "read") as reader, connect(served, db) as writer:
                assert writer.ask(add(1)) == ["0\t1\t1"]
                assert metrics(served)["roost_unavailable_total", "write"] == 0
                assert reader.ask("0\t=\t1\t1") == ["0\t3\t1\tone\t11"]
                daemon.kill()
                assert writer.ask(add(1), "X") == ["1\t1\tunavailable", "2\t1\tcmd"]
                assert reader.ask("0\t=\t1\t1", opening(db)) == ["1\t1\tunavailable"] * 2
                assert metrics(served)["roost_unavailable_total", "read"] == 2
                for role in ("read", "write"):
                    served.logged(
                        rf"ERROR roost {role} 1\[\d+\] the database is unavailable: {db.url.partition(':')[0]}://.*refused"
                    )
                daemon.start()
                until(lambda: reader.ask("0\t=\t1\t1") == ["0\t3\t1\tone\t11"], "it does not come back")
                until(lambda: writer.ask(add(2, 0)) == ["0\t1\t1"], "it does not come back")
                assert writer.ask(add(1)) == ["0\t1\t1"]
                assert reader.ask("0\t=\t1\t1", opening(db)) == ["0\t3\t1\tone\t12", "0\t1"]
            for role in ("read", "write"):
                served.logged(rf"roost {role} 1\[\d+\] the database is available again")
            assert served.stop() == 0


SESSIONS = {
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
}
SESSIONS["mysql"] = SESSIONS["mariadb"]
END = {"mariadb": "KILL {}", "mysql": "KILL {}", "postgresql": "SELECT pg_terminate_backend({})"}


def test_sessions_that_the_database_has_ended_cost_nobody_an_answer(db: Database, tmp_path: Path) -> None:
    def sessions() -> list[int]:
        with contextlib.closing(db.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(SESSIONS[db.name])
            return [number for (number,) in cursor.fetchall()]

    with (
        serving(tmp_path, db.url, "--workers", "1", "--timeout", "2", module="roost.cli") as served,
        connect(served, db, "read") as reader,
        connect(served, db) as writer,
    ):
        for number in range(4):
            for session in sessions():
                db.script(END[db.name].format(session))
            until(lambda: not sessions(), "they do not end")
            assert reader.ask("0\t=\t1\t1") == [f"0\t3\t1\tone\t{10 + number}"]
            assert writer.ask(add(1)) == ["0\t1\t1"]


def test_a_schema_of_postgresql_is_opened_by_its_name(tmp_path: Path) -> None:
    with database("postgresql", tmp_path) as db:
        db.script(
            TABLE["postgresql"],
            ROWS,
            "CREATE SCHEMA audit",
            "CREATE TABLE audit.t (id int PRIMARY KEY, v text, n int8)",
            "INSERT INTO audit.t VALUES (1, 'audit', 1)",
        )
        with (
            serving(tmp_path, db.url, "--workers", "1", module="roost.cli") as served,
            served.connect("write") as client,
        ):
            names = ["public", "audit", "nowhere", "pg_catalog", "information_schema"]
            lines = [f"P\t{number}\t{name}\tt\tPRIMARY\tid,v,n" for number, name in enumerate(names)]
            assert client.ask(*lines) == ["0\t1", "0\t1", *["1\t1\topen_table"] * 3]
            assert client.ask("0\t=\t1\t1", "1\t=\t1\t1") == ["0\t3\t1\tone\t10", "0\t3\t1\taudit\t1"]
            assert client.ask(add(1).replace("0", "1", 1)) == ["0\t1\t1"]
            assert client.ask("P\t7\tpg_catalog\tpg_class\tPRIMARY\toid") == ["1\t1\topen_table"]
        assert db.sql("SELECT n FROM audit.t") == [(2,)]


def test_another_database_of_mariadb_is_not_opened(tmp_path: Path) -> None:
    with (
        database("mariadb", tmp_path) as db,
        serving(tmp_path, db.url, "--workers", "1", module="roost.cli") as served,
        served.connect() as client,
    ):
        lines = ["P\t0\tmysql\tglobal_priv\tPRIMARY\tUser", "P\t0\tinformation_schema\ttables\t0\ttable_name"]
        assert client.ask(*lines) == ["1\t1\topen_table"] * 2


@pytest.mark.parametrize("structures", [[], [roost.Counter("views")]], ids=["alone", "beside structures"])
def test_an_account_with_few_rights_is_told_so(
    db: Database, tmp_path: Path, structures: list[roost.Counter[str]]
) -> None:
    with roost.Store(db.url) as store:
        store.create(*structures)
    parts = urlsplit(db.url)
    who = f"lim{secrets.token_hex(4)}"
    if db.name != "postgresql":
        db.script(f"CREATE USER {who}@'127.0.0.1'", f"GRANT SELECT, INSERT ON t TO {who}@'127.0.0.1'")
    else:
        db.script(f"CREATE ROLE {who} LOGIN", f"GRANT SELECT, INSERT ON t TO {who}")
    url = parts._replace(netloc=f"{who}@{parts.hostname}:{parts.port}").geturl()
    with serving(tmp_path, url, "--workers", "1", module="roost.cli") as served, connect(served, db) as client:
        assert client.ask("0\t+\t3\t70\tnew\t1")[0] in ("0\t1", "0\t1\t0")
        assert client.ask("0\t=\t1\t70\t1\t0\tD", "0\t=\t1\t70") == ["1\t1\tdenied", "0\t3\t70\tnew\t1"]
        served.logged("a request was refused: .*denied")
