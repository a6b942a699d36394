"""Compares two declarations of one structure: the difference, and the part that both can use during a deployment.

While a change is being deployed, processes use two declarations, only one of which is stored. Operations of the other
one run with the stored `keep`, `slots` and options, and with the columns that both have.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from roost.structures.durations import fact_in_words
from roost.structures.rows import RowStructure
from roost.structures.structure import Structure, facts_of


def overlap(declared: Structure, definition: str) -> Structure | None:
    """Return the declaration with the stored options, and those of its columns that are stored; None if incompatible.

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


def difference(stored: str, declared: str) -> str:
    """Return in words what differs between two definitions.

    >>> difference('{"kind":"ring","keep":5}', '{"kind":"ring","keep":12}')
    'keep is 5 in the database and 12 in the declaration'
    """
    old, new = facts_of(stored), json.loads(declared)
    differences = []
    for fact in dict.fromkeys([*old, *new]):
        before: Any = old.get(fact)
        after: Any = new.get(fact)
        if before == after:
            continue
        if _are_columns(before) and _are_columns(after):
            differences.append(_columns_difference(before, after))
        else:
            words = [_shown(fact_in_words(fact, value)) for value in (before, after)]
            differences.append(f"{fact} is {words[0]} in the database and {words[1]} in the declaration")
        if fact == "kind":
            break
    return "; ".join(differences)


def _are_columns(fact: Any) -> bool:
    return isinstance(fact, list) and bool(fact) and all(isinstance(each, list) and len(each) == 2 for each in fact)


def _columns_difference(before: list[list[str]], after: list[list[str]]) -> str:
    old, new = dict(before), dict(after)
    differences = [f"column {name} ({old[name]}) is only in the database" for name in old if name not in new]
    differences += [f"column {name} ({new[name]}) is only in the declaration" for name in new if name not in old]
    differences += [
        f"column {name} is {old[name]} in the database and {new[name]} in the declaration"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return "; ".join(differences) or "the columns are in another order"


def _shown(fact: Any) -> str:
    return ", ".join(map(str, fact)) if isinstance(fact, list) else str(fact)
