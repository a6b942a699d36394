"""Small defects, one at a time: which of them do the tests notice?

`python -m tests.campaigns.mutants` makes a sample of them all over `src/roost`, and plays each, in a copy of the tree,
with the tests that concern its file, and then with all others. What nobody notices is told with a diff: a test is
missing, or the code is superfluous, or the mutant is equivalent; then `equivalent.toml` has it, with the reason.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests import servers

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

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
ALL = [*WIDER, "tests/protocols", "tests/server", "tests/client", "tests/contrib", "tests/handlersocket"]
MOST_BROKEN = 5  # tests that fail without a mutant, too, before what comes after them is left alone

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
    "src/roost/batching/": 6, "src/roost/store/core.py": 4, "src/roost/store/links.py": 4,
    "src/roost/databases/": 4, "src/roost/server/": 3, "src/roost/structures/": 3, "src/roost/store/": 3,
}  # fmt: skip


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
    times: Counter[tuple[str, ...]] = Counter()
    found = []
    for each in finder.found:
        same = (each.kind, *each.lines)
        times[same] += 1
        found.append(replace(each, nth=times[same]))
    return found


def sample(found: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """Choose so many, weighted; the same ones for the same seed, whatever becomes of other places."""

    def drawn(mutant: Mutant) -> float:
        weight = KINDS[mutant.kind] * next((n for path, n in FILES.items() if mutant.path.startswith(path)), 1)
        drawn: float = random.Random(f"{seed} {mutant.name}").random() ** (1 / weight)
        return drawn

    return sorted(found, key=drawn, reverse=True)[:number]


def concern(path: str) -> list[str]:
    """Return the tests that concern a file."""
    inside = path.removeprefix("src/roost/")
    return next((tests for beginnings, tests in CONCERN if inside.startswith(beginnings)), WIDER)


@dataclass(frozen=True)
class Run:
    """A run of tests: pytest's exit code, None when it took too long, and what it has said."""

    code: int | None
    told: str

    @property
    def failed(self) -> str:
        """The test that failed, or the file that cannot be collected."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", self.told, re.MULTILINE)
        return found[1] if found else ""


def ran(copy: Path, tests: Sequence[str], seconds: float, *options: str) -> Run:
    """Run tests in a copy, until the first one fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-n0", "-rfE", "--tb=no", "-p", "no:randomly"]
    with (
        tempfile.TemporaryFile("w+") as file,
        subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *options, *tests], cwd=copy, stdout=file, stderr=file,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "300"}, start_new_session=True,
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
        return Run(code, file.read())


def write(file: Path, text: str) -> None:
    """Write a file of the copy."""
    # All else stays compiled, which saves most of the time. What is compiled is known by seconds and size: not enough.
    file.write_text(text)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: by which test it was noticed, or what else."""

    mutant: Mutant
    noticed: str | None
    unclear: str = ""
    seconds: float = 0.0


def play(mutant: Mutant, copy: Path, sets: Sequence[Sequence[str]], seconds: float) -> Outcome:
    """Apply a mutant in a copy of the tree, and run one set of tests after the other until one notices it.

    A test that fails without the mutant too has noticed nothing.
    """
    begun = time.monotonic()
    file = copy / mutant.path
    unclear = ""
    broken: list[str] = []
    left = [[each for each in tests if (copy / each.partition("::")[0]).exists()] for tests in sets]
    while left:
        tests = [each for each in left[0] if each not in broken]
        if not tests:
            del left[0]
            continue
        write(file, mutant.changed)
        try:
            run = ran(copy, tests, seconds, *[f"--deselect={each}" for each in broken])
        finally:
            write(file, mutant.text)
        if run.code is None:
            unclear = f"not done within {seconds:g} s"
        elif run.code not in (0, 5):
            if not run.failed or ran(copy, [run.failed], seconds).code in (0, 5):
                noticed = run.failed or run.told.strip().splitlines()[-1]  # an error while tests are collected
                return Outcome(mutant, noticed, seconds=time.monotonic() - begun)
            unclear = f"{run.failed} fails without it, too"
            broken.append(run.failed)
            if len(broken) < MOST_BROKEN:
                continue  # with the others
        del left[0]
    return Outcome(mutant, None, unclear, time.monotonic() - begun)


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Copy what tests need into a temporary folder; what still works there at the end is ended."""
    folder = servers.folder_for(None)
    try:
        shutil.copytree(root, folder / "tree", ignore=shutil.ignore_patterns(".*"))
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
    parser.add_argument("--seconds", type=float, default=900.0, help="for each set of tests")
    parser.add_argument("--only", default="", help="files whose path begins so")
    parser.add_argument("--tests", nargs="*", help="only these, instead of those that concern the file, and of all")
    parser.add_argument("--list", action="store_true", help="show the mutants, and play none")
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
    if options.list:
        print("\n".join([each.diff for each in chosen]))
        return
    outcomes: list[Outcome] = []
    with copied(ROOT) as copy:
        _start_servers()
        for mutant in chosen:
            sets = [concern(mutant.path), ALL] if options.tests is None else [options.tests]
            outcome = play(mutant, copy, sets, options.seconds)
            outcomes.append(outcome)
            by = f"noticed by {outcome.noticed}" if outcome.noticed else f"NOT NOTICED {outcome.unclear}"
            print(f"{mutant.path}:{mutant.line} {mutant.kind}: {by} ({outcome.seconds:.0f} s)", flush=True)
    print(report(outcomes))


if __name__ == "__main__":
    main()
