"""The behaviour suite on PostgreSQL through PgBouncer, which gives each transaction one of two sessions."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from tests.clusters.poolers import pgbouncer

TESTS = Path(__file__).parents[1] / "suite"
# Tests of what a session keeps: prepared statements, settings and temporary tables, also those of other clients.
OF_A_SESSION = ("prepared_test.py", "postgresql_session_test.py")


def main() -> None:
    """Run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="files of tests/suite; all, where none is named")
    parser.add_argument("-k", default="postgresql", help="as pytest takes it")
    options = parser.parse_args()
    os.environ["ROOST_TEST_POSTGRESQL"] = pgbouncer().url
    asked = options.names or sorted(path.name for path in TESTS.glob("*_test.py"))
    found = [str(TESTS / name) for name in asked if name not in OF_A_SESSION]
    raise SystemExit(pytest.main([*found, "-n0", "-k", options.k, "-p", "no:randomly"]))


if __name__ == "__main__":
    main()
