"""Tables of the application's own, capped on Galera: an event is on only where it was made, unless it is turned on."""

from __future__ import annotations

import roost
from roost.store import bursts
from tests.campaigns.processes import until
from tests.clusters.galera import Galera
from tests.servers import mariadb_connection


def test_f106_an_event_that_is_on_on_all_nodes_keeps_a_table_short(cluster: Galera, urls: list[str]) -> None:
    first, *others = cluster.nodes
    database = urls[0].rpartition("/")[2]
    visits = f"{database}.visits"
    first.sql(f"CREATE TABLE {visits} (id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT, KEY (uid))")
    for node in cluster.nodes:
        node.sql("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(urls[0]) as store, roost.Store(urls[1]) as other:
            list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 5, None)))
            cluster.wait()
            (found,) = other.check()
            assert "whose status is SLAVESIDE_DISABLED" in found.detail
            for node in others:
                connection = mariadb_connection(node.url)
                with connection, connection.cursor() as cursor:
                    cursor.execute("SET SESSION wsrep_on = OFF")
                    cursor.execute(f"ALTER EVENT {database}.roostcap_visits ENABLE")
            assert store.check() == other.check() == []
            for _ in range(5):
                for node in cluster.nodes:
                    node.sql(f"INSERT INTO {visits} (uid) SELECT seq % 20 FROM {database}.seq_1_to_400")
            count = f"SELECT count(*) FROM {visits}"
            until(lambda: [node.sql(count) for node in cluster.nodes] == [[(100,)]] * 3, "all keys are short")
            notes = f"SELECT count(*) FROM {database}.roostcap_visits_grown"
            until(lambda: [node.sql(notes) for node in cluster.nodes] == [[(0,)]] * 3, "no note is left")
            cluster.wait()
            assert len({str(node.sql(f"SELECT * FROM {visits} ORDER BY id")) for node in cluster.nodes}) == 1
            assert store.check() == other.check() == []
            bursts.uncap(store, "visits")
    finally:
        for node in cluster.nodes:
            node.sql("SET GLOBAL event_scheduler = OFF")
