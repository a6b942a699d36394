"""create, alter, ddl: commands that make and change structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import roost
from roost.batching.known import Known
from roost.catalog import catalog
from roost.cli.app import Failure, GlobalOptions, lookup, must_agree, shared, stored
from roost.cli.declare import (
    KEEP,
    KEEP_FOR,
    LIMIT,
    MAX_BYTES,
    MAX_ITEMS,
    ON_DUPLICATE,
    ON_FULL,
    SLOTS,
    WITHIN,
    altered,
    declared,
    declaring,
    imported,
)
from roost.cli.screen import answer
from roost.databases import dialect_of
from roost.structures.registry import console_of
from roost.structures.structure import Structure, difference


@click.command()
@declaring
@shared
@click.pass_obj
def create(settings: GlobalOptions, /, targets: tuple[str, ...], view: bool, **options: Any) -> None:
    """Make structures, and the database file if there is none.

    Existing structures stay as they are. Structures are declared in a module of yours (the current directory is
    searched first), or by options. A KIND is cache, counter, ring, capped, set, lease or rate_limit. A TYPE is int,
    float, bool, text(n), binary(n), decimal(digits,scale), datetime, date, uuid or enum("a","b"), followed by ? if NULL
    is allowed. --per and --unique may also name a column that --column declares.

    \b
    Examples:
      roost create app.structures
      roost create app.structures:visits
      roost create counter pageviews --key 'text(200)'
      roost create counter views --window hour --keep 72
      roost create counter pagehits --key site:int --key 'path:text(200)'
      roost create ring visits --per uid:int --keep 5 --column visitor:int
      roost create ring seen --per uid:int --keep 5 --keep-for 30d --column visitor:int
      roost create capped baskets --per basket:int --keep 12 --unique egg:int --on-full reject
      roost create capped votes --per poll:int --unique voter:int --keep-for 7d
      roost create capped best --per board:text --keep 100 --unique player:int --column points:int --order points
      roost create set likes --key int --member 'text(40)' --no-view
      roost create set online --member int --keep 1000 --keep-for 5m
      roost create rate_limit logins --limit 5 --within 15m
      roost create lease jobs --key 'text(40)'
    """
    structures = declared(targets, options)
    with settings.open(create=True) as store:
        there = {each.name: each for each in stored(store)}
        for structure in structures:
            _must_agree_with(there.get(structure.name), structure)
        store.create(*structures, view=view)
    made = [{"name": each.name, "kind": each.kind, "created": each.name not in there} for each in structures]
    answer(settings, made, [f"{each['name']}: {'made' if each['created'] else 'is there already'}" for each in made])


def _must_agree_with(old: Structure | None, new: Structure) -> None:
    # `Store.create` refuses it as well, with a message for Python users.
    if old is not None and old != new:
        differs = difference(old.definition, new.definition)
        raise Failure(
            f"{new.name} is declared otherwise than it is stored: {differs}; `roost alter` changes what can be "
            f"changed, `roost drop {new.name}` drops it, with all that it holds"
        )


@click.command()
@click.argument("target", metavar="NAME | MODULE[:NAME]")
@KEEP
@KEEP_FOR
@LIMIT
@WITHIN
@MAX_ITEMS
@MAX_BYTES
@click.option("--add", multiple=True, metavar="NAME:TYPE[=VALUE]", help="A new column (ring, capped).")
@ON_FULL
@ON_DUPLICATE
@SLOTS
@click.option("--view/--no-view", default=None, help="Add or drop the view of its name, for SQL clients.")
@click.option("--yes", is_flag=True, help="Do not ask before rows are deleted.")
@shared
@click.pass_obj
def alter(settings: GlobalOptions, /, target: str, view: bool | None, yes: bool, **options: Any) -> None:
    """Change stored structures.

    Name a module to apply its present declarations, or one structure and options. A new column needs a VALUE for the
    existing rows, or ? after its type. With a smaller --keep the oldest rows are deleted. A running program with the
    old declaration follows the stored one from then on, and logs a warning.

    \b
    Examples:
      roost alter app.structures
      roost alter visits --keep 10 --add 'note:text(40)?'
      roost alter visits --add score:int=0
      roost alter baskets --on-full evict --on-duplicate refresh
      roost alter pageviews --slots 8
      roost alter logins --limit 10 --within 1h
      roost alter likes --view
    """
    by_option = view is not None or any([value not in (None, ()) for value in options.values()])
    hint = f"; to change a structure of this name say what: roost alter {target} --keep 10"
    wanted = [] if by_option else imported(target, hint if target.isidentifier() else "")
    with settings.open() as store:
        if by_option:
            wanted = [altered(lookup(store, target, to_write=True), options)]
        _may_delete([(lookup(store, each.name), each) for each in wanted], yes)
        changes = _alter_each(store, wanted, view)
    answer(settings, changes, [f"{each['name']}: {_in_words(each['changes'])}" for each in changes])


def _may_delete(pairs: Sequence[tuple[Structure, Structure]], yes: bool) -> None:
    for old, new in pairs:
        if deleted := console_of(old).deletes(new):
            must_agree(f"{new.name}: {deleted}. Go on?", yes)


def _alter_each(store: roost.Store, wanted: Sequence[Structure], view: bool | None) -> list[dict[str, Any]]:
    # Each change is a transaction of its own, so changes made before a refused one stay.
    changed: list[dict[str, Any]] = []
    for structure in wanted:
        try:
            changed.append({"name": structure.name, "changes": store.alter(structure, view=view)})
        except roost.Error as error:
            if not changed:
                raise
            raise Failure(f"{error}; changed before it: {', '.join(each['name'] for each in changed)}") from error
    return changed


def _in_words(changes: Any) -> str:
    return "; ".join(changes) or "nothing to change"


@click.command()
@declaring
@shared
@click.pass_obj
def ddl(settings: GlobalOptions, /, targets: tuple[str, ...], view: bool, **options: Any) -> None:
    """Print the SQL that `create` would run.

    It is the SQL for a database that has none of the structures. No database is opened, and
    no driver is needed.

    \b
    Examples:
      roost ddl app.structures > migration.sql
      roost ddl ring visits --per uid:int --keep 5 --column visitor:int
    """
    known = Known(dialect_of(settings.database))
    structures = declared(targets, options)
    for structure in structures:
        if why := console_of(structure).read_only:
            raise Failure(why.format(name=structure.name))
    statements = catalog.ddl(known.catalog, [known.plan(structure) for structure in structures], view)
    answer(settings, statements, [f"{statement};" for statement in statements])
