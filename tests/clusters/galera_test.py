"""Galera, all of whose nodes write: what was answered is there once, on every node."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

import roost
from roost.databases.mariadb import cluster_lock
from roost.databases.mariadb.address import arguments
from roost.databases.mariadb.connection import MariaDBConnection
from roost.dialects import Control
from tests.campaigns.processes import PATIENCE, Child, Line, Start, children, until
from tests.clusters import load
from tests.clusters.galera import Galera, Node, of_all
from tests.lengths import length
from tests.proxy import Cut, Proxy
from tests.suite.shapes import Visit, pageviews, visits


def test_f70_what_nodes_write_at_once_is_there_once(cluster: Galera, urls: list[str]) -> None:
    with roost.Store(urls[0]) as store:
        store.create(*load.STRUCTURES)
    cluster.wait()
    answers = load.write(urls, seconds=length(1.5, 6))
    cluster.wait()
    assert answers.operations > 100
    assert not answers.errors, answers
    for url in urls:
        with roost.Store(url) as store:
            assert load.wrong(answers, store) == []


def more(store: roost.Store, what: str) -> None:
    """Wait until others have written some more."""
    before = store.run(load.hot.total(1))
    until(lambda: store.run(load.hot.total(1)) > before + 10, what)


def killed_one_by_one(cluster: Galera, urls: list[str]) -> None:
    """Kill a node, and another one while the first comes back."""
    with roost.Store(urls[0], timeout=PATIENCE) as store, ThreadPoolExecutor() as threads:
        more(store, "some operations")
        cluster.nodes[2].kill()
        more(store, "some more, on the other nodes")
        starts = threads.submit(cluster.nodes[2].start)
        until(lambda: cluster.nodes[0].status("wsrep_cluster_size") == "3", "the first one to join")
        cluster.nodes[1].kill()
        starts.result()
        more(store, "some more, on the first one and the third")
        cluster.nodes[1].start()
        more(store, "some more, on all nodes")


def cut_off(cluster: Galera, urls: list[str]) -> None:
    """Cut a node off from the others for some time: it is there, and not primary."""
    with roost.Store(urls[1], timeout=PATIENCE) as store:
        more(store, "some operations")
        with isolated(cluster.nodes[0]):
            more(store, "some more, on the other nodes")
        more(store, "some more, on all nodes")


@pytest.mark.parametrize("happens", [killed_one_by_one, cut_off])
def test_f73_nodes_go_and_come_back_under_load(
    cluster: Galera, urls: list[str], happens: Callable[[Galera, list[str]], None]
) -> None:
    with roost.Store(urls[0]) as store:
        store.create(*load.STRUCTURES)
    cluster.wait()
    answers = load.write(
        *([of_all(urls, n) for n in range(3)], 2 * PATIENCE),
        threads=2,
        joined=False,
        timeout=PATIENCE,  # a node that gives another one its data locks its tables: on a busy machine for long
        meanwhile=partial(happens, cluster, urls),
        longer=False,
    )
    cluster.wait()
    assert not answers.errors
    for url in urls:
        with roost.Store(url) as store:
            assert load.wrong(answers, store) == []


def test_f72_all_nodes_create_and_alter_at_once(cluster: Galera, urls: list[str]) -> None:
    larger = [roost.Ring("ring", load.Event, per="key", keep=keep) for keep in range(20, 26)]

    def work(line: Line, number: int, start: Start) -> None:
        with roost.Store(urls[number % 3], timeout=60) as store:
            start.wait()
            store.create(*load.STRUCTURES)
            store.run(load.hot.add(1))
            store.alter(larger[number])
            store.run(load.ring.push(load.Event(1, number)))

    for _ in range(length(1, 2)):
        start = Start()
        with children(6, partial(work, start=start)) as made:
            start.go()
            assert [child.wait() for child in made] == [0] * 6
        cluster.wait()
        for url in urls:
            with roost.Store(url) as store:
                assert store.check() == []
                assert store.run_all(load.hot.total(1), load.ring.entries(1))[0] == 6
                assert [each.sequence for each in store.run(load.ring.entries(1))] == [1, 2, 3, 4, 5, 6]
        cluster.make(urls[0].rpartition("/")[2])


def makes(url: str, line: Line) -> None:
    """Make a structure, and stand still in the middle of it until told to go on."""

    def trace(sql: str, row: object) -> None:
        if sql.startswith("CREATE TABLE roost_pageviews_rows"):
            line.say("made")
            line.hear()

    with roost.Store(url, timeout=PATIENCE, trace=trace) as store:
        store.create(pageviews)


def test_who_is_killed_while_it_creates_blocks_the_others_for_seconds(cluster: Galera, urls: list[str]) -> None:
    with Child(partial(makes, urls[0])) as child:
        assert child.hear() == "made"
        child.kill()
        child.wait()
        cluster.wait()
        with roost.Store(urls[1], timeout=45) as store:  # less than a minute
            store.create(pageviews, visits)
            store.run(pageviews.add("/home"))
            assert store.check() == []


def test_who_creates_for_long_is_not_taken_for_killed(cluster: Galera, urls: list[str]) -> None:
    with Child(partial(makes, urls[0])) as child:
        assert child.hear() == "made"
        cluster.wait()
        with roost.Store(urls[1], timeout=cluster_lock.EXPIRES + 2 * cluster_lock.WATCHED) as hasty:
            with pytest.raises(roost.Busy, match="another node is making"):
                hasty.create(visits)
            child.say("go on")
            hasty.create(visits)
        assert child.wait() == 0
        cluster.wait()
        with roost.Store(urls[2]) as store:
            assert [each.name for each in store.structures()] == ["pageviews", "visits"]
            assert store.check() == []


@pytest.mark.parametrize(
    ("good", "bad"), [("UPDATE roost_", "UPDATE FROM roost_"), (re.compile("triggers='.*'"), "triggers=''")]
)
def test_the_error_of_triggers_that_a_node_takes_for_broken_names_what_mends_them(
    cluster: Galera, urls: list[str], good: str | re.Pattern[str], bad: str
) -> None:
    node, name = cluster.nodes[0], urls[0].rpartition("/")[2]
    with roost.Store(urls[0]) as store, contextlib.closing(pymysql.connect(**arguments(urls[0])[0])) as raw:
        store.create(load.members)
        (file,) = (node.folder / "data" / name).glob("roost_members_rows.TRG")
        text = file.read_text()
        file.write_text(re.sub(good, bad, text))
        node.sql(f"FLUSH LOCAL TABLES {name}.roost_members_rows")
        with pytest.raises(roost.StatementFailed, match="FLUSH TABLES roost_members_rows on this node mends it"):
            store.on(raw).run(load.members.add(1, 1))
        raw.rollback()
        file.write_text(text)
        with pytest.raises(roost.StatementFailed, match="in its body"):
            store.on(raw).run(load.members.add(1, 1))
        raw.rollback()
        store.run(load.members.add(1, 2))  # which flushes
        store.on(raw).run(load.members.add(1, 1))
        raw.commit()
        assert store.run(load.members.members(1)) == {1, 2}


def lose(
    urls: list[str],
    cut: Cut,
    *operations: roost.Operation[object],
    said: list[str] | None = None,
    meanwhile: Callable[[str], None] = lambda sql: None,
) -> bytes:
    """Run these on one node, lose the connection at COMMIT, and connect anew to another node.

    Returns how the first node has answered what came late.

    said: gets what was sent; meanwhile: called before each statement.
    """
    first, second = [urlsplit(url).port or 0 for url in urls[:2]]

    def trace(sql: str, row: object) -> None:
        if not armed:
            return
        if said is not None:
            said.append(sql)
        meanwhile(sql)
        if sql == "COMMIT" and not proxy.cuts:
            proxy.target = second
            proxy.arm(0, cut)

    armed = False
    with Proxy(first) as proxy, roost.Store(proxy.url(urls[0]), timeout=20, trace=trace) as store:
        store.run_all(pageviews.add("/home", 0), pageviews.total("/home"))
        armed = True
        store.run_all(*operations)
        assert proxy.cuts == 1
        return proxy.deliver() if cut is Cut.LATE else b""


@pytest.mark.parametrize("cut", [Cut.AFTER, Cut.LATE, Cut.ORPHAN], ids=lambda cut: cut.name)
def test_f71_a_lost_commit_that_is_looked_up_on_another_node_counts_once(
    cluster: Galera, urls: list[str], cut: Cut
) -> None:
    with roost.Store(urls[0]) as store, roost.Store(urls[2]) as third:
        store.create(pageviews, visits)
        cluster.wait()
        for n in range(1, 6):
            late = lose(urls, cut, pageviews.add("/home"), visits.push(Visit(1, n)))
            assert cut is not Cut.LATE or b"Deadlock" in late
            cluster.wait()
            assert third.run_all(pageviews.total("/home"), visits.latest(1)) == (
                n,
                [Visit(1, each) for each in range(n, 0, -1)],
            )
        assert third.check() == []


def test_f71_a_session_of_another_node_is_not_killed_for_one_that_was_lost(cluster: Galera, urls: list[str]) -> None:
    with (
        roost.Store(urls[0]) as store,
        contextlib.closing(pymysql.connect(**arguments(urls[1])[0])) as stranger,
        stranger.cursor() as cursor,
    ):
        store.create(pageviews)
        cluster.wait()

        def meanwhile(sql: str) -> None:
            if sql == "COMMIT" and said.count("COMMIT") == 1:
                cluster.wait()
                assert cursor.execute("SELECT * FROM roost_writers FOR UPDATE") == 1  # of the batch before
            elif "IF(batch BETWEEN" in sql and len([each for each in said if "IF(batch BETWEEN" in each]) == 2:
                stranger.rollback()

        said: list[str] = []
        lose(urls, Cut.ORPHAN, pageviews.add("/home"), pageviews.add("/away"), said=said, meanwhile=meanwhile)
        assert not [sql for sql in said if sql.startswith("KILL")]
        cluster.wait()
        assert store.run(pageviews.totals(["/home", "/away"])) == {"/home": 1, "/away": 1}


def test_what_was_answered_on_another_node_is_read_where_the_url_asks_for_it(urls: list[str]) -> None:
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(roost.Store(f"{url}?wsrep_sync_wait=1", timeout=20)) for url in urls]
        stores[0].create(pageviews)
        for number in range(60):
            stores[number % 3].run(pageviews.add("/"))
            assert stores[(number + 1) % 3].run(pageviews.total("/")) == number + 1
            assert stores[(number + 2) % 3].run_all(pageviews.total("/"), pageviews.total("/x")) == (number + 1, 0)


def test_a_check_that_a_change_on_another_node_has_ended_is_done_again(cluster: Galera, urls: list[str]) -> None:
    table = "roost_visits_rows"

    def trace(sql: str, row: object) -> None:
        if armed and any(f"FROM {table}" in each for each in read):
            cluster.nodes[1].sql(armed.pop())
            cluster.wait()
        read.append(sql)

    armed: list[str] = []
    read: list[str] = []
    with roost.Store(urls[0], timeout=20, trace=trace) as store:
        store.create(pageviews, visits)
        read.clear()
        armed.append(f"ALTER TABLE {urls[0].rpartition('/')[2]}.{table} COMMENT = 'changed'")
        assert store.check() == []
        assert not armed


@contextlib.contextmanager
def rejecting(node: Node) -> Iterator[None]:
    """Let a node answer no query, as one that is being maintained."""
    node.sql("SET GLOBAL wsrep_reject_queries = ALL")
    try:
        yield
    finally:
        node.sql("SET GLOBAL wsrep_reject_queries = NONE")


@contextlib.contextmanager
def isolated(node: Node) -> Iterator[None]:
    """Cut a node off from the others: it is there, and not primary."""
    node.sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
    until(lambda: node.status("wsrep_ready") == "OFF", "the node to be alone")
    try:
        yield
    finally:
        node.sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")
        until(lambda: node.status("wsrep_local_state_comment") == "Synced", "the node to join the others")


@pytest.mark.parametrize("away", [rejecting, isolated])
def test_a_node_that_answers_no_queries_is_left_for_another(
    cluster: Galera, urls: list[str], away: Callable[[Node], contextlib.AbstractContextManager[None]]
) -> None:
    url, node = of_all(urls), cluster.nodes[0]
    # It answers who only reads by what it had, if the session says no more.
    node.sql("SET GLOBAL wsrep_dirty_reads = 1")
    try:
        with roost.Store(url, timeout=20) as store, roost.Store(url, timeout=20) as reader:
            store.create(pageviews)
            store.run(pageviews.add("/"))
            assert reader.run(pageviews.total("/")) == 1
            with away(node):
                store.run(pageviews.add("/"))
                assert store.run(pageviews.total("/")) == 2
                assert reader.run(pageviews.total("/")) == 2
                with roost.Store(url, timeout=20) as late:
                    assert late.run(pageviews.total("/")) == 2
                with roost.Store(urls[0], timeout=0.3) as alone, pytest.raises(roost.ConnectionLost, match="1047"):
                    alone.run(pageviews.add("/"))
            with roost.Store(urls[0], timeout=20) as alone:
                alone.run(pageviews.add("/"))
            assert store.stats().moves == 1
    finally:
        node.sql("SET GLOBAL wsrep_dirty_reads = 0")


def test_what_was_answered_is_read_on_the_node_that_a_store_goes_to(cluster: Galera, urls: list[str]) -> None:
    with roost.Store(of_all(urls), timeout=6) as store:
        store.create(pageviews)
        assert store.run(pageviews.total("/")) == 0
        cluster.wait()
        with pymysql.connect(**arguments(urls[1])[0]) as raw, raw.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")  # nothing of other nodes is applied here
            store.run(pageviews.add("/"))
            with rejecting(cluster.nodes[0]):
                assert store.run(pageviews.total("/")) == 1


def test_who_joins_a_batch_of_reads_that_has_begun_reads_what_was_answered(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with roost.Store(urls[0], timeout=30) as store, ThreadPoolExecutor() as threads:
        store.create(pageviews)
        begun = MariaDBConnection.begin
        joined: list[Any] = []

        def begin(connection: MariaDBConnection, word: Control) -> None:
            begun(connection, word)
            if word is Control.BEGIN_READ and not joined:  # a batch of reads begins, and takes what waits
                joined.append(None)
                store.run(pageviews.add("/"))
                joined[0] = threads.submit(store.run_all, pageviews.total("/"), pageviews.total("/x"))
                until(lambda: store._core.readers[0]._waiting, "the other thread to wait")

        monkeypatch.setattr(MariaDBConnection, "begin", begin)
        store.run_all(pageviews.total("/x"), pageviews.total("/y"))
        assert joined[0].result() == (1, 0)


def test_no_write_is_left_out_for_what_its_node_has_not_heard_of_yet(cluster: Galera, urls: list[str]) -> None:
    pages = roost.Cache("pages", value=str)
    with roost.Store(urls[0], timeout=20) as first, roost.Store(urls[1], timeout=20) as second:
        first.create(pages)
        first.run(pages.set("/", "x", 60))
        cluster.wait()
        for _ in range(3):
            assert second.run(pages.touch("/", 60))  # a touch looks first whether there is anything to write
        with pymysql.connect(**arguments(urls[1])[0]) as raw, raw.cursor() as cursor, ThreadPoolExecutor() as threads:
            cursor.execute("FLUSH TABLES WITH READ LOCK")  # nothing of other nodes is applied here
            assert first.run(pages.delete("/"))
            assert second.run(pages.get("/")) == "x"
            answer = threads.submit(second.run, pages.touch("/", 60))
            waiting = "SELECT count(*) FROM information_schema.processlist WHERE info = 'START TRANSACTION'"
            until(lambda: answer.done() or (cursor.execute(waiting) and cursor.fetchall() != ((0,),)), "it to wait")
            cursor.execute("UNLOCK TABLES")
            assert answer.result() is False


@contextlib.contextmanager
def behind(cluster: Galera, urls: list[str]) -> Iterator[Callable[[], None]]:
    """Return what leaves the other nodes behind the first one for a while: they have something large to apply."""
    with contextlib.closing(pymysql.connect(**arguments(urls[0])[0])) as raw, raw.cursor() as cursor:
        cursor.execute("CREATE TABLE large (n INT PRIMARY KEY) ENGINE=InnoDB")
        cursor.execute("INSERT INTO large SELECT seq FROM seq_1_to_50000")

        def leave() -> None:
            cursor.execute("UPDATE large SET n = -n ORDER BY n")
            raw.commit()

        cluster.wait()
        yield leave


def test_f104_what_finds_nothing_to_do_has_what_was_answered_on_other_nodes(cluster: Galera, urls: list[str]) -> None:
    with (
        behind(cluster, urls) as leave,
        roost.Store(urls[0], timeout=60) as first,
        roost.Store(urls[1], timeout=60) as second,
    ):
        first.create(load.members, pageviews)
        cluster.wait()
        for n in range(length(2, 4)):
            assert second.run(load.members.add(1, n)) == 1
            cluster.wait()
            leave()
            assert first.run(load.members.remove(1, n)) == 1
            operations = [load.members.add(1, n), pageviews.add("/")][: 1 + n % 2]
            assert second.run_all(*operations)[0] == 1
            cluster.wait()
            assert n in first.run(load.members.members(1))


def test_f105_behind_a_proxy_a_store_reads_its_own_writes_on_another_node(cluster: Galera, urls: list[str]) -> None:
    first, second = [urlsplit(url).port or 0 for url in urls[:2]]
    with Proxy(first) as proxy, behind(cluster, urls) as leave, roost.Store(proxy.url(urls[0]), timeout=60) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
        cluster.wait()
        proxy.target = second
        assert store.run(pageviews.total("/")) == 1
        for n in range(length(2, 4)):
            leave()
            store.run(pageviews.add("/"))
            reads = [pageviews.total("/"), pageviews.total("/x")][: 1 + n % 2]
            assert store.run_all(*reads)[0] == n + 2
        assert store.check() == []


def test_where_a_node_makes_no_table_without_contents_sql_clients_write_by_procedures(
    cluster: Galera, urls: list[str]
) -> None:
    node = cluster.nodes[0]
    node.sql("SET GLOBAL wsrep_mode = 'STRICT_REPLICATION'")
    try:
        with roost.Store(urls[0]) as store:
            store.create(*load.STRUCTURES)
            store.run(load.members.add(1, 2))
            with pymysql.connect(**arguments(urls[0])[0]) as raw, raw.cursor() as cursor:
                cursor.execute("CALL members_add(1, 3)")
                raw.commit()
            assert store.run(load.members.members(1)) == {2, 3}
            assert store.check() == []
    finally:
        node.sql("SET GLOBAL wsrep_mode = ''")
