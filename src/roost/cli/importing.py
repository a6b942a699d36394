"""Records become operations, and a thousand of them one transaction."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import roost
from roost.batching.atoms import Atom
from roost.cli.lines import Record

AT_ONCE = 1000  # records per transaction: few commits, and a writer beside us waits for milliseconds

# What a line is to blame for; any other error concerns the whole database.
LINE_ERRORS = (roost.Invalid, roost.Duplicate, roost.Full, roost.Overflow, roost.StatementFailed)

Make = Callable[[list[Any]], roost.Operation[Any]]
Taken = tuple[Record, roost.Operation[Any] | str]  # with what it asks for, or with what is wrong with it


class Stopped(Exception):
    """The import met a bad line that is not to be passed over; all lines before it are in, none behind it is."""

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(f"line {record.line}: {reason}")
        self.record = record
        self.reason = reason


class Import:
    """Records on their way into a store; it knows how many are in and where to go on.

    skips: every record has its own answer, and they share commits. Otherwise a thousand records are one atom, since
        nothing behind a bad line may be committed; one that fails is halved until the bad line stands alone.
    """

    def __init__(
        self, store: roost.Store, make: Make, report: Callable[[str], None], *, skips: bool, from_line: int
    ) -> None:
        self._store = store
        self._make = make
        self._report = report
        self._skips = skips
        self._waiting: list[Taken] = []
        self.from_line = from_line
        self.next_line = from_line
        self.imported = 0
        self.skipped = 0

    def add(self, record: Record) -> None:
        """Take a record along."""
        outcome: roost.Operation[Any] | str = record.problem
        if not outcome:
            try:
                outcome = self._make(record.values)
            except roost.Invalid as error:
                outcome = str(error)
        self._waiting.append((record, outcome))

    @property
    def full(self) -> bool:
        """Whether it is time to bring in what was taken along: a thousand, or a bad line that ends it."""
        if not self._waiting:
            return False
        ends_here = not self._skips and isinstance(self._waiting[-1][1], str)
        return ends_here or len(self._waiting) >= AT_ONCE

    def flush(self) -> None:
        """Bring in what was taken along; raise `Stopped` at a bad line that is not passed over."""
        taken, self._waiting = self._waiting, []
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
        for record, outcome in taken:
            problem = outcome if isinstance(outcome, str) else _problem(next(answers))
            if problem is None:
                self.imported += 1
            else:
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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block: nobody could tell which lines of one that was cut off are in."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _problem(atom: Atom) -> str | None:
    # What is wrong with the line; an error that is not a line's is raised.
    if atom.error is None:
        return None
    if isinstance(atom.error, LINE_ERRORS):
        return str(atom.error)
    raise atom.error
