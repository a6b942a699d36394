"""list, show, check: commands that only read."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

import roost
from roost.cli.app import Failure, Settings, lookup, shared, stored
from roost.cli.screen import answer, answer_table, counted
from roost.cli.values import key_from_text, key_in_words, plain
from roost.structures.kinds import Adopted, Counter, Ring, Set
from roost.structures.rows import Entry, RowStructure
from roost.structures.structure import Structure

PAGE = 20  # keys that `show` lists unless --n says otherwise


@click.command("list")
@shared
@click.pass_obj
def list_(settings: Settings) -> None:
    """List the structures with their declarations.

    \b
    Examples:
      roost list
      roost list --json
    """
    with settings.open() as store:
        definitions = [json.loads(each.definition) for each in stored(store)]
    headers = ("name", "kind", "key", "holds", "rules")
    answer_table(settings, definitions, f"Structures of {store.url}", headers, map(_declared, definitions))


def _declared(facts: dict[str, Any]) -> tuple[str, ...]:
    columns = facts.get("columns", [])
    keys = facts.get("key") or [column for column in columns if column[0] in facts["per"]]
    held = facts.get("member") or [column for column in columns if column not in keys]
    if facts["kind"] == Adopted.kind:
        keys, held = [(name, "") for name in facts["per"]], [("rows of its own", "")]
    names = ("keep", "unique", "on_full", "on_duplicate", "slots", "newest_by")
    rules = [f"{name} {_fact(facts[name])}" for name in names if facts.get(name) is not None]
    return facts["name"], facts["kind"], _columns(keys), _columns(held), ", ".join(rules)


def _columns(columns: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {spec}".rstrip() for name, spec in columns)


def _fact(fact: Any) -> str:
    return "+".join(fact) if isinstance(fact, list) else str(fact)


@click.command()
@click.argument("name")
@click.argument("key", required=False)
@click.option("--n", type=click.IntRange(min=1), help=f"How many: {PAGE} keys, or all that one key holds.")
@click.option("--after", metavar="KEY", help="List the keys behind this one: the next page.")
@shared
@click.pass_obj
def show(settings: Settings, name: str, key: str | None, n: int | None, after: str | None) -> None:
    """Show what a structure holds.

    Its first keys, or one key with all it has, the newest first. A KEY of several columns is written with commas, or
    as a JSON list. One that begins with a dash goes behind `--`.

    \b
    Examples:
      roost show visits
      roost show visits --n 50 --after 1200
      roost show visits 5
      roost show pagehits 7,/home
      roost show pagehits '[7, "/home"]'
      roost show temperatures -- -5
    """
    if key is not None and after is not None:
        raise click.UsageError("--after turns the pages of the keys; it does not go with a KEY")
    with settings.open() as store:
        structure = lookup(store, name)
        if key is not None:
            _show_key(settings, store, structure, key_from_text(structure, key), n)
        else:
            begin = None if after is None else key_from_text(structure, after)
            _show_keys(settings, store, structure, begin, n or PAGE)


def _show_key(settings: Settings, store: roost.Store, structure: Structure, key: Any, n: int | None) -> None:
    document: dict[str, Any] = {"structure": structure.name, "key": plain(key)}
    title = f"{structure.name}: {key_in_words(key)}"
    match structure:
        case Counter():
            total = store.run(structure.total(key))
            answer_table(settings, document | {"total": total}, title, ("total",), [(total,)])
        case Set():
            members = sorted(store.run(structure.members(key)), key=_ordered)[:n]
            document["members"] = [plain(member) for member in members]
            rows = [structure.member.check(member) for member in members]
            answer_table(settings, document, title, structure.member.names, rows)
        case Adopted():
            found = store.run(structure.latest(key, n))
            names = found[0]._fields if found else structure.key.names
            document["rows"] = [{name: plain(value) for name, value in row._asdict().items()} for row in found]
            answer_table(settings, document, title, names, found)
        case RowStructure():
            entries = store.run(structure.entries(key))[::-1][:n]
            document["entries"] = [_entry(structure, entry) for entry in entries]
            names = [column.name for column in structure.columns]
            rows = [(each.sequence, each.at, *structure.rows.check(each.row)) for each in entries]
            answer_table(settings, document, title, ("sequence", "at", *names), rows)


def _ordered(member: Any) -> Any:
    # Members of one set are of one type; of the types, only an Enum's values have no order of their own.
    return [getattr(part, "value", part) for part in (member if isinstance(member, tuple) else (member,))]


def _entry(structure: RowStructure[Any, Any], entry: Entry[Any]) -> dict[str, Any]:
    row = {column.name: plain(getattr(entry.row, column.name)) for column in structure.columns}
    return {"sequence": entry.sequence, "at": plain(entry.at), "row": row}


def _show_keys(settings: Settings, store: roost.Store, structure: Structure, after: Any, n: int) -> None:
    keys = store.run(structure.keys(after, n))
    headers, documents, rows = _HOLDINGS[structure.kind](store, structure, keys)
    documents = [{"key": plain(key)} | document for key, document in zip(keys, documents, strict=True)]
    rows = [(*structure.key.check(key), *row) for key, row in zip(keys, rows, strict=True)]
    title = f"{structure.name}: {counted(len(keys), 'key')}"
    if len(keys) == n:
        title += f", the next ones with --after {shlex.quote(key_in_words(keys[-1]))}"
    answer_table(settings, documents, title, (*structure.key.names, *headers), rows)


# What keys hold: the headers of its columns, then a JSON object and a table's row per key.
Holdings = tuple[Sequence[str], list[dict[str, Any]], list[tuple[Any, ...]]]


def _totals(store: roost.Store, counter: Counter[Any], keys: Sequence[Any]) -> Holdings:
    totals = store.run(counter.totals(keys)).values()
    return ("total",), [{"total": total} for total in totals], [(total,) for total in totals]


def _sizes(store: roost.Store, set_: Set[Any, Any], keys: Sequence[Any]) -> Holdings:
    sizes = store.run_all(*[set_.size(key) for key in keys])
    return ("size",), [{"size": size} for size in sizes], [(size,) for size in sizes]


def _newest(store: roost.Store, structure: RowStructure[Any, Any], keys: Sequence[Any]) -> Holdings:
    # The number of rows, and the newest of them.
    names = [column.name for column in structure.columns if column.name not in structure.key.names]
    documents: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    for entries in store.run_all(*[structure.entries(key) for key in keys]):
        newest = entries[-1] if entries else None
        documents.append({"rows": len(entries), "newest": newest and _entry(structure, newest)})
        values = [getattr(newest.row, name) for name in names] if newest else [None] * len(names)
        rows.append((len(entries), newest and newest.sequence, newest and newest.at, *values))
    return ("rows", "sequence", "at", *names), documents, rows


def _rows(store: roost.Store, table: Adopted, keys: Sequence[Any]) -> Holdings:
    counts = store.run_all(*[table.count(key) for key in keys])
    return ("rows",), [{"rows": count} for count in counts], [(count,) for count in counts]


_HOLDINGS: dict[str, Callable[[roost.Store, Any, Sequence[Any]], Holdings]] = {
    Counter.kind: _totals,
    Set.kind: _sizes,
    Ring.kind: _newest,
    roost.Capped.kind: _newest,
    Adopted.kind: _rows,
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@shared
@click.pass_obj
def check(settings: Settings, names: tuple[str, ...]) -> None:
    """Verify every promise that the structures keep.

    Reads everything, in one snapshot; the exit code is 1 when a promise is broken. Without a NAME the whole catalog is
    checked.

    \b
    Examples:
      roost check
      roost check visits baskets
    """
    with settings.open() as store:
        found = store.check(*[lookup(store, name) for name in names]) if names else _check_all(store)
    documents = [
        {"structure": each.structure, "rule": each.rule, "key": plain(each.key), "detail": each.detail}
        for each in found
    ]
    if found:
        headers = ("structure", "rule", "key", "detail")
        rows = [(each.structure, each.rule, each.key, each.detail) for each in found]
        answer_table(settings, documents, counted(len(found), "violation"), headers, rows)
        raise click.exceptions.Exit(1)
    answer(settings, documents, ["every promise is kept"])


def _check_all(store: roost.Store) -> list[roost.Violation]:
    try:
        return store.check()
    except roost.Missing:
        raise Failure(f"there is no database at {store.url}, so there is nothing to check") from None
