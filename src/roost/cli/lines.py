"""Read the records of a file, line by line: CSV, TSV or JSON lines, plain or gzip, in UTF-8.

A record that cannot be parsed has its problem and its line; the records behind it are read nevertheless.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import roost
from roost.cli.app import Failure
from roost.cli.screen import counted
from roost.cli.values import json_parser, load_json, text_parser
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
        return _objects(lines, structure, fields)
    reader = csv.reader(lines, delimiter="\t" if format == "tsv" else ",", strict=True)
    return _rows(lines, reader, _picks(_header(lines, reader), structure, fields))


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


class Picks(NamedTuple):
    """The place of each column's value in a row (None: the file has none), with its parser; `width` counts fields."""

    width: int
    picks: list[tuple[int | None, Callable[[str], Any]]]


def _picks(header: Sequence[str], structure: str, fields: Sequence[Field]) -> Picks:
    picks: list[tuple[int | None, Callable[[str], Any]]] = []
    for column, name, optional in fields:
        found = [place for place, each in enumerate(header) if each == name]
        if len(found) > 1:
            raise Failure(f"field {name} is in the header {len(found)} times")
        if not found and not optional:
            raise Failure(
                f"the file has no field {name}; it has {', '.join(header)}. --map {column.name}=FIELD names another"
            )
        picks.append((found[0] if found else None, text_parser(structure, column)))
    return Picks(len(header), picks)


def _rows(lines: Lines, reader: Any, columns: Picks) -> Records:
    while True:
        begin, values, problem = lines.number + 1, [], ""
        try:
            row = next(reader, None)
            if row is None:
                return
            if not row:
                continue
            values = _row_values(row, columns)
        except roost.Invalid as error:
            problem = str(error)
        except csv.Error as error:  # such as a missing closing quote, which may have consumed the rest of the file
            problem = f"{error} (read up to line {lines.number})" if lines.number > begin else str(error)
        yield Record(begin, lines.number + 1, values, lines.problem() or problem)


def _row_values(row: Sequence[str], columns: Picks) -> list[Any]:
    width, picks = columns
    if len(row) != width:
        raise roost.Invalid(f"{counted(len(row), 'field')}, where the header has {width}")
    return [LEFT_OUT if place is None else parse(row[place]) for place, parse in picks]


def _objects(lines: Lines, structure: str, fields: Sequence[Field]) -> Records:
    parsers = [(name, optional, json_parser(structure, column)) for column, name, optional in fields]
    for line in lines:
        values, problem = [], ""
        if not line.strip():
            continue
        try:
            values = _object_values(line, parsers)
        except roost.Invalid as error:
            problem = str(error)
        yield Record(lines.number, lines.number + 1, values, lines.problem() or problem)


def _object_values(line: str, parsers: Sequence[tuple[str, bool, Callable[[Any], Any]]]) -> list[Any]:
    try:
        found = load_json(line)
    except ValueError as error:
        raise roost.Invalid(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise roost.Invalid("not a JSON object")
    for name, optional, _ in parsers:
        if name not in found and not optional:
            raise roost.Invalid(f"there is no field {name}")
    return [parse(found[name]) if name in found else LEFT_OUT for name, _, parse in parsers]
