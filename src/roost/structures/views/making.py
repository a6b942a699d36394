"""Creates, finds and drops the views of structures for plain SQL clients. Each dialect has its own implementation."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from roost.dialects.dialect import Statement, Template
from roost.errors import Error, Invalid
from roost.structures.plan import StructurePlan
from roost.structures.views.mysql import MYSQL_VIEWS
from roost.structures.views.postgresql import POSTGRESQL_VIEWS
from roost.structures.views.sqlite import SQLITE_VIEWS
from roost.structures.views.view import NO_VIEW, FoundView, View, ViewDialect

_DIALECTS: dict[str, ViewDialect] = {"sqlite": SQLITE_VIEWS, "postgresql": POSTGRESQL_VIEWS, "mariadb": MYSQL_VIEWS}


def view_of(plan: StructurePlan, inlets: bool = True) -> View:
    """Return the view of a structure, on MariaDB and MySQL with inlets or with procedures."""
    if not plan.has_view:
        raise Invalid(f"{plan.structure.name}: it has no view")
    return _dialect(plan).view(plan, inlets)


def wanted_view(plan: StructurePlan) -> Generator[Statement, Any, View]:
    """Return the view of a structure as this database can make it."""
    return view_of(plan, not plan.has_view or (yield from _dialect(plan).inlets(plan)))


def found_view(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    """Return the stored view of a structure; empty if it has none."""
    return (yield from _dialect(plan).found(plan)) if plan.has_view else NO_VIEW


def is_made(plan: StructurePlan) -> Generator[Statement, Any, bool]:
    """Return whether the view exists in the form that this version creates."""
    return (yield from found_view(plan)).objects == (yield from wanted_view(plan)).objects


def make_view(plan: StructurePlan, dropped: FoundView = NO_VIEW) -> Generator[Statement, Any, bool]:
    """Create the view if it is missing or of another version; return whether it was.

    `Invalid` if another object has one of its names.

    dropped: the former view; what the application added to it is restored.
    """
    view, found = (yield from wanted_view(plan)), (yield from found_view(plan))
    if found.objects == view.objects:
        return False
    replace = _dialect(plan).replace
    if replace is not None and (changes := (yield from replace(plan, found))):
        for sql in changes:
            yield Statement(Template(sql), [()])
        return True
    only_told = False  # the statements are only collected to be shown, and the view still exists
    if found.objects:
        dropped = yield from drop_view(plan)
        only_told = bool((yield from found_view(plan)).objects)
    if not only_told and (taken := (yield from _dialect(plan).taken(plan))):
        raise Invalid(
            f"{plan.structure.name}: the database has something of that name already ({taken}); give the structure "
            "another name, or leave out its view (view=False, on the command line --no-view): then only Python can "
            "write it"
        )
    done = 0
    try:
        for sql in [*view.make, *dropped.own, *dropped.said]:
            yield Statement(Template(sql), [()])
            done += 1
    except Error:
        for sql in reversed(view.undo[:done]):
            yield Statement(Template(sql), [()])
        raise
    return True


def drop_view(plan: StructurePlan) -> Generator[Statement, Any, FoundView]:
    """Drop the view, and return it; `Invalid` if an object of the application depends on it."""
    found = yield from found_view(plan)
    if found.objects and (goes_with := _dialect(plan).goes_with):
        found = yield from goes_with(plan, found)
    if found.users:
        raise Invalid(
            f"{plan.structure.name}: its view has to be dropped, and {', '.join(found.users)} would go with it; "
            "drop that first, and make it again after"
        )
    if found.objects:
        for sql in found.drop or view_of(plan).drop:
            yield Statement(Template(sql), [()])
    return found


def _dialect(plan: StructurePlan) -> ViewDialect:
    return _DIALECTS[plan.dialect.family]
