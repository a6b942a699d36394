"""How much a test tries: `make test` plays the first rounds of what the campaign `suite` plays to the end.

What is left out: other seeds, more rounds, longer input, two of three places of a kill, combinations of what is tried
in pairs (`tests/suite/conftest.py`), and databases of what is a protocol's or a library's own. Each kind of test runs
in both forms, and the short form tries the same each time.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

WHOLE = os.environ.get("ROOST_TEST_SUITE") == "all"


def length(short: T, whole: T) -> T:
    """Return what the form that runs has: a number of rounds, or what they are played with."""
    return whole if WHOLE else short
