"""Declarations and operation values: no SQL, no I/O."""

from __future__ import annotations

import json

from roost.errors import Invalid
from roost.structures.adopted import Adopted
from roost.structures.capped import Capped
from roost.structures.counter import Counter
from roost.structures.memcached import MemcachedSet
from roost.structures.ring import Ring
from roost.structures.sets import Set
from roost.structures.structure import Structure

__all__ = ["KINDS", "Adopted", "Capped", "Counter", "MemcachedSet", "Ring", "Set", "Structure", "from_definition"]

KINDS: dict[str, type[Counter] | type[Ring] | type[Capped] | type[Set]] = {  # type: ignore[type-arg]
    cls.kind: cls for cls in (Counter, Ring, Capped, Set)
}


def from_definition(definition: str) -> Structure:
    """Make a declaration from a definition of the catalog; the rows get a dataclass of their own.

    `Invalid` when it cannot be read: somebody has changed the catalog by hand.
    """
    try:
        facts = json.loads(definition)
        kind = Adopted if facts["kind"] == Adopted.kind else KINDS[facts["kind"]]
        structure: Structure = kind.from_facts(facts["name"], facts)
    except Invalid:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a definition that cannot be read: {definition} ({type(error).__name__}: {error})") from error
    structure.remade = (from_definition, (definition,))
    return structure
