"""create, alter, ddl: commands that make and change structures, declared by the user's modules or by options."""

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
from roost.batching.known import Known
from roost.catalog import catalog
from roost.cli.app import Failure, GlobalOptions, answer, flag, lookup, must_agree, shared, stored
from roost.cli.values import duration, text_parser, window
from roost.databases import dialect_of
from roost.structures.console import REQUIRED
from roost.structures.registry import DECLARATIONS, console_class, console_of, declaration_of
from roost.structures.structure import Structure, difference
from roost.types.columns import parse_column

F = TypeVar("F", bound=Callable[..., Any])
Options = dict[str, Any]

# A column's name before its type; the values of an enum may contain colons too.
_NAMED = re.compile(r"\s*(\w+)\s*:(.*)\Z", re.DOTALL)
# A type, its limits in brackets (which may contain strings with any characters), then a default.
_DEFAULTED = re.compile(r"""(\s*\w+\s*(?:\((?:"(?:[^"\\]|\\.)*"|[^"()])*\))?\s*\??\s*)(?:=(.*))?\Z""", re.DOTALL)

GROUPS = ("key", "member")  # options whose columns form one value for the caller
_EXAMPLES = {"per": "uid:int", "keep": "5", "unique": "egg:int", "limit": "5", "within": "15m"}

_N, _TIME = {"type": int, "metavar": "N"}, {"type": duration, "metavar": "TIME"}
_COLUMNS = {"multiple": True, "metavar": "NAME:TYPE"}
# The options that declare a structure, in the order of --help.
_OPTIONS: dict[str, dict[str, Any]] = {
    "per": {**_COLUMNS, "help": "A column of the key (ring, capped)."},
    "limit": {**_N, "help": "The number of requests allowed at once (rate_limit)."},
    "within": {**_TIME, "help": "The time in which the limit is refilled (rate_limit)."},
    "keep": {**_N, "help": "Rows or members per key (ring, capped, set); windows (counter)."},
    "keep-for": {**_TIME, "help": "The time after which a row or a member expires (ring, capped, set): 90s, 12h, 30d."},
    "column": {**_COLUMNS, "help": "A further column (ring, capped)."},
    "unique": {**_COLUMNS, "help": "A column of a row's id (capped)."},
    "order": {"metavar": "NAME", "help": "The column by which the best rows are kept (capped)."},
    "on-full": {"type": click.Choice(["evict", "reject"]), "help": "What happens beyond N rows (capped)."},
    "on-duplicate": {
        "type": click.Choice(["error", "refresh", "best"]),
        "help": "What happens if the id exists already (capped; best: with --order).",
    },
    "key": {**_COLUMNS, "metavar": "[NAME:]TYPE", "help": "The key (cache, counters, sets); text by default."},
    "member": {**_COLUMNS, "metavar": "[NAME:]TYPE", "help": "The member (sets); text by default."},
    "value": {"metavar": "TYPE", "help": "The value (cache); binary by default."},
    "max-items": {**_N, "help": "Maximum number of values (cache)."},
    "max-bytes": {**_N, "help": "Maximum bytes of keys and values (cache)."},
    "window": {"type": window, "metavar": "TIME", "help": "minute, hour, day, or another time (counter)."},
    "slots": {**_N, "help": "Rows over which one key's adds are spread (counters)."},
    "add": {"multiple": True, "metavar": "NAME:TYPE[=VALUE]", "help": "A new column (ring, capped)."},
}
_CREATES = [name for name in _OPTIONS if name != "add"]
_ALTERS = ["keep", "keep-for", "limit", "within", "max-items", "max-bytes", "add", "on-full", "on-duplicate", "slots"]


def _taking(names: Sequence[str]) -> Callable[[F], F]:
    """Give a command some of the options."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = click.option(f"--{name}", **_OPTIONS[name])(command)
        return command

    return decorate


def declaring(command: F) -> F:
    """Add the arguments that declare structures to a command."""
    view = click.option(
        "--view/--no-view", default=True, help="Make a view of its name for SQL clients (the default), or none."
    )
    targets = click.argument("targets", nargs=-1, required=True, metavar="MODULE[:NAME]... | KIND NAME")
    return targets(_taking(_CREATES)(view(command)))


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
            f"{targets[0]!r} is no kind of structure: {flag(next(iter(given)))} goes with a KIND ({kinds}) and a NAME;"
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


def _only(kind: str, given: Options, allowed: Iterable[str]) -> None:
    for option in given:
        if option not in allowed:
            takes = ", ".join(map(flag, allowed)) or "no options"
            others = [other for other in filter(_is_kind, DECLARATIONS) if option in console_class(other).takes]
            fitting = [other for other in others if {*given} <= {*console_class(other).takes}]
            which = f"; {' or '.join(fitting or others)} does" if others and allowed else ""
            raise click.UsageError(f"{_a(kind)} takes {takes} here, not {flag(option)}{which}")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _in_words(kind: str, name: str, given: Options) -> Structure:
    takes = console_class(kind).takes
    _only(kind, given, takes)
    if missing := [flag(option) for option, default in takes.items() if default is REQUIRED and option not in given]:
        *first, last = missing
        needed = " and ".join(filter(None, [", ".join(first), last]))
        raise click.UsageError(f"{_a(kind)} needs {needed}: {_example(kind, name)}")
    facts = {
        **takes,
        **given,
        **{option: _group(option, given.get(option, ())) for option in GROUPS if option in takes},
    }
    if "value" in given:
        facts["value"] = [("value", given["value"])]
    if "per" in takes:
        facts |= {name: fact for name, fact in _columns(given).items() if name in (*takes, "columns")}
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
    return " ".join([f"roost create {kind} {name}", *(f"{flag(each)} {_EXAMPLES.get(each, '…')}" for each in needed)])


def _group(option: str, given: Sequence[str]) -> list[tuple[str, str]]:
    # The columns of --key or --member; a single column is named after its option.
    columns = [_named(each) if _NAMED.match(each) else (option, each) for each in given or ["text"]]
    if len(columns) == 1 and columns[0][0] != option:
        raise click.UsageError(f"{flag(option)} of one column has no name: {flag(option)} '{columns[0][1]}'")
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


def _once(columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"column {name} is declared twice")
    return columns


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
@_taking(_ALTERS)
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
    answer(
        settings, changes, [f"{each['name']}: {'; '.join(each['changes']) or 'nothing to change'}" for each in changes]
    )


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
    answer(settings, statements, catalog.script(known.dialect, statements))
