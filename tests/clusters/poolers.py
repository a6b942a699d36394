"""PgBouncer for the tests: a few sessions of a PostgreSQL for many clients."""

from __future__ import annotations

import functools
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
query_wait_timeout = 60
"""


def pgbouncer_daemon(server: str, mode: str = "transaction", *, sessions: int = SESSIONS) -> Daemon:
    """Start a PgBouncer before a PostgreSQL, by its URL."""
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
        )
    )
    url = f"postgresql://{parts.username}@127.0.0.1:{listen}"
    return Daemon(
        url, [program, str(settings)], user, folder, lambda: psycopg.connect(f"{url}/postgres", autocommit=True).close()
    )


@functools.cache
def pgbouncer(mode: str = "transaction") -> Daemon:
    """Start one before the tests' own PostgreSQL, once."""
    return pgbouncer_daemon(postgresql().url, mode)
