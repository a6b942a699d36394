"""Overlap: while a change is deployed, processes declare a structure in two ways, and only one of them is stored.

What both understand is used: the stored `keep`, `slots` and options, and the columns that both have.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from roost.structures.rows import RowStructure
from roost.structures.structure import Structure, facts_of


def overlap(declared: Structure, definition: str) -> Structure | None:
    """Return the declaration with the options that are stored, and its columns that are; None where that cannot be.

    Its keys and rows are of the declared classes. A stored column that it does not know is in `rows.unknown`.

    definition: what the catalog has.
    """
    stored: dict[str, Any] = facts_of(definition)
    wanted: dict[str, Any] = json.loads(declared.definition)
    for fact in {*stored, *wanted} - {*declared.options, "columns"}:
        if stored.get(fact) != wanted.get(fact):
            return None
    made: Any = copy.copy(declared)
    made.plans, made.definition = {}, definition
    for option in declared.options:
        if option in stored:
            setattr(made, option, stored[option])
    if isinstance(declared, RowStructure):
        try:
            made.rows = declared.rows.overlap(stored["columns"])
        except (KeyError, TypeError, ValueError):  # somebody has changed it by hand
            return None
        if made.rows is None:
            return None
    structure: Structure = made
    return structure
