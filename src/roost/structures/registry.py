"""The registry of the kinds of structure: each kind's declaration, its plan, and its class for the command line.

The kinds of other packages are registered when their module is imported, or found by the entry points of the group
`roost.structures`, so that the command line and the server know what the catalog of a database has.
"""

from __future__ import annotations

from typing import Any

from roost.dialects.dialect import Dialect
from roost.errors import Invalid
from roost.structures.console import Console
from roost.structures.operation import READS
from roost.structures.plan import StructurePlan
from roost.structures.structure import Structure, facts_of

ENTRY_POINTS = "roost.structures"

# By kind. A declaration without a plan is not kept in SQL; one that `create` does not make is of the application's own.
DECLARATIONS: dict[str, type[Structure]] = {}
_PLANS: dict[str, type[StructurePlan]] = {}
_CONSOLES: dict[str, type[Console[Any]]] = {}


def register(declaration: type[Structure], plan: type[StructurePlan], console: type[Console[Any]] = Console) -> None:
    """Make a kind of structure known, under `declaration.kind`; `Invalid` when another one has that name."""
    kind = declaration.kind
    if DECLARATIONS.setdefault(kind, declaration) is not declaration:
        raise Invalid(f"there are two kinds of structure called {kind}: {DECLARATIONS[kind]} and {declaration}")
    _PLANS[kind] = plan
    _CONSOLES[kind] = console
    READS.update(declaration.reads)


def declaration_of(kind: str) -> type[Structure]:
    """Return the class of a kind; `Invalid` when no module that has it is installed or imported."""
    if kind not in DECLARATIONS:
        import importlib.metadata  # a fifth of what `import roost` takes, for what is seldom asked

        for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind):
            entry_point.load()
    if kind not in DECLARATIONS:
        raise Invalid(
            f"{kind} is a kind of structure that is not known here: import the module that registers it, or install "
            f"its package (entry point {kind} of the group {ENTRY_POINTS})"
        )
    return DECLARATIONS[kind]


def is_known(definition: str) -> bool:
    """Return whether a definition of the catalog is of a kind that is installed or imported, or cannot be read."""
    try:
        kind = facts_of(definition)["kind"]
    except Invalid:
        return True
    try:
        return bool(declaration_of(kind))
    except Invalid:
        return False


def console_class(kind: str) -> type[Console[Any]]:
    """Return what the commands know of a kind; `Invalid` as for `declaration_of`."""
    declaration_of(kind)
    return _CONSOLES[kind]


def console_of(structure: Structure) -> Console[Any]:
    """Return a structure as the commands see it."""
    return console_class(structure.kind)(structure)


def from_definition(definition: str) -> Structure:
    """Make a declaration from a definition of the catalog; the rows get a dataclass of their own.

    `Invalid` when it cannot be read: somebody has changed the catalog by hand, or its kind is not known.
    """
    try:
        facts = facts_of(definition)
        structure = declaration_of(facts["kind"]).from_facts(facts["name"], facts)
    except Invalid:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"a definition that cannot be read: {definition} ({type(error).__name__}: {error})") from error
    structure.remade = (from_definition, (definition,))
    return structure


def plan_for(structure: Structure, dialect: Dialect) -> StructurePlan:
    """Return a structure in a dialect's words; `Invalid` when no SQL database holds it."""
    if structure.kind not in _PLANS:
        raise Invalid(
            f"{structure.name} is a {type(structure).__name__}, which lives in memcached alone: "
            'Store("memcached://host:11211"); on a SQL database take roost.Set'
        )
    return _PLANS[structure.kind](structure, dialect)
