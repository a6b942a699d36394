"""What stands between clients and servers, for the tests: PgBouncer, a few sessions of a PostgreSQL for many clients;
and HAProxy, which leads to the server that works."""

from __future__ import annotations

import functools
import socket
from urllib.parse import urlsplit

from tests.servers import Daemon, account, binary, folder_for, free_port, postgresql

PGBOUNCER = ("pgbouncer", ["/usr/sbin"], "pgbouncer")
SESSIONS = 2  # on the server, for each database

SETTINGS = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = 400
query_wait_timeout = {wait}
"""


def pgbouncer_daemon(server: str, mode: str = "transaction", *, sessions: int = SESSIONS, wait: int = 60) -> Daemon:
    """Start a PgBouncer before a PostgreSQL, by its URL. It holds a query for so long while there is no server."""
    import psycopg

    program, user = binary(*PGBOUNCER), account("postgres")
    folder, listen = folder_for(user), free_port()
    parts = urlsplit(server)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        SETTINGS.format(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            listen=listen,
            mode=mode,
            sessions=sessions,
            wait=wait,
        )
    )
    url = f"postgresql://{parts.username}@127.0.0.1:{listen}"
    return Daemon(
        url, [program, str(settings)], user, folder, lambda: psycopg.connect(f"{url}/postgres", autocommit=True).close()
    )


HAPROXY = ("haproxy", ["/usr/sbin"], "haproxy")

# The first server that can be reached; the other one only while it cannot.
PROXY = """\
defaults
  mode tcp
  timeout connect 1s
  timeout client 60s
  timeout server 60s
listen servers
  bind 127.0.0.1:{listen}
  option redispatch
  default-server check inter 100ms fall 2 rise 2 on-marked-down shutdown-sessions
  server first 127.0.0.1:{first}
  server second 127.0.0.1:{second} backup
"""


def haproxy_daemon(first: str, second: str) -> Daemon:
    """Start a HAProxy before two servers, by their URLs; return it with the URL by which the account connects."""
    program, user = binary(*HAPROXY), account("nobody")
    folder, listen = folder_for(user), free_port()
    settings = folder / "haproxy.cfg"
    ports = {"first": urlsplit(first).port, "second": urlsplit(second).port}
    settings.write_text(PROXY.format(listen=listen, **ports))
    url = f"{urlsplit(first).scheme}://127.0.0.1:{listen}"

    def is_up() -> None:
        socket.create_connection(("127.0.0.1", listen), timeout=1).close()

    return Daemon(url, [program, "-db", "-f", str(settings)], user, folder, is_up)


@functools.cache
def pgbouncer(mode: str = "transaction") -> Daemon:
    """Start one before the tests' own PostgreSQL, once."""
    return pgbouncer_daemon(postgresql().url, mode)
