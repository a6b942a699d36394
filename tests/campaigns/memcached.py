"""The same random requests at Debian's memcached and at `roost serve`; the answers are the same.

What may differ: docs/memcached-protocol.md, and `compared` of tests/memcached/differential.py.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

import roost
from tests import servers
from tests.index.databases import database
from tests.memcached.conftest import pages, place
from tests.memcached.differential import compare
from tests.server.serving import serving

PORTION = 5_000  # requests of one seed, on connections of their own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=["sqlite", "mariadb", "postgresql"], default="sqlite")
    options = parser.parse_args()
    host, _, port = servers.memcached(number=1).partition("://")[2].partition(":")
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        db = stack.enter_context(database(options.server, folder))
        with roost.Store(db.url) as store:
            store.create(pages)
        arguments = ["--read", "none", "--write", "none", "--memcached", "127.0.0.1:0", "--cache", "pages"]
        served = stack.enter_context(
            serving(folder, db.url, "--workers", "1", *arguments, module="roost.cli", listeners=1)
        )
        asked = 0
        while asked < options.requests:
            asked += compare((host, int(port)), place(served), PORTION, options.seed + asked // PORTION)
        with roost.Store(db.url) as store:
            assert store.check() == []
    print(f"{options.server}: {asked} requests, no difference, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
