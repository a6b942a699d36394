"""HandlerSocket beside the original, and against noise: the long forms of `tests/handlersocket`.

`compare`: random requests on random tables go to MariaDB's plugin and to Roost on SQLite; what differs has to be
explained by a rule, and what is explained has to be what the rules want. `twin`: the same, with Roost on the same
MariaDB. `read`: lines of any bytes are read, without a server.
`serve`: they are sent to a live one, which answers each.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests import servers
from tests.handlersocket import noise
from tests.handlersocket.conftest import served, served_at
from tests.handlersocket.differential import Lite, Original, Twin, compare
from tests.handlersocket.tables import MARIADB


class Progress:
    """Prints what it is told, once a minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, answer: str) -> None:
        if time.monotonic() - self._last > 60:
            self._last = time.monotonic()
            print(answer, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["compare", "twin", "read", "serve"])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    options = parser.parse_args()
    print(f"{options.what}, seed {options.seed}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=servers.place) as folder:
        file = Path(folder, "hst.db")
        if options.what == "read":
            print(noise.read_alone(options.seed, options.requests))
        elif options.what == "serve":
            print(noise.serve(options.seed, options.requests, file, Progress()))
        else:
            original = Original(servers.plugin())
            if options.what == "twin":
                twin = Twin(servers.plugin())
                with served_at(twin.url) as twin.ports:
                    found = compare(options.seed, options.requests, original, twin, enough=20, types=MARIADB)
            else:
                with served(file) as server:
                    found = compare(options.seed, options.requests, original, Lite(file, server), enough=20)
            print(found)
            for fault in found.faults:
                print(fault)
            sys.exit(bool(found.faults))
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
