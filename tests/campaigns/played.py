"""What campaigns share: their command line, and the databases that they are played on."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import servers


def asked(seeded: bool = True, **options: Any) -> argparse.Namespace:
    """Return what the command line says, and print the one that plays the same again.

    options: the default of each, or, where it is a list, what there is to choose from. The seed is any, unless named.
    """
    campaign: Any = sys.modules["__main__"]
    parser = argparse.ArgumentParser(description=campaign.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, given in {**options, **({"seed": str(random.randrange(10**6))} if seeded else {})}.items():
        if isinstance(given, Collection) and not isinstance(given, str):
            parser.add_argument(f"--{name}", choices=given)
        else:
            parser.add_argument(f"--{name}", type=type(given), default=given)
    found = parser.parse_args()
    words = [f"--{name} {value}" for name, value in vars(found).items() if value is not None]
    print(Path(campaign.__file__).stem, *words, f"({os.cpu_count()} cores)", flush=True)
    return found


@contextmanager
def database(server: str | None) -> Iterator[str]:
    """Make a database on a server, in a file where none is named; yield its URL."""
    if server is None or server == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/test.db"
    else:
        with servers.database(server) as url:
            yield url
