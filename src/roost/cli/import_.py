"""import: turn the records of a file into operations on a structure, a thousand per transaction.

Files are CSV, TSV or JSON lines, plain or gzip, in UTF-8. A record that cannot be parsed has its problem and its line;
the records behind it are read nevertheless.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import click
from rich.progress import Progress
from rich.text import Text

import roost
from roost.batching.atoms import Atom
from roost.cli.app import Failure, GlobalOptions, answer, counted, lookup, progress_bar, shared, uninterrupted
from roost.cli.values import json_parser, load_json, printable, text_parser
from roost.structures.structure import Structure
from roost.types.column_types import MOST_BINARY
from roost.types.columns import Column

GZIP = b"\x1f\x8b"
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FORMATS = ("csv", "tsv", "jsonl")


LEFT_OUT = object()  # the value of a field that a record does not have


class Field(NamedTuple):
    """A column, the name of its field in the file, and whether a record may lack it."""

    column: Column
    name: str
    optional: bool


class Record(NamedTuple):
    """The values of one record in the order of the fields, `LEFT_OUT` for one that it lacks; or its problem."""

    line: int  # its first line
    next: int  # the line behind it; a quoted value may contain line breaks
    values: list[Any]
    problem: str = ""


Records = Iterator[Record]


def format_of(name: str) -> str | None:
    """Return the format by a file's name, with or without `.gz`; None if the name does not show it."""
    stem = name.lower().removesuffix(".gz")
    return next((found for suffix, found in SUFFIXES.items() if stem.endswith(suffix)), None)


def records(file: BinaryIO, format: str, structure: str, fields: Sequence[Field]) -> Records:
    """Return the records of a file; fail at once if the header lacks a required field."""
    lines = Lines(file)
    if format == "jsonl":
        return _records(lines, iter(lines), _object, [(*each, json_parser(structure, each.column)) for each in fields])
    reader = csv.reader(lines, delimiter="\t" if format == "tsv" else ",", strict=True)
    header = _header(lines, reader)
    left_out = [name for _, name, optional in fields if optional and name not in header]
    mapped = any([name != column.name for column, name, _ in fields])  # then somebody has looked at the fields
    if left_out and not mapped and {*header} - {each.name for each in fields}:
        click.echo(f"not in the file: {', '.join(left_out)}; it has {', '.join(header)}", err=True)
    for column, name, optional in fields:
        if header.count(name) > 1:
            raise Failure(f"field {name} is in the header {header.count(name)} times")
        if name not in header and not optional:
            raise Failure(
                f"the file has no field {name}; it has {', '.join(header)}. --map {column.name}=FIELD names another"
            )
    parsers = [(*each, text_parser(structure, each.column)) for each in fields]
    return _records(lines, reader, partial(_row, header), parsers)


class Lines:
    """The lines of a file as text, counted. Gzip is recognized by its first bytes, so that it works on stdin too."""

    def __init__(self, file: BinaryIO) -> None:
        stream: Any = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)
        self._stream: Any = gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == GZIP else stream
        self.number = 0
        self._problem = ""

    def __iter__(self) -> Iterator[str]:
        try:
            for line in self._stream:
                self.number += 1
                if self.number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield self._decoded(line)
        except (OSError, EOFError, zlib.error) as error:
            raise Failure(f"the file cannot be read behind line {self.number}: {error}") from error

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self._problem = f"not UTF-8: {error.reason} at byte {error.start + 1} of line {self.number}"
            return line.decode(errors="replace")

    def problem(self) -> str:
        """Return the problem of the lines read since the last call, and reset it."""
        problem, self._problem = self._problem, ""
        return problem


def _header(lines: Lines, reader: Any) -> list[str]:
    csv.field_size_limit(2 * MOST_BINARY)  # the longest possible value: bytes in hexadecimal
    try:
        header: list[str] = next(reader, [])
    except csv.Error as error:
        raise Failure(f"line 1: {error}") from error
    if problem := lines.problem():
        raise Failure(f"line 1: {problem}")
    if not header:
        raise Failure("the file has no header: its first line names the fields")
    return header


