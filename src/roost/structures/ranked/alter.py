"""What `alter` does to the rows of a ranked collection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement
from roost.structures.capped.alter import drop_beyond
from roost.structures.plan import Facts, StructurePlan
from roost.structures.ranked.declaration import Ranked


def change_keep(plan: StructurePlan, old: Facts, new: Facts) -> Generator[Statement, Any, None]:
    """Delete the rows that are too many, and count the others."""
    assert isinstance(plan.structure, Ranked)
    if new["keep"] < old["keep"]:
        yield from drop_beyond(plan, new["keep"], f"{plan.dialect.name_of(plan.structure.score)} DESC, sequence")


ALTERATIONS = {"keep": change_keep}
