"""Tables of the application's own, capped on several servers: an event is on only where it was made, or turned on."""

from __future__ import annotations

import pytest

import roost
from roost.store import bursts
from tests.campaigns.processes import until
from tests.clusters.galera import Galera
from tests.clusters.replicas import Pair, mariadb_switch
from tests.servers import Daemon, mariadb_connection

KEEP, PEOPLE = 5, 20
VISITS = "CREATE TABLE {}.visits (id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT, KEY (uid))"
FILL = f"INSERT INTO {{0}}.visits (uid) SELECT seq % {PEOPLE} FROM {{0}}.seq_1_to_400"
COUNT, NOTES = "SELECT count(*) FROM {}.visits", "SELECT count(*) FROM {}.roostcap_visits_grown"
ROWS = "SELECT * FROM {}.visits ORDER BY id"
OFF = "whose status is SLAVESIDE_DISABLED"


def test_f106_an_event_that_is_on_on_all_nodes_keeps_a_table_short(cluster: Galera, urls: list[str]) -> None:
    first, *others = cluster.nodes
    database = urls[0].rpartition("/")[2]
    first.sql(VISITS.format(database))
    for node in cluster.nodes:
        node.sql("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(urls[0]) as store, roost.Store(urls[1]) as other:
            list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], KEEP, None)))
            cluster.wait()
            (found,) = other.check()
            assert OFF in found.detail
            for node in others:
                connection = mariadb_connection(node.url)
                with connection, connection.cursor() as cursor:
                    cursor.execute("SET SESSION wsrep_on = OFF")
                    cursor.execute(f"ALTER EVENT {database}.roostcap_visits ENABLE")
            assert store.check() == other.check() == []
            for _ in range(5):
                for node in cluster.nodes:
                    node.sql(FILL.format(database))
            count, notes = COUNT.format(database), NOTES.format(database)
            until(lambda: [node.sql(count) for node in cluster.nodes] == [[(KEEP * PEOPLE,)]] * 3, "all are short")
            until(lambda: [node.sql(notes) for node in cluster.nodes] == [[(0,)]] * 3, "no note is left")
            cluster.wait()
            assert len({str(node.sql(ROWS.format(database))) for node in cluster.nodes}) == 1
            assert store.check() == other.check() == []
            bursts.uncap(store, "visits")
    finally:
        for node in cluster.nodes:
            node.sql("SET GLOBAL event_scheduler = OFF")


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_f106_after_a_switchover_a_cap_is_told_and_made_anew_and_the_replica_leaves_its_rows_alone(pair: Pair) -> None:
    def asked(server: Daemon, sql: str) -> list[tuple[object, ...]]:
        return pair.run(server, sql.format("app"))

    def passed(server: Daemon) -> None:
        last = "SELECT LAST_EXECUTED FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'app'"
        for _ in range(3):
            before = asked(server, last)
            until(lambda before=before: asked(server, last) != before, "the event has come by")  # type: ignore[misc]

    servers, visits = (pair.first, pair.second), roost.Capped.of("visits")
    asked(pair.first, VISITS)
    for server in servers:
        asked(server, "SET GLOBAL event_scheduler = ON")
    url = pair.url("app")
    # Root makes the event, which read_only does not hold for; nor for what else it writes.
    with roost.Store(url, timeout=60) as application, roost.Store(url.replace(pair.account, "root", 1)) as store:
        list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], KEEP, None)))
        for turn, (primary, replica) in enumerate((servers, servers[::-1], servers)):
            if turn:
                mariadb_switch(primary, replica)
                application.run(visits.add(uid=1))
                asked(primary, FILL)
                told = {each.rule: each.detail for each in store.check()}
                assert set(told) == {"keep", "triggers"}
                assert OFF in told["triggers"]
                wanted = asked(primary, COUNT)
                until(lambda r=replica, n=wanted: asked(r, COUNT) == n, "the replica has the rows")  # type: ignore[misc]
                passed(replica)  # whose event is on
                assert asked(replica, COUNT) == wanted
                list(bursts.cap(store, bursts.inspect(store, "visits")))
                assert store.check() == []
            asked(primary, FILL)
            for sql, n in ((COUNT, KEEP * PEOPLE), (NOTES, 0)):
                for server in servers:
                    until(lambda of=server, sql=sql, n=n: asked(of, sql) == [(n,)], sql)  # type: ignore[misc]
            assert asked(primary, ROWS) == asked(replica, ROWS)
