"""What `alter` does to the rows of a windowed counter. Another `keep` is the catalog's alone: what is over goes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement
from roost.structures.counter.alter import change_slots
from roost.structures.plan import Facts, StructurePlan
from roost.structures.windowed_counter.start import START_COLUMN


def change_slots_of_windows(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Add the slots that go to the first one of their window."""
    yield from change_slots(plan, old, new, [START_COLUMN])


ALTERATIONS = {"slots": change_slots_of_windows}
