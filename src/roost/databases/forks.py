"""Registers functions to call at a fork, on systems that fork."""

from __future__ import annotations

import os
from collections.abc import Callable


def at_fork(**calls: Callable[[], object]) -> None:
    """Call `os.register_at_fork` with these arguments; Windows has neither forks nor that function."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
