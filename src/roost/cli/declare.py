"""Declarations from the arguments of a command: from the user's own modules, or from words."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

import roost
from roost.cli.app import Failure
from roost.cli.values import text_parser
from roost.structures.kinds import KINDS
from roost.structures.rows import RowStructure
from roost.structures.structure import Structure
from roost.types.columns import parse_column

F = TypeVar("F", bound=Callable[..., Any])
Options = dict[str, Any]

# A column's name before its type; an enum's values may have colons of their own.
_NAMED = re.compile(r"\s*(\w+)\s*:(.*)\Z", re.DOTALL)
# A type, its limits in brackets (strings in them may hold anything), then a default.
_DEFAULTED = re.compile(r"""(\s*\w+\s*(?:\((?:"(?:[^"\\]|\\.)*"|[^"()])*\))?\s*\??\s*)(?:=(.*))?\Z""", re.DOTALL)

# The options that each kind takes, and those that it cannot do without.
TAKES = {
    "counter": ("key", "slots"),
    "ring": ("per", "keep", "column"),
    "capped": ("per", "keep", "column", "unique", "on_full", "on_duplicate"),
    "set": ("key", "member"),
}
NEEDS = {"counter": (), "ring": ("per", "keep"), "capped": ("per", "keep", "unique"), "set": ()}
CHANGES = {
    "counter": ("slots",),
    "ring": ("keep", "add"),
    "capped": ("keep", "add", "on_full", "on_duplicate"),
    "set": (),
}

KEEP = click.option("--keep", type=int, metavar="N", help="Rows per key (ring, capped).")
SLOTS = click.option("--slots", type=int, metavar="N", help="Rows over which one key's adds are spread (counter).")
ON_FULL = click.option("--on-full", type=click.Choice(["evict", "reject"]), help="Beyond N rows (capped).")
ON_DUPLICATE = click.option(
    "--on-duplicate", type=click.Choice(["error", "refresh"]), help="When the id is there already (capped)."
)


def declaring(command: F) -> F:
    """Give a command the arguments that declare structures."""
    options = [
        click.argument("targets", nargs=-1, required=True, metavar="MODULE[:NAME]... | KIND NAME"),
        click.option("--per", multiple=True, metavar="NAME:TYPE", help="A column of the key (ring, capped)."),
        KEEP,
        click.option("--column", multiple=True, metavar="NAME:TYPE", help="A further column (ring, capped)."),
        click.option("--unique", multiple=True, metavar="NAME:TYPE", help="A column of a row's id (capped)."),
        ON_FULL,
        ON_DUPLICATE,
        click.option("--key", multiple=True, metavar="[NAME:]TYPE", help="The key (counter, set); text by default."),
        click.option("--member", multiple=True, metavar="[NAME:]TYPE", help="The member (set); text by default."),
        SLOTS,
        click.option("--view/--no-view", default=True, help="Whether SQL clients get a view of its name (they do)."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def declared(targets: Sequence[str], options: Options) -> list[Structure]:
    """Return the structures that the arguments declare: those of modules, or one in words."""
    given = _given(options)
    if targets[0] in KINDS:
        if len(targets) != 2:
            raise click.UsageError(f"a {targets[0]} takes one NAME: roost create {targets[0]} NAME --…")
        return [_in_words(targets[0], targets[1], given)]
    if given:
        raise click.UsageError(
            f"{_flag(next(iter(given)))} goes with a KIND ({', '.join(KINDS)}) and a NAME; a module has its own"
        )
    found = [structure for target in targets for structure in imported(target)]
    return list(dict.fromkeys(found))


def imported(target: str) -> list[Structure]:
    """Return the structures at the top level of `module`, or the one that is `module:name`."""
    path, _, name = target.partition(":")
    if path.endswith(".py") or not all([part.isidentifier() for part in path.split(".")]):
        raise click.UsageError(f"{target!r} is no module: write it as an import does, such as app.structures")
    found = {word: value for word, value in vars(_module(path)).items() if isinstance(value, Structure)}
    if not found:
        raise Failure(f"{path} has no structures at its top level, such as hits = roost.Counter('hits')")
    if not name:
        return list(dict.fromkeys(found.values()))
    if name not in found:
        raise Failure(f"{path} has no structure {name!r}; it has {', '.join(found)}")
    return [found[name]]


def _module(path: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise Failure(f"{path} cannot be imported: {error}") from error
        raise Failure(f"there is no module {error.name}; the current directory is searched first") from error
    except (Exception, SystemExit) as error:
        raise Failure(f"{path} cannot be imported: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: BaseException) -> str:
    # The user's own line, not the one of ours that refused it; a SyntaxError tells it in its text.
    ours = (str(Path(roost.__file__).parent), "<frozen")
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(ours)]
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _given(options: Options) -> Options:
    return {name: value for name, value in options.items() if value not in (None, ())}


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _only(kind: str, given: Options, allowed: Sequence[str]) -> None:
    for option in given:
        if option not in allowed:
            takes = ", ".join(map(_flag, allowed)) or "nothing"
            raise click.UsageError(f"a {kind} takes {takes} here, not {_flag(option)}")


def _in_words(kind: str, name: str, given: Options) -> Structure:
    _only(kind, given, TAKES[kind])
    for option in NEEDS[kind]:
        if option not in given:
            raise click.UsageError(f"a {kind} needs {_flag(option)}")
    facts: Options
    if kind in ("counter", "set"):
        facts = {option: _group(option, given.get(option, ())) for option in ("key", "member")}
        facts["slots"] = given.get("slots")
    else:
        facts = {"keep": given["keep"], **_columns(given)}
        facts |= {"on_full": given.get("on_full", "evict"), "on_duplicate": given.get("on_duplicate", "error")}
    try:
        return KINDS[kind].from_facts(name, facts)
    except roost.Error:
        raise
    except (TypeError, ValueError) as error:  # a name that Python's own classes refuse
        raise roost.Invalid(f"{name}: {error}") from error


def _group(option: str, given: Sequence[str]) -> list[tuple[str, str]]:
    # The columns of --key or --member: a single one has no name of its own.
    columns = [_named(each) if _NAMED.match(each) else (option, each) for each in given or ["text"]]
    if len(columns) == 1 and columns[0][0] != option:
        raise click.UsageError(f"{_flag(option)} of one column has no name: {_flag(option)} '{columns[0][1]}'")
    return _once(columns)


def _columns(given: Options) -> Options:
    # The columns of a row in the order per, unique, others; --per and --unique may name one of --column.
    columns: list[tuple[str, str]] = []
    keys: dict[str, list[str]] = {"per": [], "unique": []}
    for option, names in keys.items():
        for each in given.get(option, ()):
            if ":" in each:
                columns.append(_named(each))
            names.append(columns[-1][0] if ":" in each else each)
    columns += [_named(each) for each in given.get("column", ())]
    return {"columns": _once(columns), **keys}


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.match(text)
    if not found:
        raise click.UsageError(f"{text!r} is no column: a name, a colon and a type, such as uid:int")
    return found[1], found[2]


def _once(columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"column {name} is declared twice")
    return columns


def altered(stored: Structure, options: Options) -> Structure:
    """Return the declaration of what is stored with the changes that options ask for."""
    given = _given(options)
    _only(stored.kind, given, CHANGES[stored.kind])
    facts = json.loads(stored.definition) | {name: value for name, value in given.items() if name != "add"}
    changed = KINDS[stored.kind].from_facts(stored.name, facts)
    if "add" not in given:
        return changed
    assert isinstance(changed, roost.Ring | roost.Capped)
    row = _with_columns(changed, [_added(stored.name, each) for each in given["add"]])
    if isinstance(changed, roost.Ring):
        return roost.Ring(stored.name, row, per=facts["per"], keep=facts["keep"])
    rules = {name: facts[name] for name in ("per", "keep", "unique", "on_full", "on_duplicate")}
    return roost.Capped(stored.name, row, **rules)


def _with_columns(structure: RowStructure[Any, Any], fields: list[tuple[str, Any, Any]]) -> type[Any]:
    there = [column.name for column in structure.columns]
    for place, (name, _, _) in enumerate(fields):
        if name in there or name in [other for other, _, _ in fields[:place]]:
            raise click.UsageError(f"{structure.name} has a column {name} already")
    row = structure.rows.type
    return dataclasses.make_dataclass(row.__name__, fields, bases=(row,), frozen=True)


def _added(structure: str, text: str) -> tuple[str, Any, Any]:
    # A field for `note:text(40)?` or `score:int=0`.
    name, rest = _named(text)
    found = _DEFAULTED.match(rest)
    if not found:
        raise click.UsageError(f"{text!r} is no column: a name, a colon and a type, such as note:text(40)?")
    spec, default = found.groups()
    column = parse_column(structure, name, spec)
    if default is None and not column.nullable:
        raise click.UsageError(
            f"column {name} needs a value for the rows that are there: {name}:{spec}=VALUE, or {name}:{spec}? for none"
        )
    value = None if default is None else text_parser(structure, column)(default)
    return name, column.python, dataclasses.field(default=value)
