"""list, show, check, doctor: commands that only read; clear, forget, drop: commands that delete, after asking."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

import click

import roost
from roost.cli.app import Failure, GlobalOptions, answer, answer_table, counted, lookup, must_agree, shared, stored
from roost.cli.values import key_from_text, key_in_words, plain
from roost.structures.registry import console_of
from roost.structures.structure import Structure

PAGE = 20  # keys that `show` lists unless --n says otherwise


@click.command("list")
@shared
@click.pass_obj
def list_(settings: GlobalOptions) -> None:
    """List the structures with their declarations.

    \b
    Examples:
      roost list
      roost list --json
    """
    with settings.open() as store:
        found = stored(store)
    headers = ("name", "kind", "key", "holds", "rules")
    rows = [(each.name, each.kind, *console_of(each).listed()) for each in found]
    definitions = [json.loads(each.definition) for each in found]
    answer_table(settings, definitions, f"Structures of {store.url}", headers, rows)


@click.command()
@click.argument("name")
@click.argument("key", required=False)
@click.option(
    "--n",
    type=click.IntRange(min=1),
    help=f"How many to show; by default {PAGE} keys, or the whole content of one key.",
)
@click.option("--after", metavar="KEY", help="List the keys after this one: the next page.")
@shared
@click.pass_obj
def show(settings: GlobalOptions, name: str, key: str | None, n: int | None, after: str | None) -> None:
    """Show the content of a structure.

    Without a KEY it lists the first keys; with one, the content of that key, the newest first. A KEY of several columns
    is written with commas, or as a JSON list. Put `--` before a KEY that begins with a dash.

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
        raise click.UsageError("--after is for listing keys; it cannot be used with a KEY")
    with settings.open() as store:
        structure = lookup(store, name)
        if key is not None:
            _show_key(settings, store, structure, key_from_text(structure, key), n)
        else:
            begin = None if after is None else key_from_text(structure, after)
            _show_keys(settings, store, structure, begin, n or PAGE)


def _show_key(settings: GlobalOptions, store: roost.Store, structure: Structure, key: Any, n: int | None) -> None:
    console = console_of(structure)
    found = console.content(store.run(console.contents(key, n)), n)
    document = {"structure": structure.name, "key": key} | found.document
    title = f"{structure.name}: {key_in_words(key)}"
    answer_table(settings, plain(document), title, found.headers, found.rows)


def _show_keys(settings: GlobalOptions, store: roost.Store, structure: Structure, after: Any, n: int) -> None:
    console = console_of(structure)
    keys = store.run(structure.keys(after, n))
    found = console.summary(keys, store.run_all(*console.summaries(keys)))
    documents = [{"key": key} | document for key, document in zip(keys, found.document, strict=True)]
    rows = [(*structure.key.check(key), *row) for key, row in zip(keys, found.rows, strict=True)]
    title = f"{structure.name}: {counted(len(keys), 'key')}"
    if len(keys) == n:
        title += f", the next ones with --after {shlex.quote(key_in_words(keys[-1]))}"
    answer_table(settings, plain(documents), title, (*structure.key.names, *found.headers), rows)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@shared
@click.pass_obj
def check(settings: GlobalOptions, names: tuple[str, ...]) -> None:
    """Verify every promise of the structures.

    It reads all rows, in one snapshot; the exit code is 1 if a promise is broken. Without a NAME it checks the whole
    catalog.

    \b
    Examples:
      roost check
      roost check visits baskets
    """
    with settings.open() as store:
        found = store.check(*[lookup(store, name) for name in names])
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


@click.command()
@click.argument("url", required=False)
@shared
@click.pass_obj
def doctor(settings: GlobalOptions, url: str | None) -> None:
    """Examine a database: how each guarantee holds, and which settings would improve it.

    It only reads. Without a URL it examines the store of --store or ROOST_STORE.

    \b
    Examples:
      roost doctor
      roost doctor postgresql://user:password@host/database
    """
    if url is not None:
        settings.store = url
    with settings.open(catalog=False) as store:
        found = store.doctor()
    rows = [(each.subject, each.found, each.means, each.advice) for each in found]
    answer_table(
        settings,
        [dataclasses.asdict(each) for each in found],
        f"What holds on {store.url}",
        ("", "found", "so", "to gain more"),
        rows,
    )


def _removing(verb: str, text: str) -> click.Command:
    # A command that removes what a key holds, after asking.
    @click.command(verb, help=text)
    @click.argument("name")
    @click.argument("key")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @shared
    @click.pass_obj
    def command(settings: GlobalOptions, name: str, key: str, yes: bool) -> None:
        with settings.open() as store:
            structure = lookup(store, name, to_write=True)
            value = key_from_text(structure, key)
            must_agree(f"{verb} key {key_in_words(value)} of {name}: what it holds is deleted. Go on?", yes)
            removed = store.run(getattr(structure, verb)(value))
        document = {"structure": name, "key": plain(value), "removed": removed}
        told = f"{name}: {console_of(structure).removed(removed)} removed from key {key_in_words(value)}"
        answer(settings, document, [told])

    return command


clear = _removing(
    "clear",
    """Delete the content of a key.

    The key itself stays: a ring's sequence continues.

    \b
    Examples:
      roost clear visits 5
      roost clear pagehits 7,/home --yes
    """,
)
forget = _removing(
    "forget",
    """Delete a key with its content.

    If the key is used again, a ring or a capped collection starts at sequence 1.

    \b
    Examples:
      roost forget visits 5
      roost forget pagehits '[7, "/home"]' --yes
    """,
)


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared
@click.pass_obj
def drop(settings: GlobalOptions, name: str, yes: bool) -> None:
    """Drop a structure with all that it holds.

    Its view, its tables and its entry in the catalog are dropped. To undo `roost cap`, use `roost uncap`.

    \b
    Examples:
      roost drop visits
      roost drop visits --yes
    """
    with settings.open() as store:
        structure = lookup(store, name)
        if console_of(structure).read_only:
            raise Failure(f"{name} is a table of your own; `roost uncap {name}` undoes `roost cap`")
        must_agree(f"drop {name}: the {structure.kind} and all that it holds are deleted. Go on?", yes)
        store.drop(structure)
    answer(settings, {"structure": name, "dropped": True}, [f"{name}: dropped"])
