"""An expiring capped collection on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from roost.structures.capped.console import CappedConsole
from roost.structures.console import REQUIRED
from roost.structures.keep_for import leaves_earlier
from roost.structures.structure import Structure


class ExpiringCappedConsole(CappedConsole):
    """An imported record is added now."""

    takes: ClassVar[Mapping[str, Any]] = {**CappedConsole.takes, "keep_for": REQUIRED}
    changes = (*CappedConsole.changes, "keep_for")

    def deletes(self, new: Structure) -> str:
        """Say which rows go."""
        return " and ".join(filter(None, [super().deletes(new), leaves_earlier("rows", self.structure, new)]))
