"""The same random requests at Debian's memcached and at `roost serve`; the answers are the same.

What may differ: docs/memcached-protocol.md, and `compared` of tests/memcached/differential.py.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests import servers
from tests.memcached.conftest import place, running, with_cache
from tests.memcached.differential import compare

PORTION = 5_000  # requests of one seed, on connections of their own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=["sqlite", "mariadb", "postgresql"], default="sqlite")
    options = parser.parse_args()
    host, _, port = servers.memcached(number=1).partition("://")[2].partition(":")
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        with_cache(options.server, Path(folder)) as db,
        running(db, Path(folder)) as served,
    ):
        asked = 0
        while asked < options.requests:
            asked += compare((host, int(port)), place(served), PORTION, options.seed + asked // PORTION)
    print(f"{options.server}: {asked} requests, no difference, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
