"""Durations as the command line reads and prints them: `90s`, `15m`, `12h`, `30d`."""

from __future__ import annotations

import re
from typing import Any

SECOND = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WANTED = "a whole number with s, m, h or d behind it, such as 90s or 30d"

_WRITTEN = re.compile(r"(\d{1,12})([smhd])", re.ASCII)
_FACTS = {"keep_for": 1, "older_than": 1, "window": 1, "within": SECOND}  # of definitions: the units of a second


def seconds_of(text: str) -> int | None:
    """Return a duration in seconds; None if the text is not one, such as a number without a unit.

    >>> seconds_of("30d"), seconds_of("90s"), seconds_of("90")
    (2592000, 90, None)
    """
    found = _WRITTEN.fullmatch(text)
    return (int(found[1]) * UNITS[found[2]] or None) if found else None


def in_words(seconds: float) -> str:
    """Return a duration as text.

    >>> in_words(30 * 86_400), in_words(90), in_words(0.25)
    ('30d', '90s', '0.25s')
    """
    for unit in ("d", "h", "m"):
        if seconds % UNITS[unit] == 0:
            return f"{seconds // UNITS[unit]:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def fact_in_words(fact: str, value: Any) -> Any:
    """Return a fact of a definition for display: a duration as text, anything else unchanged.

    >>> fact_in_words("keep_for", 3600), fact_in_words("within", 500_000), fact_in_words("keep", 3600)
    ('1h', '0.5s', 3600)
    """
    return in_words(value / _FACTS[fact]) if fact in _FACTS and type(value) is int else value
