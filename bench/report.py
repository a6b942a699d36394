"""Timing and tables for the measurements."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Line:
    """One row of a table: what was measured, the two sides, their ratio, and what it should be."""

    work: str
    baseline: str
    ours: str
    ratio: float
    target: str
    met: bool


@dataclass(frozen=True)
class Report:
    """Lines with their title, as `show_lines` printed them."""

    title: str
    baseline: str
    ours: str
    lines: tuple[Line, ...]

    @property
    def less_is_better(self) -> bool:
        """Whether the ratios are of times or sizes: targets of one table agree."""
        return any(line.target.startswith("<") for line in self.lines)


reports: list[Report] = []  # of the measurement that runs


def machine() -> str:
    """Name what was measured on."""
    cores = os.cpu_count()
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()} "
        f"{platform.machine()}, {cores} cores"
    )


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_lines(title: str, baseline: str, ours: str, lines: Sequence[Line]) -> bool:
    """Print lines with their targets, and note them in `reports`; return whether all were met."""
    reports.append(Report(title, baseline, ours, tuple(lines)))
    show(
        title,
        ["work", baseline, ours, "ratio", "target", ""],
        [
            [line.work, line.baseline, line.ours, f"{line.ratio:.2f}", line.target, "ok" if line.met else "MISSED"]
            for line in lines
        ],
    )
    return all(line.met for line in lines)


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def in_turn(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Run calls in turn, several rounds; return the median seconds of each. What disturbs one disturbs all."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            found.append(seconds(call))
    return [statistics.median(found) for found in times]


def micros(value: float) -> str:
    """Show seconds as microseconds."""
    return f"{value * 1e6:,.1f} µs"


def rate(value: float) -> str:
    """Show a number per second."""
    return f"{value:,.0f}/s"


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
