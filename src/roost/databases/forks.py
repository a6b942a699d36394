"""What is to happen at a fork, where the system has one."""

from __future__ import annotations

import os
from collections.abc import Callable


def at_fork(**calls: Callable[[], object]) -> None:
    """Register what `os.register_at_fork` takes; Windows has neither forks nor that function."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)
