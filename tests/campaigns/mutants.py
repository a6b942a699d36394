"""Small defects, one at a time: which of them do the tests notice?

`python -m tests.campaigns.mutants` makes a sample of them all over `src/roost`, each in a copy of the tree, runs the
tests that concern its file, and the wider ones where those notice nothing. What nobody notices is told with a diff:
a test is missing, or the code is superfluous, or the mutant is equivalent; then it is listed in `equivalent.toml`, with
the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import servers

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

TURNED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}

# How often a kind is chosen, by what it is about: what is to be released after a failure, and guards, most of all.
KINDS = {"cleanup": 4, "early exit": 3, "call": 2, "comparison": 2, "and/or": 2, "not": 2, "constant": 1, "default": 1}
FILES = {  # and where; the first that fits, 1 elsewhere
    "src/roost/batches.py": 6, "src/roost/queues.py": 6, "src/roost/detours.py": 6, "src/roost/core.py": 4,
    "src/roost/links.py": 4, "src/roost/engines/": 4, "src/roost/server/": 3, "src/roost/plans/": 3,
}  # fmt: skip

_SUITE = [f"tests/suite/{name}_test.py" for name in ("store", "counter", "ring", "capped", "sets", "alter", "check")]
_MEMCACHED = [f"tests/{room}/memcached_test.py" for room in ("plans", "values", "suite", "faults", "model")]
_FAULTS = [
    f"tests/faults/{name}_test.py"
    for name in ("culprit", "interrupted", "interrupted_commit", "lost_connection", "slow_transaction", "cancelled")
]
# The tests that concern a file, by the beginning of its path; the first that fits.
CONCERN = [
    (("engines/guests/", "joined"), [f"tests/suite/joined{name}_test.py" for name in ("", "_sqlite", "_servers")]),
    (("engines/memcached", "caches", "plans/memcached", "plans/commands", "structures/memcached"), _MEMCACHED),
    (("plans/records",), ["tests/plans/records_test.py", *_MEMCACHED]),
    (("engines/apsw", "server/", "protocols/", "plans/index/", "structures/index"),
     ["tests/protocols", "tests/index", "tests/server", "tests/handlersocket/differential_test.py"]),
    (("engines/mariadb_rows",), ["tests/suite/mariadb_rows_test.py"]),
    (("engines/filelock", "engines/sqlite", "engines/forks", "links", "own"),
     [*_SUITE[:2], *[f"tests/faults/{name}_test.py" for name in (
         "bad_file", "full_disk", "forked", "own_transaction", "many_processes", "interrupted", "windows")]]),
    (("engines/",), [*_SUITE[:3], "tests/suite/types_test.py", "tests/suite/prepared_test.py", *_FAULTS,
                     "tests/faults/outage_test.py", "tests/plans/mysql_test.py"]),
    (("batches", "queues", "detours", "core", "store", "runner"),
     ["tests/suite/store_test.py", *_FAULTS, "tests/faults/closed_test.py", "tests/faults/own_transaction_test.py"]),
    (("plans/front",), ["tests/suite/fronts_test.py", "tests/suite/fronts_table_test.py", "tests/suite"]),
    (("plans/adop", "plans/cap_", "plans/caps", "adoption", "cli/adopt", "structures/adopted"),
     ["tests/suite/adopted_test.py", "tests/suite/adoption_test.py", "tests/suite/adopted_servers_test.py",
      "tests/cli/adopt_test.py"]),
    (("plans/probes",), ["tests/cli/doctor_test.py"]),
    (("plans/",), ["tests/plans", *_SUITE, "tests/suite/drop_test.py"]),
    (("client/",), ["tests/client"]),
    (("cli/",), ["tests/cli"]),
    (("contrib/",), ["tests/contrib"]),
    (("structures/", "dialects/", "errors"), ["tests/values", "tests/plans", "tests/suite/types_test.py"]),
]  # fmt: skip
WIDER = ["tests/values", "tests/plans", "tests/index", "tests/suite", "tests/faults", "tests/model", "tests/cli"]


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

    @property
    def changed(self) -> str:
        """The text of the file with the defect."""
        return self.text[: self.begin] + self.put + self.text[self.end :]

    @property
    def diff(self) -> str:
        """What is changed, as `diff -u` has it."""
        before, after = self.text.splitlines(), self.changed.splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, self.path, self.path, lineterm="", n=2)))

    @property
    def lines(self) -> tuple[str, str]:
        """The first line that is changed, before and after: by these it is known, whatever its number is."""
        pairs = zip(self.text.splitlines(), [*self.changed.splitlines(), ""], strict=False)
        return next((one.strip(), other.strip()) for one, other in pairs if one != other)


class _Finder(ast.NodeVisitor):
    """Collects the defects of one file."""

    def __init__(self, path: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._path, self._text = path, text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines()

    def add(self, node: ast.expr | ast.stmt, kind: str, put: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        if any("pragma" in line for line in self._lines[node.lineno - 1 : node.end_lineno]):
            return
        begin = self._place(node.lineno, node.col_offset)
        end = self._place(node.end_lineno, node.end_col_offset)
        self.found.append(Mutant(self._path, node.lineno, kind, begin, end, put, self._text))

    def _place(self, line: int, column: int) -> int:  # ast counts bytes
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            turned = ast.Compare(node.left, [TURNED[type(node.ops[0])]], node.comparators)
            self.add(node, "comparison", f"({ast.unparse(turned)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, "and/or", f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add(node, "not", f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self.add(node, "constant", str(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave it: before Python 3.12 nobody knows where its parts are."""

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)
        for each in node.body:
            if isinstance(each, (ast.Return, ast.Raise)):
                self.add(each, "early exit", "pass")

    def visit_Try(self, node: ast.Try) -> None:
        for each in [*node.finalbody, *[each for handler in node.handlers for each in handler.body]]:
            if not isinstance(each, ast.Pass) and not _is_log(each):
                self.add(each, "cleanup", "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not _is_log(node):
            self.add(node, "call", "pass")
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        for each in [*node.args.defaults, *node.args.kw_defaults]:
            if isinstance(each, ast.Constant) and isinstance(each.value, bool):
                self.add(each, "default", str(not each.value))
            elif isinstance(each, ast.Constant) and isinstance(each.value, (int, float)):
                self.add(each, "default", repr(each.value + 1))
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # an annotation is no code
            self.visit(node.value)


def _is_log(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and re.match(r"(await )?(self\.)?_?log(ger)?\.", ast.unparse(node)) is not None


def mutants(path: str, text: str) -> list[Mutant]:
    """Return all defects that can be made in a file."""
    finder = _Finder(path, text)
    finder.visit(ast.parse(text))
    return finder.found


def sample(found: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """Choose so many, weighted; the same ones for the same seed."""
    chance = random.Random(seed)

    def drawn(mutant: Mutant) -> float:
        weight = KINDS[mutant.kind] * next((n for path, n in FILES.items() if mutant.path.startswith(path)), 1)
        drawn: float = chance.random() ** (1 / weight)
        return drawn

    return sorted(found, key=drawn, reverse=True)[:number]


def concern(path: str) -> list[str]:
    """Return the tests that concern a file: its own examples, and those of its room."""
    inside = path.removeprefix("src/roost/")
    for beginnings, tests in CONCERN:
        if inside.startswith(beginnings):
            return tests
    return WIDER


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: by which test it was noticed, or what else."""

    mutant: Mutant
    noticed: str | None
    unclear: str = ""
    seconds: float = 0.0


def ran(copy: Path, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run tests in a copy until the first one fails; return pytest's exit code, None when it took too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=no"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(
            [*command, "-rfE", *tests], cwd=copy, env=environment, stdout=told, stderr=told, start_new_session=True
        ) as process,
    ):
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:  # whatever it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        told.seek(0)
        return code, told.read()


def play(mutant: Mutant, copy: Path, sets: Sequence[Sequence[str]], seconds: float) -> Outcome:
    """Apply a mutant in a copy of the tree, and run one set of tests after the other until one notices it.

    A test that fails without the mutant too has noticed nothing.
    """
    begun = time.monotonic()
    file = copy / mutant.path
    unclear = ""
    for tests in sets:
        there = [each for each in tests if (copy / each.partition("::")[0]).exists()]
        file.write_text(mutant.changed)
        try:
            code, told = ran(copy, there, seconds)
        finally:
            file.write_text(mutant.text)
        if code is None:
            unclear = f"not done within {seconds:g} s"
            continue
        if code in (0, 5):
            continue
        test = next(iter(re.findall(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)), "")
        if test and ran(copy, [test], seconds)[0] not in (0, 5):
            unclear = f"{test} fails without it, too"
            continue
        noticed = test or told.strip().splitlines()[-1]  # an error of Python's while tests are collected, or a hang
        return Outcome(mutant, noticed, seconds=time.monotonic() - begun)
    return Outcome(mutant, None, unclear, time.monotonic() - begun)


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Copy what tests need into a temporary folder; what still works there at the end is ended."""
    folder = servers.folder_for(None)
    try:
        shutil.copytree(root, folder / "tree", ignore=shutil.ignore_patterns(".*", "__pycache__", "*.pyc"))
        yield folder / "tree"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(outcomes: Sequence[Outcome]) -> str:
    """Return what was noticed and what was not, in words."""
    survivors = [each for each in outcomes if each.noticed is None]
    lines = [f"\nnot noticed: {each.mutant.kind}{f' ({each.unclear})' if each.unclear else ''}\n{each.mutant.diff}"
             for each in survivors]  # fmt: skip
    noticed, unclear = len(outcomes) - len(survivors), len([each for each in survivors if each.unclear])
    percent = 100 * noticed / len(outcomes) if outcomes else 100.0
    lines.append(f"\n{noticed} of {len(outcomes)} noticed: {percent:.0f} % ({unclear} of the others are unclear)")
    return "\n".join(lines)


def equivalent(file: Path) -> dict[tuple[str, str, str], str]:
    """Read which mutants change nothing that could be noticed: by path and line before and after; the reason."""
    listed = tomllib.loads(file.read_text())
    return {(each["path"], each["before"], each["after"]): each["reason"] for each in listed.get("equivalent", [])}


def _start_servers() -> None:
    # Once for all runs. They name them by the variables by which people do.
    for variable, make in (
        ("ROOST_TEST_MYSQL", servers.mariadb_daemon),
        ("ROOST_TEST_POSTGRESQL", servers.postgresql_daemon),
    ):
        if variable not in os.environ:
            with contextlib.suppress(servers.NotHere):
                os.environ[variable] = make().url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each set of tests")
    parser.add_argument("--only", default="", help="files whose path begins so")
    parser.add_argument("--narrow", action="store_true", help="without the wider set of tests")
    options = parser.parse_args()
    known = equivalent(EQUIVALENT)
    found = [
        mutant
        for path in sorted((ROOT / "src/roost").rglob("*.py"))
        for mutant in mutants(str(path.relative_to(ROOT)), path.read_text())
        if mutant.path.startswith(options.only) and (mutant.path, *mutant.lines) not in known
    ]
    chosen = sample(found, options.number, options.seed)
    print(f"{len(chosen)} of {len(found)} mutants, seed {options.seed}", flush=True)
    outcomes: list[Outcome] = []
    with copied(ROOT) as copy:
        _start_servers()
        for mutant in chosen:
            sets = [concern(mutant.path), *([] if options.narrow else [WIDER])]
            outcome = play(mutant, copy, sets, options.seconds)
            outcomes.append(outcome)
            by = f"noticed by {outcome.noticed}" if outcome.noticed else f"NOT NOTICED {outcome.unclear}"
            print(f"{mutant.path}:{mutant.line} {mutant.kind}: {by} ({outcome.seconds:.0f} s)", flush=True)
    print(report(outcomes))


if __name__ == "__main__":
    main()
