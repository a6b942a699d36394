"""What has a longer form, at full length: every way of every driver, the model, and many rounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def main() -> None:
    """Run the tests that have a longer form."""
    os.environ["ROOST_TEST_SUITE"] = "all"
    os.environ["ROOST_EXPLORE"] = "1"
    os.environ.setdefault("ROOST_MODEL_EXAMPLES", "2000")
    folders = [TESTS / each for each in ("suite", "model", "index", "faults", "contrib", "server", "memcached")]
    longer = [each for each in TESTS.rglob("*_test.py") if "from tests.lengths import" in each.read_text()]
    asked = [*folders, *[each for each in sorted(longer) if each.parent not in folders]]
    raise SystemExit(pytest.main([*map(str, asked), "--numprocesses", "4", "-o", "timeout=3600"]))


if __name__ == "__main__":
    main()
