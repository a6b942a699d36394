"""A database file, and `roost serve` on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.serving import Serving, serving

Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Run `roost serve` on app.db, with a stand-in for what is served."""
    (tmp_path / "app.db").touch()
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(
            serving(tmp_path, "sqlite:///app.db", *arguments, **options)
        )
