"""import: the records of a file go into a structure."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import click
from rich.progress import Progress
from rich.text import Text

import roost
from roost.cli.app import Failure, Settings, lookup, shared
from roost.cli.importing import Import, Stopped
from roost.cli.lines import FORMATS, Field, Records, format_of, records
from roost.cli.screen import answer, counted, progress_bar
from roost.cli.values import printable
from roost.structures.registry import console_of
from roost.types.columns import Column


@click.command("import")
@click.argument("name")
@click.argument("file", type=click.File("rb"))
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Where the file's name does not show it.")
@click.option("--map", "maps", multiple=True, metavar="COLUMN=FIELD", help="The field that a column is read from.")
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True)
@click.option("--from-line", type=click.IntRange(min=1), default=1, metavar="N", help="Begin with the record there.")
@shared
@click.pass_obj
def import_(
    settings: Settings,
    /,
    name: str,
    file: BinaryIO,
    format_: str | None,
    maps: tuple[str, ...],
    on_error: str,
    from_line: int,
) -> None:
    """Read a file into a structure.

    CSV, TSV (both with a header) or JSON lines, plain or gzip, - for stdin. Fields are found by the names of the
    columns; others are ignored. A counter has the fields key and n (1 when there is none), a set key and member,
    unless their columns have names of their own. A ring and a capped collection add the lines in their order. An
    empty field is None where the column may be empty.

    A bad line is reported with its number and the reason. The import stops there, with all lines before it committed,
    and the message says how to go on; with --on-error skip it skips the line.

    \b
    Examples:
      roost import visits visits.csv
      roost import visits visits.csv.gz --map visitor=who --on-error skip
      roost import visits visits.csv --from-line 5001
      zcat log.jsonl.gz | roost import pageviews - --format jsonl --map key=path
    """
    file_name = str(getattr(file, "name", "-"))
    format_ = format_ or format_of(file_name)
    if format_ is None:
        raise click.UsageError(f"the format of {file_name} is not clear; --format is one of {', '.join(FORMATS)}")
    began = time.perf_counter()
    with settings.open() as store, progress_bar("lines", in_bytes=True) as bar:
        structure = lookup(store, name, to_write=True)
        console = console_of(structure)
        found = records(file, format_, name, _fields(name, console.fields, maps))
        done = Import(store, console.insertion, _reporter(bar), skips=on_error == "skip", from_line=from_line)
        stopped = _bring_in(done, found, file, bar)
    _report(settings, name, done, stopped, time.perf_counter() - began)


def _fields(name: str, columns: Sequence[Column], maps: Sequence[str]) -> list[Field]:
    names = {column.name: column.name for column in columns}
    for each in maps:
        column, separator, field = each.partition("=")
        if not separator or column not in names:
            raise click.UsageError(f"--map {each}: it takes COLUMN=FIELD, and {name} has {', '.join(names)}")
        names[column] = field
    return [Field(column, names[column.name]) for column in columns]


def _bring_in(done: Import, found: Records, file: BinaryIO, bar: Progress) -> Stopped | None:
    """Bring in the records; return the bad line at which it stopped."""
    size = _size(file)
    task = bar.add_task("", total=size, done=0)

    def flush() -> None:
        done.flush()
        bar.update(task, completed=0 if size is None else file.tell(), done=done.imported)

    with _reporting_progress(done):
        try:
            _pump(done, found, flush)
        except Stopped as stopped:
            return stopped
    return None


def _pump(done: Import, found: Records, flush: Callable[[], None]) -> None:
    try:
        for record in found:
            if record.line >= done.from_line:
                done.add(record)
            if done.full:
                flush()
    except Failure:  # the file is damaged there; what stands before that is good
        flush()
        raise
    flush()


@contextmanager
def _reporting_progress(done: Import) -> Iterator[None]:
    try:
        yield
    except (roost.Error, Failure) as error:
        message = error.message if isinstance(error, Failure) else str(error)
        raise Failure(f"{message}\n{_so_far(done)}") from error
    except KeyboardInterrupt:
        click.echo(f"\n{_so_far(done)}", err=True)
        raise


def _size(file: BinaryIO) -> int | None:
    try:
        found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _so_far(done: Import) -> str:
    are = "is" if done.imported == 1 else "are"
    return f"{counted(done.imported, 'line')} {are} in; go on with --from-line {done.next_line}"


def _reporter(bar: Progress) -> Callable[[str], None]:
    return lambda message: bar.console.print(Text(printable(message)), soft_wrap=True)


def _report(settings: Settings, name: str, done: Import, stopped: Stopped | None, seconds: float) -> None:
    summary = f"{name}: {counted(done.imported, 'line')} imported in {seconds:.1f} s ({done.imported / seconds:,.0f}/s)"
    if done.skipped:
        summary += f", {done.skipped:,} skipped"
    document = {
        "structure": name,
        "imported": done.imported,
        "skipped": done.skipped,
        "stopped": stopped and {"line": stopped.record.line, "reason": stopped.reason, "next": stopped.record.next},
        "seconds": round(seconds, 3),
    }
    answer(settings, document, [summary])
    if stopped:
        raise Failure(
            f"{stopped}\nAll lines before it are in. Mend it and go on with --from-line {stopped.record.line}, "
            f"or pass over it with --from-line {stopped.record.next}."
        )
