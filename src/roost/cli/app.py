"""What all commands share: their store, errors and questions; tables on a terminal, tab-separated lines, --json."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, TypeVar

import click
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

import roost
from roost.cli.values import printable, words
from roost.databases.urls import parse_file
from roost.structures.registry import console_of
from roost.structures.structure import Structure

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STORE = "sqlite:///roost.db"
INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


class Failure(click.ClickException):
    """An error of a command: printed as `error: …`, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr, escaped: text from a file or a database must not control the terminal."""
        message = "\n".join(map(printable, self.format_message().expandtabs(2).split("\n")))
        click.echo(f"error: {message}", file=file, err=True)


class Commands(click.Group):
    """Lists commands in the order in which they are needed; prints Roost's errors as messages, without traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `--help`."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except roost.Error as error:
            raise Failure(str(error)) from error
        except click.UsageError as error:
            if "://" not in error.message:
                raise
            hint = "the URL of a database goes to --store or ROOST_STORE"  # instead of an argument too many
            raise click.UsageError(f"{error.message}; {hint}", error.ctx) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


@dataclass
class GlobalOptions:
    """The options of every command, which may stand before its name or behind it."""

    store: str | None = None
    json: bool = False

    @property
    def url(self) -> str:
        """The URL from the command line, or from the environment, or the default one."""
        return self.store or os.environ.get("ROOST_STORE") or DEFAULT_STORE

    @property
    def database(self) -> str:
        """The URL, which must be that of a database with a catalog."""
        if self.url.startswith("memcached:"):
            raise Failure(
                "memcached has no catalog, so no structure is known there by its name: a MemcachedSet is declared in "
                "Python, which can look at it (members, info, store.check); `roost doctor` looks at the servers"
            )
        return self.url

    def open(self, *, catalog: bool = True, create: bool = False, timeout: float = 5.0) -> roost.Store:
        """Make the store, which connects on first use.

        catalog: whether the command needs a catalog to find structures.
        create: whether the command makes a file that is not there.
        """
        store = roost.Store(self.database if catalog else self.url, timeout=timeout)
        if not create:
            must_be_there(self.url)
        return store


def must_be_there(url: str) -> None:
    """Fail if the URL is that of a file that is not there."""
    path = parse_file(url)[0] if url.startswith("sqlite:") else None
    if path is not None and not os.path.exists(path):
        raise Failure(
            f"there is no database at {url}; `roost create` makes one, and --store or ROOST_STORE names another"
        )


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(GlobalOptions)
    if value:
        setattr(settings, str(param.name), value)


def flag(option: str) -> str:
    """Return an option as the command line has it."""
    return f"--{option.replace('_', '-')}"


def shared(command: F, default: str = f"env: ROOST_STORE; default: {DEFAULT_STORE}") -> F:
    """Give a command --store and --json."""
    store = click.option(
        "--store",
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help=f"sqlite:///relative.db, mysql://user:password@host/database, or postgresql://… [{default}]",
    )
    json_ = click.option(
        "--json", is_flag=True, expose_value=False, callback=_remember, help="Answer with one JSON document."
    )
    return store(json_(command))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="roost", message="roost %(version)s")
@shared
def main() -> None:
    """Keep fast-moving data in the SQL database you already run.

    Its structures are tables that look after themselves: counters, rings of the last rows, capped collections, sets,
    caches, rate limits, leases.

    \b
    Example:
      roost create ring visits --per uid:int --keep 5 --column visitor:int
      roost import visits visits.csv
      roost show visits 5

    `roost demo` shows four of them at work in a database of its own.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # so that characters outside its encoding are no failure


def stored(store: roost.Store) -> list[Structure]:
    """Return the structures of the store, or fail with a message for the command line; none if there is no file."""
    try:
        return store.structures()
    except roost.Missing:
        if not store.url.startswith("sqlite"):  # a server: the error names the right that the account lacks
            raise
        return []
    except roost.Invalid as error:
        raise Failure(f"the catalog of {store.url} cannot be read ({error}); `roost check` tells more") from error


def lookup(store: roost.Store, name: str, *, to_write: bool = False) -> Structure:
    """Return the structure of this name, or fail with a list of the existing ones.

    to_write: fail also if commands cannot write or change the structure.
    """
    found = {each.name: each for each in stored(store)}
    if name not in found:
        there = f"it has {', '.join(found)}" if found else "it has none yet"
        raise Failure(f"there is no structure {name!r} in {store.url}; {there}; `roost create` makes one")
    if to_write and (why := console_of(found[name]).read_only):
        raise Failure(why.format(name=name))
    return found[name]


def agreed(question: str, yes: bool) -> bool:
    """Ask before deleting, unless `yes`; the answer may come through a pipe too.

    The question is printed on stderr, so that stdout has only the output of the command.
    """
    if yes:
        return True
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)
        raise Failure("nobody answered, so nothing was changed; --yes answers beforehand")
    return answer.strip().lower() in ("y", "yes")


def must_agree(question: str, yes: bool) -> None:
    """Ask, and end the command if the answer is no."""
    if not agreed(question, yes):
        raise Failure("nothing was changed")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: after an interruption, it would be unknown what is committed."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def answer(settings: GlobalOptions, document: Any, lines: Iterable[str]) -> None:
    """Print the document with --json, else the lines."""
    click.echo(json.dumps(document, indent=2) if settings.json else "\n".join(lines))


def answer_table(
    settings: GlobalOptions, document: Any, title: str, headers: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Print the document with --json, else a table; in a pipe, a line of headers and a line per row, without title."""
    console = Console()
    if settings.json or not console.is_terminal:
        answer(settings, document, ("\t".join(map(words, row)) for row in [headers, *rows]))
    else:
        print_table(console, title, headers, rows)


def print_table(console: Console, title: str, headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table under its title; numbers are right-aligned, and long values are folded, not cut."""
    made = Table()
    filled = [list(row) for row in rows]
    for place, header in enumerate(headers):
        numbers = bool(filled) and all([type(row[place]) in (int, float) for row in filled])
        made.add_column(Text(header), justify="right" if numbers else "left", overflow="fold")
    for row in filled:
        made.add_row(*[Text(words(value)) for value in row])
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(made)


def progress_bar(unit: str = "lines", *, in_bytes: bool = False) -> progress.Progress:
    """Make a progress bar on stderr, with rate and remaining time; it is hidden if stderr is not a terminal.

    in_bytes: the total is in bytes, and the field `done` counts the units.
    """
    console = Console(stderr=True)
    counts: list[progress.ProgressColumn] = [progress.MofNCompleteColumn(), progress.TextColumn(unit), _Rate()]
    if in_bytes:
        counts = [progress.TextColumn(f"{{task.fields[done]:,}} {unit}"), progress.TransferSpeedColumn()]
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        *counts,
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Rate(progress.ProgressColumn):
    """Units per second."""

    def render(self, task: progress.Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in singular or plural.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
