"""The output of commands: a table on a terminal, tab-separated lines in a pipe, one JSON document with --json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from roost.cli.app import GlobalOptions
from roost.cli.values import words


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


def progress_bar(unit: str = "lines", *, in_bytes: bool = False) -> Progress:
    """Make a progress bar on stderr, with rate and remaining time; it is hidden if stderr is not a terminal.

    in_bytes: the total is in bytes, and the field `done` counts the units.
    """
    console = Console(stderr=True)
    counts: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn(unit), _Rate()]
    if in_bytes:
        counts = [TextColumn(f"{{task.fields[done]:,}} {unit}"), TransferSpeedColumn()]
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        *counts,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Rate(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        """Return the rate as text; empty while it is unknown."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in singular or plural.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
