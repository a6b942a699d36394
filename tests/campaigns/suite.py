"""The behaviour suite and the model at full length: every way of every driver, many rounds and examples."""

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
    asked = [*(TESTS / "suite").glob("*_test.py"), TESTS / "model"]
    raise SystemExit(pytest.main([*map(str, asked), "--numprocesses", "4", "-o", "timeout=3600"]))


if __name__ == "__main__":
    main()
