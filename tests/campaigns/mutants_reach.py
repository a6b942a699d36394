"""Which tests come by which mutants: the runs of tests in a copy of the tree, with probes at the mutants, and notes."""

from __future__ import annotations

import ast
import contextlib
import difflib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SUITE = [
    f"tests/suite/{name}_test.py"
    for name in ("store", "counter", "ring", "capped", "sets", "alter", "check", "model", "age")
]
_MEMCACHED = [f"tests/{room}/memcached_test.py" for room in ("plans", "values", "suite", "faults", "model")]
_FAULTS = [
    f"tests/faults/{name}_test.py"
    for name in ("culprit", "interrupted", "interrupted_commit", "lost_connection", "slow_transaction", "cancelled")
]
_STRUCTURES = [f"structures/{name}/" for name in ("counter", "ring", "capped", "set")]
# The tests that concern a file, by the beginning of its path; the first that fits.
CONCERN = [
    (("databases/callers/", "databases/server", "store/runner"),
     [f"tests/suite/joined{name}_test.py" for name in ("", "_sqlite", "_servers")]),
    (("structures/memcached_set/records",), ["tests/plans/records_test.py", *_MEMCACHED]),
    (("databases/memcached", "store/memcached", "structures/memcached_set/"), _MEMCACHED),
    (("databases/sqlite/apsw", "server/", "protocols/", "structures/index"),
     ["tests/protocols", "tests/index", "tests/server", "tests/handlersocket/differential_test.py"]),
    (("databases/mariadb/rows",), ["tests/suite/mariadb_rows_test.py"]),
    (("databases/sqlite", "store/links"),
     [*_SUITE[:2], *[f"tests/faults/{name}_test.py" for name in (
         "bad_file", "full_disk", "forked", "foreign_transaction", "many_processes", "interrupted", "windows")]]),
    (("databases/",), [*_SUITE[:3], "tests/suite/types_test.py", "tests/suite/prepared_test.py", *_FAULTS,
                     "tests/faults/outage_test.py", "tests/values/errors_test.py"]),
    (("capping/", "store/bursts", "cli/adopt", "structures/adopted"),
     ["tests/suite/capping", "tests/cli/adopt_test.py"]),
    (("batching/", "store/"),
     ["tests/suite/store_test.py", *_FAULTS, "tests/faults/closed_test.py", "tests/faults/own_transaction_test.py"]),
    (("structures/views/", *[f"{each}view" for each in _STRUCTURES]),
     ["tests/suite/views_test.py", "tests/suite/views_table_test.py", "tests/suite"]),
    (("catalog/doctor",), ["tests/cli/doctor_test.py"]),
    (("catalog/", *_STRUCTURES, "structures/plan"), ["tests/plans", *_SUITE, "tests/suite/drop_test.py"]),
    (("client/",), ["tests/client"]),
    (("cli/",), ["tests/cli"]),
    (("contrib/",), ["tests/contrib"]),
    (("structures/", "dialects/", "errors"), ["tests/values", "tests/plans", "tests/suite/types_test.py"]),
]  # fmt: skip
WIDER = ["tests/values", "tests/plans", "tests/index", "tests/suite", "tests/faults", "tests/model", "tests/cli"]
MOST_BROKEN = 5  # tests that fail without a mutant, too, before what comes after them is left alone
# All that looks for who comes by, in this order.
ALL = [*WIDER, "tests/protocols", "tests/server", "tests/client", "tests/contrib", "tests/handlersocket"]


@dataclass(frozen=True)
class Mutant:
    """One defect: in a file, the text between two places becomes another."""

    path: str
    line: int
    kind: str
    begin: int
    end: int
    put: str
    text: str = field(repr=False)
    nth: int = 1  # of those in this file with the same kind and lines

    @property
    def changed(self) -> str:
        """The text of the file with the defect."""
        return self.text[: self.begin] + self.put + self.text[self.end :]

    @property
    def name(self) -> str:
        """What it is known by in other versions of the file: not its number, but what its lines were and become."""
        return " | ".join([self.path, self.kind, *self.lines, str(self.nth)])

    @property
    def diff(self) -> str:
        """What is changed, as `diff -u` has it."""
        before, after = self.text.splitlines(), self.changed.splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, self.path, self.path, lineterm="", n=2)))

    @property
    def probed(self) -> tuple[str, str]:
        """What stands before and after the text in a copy that tells who comes by; a number takes the place of {}."""
        call = "__import__('reached').hit({})"
        if self.kind in ("early exit", "call", "cleanup"):
            margin = self.begin - self.text.rfind("\n", 0, self.begin) - 1
            return f"{call}\n{' ' * margin}", ""
        return f"({call} and (", "))"

    @property
    def lines(self) -> tuple[str, str]:
        """The first line that is changed, before and after: by these it is known, whatever its number is."""
        pairs = zip(self.text.splitlines(), [*self.changed.splitlines(), ""], strict=False)
        return next((one.strip(), other.strip()) for one, other in pairs if one != other)


def concern(path: str) -> list[str]:
    """Return the tests that concern a file: its own examples, and those of its room."""
    inside = path.removeprefix("src/roost/")
    for beginnings, tests in CONCERN:
        if inside.startswith(beginnings):
            return tests
    return WIDER


