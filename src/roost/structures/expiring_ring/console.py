"""An expiring ring on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from roost.structures.console import REQUIRED
from roost.structures.keep_for import leaves_earlier
from roost.structures.ring.console import RingConsole
from roost.structures.structure import Structure


class ExpiringRingConsole(RingConsole):
    """An imported record is pushed now."""

    takes: ClassVar[Mapping[str, Any]] = {"per": REQUIRED, "keep": REQUIRED, "keep_for": REQUIRED, "column": ()}
    changes = ("keep", "keep_for", "add")

    def deletes(self, new: Structure) -> str:
        """Say which rows go."""
        return " and ".join(filter(None, [super().deletes(new), leaves_earlier("rows", self.structure, new)]))
