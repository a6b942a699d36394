"""Small defects, one at a time: which of them do the tests notice?

`python -m tests.campaigns.mutants` makes a sample of them all over `src/roost`. First it runs the tests once, in a copy
of the tree with a probe at each of these places; then each defect, in the copy, with the tests that have come by it,
the fast ones of every file first. What nobody notices is told with a diff: a test is missing, or the code is
superfluous, or the mutant is equivalent; then it is listed in `equivalent.toml`, with the reason.

With `--notes FILE` a run goes on where another has stopped, and plays again what nobody has noticed then.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import os
import random
import re
import shutil
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests import servers
from tests.campaigns.mutants_reach import ALL, MOST_BROKEN, Mutant, Notes, ran, reached, write

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
    "src/roost/batching/": 6, "src/roost/store/core.py": 4, "src/roost/store/links.py": 4,
    "src/roost/databases/": 4, "src/roost/server/": 3, "src/roost/structures/": 3, "src/roost/store/": 3,
}  # fmt: skip


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
            run = ran(copy, tests, seconds, "-x", "-n0", *[f"--deselect={each}" for each in broken])
        finally:
            write(file, mutant.text)
        if run.code is None:
            unclear = f"not done within {seconds:g} s, in {run.failed}"
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
        shutil.copy(Path(__file__).with_name("reached.py"), folder / "tree/src")
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


def _digest(mutant: Mutant) -> str:
    return hashlib.sha256(mutant.text.encode()).hexdigest()[:16]


def _look(notes: Notes, chosen: Sequence[Mutant], copy: Path, seconds: float, workers: int) -> None:
    # Notes who comes by each mutant, folder after folder; not again where it is known of all of them.
    names = {each.name for each in chosen}
    for folder in ALL:
        done = {name for each in notes.all("reach") if each["folder"] == folder for name in each["names"]}
        if not names <= done:
            found = reached(chosen, copy, [folder], seconds, "-n", str(workers))
            notes.add("reach", folder=folder, names=sorted(names), tests=found.tests, seconds=found.seconds)
            print(f"{folder}: {len(found.tests)} places reached, {len(found.seconds)} tests", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900.0, help="for each set of tests")
    parser.add_argument("--only", default="", help="files whose path begins so")
    parser.add_argument("--notes", type=Path, help="a file that keeps what is found out, for the next run")
    parser.add_argument("--workers", type=int, default=4, help="processes that look for who comes by")
    parser.add_argument("--tests", nargs="*", help="only these, instead of those that come by")
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
        notes = Notes(options.notes or copy / "notes")
        _start_servers()
        if options.tests is None:
            _look(notes, chosen, copy, options.seconds, options.workers)
        reach, noticed = notes.reach(), notes.noticed()
        for mutant in chosen:
            before = noticed.get((mutant.name, _digest(mutant)))
            if before is not None:
                outcomes.append(Outcome(mutant, before))
                continue
            outcome = play(
                mutant, copy, reach.sets(mutant) if options.tests is None else [options.tests], options.seconds
            )
            outcomes.append(outcome)
            if outcome.noticed:
                notes.add("noticed", name=mutant.name, digest=_digest(mutant), test=outcome.noticed)
            by = f"noticed by {outcome.noticed}" if outcome.noticed else f"NOT NOTICED {outcome.unclear}"
            print(f"{mutant.path}:{mutant.line} {mutant.kind}: {by} ({outcome.seconds:.0f} s)", flush=True)
    print(report(outcomes))


if __name__ == "__main__":
    main()
