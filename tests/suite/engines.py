"""The engines that the behaviour suite runs on, by what they can do.

A test says what it needs (`@pytest.mark.needs("file")`), never which engine it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Engine:
    name: str
    url: Callable[[Path], str]
    capabilities: frozenset[str] = field(default_factory=frozenset)


ENGINES = [
    Engine(
        "sqlite-file",
        lambda folder: f"sqlite:///{folder}/suite.db?synchronous=off",
        frozenset(["counter", "ring", "capped", "set", "file", "second store", "sqlite3", "nul in text"]),
    ),
    Engine(
        "sqlite-memory",
        lambda _: "sqlite://",
        frozenset(["counter", "ring", "capped", "set", "nul in text"]),
    ),
]
