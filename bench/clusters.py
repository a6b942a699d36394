"""Topologies: how much goes through each, and the longest call of a failover.

The load is that of the tests of clusters: processes that write every structure on three hot keys, and read. What they
were answered is compared with what is found; a difference is a missed target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.clusters import load
from tests.clusters.galera import start_cluster
from tests.clusters.poolers import haproxy_daemon, pgbouncer_daemon
from tests.clusters.replicas import Pair, mariadb_pair, postgresql_pair, wait_for
from tests.servers import Daemon, mariadb_daemon, mariadb_server, postgresql_daemon, postgresql_server

import roost
from bench.report import say, show

PROCESSES, THREADS = 3, 3


def main(quick: bool) -> bool:
    seconds = 3.0 if quick else 10.0
    rows: list[list[str]] = []
    exact = True

    def measure(name: str, urls: Sequence[str], leave: Callable[[], object] | None = None) -> None:
        nonlocal exact
        say(name)

        def meanwhile() -> None:
            if leave is not None:
                wait_for(lambda: store.run(load.hot.total(1)) > 10)
                leave()

        with roost.Store(urls[0], timeout=30) as store:
            store.create(*load.STRUCTURES)
            wait_for(lambda: all(has_structures(url) for url in urls))
            answers = load.write(
                urls,
                seconds=seconds,
                processes=PROCESSES,
                threads=THREADS,
                joined=False,
                timeout=30,
                meanwhile=meanwhile,
            )
            wrong = load.wrong(answers, store)
        exact = exact and not wrong and not answers.errors
        message = "exact" if not wrong else "; ".join(wrong)
        errors = ", ".join(f"{count} {kind}" for kind, count in answers.errors.items()) or "none"
        rows.append([name, f"{answers.operations / seconds:,.0f}/s", f"{answers.longest:.2f} s", errors, message])

    mariadb, postgresql = mariadb_daemon(), postgresql_daemon()
    measure("MariaDB, one server", [mariadb_server(mariadb.url).database("app")])
    measure("PostgreSQL, one server", [postgresql_server(postgresql.url).database("app")])
    pooler = pgbouncer_daemon(postgresql.url)
    postgresql_server(postgresql.url).database("pooled")
    measure("PostgreSQL, PgBouncer, two sessions", [f"{pooler.url}/pooled"])
    postgresql_server(postgresql.url).database("killed")
    measure("the same, PgBouncer killed and started", [f"{pooler.url}/killed"], lambda: restart(pooler))
    for daemon in (mariadb, postgresql, pooler):
        daemon.kill()

    for name, make, leave in PAIRS:
        pair = make()
        pair.run(pair.first, "CREATE DATABASE app")
        measure(name, [pair.url("app")])
        pair.run(pair.first, "CREATE DATABASE left_behind")
        measure("the same, and a failover", [pair.url("left_behind")], lambda: leave(pair))  # noqa: B023
        for daemon in (pair.first, pair.second):
            daemon.kill()

    pair = postgresql_pair()
    proxy = haproxy_daemon(pair.first.url, pair.second.url)
    pair.run(pair.first, "CREATE DATABASE app")
    url = f"{proxy.url.replace('//', '//roost@')}/app"
    measure("PostgreSQL, HAProxy between, and a failover", [url], lambda: kill(pair))
    for daemon in (pair.first, pair.second, proxy):
        daemon.kill()

    galera = start_cluster()
    for number in (1, 3):
        measure(f"Galera, three nodes, {number} of which write", galera.make(f"app{number}")[:number])
    nodes = [each.rpartition("/")[0].rpartition("@")[2] for each in galera.make("killed")]
    each = [f"mysql://root@{','.join(nodes[n:] + nodes[:n])}/killed" for n in range(3)]
    measure("the same, and one is killed", each, galera.nodes[2].kill)

    show("Topologies", ["", "operations", "longest call", "errors", "answers"], rows)
    return exact


def has_structures(url: str) -> bool:
    """Whether a node has heard of them."""
    try:
        with roost.Store(url, timeout=5) as store:
            return len(store.structures()) == len(load.STRUCTURES)
    except roost.Error:
        return False


def restart(daemon: Daemon) -> None:
    """Kill it, and start it again."""
    daemon.kill()
    daemon.start()


def kill(pair: Pair) -> None:
    """Kill the first server, and promote the second."""
    pair.first.kill()
    pair.promote()


def switch(pair: Pair) -> None:
    """Let the second server lead, when it has everything."""
    pair.run(pair.first, "SET GLOBAL read_only = 1")
    pair.promote()


PAIRS: list[tuple[str, Callable[[], Pair], Callable[[Pair], None]]] = [
    ("MariaDB, a replica", mariadb_pair, switch),
    ("PostgreSQL, a synchronous standby", postgresql_pair, kill),
]
