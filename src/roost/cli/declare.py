"""Declarations from the arguments of a command: from the user's modules, or from options."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

import roost
from roost.cli.app import Failure
from roost.cli.durations import Duration, Window
from roost.cli.values import text_parser
from roost.structures.console import REQUIRED
from roost.structures.registry import DECLARATIONS, console_class, console_of, declaration_of
from roost.structures.structure import Structure
from roost.types.columns import parse_column

F = TypeVar("F", bound=Callable[..., Any])
Options = dict[str, Any]

# A column's name before its type; the values of an enum may contain colons too.
_NAMED = re.compile(r"\s*(\w+)\s*:(.*)\Z", re.DOTALL)
# A type, its limits in brackets (which may contain strings with any characters), then a default.
_DEFAULTED = re.compile(r"""(\s*\w+\s*(?:\((?:"(?:[^"\\]|\\.)*"|[^"()])*\))?\s*\??\s*)(?:=(.*))?\Z""", re.DOTALL)

_EXAMPLES = {"per": "uid:int", "keep": "5", "unique": "egg:int", "limit": "5", "within": "15m"}

GROUPS = ("key", "member")  # options whose columns form one value for the caller

KEEP = click.option(
    "--keep", type=int, metavar="N", help="Rows or members per key (ring, capped, set); windows (counter)."
)
KEEP_FOR = click.option(
    "--keep-for",
    type=Duration(),
    metavar="TIME",
    help="The time after which a row or a member expires (ring, capped, set): 90s, 12h, 30d.",
)
SLOTS = click.option("--slots", type=int, metavar="N", help="Rows over which one key's adds are spread (counters).")
MAX_ITEMS = click.option("--max-items", type=int, metavar="N", help="Maximum number of values (cache).")
MAX_BYTES = click.option("--max-bytes", type=int, metavar="N", help="Maximum bytes of keys and values (cache).")
LIMIT = click.option("--limit", type=int, metavar="N", help="The number of requests allowed at once (rate_limit).")
WITHIN = click.option(
    "--within", type=Duration(), metavar="TIME", help="The time in which the limit is refilled (rate_limit)."
)
ON_FULL = click.option("--on-full", type=click.Choice(["evict", "reject"]), help="What happens beyond N rows (capped).")
ON_DUPLICATE = click.option(
    "--on-duplicate",
    type=click.Choice(["error", "refresh", "best"]),
    help="What happens if the id exists already (capped; best: with --order).",
)


def declaring(command: F) -> F:
    """Add the arguments that declare structures to a command."""
    options = [
        click.argument("targets", nargs=-1, required=True, metavar="MODULE[:NAME]... | KIND NAME"),
        click.option(
            "--per",
            multiple=True,
            metavar="NAME:TYPE",
            help="A column of the key (ring, capped).",
        ),
        LIMIT,
        WITHIN,
        KEEP,
        KEEP_FOR,
        click.option("--column", multiple=True, metavar="NAME:TYPE", help="A further column (ring, capped)."),
        click.option("--unique", multiple=True, metavar="NAME:TYPE", help="A column of a row's id (capped)."),
        click.option("--order", metavar="NAME", help="The column by which the best rows are kept (capped)."),
        ON_FULL,
        ON_DUPLICATE,
        click.option(
            "--key", multiple=True, metavar="[NAME:]TYPE", help="The key (cache, counters, sets); text by default."
        ),
        click.option("--member", multiple=True, metavar="[NAME:]TYPE", help="The member (sets); text by default."),
        click.option("--value", metavar="TYPE", help="The value (cache); binary by default."),
        MAX_ITEMS,
        MAX_BYTES,
        click.option("--window", type=Window(), metavar="TIME", help="minute, hour, day, or another time (counter)."),
        SLOTS,
        click.option(
            "--view/--no-view", default=True, help="Make a view of its name for SQL clients (the default), or none."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def declared(targets: Sequence[str], options: Options) -> list[Structure]:
    """Return the structures that the arguments declare: those of modules, or one from options."""
    given = _given(options)
    if _is_kind(targets[0]):
        if len(targets) != 2:
            raise click.UsageError(f"{_a(targets[0])} takes one NAME: {_example(targets[0])}")
        return [_in_words(targets[0], targets[1], given)]
    kinds = ", ".join(filter(_is_kind, DECLARATIONS))
    if given:
        raise click.UsageError(
            f"{targets[0]!r} is no kind of structure: {_flag(next(iter(given)))} goes with a KIND ({kinds}) and a NAME;"
            " a module has its own"
        )
    found = [
        structure for target in targets for structure in imported(target, f", and the kinds of structures are {kinds}")
    ]
    return list(dict.fromkeys(found))


def _is_kind(word: str) -> bool:
    """Whether structures of this kind can be declared by options."""
    try:
        return bool(console_class(word).takes)
    except roost.Invalid:
        return False


def imported(target: str, hint: str) -> list[Structure]:
    """Return the structures at the top level of `module`, or the one named by `module:name`.

    hint: what else to tell if there is no module of that name.
    """
    path, _, name = target.partition(":")
    if path.endswith(".py") or not all([part.isidentifier() for part in path.split(".")]):
        raise click.UsageError(f"{target!r} is not a module: write its name as an import does, such as app.structures")
    found = {word: value for word, value in vars(_module(path, hint)).items() if isinstance(value, Structure)}
    if not found:
        raise Failure(f"{path} has no structures at its top level, such as hits = roost.Counter('hits')")
    if not name:
        return list(dict.fromkeys(found.values()))
    if name not in found:
        raise Failure(f"{path} has no structure {name!r}; it has {', '.join(found)}")
    return [found[name]]


def _module(path: str, hint: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise Failure(f"{path} cannot be imported: {error}") from error
        raise Failure(f"there is no module {error.name}; the current directory is searched first{hint}") from error
    except (Exception, SystemExit) as error:
        raise Failure(f"{path} cannot be imported: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: BaseException) -> str:
    # The line in the user's module, not the line of Roost that raised; the text of a SyntaxError has it already.
    ours = (str(Path(roost.__file__).parent), "<frozen")
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(ours)]
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _given(options: Options) -> Options:
    return {name: value for name, value in options.items() if value not in (None, ())}


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _only(kind: str, given: Options, allowed: Iterable[str]) -> None:
    for option in given:
        if option not in allowed:
            takes = ", ".join(map(_flag, allowed)) or "no options"
            others = [other for other in filter(_is_kind, DECLARATIONS) if option in console_class(other).takes]
            fitting = [other for other in others if {*given} <= {*console_class(other).takes}]
            which = f"; {' or '.join(fitting or others)} does" if others and allowed else ""
            raise click.UsageError(f"{_a(kind)} takes {takes} here, not {_flag(option)}{which}")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _in_words(kind: str, name: str, given: Options) -> Structure:
    takes = console_class(kind).takes
    _only(kind, given, takes)
    if missing := [_flag(option) for option, default in takes.items() if default is REQUIRED and option not in given]:
        *first, last = missing
        needed = " and ".join(filter(None, [", ".join(first), last]))
        raise click.UsageError(f"{_a(kind)} needs {needed}: {_example(kind, name)}")
    facts = {  # as a definition has them
        **takes,
        **given,
        **{option: _group(option, given.get(option, ())) for option in GROUPS if option in takes},
    }
    if "value" in given:
        facts["value"] = [["value", given["value"]]]
    if "per" in takes:
        facts |= {fact: value for fact, value in _columns(given).items() if fact in ("columns", *takes)}
        del facts["column"]
    facts |= console_class(kind).facts(name, given)
    try:
        return declaration_of(kind).from_facts(name, facts)
    except roost.Error:
        raise
    except (TypeError, ValueError) as error:  # for example, a column name that dataclasses refuse
        raise roost.Invalid(f"{name}: {error}") from error


def _example(kind: str, name: str = "NAME") -> str:
    needed = [option for option, default in console_class(kind).takes.items() if default is REQUIRED]
    return " ".join([f"roost create {kind} {name}", *(f"{_flag(each)} {_EXAMPLES.get(each, '…')}" for each in needed)])


def _group(option: str, given: Sequence[str]) -> list[list[str]]:
    # The columns of --key or --member; a single column is named after its option.
    columns = [_named(each) if _NAMED.match(each) else (option, each) for each in given or ["text"]]
    if len(columns) == 1 and columns[0][0] != option:
        raise click.UsageError(f"{_flag(option)} of one column has no name: {_flag(option)} '{columns[0][1]}'")
    return _once(columns)


def _columns(given: Options) -> Options:
    # The columns of a row, in the order per, unique, others. --per and --unique may name a column declared by --column.
    columns: list[tuple[str, str]] = []
    keys: dict[str, list[str]] = {"per": [], "unique": []}
    for option, names in keys.items():
        for each in given.get(option, ()):
            if ":" in each:
                columns.append(_named(each))
            names.append(columns[-1][0] if ":" in each else each)
    columns += [_named(each) for each in given.get("column", ())]
    named = [*((option, name) for option, names in keys.items() for name in names), ("order", given.get("order"))]
    for option, name in named:
        if name is not None and name not in dict(columns):
            where = "column" if option == "order" else option
            raise click.UsageError(f"--{option} {name}: which type has it? Write --{where} {name}:int, for example")
    return {"columns": _once(columns), **keys}


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.match(text)
    if not found:
        raise click.UsageError(f"{text!r} is not a column: write NAME:TYPE, such as uid:int")
    return found[1], found[2]


def _once(columns: list[tuple[str, str]]) -> list[list[str]]:
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"column {name} is declared twice")
    return [[*each] for each in columns]


def altered(stored: Structure, options: Options) -> Structure:
    """Return the stored declaration with the changes of the options."""
    given, console = _given(options), console_of(stored)
    _only(stored.kind, given, console.changes)
    added = [_added(stored.name, each) for each in given.pop("add", ())]
    names = [column.name for column in stored.columns]
    for name, _, _ in added:
        if name in names:
            raise click.UsageError(f"{stored.name} has a column {name} already")
        names.append(name)
    return console.altered(given, added)


def _added(structure: str, text: str) -> tuple[str, Any, Any]:
    # The dataclass field for `note:text(40)?` or `score:int=0`.
    name, rest = _named(text)
    found = _DEFAULTED.match(rest)
    if not found:
        raise click.UsageError(f"{text!r} is not a column: write NAME:TYPE, such as note:text(40)?")
    spec, default = found.groups()
    column = parse_column(structure, name, spec)
    if default is None and not column.nullable:
        raise click.UsageError(
            f"column {name} needs a value for the rows that are there: {name}:{spec}=VALUE, or {name}:{spec}? for none"
        )
    value = None if default is None else text_parser(structure, column)(default)
    return name, column.python, dataclasses.field(default=value)