@dataclass(frozen=True)
class Run:
    """A run of tests: pytest's exit code, None when it took too long, what it has said, and what it has noted."""

    code: int | None
    told: str
    notes: list[list[str]]

    @property
    def failed(self) -> str:
        """The test that failed, or the one in which the run ended."""
        found = [test for kind, _, test in self.notes if kind == "failed"]
        return found[0] if found else next((test for kind, _, test in self.notes[::-1] if kind == "begun"), "")


def ran(copy: Path, tests: Sequence[str], seconds: float, *options: str) -> Run:
    """Run tests in a copy, until the first one fails unless the options say otherwise."""
    command = [sys.executable, "-m", "pytest", *(options or ("-x", "-n0")), "-p", "no:randomly", "-p", "reached"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "300"}
    with (
        tempfile.TemporaryFile("w+") as file,
        tempfile.NamedTemporaryFile("w+") as notes,
        subprocess.Popen(
            [*command, "-p", "no:cacheprovider", "--tb=no", *tests],
            cwd=copy, env={**environment, "REACHED": notes.name}, stdout=file, stderr=file, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:  # whatever it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        file.seek(0)
        noted = [line.split("\t", 2) for line in Path(notes.name).read_text(errors="replace").splitlines()]
        return Run(code, file.read(), [each for each in noted if len(each) == 3])


def write(file: Path, text: str) -> None:
    """Write a file of the copy."""
    # All else stays compiled, which saves most of the time. What is compiled is known by seconds and size: not enough.
    file.write_text(text)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def with_probes(text: str, chosen: Sequence[tuple[int, Mutant]]) -> str:
    """Return the text of a file with a probe at each of these mutants, where Python takes one."""
    puts: list[tuple[int, int, str]] = []
    for number, mutant in sorted(chosen, key=lambda each: each[1].begin - each[1].end):  # what contains others first
        before, after = mutant.probed
        more = [*puts, (mutant.begin, len(puts), before.format(number)), (mutant.end, -len(puts) - 1, after)]
        with contextlib.suppress(SyntaxError):
            ast.parse(_put(text, more))
            puts = more
    return _put(text, puts)


def _put(text: str, puts: Sequence[tuple[int, int, str]]) -> str:
    for place, _, more in sorted(puts, reverse=True):
        text = text[:place] + more + text[place:]
    return text


@dataclass(frozen=True)
class Reach:
    """Which tests come by a mutant, by its name, and how many seconds each test takes."""

    tests: dict[str, list[str]]
    seconds: dict[str, float]

    def sets(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests to run: those that come by, the fastest three of each file first; then their whole files.

        A server that several tests share works for the first of them; so the others of its file may come by, too.
        Where only an import comes by, or nobody is known, these are the tests that concern the file.
        """
        come = [each for each in self.tests.get(mutant.name, []) if each]
        if not come:
            return [concern(mutant.path)]
        by_file: dict[str, list[str]] = {}
        for test in sorted(come, key=lambda each: self.seconds.get(each, 0.0)):
            by_file.setdefault(test.partition("::")[0], []).append(test)
        rounds = [
            [test for tests in by_file.values() for test in tests[begin:end]]
            for begin, end in ((0, 3), (3, 15), (15, None))
        ]
        return [*rounds, list(by_file)]


def reached(chosen: Sequence[Mutant], copy: Path, tests: Sequence[str], seconds: float, *options: str) -> Reach:
    """Run tests in a copy with a probe at each mutant."""
    numbered = list(enumerate(chosen))
    for path, text in {each.path: each.text for each in chosen}.items():
        write(copy / path, with_probes(text, [each for each in numbered if each[1].path == path]))
    try:
        run = ran(copy, tests, seconds, *(options or ("-n0",)))
    finally:
        for each in chosen:
            write(copy / each.path, each.text)
    come: dict[str, list[str]] = {}
    for kind, number, test in run.notes:
        if kind == "hit":
            come.setdefault(chosen[int(number)].name, []).append(test)
    return Reach(come, {test: float(took) for kind, took, test in run.notes if kind == "done"})


@dataclass(frozen=True)
class Notes:
    """What earlier runs have found out: a file of lines of JSON, which nobody has to keep."""

    file: Path

    def add(self, kind: str, **what: Any) -> None:
        with self.file.open("a") as out:
            out.write(json.dumps({"kind": kind, **what}) + "\n")

    def all(self, kind: str) -> list[dict[str, Any]]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [message for message in map(json.loads, lines) if message["kind"] == kind]

    def noticed(self) -> dict[tuple[str, str], str]:
        """Return by which test a mutant was noticed, by its name and the text of its file."""
        return {(each["name"], each["digest"]): each["test"] for each in self.all("noticed")}

    def reach(self) -> Reach:
        """Return what is known about all tests that have been run."""
        whole = Reach({}, {})
        for each in self.all("reach"):
            for name, tests in each["tests"].items():
                whole.tests.setdefault(name, []).extend(tests)
            whole.seconds.update(each["seconds"])
        return whole