def _records(
    lines: Lines,
    source: Iterator[Any],
    found_in: Callable[[Any], dict[str, Any]],
    parsers: Sequence[tuple[Column, str, bool, Callable[[Any], Any]]],
) -> Records:
    # found_in: returns the fields of what the source yields.
    while True:
        begin, values, problem = lines.number + 1, [], ""
        try:
            each = next(source, None)
            if each is None:
                return
            if not each or (isinstance(each, str) and not each.strip()):
                continue  # a blank line
            found = found_in(each)
            for _, name, optional, _ in parsers:
                if name not in found and not optional:
                    raise roost.Invalid(f"there is no field {name}")
            values = [parse(found[name]) if name in found else LEFT_OUT for _, name, _, parse in parsers]
        except roost.Invalid as error:
            problem = str(error)
        except csv.Error as error:  # such as a missing closing quote, which may have consumed the rest of the file
            problem = f"{error} (read up to line {lines.number})" if lines.number > begin else str(error)
        yield Record(begin, lines.number + 1, values, lines.problem() or problem)


def _row(header: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    if len(row) != len(header):
        raise roost.Invalid(f"{counted(len(row), 'field')}, where the header has {len(header)}")
    return dict(zip(header, row, strict=True))


def _object(line: str) -> dict[str, Any]:
    try:
        found = load_json(line)
    except ValueError as error:
        raise roost.Invalid(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise roost.Invalid("not a JSON object")
    return found


AT_ONCE = 1000  # records per transaction: few commits, and other writers wait only milliseconds
MOST_BYTES = 2**24  # of their values: they are in memory

# Errors that a single line can cause; any other error concerns the whole database.
LINE_ERRORS = (roost.Invalid, roost.Duplicate, roost.Full, roost.Overflow, roost.StatementFailed)

Make = Callable[[list[Any]], roost.Operation[Any]]
Taken = tuple[Record, roost.Operation[Any] | str]  # a record, with its operation or its problem


class Insertion:
    """Makes operations of records.

    declarations: that of the structure, and those that it had before columns were added. A record without these columns
        is stored by such a one, as by a process of that release: they get their defaults.
    """

    def __init__(self, declarations: Sequence[Structure]) -> None:
        self._name = declarations[0].name
        self._columns = declarations[0]._record_columns
        self._makers: list[tuple[set[str], Sequence[Column], Make]] = []
        for each in declarations:
            columns = each._record_columns
            lacks = {column.name for column in self._columns} - {column.name for column in columns}
            self._makers.append((lacks, columns, each._record))
        self._makers.sort(key=lambda maker: -len(maker[0]))

    def fields(self, maps: Sequence[str]) -> list[Field]:
        """Return the fields of a record, some of which have other names in the file."""
        names = {column.name: column.name for column in self._columns}
        for each in maps:
            column, separator, field = each.partition("=")
            if not separator or column not in names:
                raise click.UsageError(f"--map {each}: it takes COLUMN=FIELD, and {self._name} has {', '.join(names)}")
            names[column] = field
        added = set().union(*[lacks for lacks, _, _ in self._makers])
        return [Field(each, names[each.name], each.nullable or each.name in added) for each in self._columns]

    def make(self, values: Sequence[Any]) -> roost.Operation[Any]:
        """Return the operation that stores a record."""
        given = {each.name: value for each, value in zip(self._columns, values, strict=True) if value is not LEFT_OUT}
        _, columns, insertion = next(each for each in self._makers if not each[0] & given.keys())
        return insertion([given.get(each.name) for each in columns])


class Stopped(Exception):
    """The import stops at a bad line that is not skipped: all lines before it are imported, and none behind it."""

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(f"line {record.line}: {reason}")
        self.record = record
        self.reason = reason


class Import:
    """Imports records into a store; counts them, and remembers the line at which to continue.

    skips: bad lines are skipped: every record is an atom of its own, and they share commits. Otherwise a thousand
        records are one atom, since nothing behind a bad line may be committed; an atom that fails is split in halves
        until the bad line is alone.
    """

    def __init__(
        self, store: roost.Store, make: Make, report: Callable[[str], None], *, skips: bool, from_line: int
    ) -> None:
        self._store = store
        self._make = make
        self._report = report
        self._skips = skips
        self._waiting: list[Taken] = []
        self._bytes = 0  # of these, about
        self.from_line = from_line
        self.next_line = from_line
        self.tried = 0  # the last line that was given to the database
        self.imported = 0
        self.skipped = 0

    def add(self, record: Record) -> None:
        """Collect a record for the next transaction."""
        outcome: roost.Operation[Any] | str = record.problem
        if not outcome:
            try:
                outcome = self._make(record.values)
            except roost.Invalid as error:
                outcome = str(error)
        self._waiting.append((record, outcome))
        self._bytes += sum([len(each) for each in record.values if isinstance(each, (str, bytes))])

    @property
    def full(self) -> bool:
        """Whether to import the collected records now: there are many, or the last one is a bad line."""
        if not self._waiting:
            return False
        ends_here = not self._skips and isinstance(self._waiting[-1][1], str)
        return ends_here or len(self._waiting) >= AT_ONCE or self._bytes >= MOST_BYTES

    def flush(self) -> None:
        """Import the collected records; raise `Stopped` at a bad line that is not skipped."""
        taken, self._waiting, self._bytes = self._waiting, [], 0
        self.tried = taken[-1][0].next - 1 if taken else self.tried
        with uninterrupted():
            if self._skips:
                self._bring_each(taken)
                return
            good = [(record, outcome) for record, outcome in taken if not isinstance(outcome, str)]
            self._bring_all(good)
            if len(good) < len(taken):
                record, problem = taken[-1]
                raise Stopped(record, str(problem))

    def _bring_each(self, taken: Sequence[Taken]) -> None:
        atoms = [Atom((outcome,)) for _, outcome in taken if not isinstance(outcome, str)]
        self._submit(atoms)
        answers = iter(atoms)
        told = [(record, problem if isinstance(problem, str) else next(answers)) for record, problem in taken]
        last = max([place for place, (_, found) in enumerate(told) if _is_in(found)], default=-1)
        for place, (record, found) in enumerate(told):
            if _is_in(found):
                self.imported += 1
            else:
                # A line before one that is in, whatever has kept it out, is skipped: nothing is to be imported twice.
                problem = found if isinstance(found, str) else str(found.error) if place < last else _problem(found)
                self.skipped += 1
                self._report(f"line {record.line}: {problem}")
            self.next_line = record.next

    def _bring_all(self, good: Sequence[tuple[Record, roost.Operation[Any]]]) -> None:
        if not good:
            return
        atom = Atom([operation for _, operation in good])
        self._submit([atom])
        problem = _problem(atom)
        if problem is None:
            self.imported += len(good)
            self.next_line = good[-1][0].next
        elif len(good) == 1:
            raise Stopped(good[0][0], problem)
        else:
            middle = len(good) // 2
            self._bring_all(good[:middle])
            self._bring_all(good[middle:])

    def _submit(self, atoms: Sequence[Atom]) -> None:
        if atoms:
            self._store._run_each(atoms)


def _is_in(found: Atom | str) -> bool:
    return isinstance(found, Atom) and found.error is None


def _problem(atom: Atom) -> str | None:
    # The problem of the line, None if there is none; an error of the whole database is raised.
    if atom.error is None:
        return None
    if isinstance(atom.error, LINE_ERRORS):
        return str(atom.error)
    raise atom.error


@click.command("import")
@click.argument("name")
@click.argument("file", type=click.File("rb"))
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Needed if the file's name does not show it.")
@click.option("--map", "maps", multiple=True, metavar="COLUMN=FIELD", help="The field that a column is read from.")
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True)
@click.option(
    "--from-line", type=click.IntRange(min=1), default=1, metavar="N", help="Begin with the record at line N."
)
@shared
@click.pass_obj
def import_(
    settings: GlobalOptions,
    /,
    name: str,
    file: BinaryIO,
    format_: str | None,
    maps: tuple[str, ...],
    on_error: str,
    from_line: int,
) -> None:
    """Import a file into a structure.

    The file is CSV, TSV (both with a header) or JSON lines, plain or gzip; - means stdin. Fields are matched with
    columns by name; others are ignored. A counter has the fields key and total (1 if there is none), a set has key and
    member, unless their columns are named. A ring and a capped collection add the lines in their order, the oldest
    first: what comes from a view is to be in the order of its sequence. A cache has key and value, and optionally
    expires, the time at which the value expires, and flags. Times are in UTC unless they have a zone, bytes in
    hexadecimal. An empty field is NULL if the column allows it. A column that was added later may be left out, and gets
    its default.

    A bad line is reported with its number and the reason. The import stops there, with all lines before it committed,
    and the message says how to continue; with --on-error skip it skips the line.

    \b
    Examples:
      roost import visits visits.csv
      roost import visits visits.csv.gz --map visitor=who --on-error skip
      roost import visits visits.csv --from-line 5001
      roost import sessions sessions.csv --map value=data --map expires=ends_at
      zcat log.jsonl.gz | roost import pageviews - --format jsonl --map key=path
    """
    file_name = str(getattr(file, "name", "-"))
    format_ = format_ or format_of(file_name)
    if format_ is None:
        raise click.UsageError(f"the format of {file_name} is not clear; --format is one of {', '.join(FORMATS)}")
    began = time.perf_counter()
    with settings.open() as store, progress_bar("lines", in_bytes=True) as bar:

        def report(problem: str) -> None:
            bar.console.print(Text(printable(problem)), soft_wrap=True)

        structure = lookup(store, name, to_write=True)
        if type(structure)._record is Structure._record:
            structure._record([])  # says that nothing can be
        insertion = Insertion([structure, *store._formerly(structure)])
        found = records(file, format_, name, insertion.fields(maps))
        done = Import(store, insertion.make, report, skips=on_error == "skip", from_line=from_line)
        stopped = _bring_in(done, found, file, bar)
    _report(settings, name, done, stopped, time.perf_counter() - began)


def _bring_in(done: Import, found: Records, file: BinaryIO, bar: Progress) -> Stopped | None:
    """Import the records; return the bad line at which the import stopped, if any."""
    size = _size(file)
    task = bar.add_task("", total=size, done=0)

    def flush() -> None:
        done.flush()
        bar.update(task, completed=0 if size is None else file.tell(), done=done.imported)

    try:
        try:
            for record in found:
                if record.line >= done.from_line:
                    done.add(record)
                if done.full:
                    flush()
        except Failure:  # the file is damaged at this point: import the records before it
            flush()
            raise
        flush()
    except Stopped as stopped:
        return stopped
    except (roost.Error, Failure) as error:
        message = error.message if isinstance(error, Failure) else str(error)
        raise Failure(f"{message}\n{_so_far(done, isinstance(error, roost.OutcomeUnknown))}") from error
    except KeyboardInterrupt:
        click.echo(f"\n{_so_far(done)}", err=True)
        raise
    return None


def _size(file: BinaryIO) -> int | None:
    try:
        found = os.fstat(file.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _so_far(done: Import, unknown: bool = False) -> str:
    are = "is" if done.imported == 1 else "are"
    rest = f"go on with --from-line {done.next_line}"
    if unknown:
        rest = f"whether lines {done.next_line} to {done.tried} are is not known: look before you {rest}"
    return f"{counted(done.imported, 'line')} {are} in; {rest}"


def _report(settings: GlobalOptions, name: str, done: Import, stopped: Stopped | None, seconds: float) -> None:
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
