"""A cluster of MariaDB with Galera for the tests: three nodes on the loopback, all of which write."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.campaigns.processes import until
from tests.servers import (
    MARIADB,
    Daemon,
    NotHere,
    Server,
    account,
    binary,
    folder_for,
    free_port,
    mariadb_connection,
    mariadb_files,
    mariadb_server,
)

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so")
# A node that died is noticed after two seconds instead of five; the loopback loses nothing.
PROVIDER_OPTIONS = (
    "gmcast.listen_addr=tcp://127.0.0.1:{group};base_host=127.0.0.1;ist.recv_addr=127.0.0.1:{increments};"
    "gcache.size=32M;evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;"
    "evs.install_timeout=PT4S"
)


class Node(Daemon):
    """One node. It founds the cluster, or joins it, and takes the data of another node when it has none."""

    def __init__(self, founds: bool, url: str, command: list[str], user: str | None, folder: Path) -> None:
        self._founds = founds
        self._command = command  # `Daemon.__init__` starts it
        super().__init__(url, command, user, folder, self._is_ready)

    def _start(self) -> None:
        joins = self._command
        if self._founds:
            self._command = [*joins, "--wsrep-new-cluster"]
            self._founds = False
        try:
            super()._start()
        finally:
            self._command = joins

    def _is_ready(self) -> None:
        if self.status("wsrep_local_state_comment") != "Synced" or self.status("wsrep_ready") != "ON":
            raise OSError("it has not joined the cluster yet")

    def status(self, name: str) -> str:
        """Return one of its status variables."""
        return str(self.sql(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, and return its rows."""
        connection = mariadb_connection(self.url)
        with connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())


class Galera:
    """The nodes of one cluster."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    @property
    def server(self) -> Server:
        """What makes and drops databases."""
        return mariadb_server(self.nodes[0].url)

    def make(self, database: str) -> list[str]:
        """Make a database anew, and return its URLs, by node, when each node has it."""
        for statement in ("DROP DATABASE IF EXISTS", "CREATE DATABASE"):
            self.server.run(f"{statement} {database}")
        self.wait()
        for node in self.nodes:  # one of them once knew no such database, though it had waited
            until(lambda node=node: node.sql(f"SHOW DATABASES LIKE '{database}'"), "the database on each node")  # type: ignore[misc]
        return [f"{node.url}/{database}" for node in self.nodes]

    def wait(self) -> None:
        """Return when every node has what was committed on any of them by now."""
        for node in self.nodes:
            node.sql("SET STATEMENT wsrep_sync_wait = 15 FOR SELECT 1")


def of_all(urls: Sequence[str], first: int = 0) -> str:
    """Return the URL of a database that names all nodes, by those of each; first: which of them is asked first."""
    hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in (*urls[first:], *urls[:first])]
    return f"mysql://root@{','.join(hosts)}{urlsplit(urls[0]).path}"


def start_cluster(size: int = 3) -> Galera:
    """Start a cluster, one node after the other."""
    provider = next((each for each in PROVIDERS if Path(each).exists()), None)
    if provider is None:
        raise NotHere("NOT RUN: there is no libgalera_smm.so on this machine; install the package galera-4")
    binary("rsync", [], "rsync")
    program = binary(*MARIADB)
    user = account("mysql")
    ports = [[free_port() for _ in range(4)] for _ in range(size)]
    members = ",".join(f"127.0.0.1:{group}" for _, group, _, _ in ports)
    nodes: list[Node] = []
    for number, (port, group, increments, state) in enumerate(ports):
        folder = folder_for(user)
        own = mariadb_files(folder, user)
        command = [
            *(program, *own, f"--port={port}", f"--socket={folder}/mysqld.sock", "--bind-address=127.0.0.1"),
            *("--plugin-load-add=ha_blackhole.so", "--max-connections=200", "--skip-name-resolve"),
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=64M"),
            *("--wsrep-on=ON", f"--wsrep-provider={provider}", f"--wsrep-cluster-address=gcomm://{members}"),
            "--skip-ssl",  # a proxy of the tests reads what is said
            "--loose-plugin-wsrep-provider=OFF",  # which takes no gmcast.isolate; there is none before MariaDB 11
            *("--wsrep-cluster-name=roost", f"--wsrep-node-name=node{number}", "--wsrep-node-address=127.0.0.1"),
            *("--wsrep-sst-method=rsync", f"--wsrep-sst-receive-address=127.0.0.1:{state}", "--wsrep-slave-threads=2"),
            *(["--wsrep-sst-donor=node0,"] if nodes else []),  # so that a test may kill any of the others
            f"--wsrep-node-incoming-address=127.0.0.1:{port}",
            f"--wsrep-provider-options={PROVIDER_OPTIONS.format(group=group, increments=increments)}",
        ]
        nodes.append(Node(not nodes, f"mysql://root@127.0.0.1:{port}", command, user, folder))
    return Galera(nodes)


@functools.cache
def galera() -> Galera:
    """Start a cluster of three, once."""
    return start_cluster()
