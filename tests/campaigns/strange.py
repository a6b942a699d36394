"""Servers with strange settings, all of them and by every way in: `tests/strange` at full length."""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "strange"
SERVERS = ("mariadb", "postgresql")


def main() -> None:
    """Run the tests of a server, or of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=SERVERS, action="append")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    os.environ["ROOST_TEST_STRANGE"] = "all"
    os.environ["ROOST_TEST_STRANGE_SEED"] = str(options.seed)
    asked = [TESTS / f"{server}_test.py" for server in options.server or SERVERS]
    found = [str(each) for each in asked if each.exists()]
    raise SystemExit(pytest.main([*found, "-n0", "--no-header", "-v"]))


if __name__ == "__main__":
    main()
