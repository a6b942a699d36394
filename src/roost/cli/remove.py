"""clear, forget, drop: commands that delete the content of a key, or a structure, after asking."""

from __future__ import annotations

import click

from roost.cli.app import Failure, GlobalOptions, lookup, must_agree, shared
from roost.cli.screen import answer
from roost.cli.values import key_from_text, key_in_words, plain
from roost.structures.registry import console_of


@click.command()
@click.argument("name")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared
@click.pass_obj
def clear(settings: GlobalOptions, name: str, key: str, yes: bool) -> None:
    """Delete the content of a key.

    The key itself stays: a ring's sequence continues.

    \b
    Examples:
      roost clear visits 5
      roost clear pagehits 7,/home --yes
    """
    _remove(settings, "clear", name, key, yes)


@click.command()
@click.argument("name")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared
@click.pass_obj
def forget(settings: GlobalOptions, name: str, key: str, yes: bool) -> None:
    """Delete a key with its content.

    If the key is used again, a ring or a capped collection starts at sequence 1.

    \b
    Examples:
      roost forget visits 5
      roost forget pagehits '[7, "/home"]' --yes
    """
    _remove(settings, "forget", name, key, yes)


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


def _remove(settings: GlobalOptions, verb: str, name: str, text: str, yes: bool) -> None:
    with settings.open() as store:
        structure = lookup(store, name, to_write=True)
        key = key_from_text(structure, text)
        operation = structure.clear(key) if verb == "clear" else structure.forget(key)
        must_agree(f"{verb} key {key_in_words(key)} of {name}: what it holds is deleted. Go on?", yes)
        removed = store.run(operation)
    document = {"structure": name, "key": plain(key), "removed": removed}
    answer(
        settings, document, [f"{name}: {console_of(structure).removed(removed)} removed from key {key_in_words(key)}"]
    )
