"""An expiring set on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from roost.structures.console import REQUIRED
from roost.structures.keep_for import leaves_earlier
from roost.structures.set.console import SetConsole
from roost.structures.structure import Structure


class ExpiringSetConsole(SetConsole):
    """An imported record is a member that was added now."""

    takes: ClassVar[Mapping[str, Any]] = {"key": (), "member": (), "keep_for": REQUIRED}
    changes = ("keep_for",)

    def deletes(self, new: Structure) -> str:
        """Say that members leave earlier."""
        return leaves_earlier("members", self.structure, new)
