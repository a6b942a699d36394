"""The campaign of mutants itself, on a small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.mutants import ALL, EQUIVALENT, ROOT, concern, copied, equivalent, mutants, play, report, sample

LIMIT = '''\
"""A limit of 1 and 2."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    WIDTH = 3
log = logging.getLogger("limit")
open_files = []


def may(n: int, most: int = 7, strict: bool = False) -> bool:
    """Return whether 1 is not more."""
    if n < 0:
        raise ValueError(f"{n < 0}")
    log.info("asked for 5")
    return n <= most and not strict


def close(name: str) -> None:
    try:
        open_files.remove(name)
    finally:
        open_files.append("closed")


def never() -> int:  # pragma: no cover
    return 4  # pragma: no cover


class Limit:
    def __repr__(self) -> str:
        return "x" * 5
'''
TESTS = """\
from toy.limit import close, may, open_files


def test_may():
    assert may(7)
    assert not may(8)
    assert not may(1, strict=True)


def test_close():
    open_files[:] = ["a"]
    close("a")
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of what its tests take
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    for path, text in {"src/toy/limit.py": LIMIT, "src/toy/__init__.py": "", "tests/limit_test.py": TESTS}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npython_files = ["*_test.py"]\n')
    return tmp_path


def test_what_is_mutated_and_what_is_not() -> None:
    found = {(each.kind, *each.lines) for each in mutants("src/toy/limit.py", LIMIT)}
    assert found == {
        ("comparison", "if n < 0:", "if (n <= 0):"),
        ("constant", "if n < 0:", "if n < 1:"),
        ("early exit", 'raise ValueError(f"{n < 0}")', "pass"),
        ("and/or", "return n <= most and not strict", "return (n <= most or not strict)"),
        ("comparison", "return n <= most and not strict", "return (n < most) and not strict"),
        ("not", "return n <= most and not strict", "return n <= most and (strict)"),
        *{
            ("default", "def may(n: int, most: int = 7, strict: bool = False) -> bool:", after)
            for after in (
                "def may(n: int, most: int = 8, strict: bool = False) -> bool:",
                "def may(n: int, most: int = 7, strict: bool = True) -> bool:",
            )
        },
        ("call", "open_files.remove(name)", "pass"),
        ("call", 'open_files.append("closed")', "pass"),
        ("cleanup", 'open_files.append("closed")', "pass"),
    }


@pytest.mark.timeout(600)  # it runs tests of its own
def test_one_mutant_is_noticed_and_one_is_not(tree: Path) -> None:
    found = {(each.kind, each.line): each for each in mutants("src/toy/limit.py", LIMIT)}
    with copied(tree) as copy:
        noticed = play(found["comparison", 17], copy, [["tests/limit_test.py"]], 100)
        missed = play(found["cleanup", 24], copy, [["tests/nowhere_test.py", "tests/limit_test.py"]], 100)
        assert (copy / "src/toy/limit.py").read_text() == LIMIT
        (copy / "tests/limit_test.py").write_text("def test_broken():\n    assert False\n")
        unclear = play(found["comparison", 17], copy, [["tests/limit_test.py"]], 100)
    assert noticed.noticed == "tests/limit_test.py::test_may"
    assert (missed.noticed, missed.unclear) == (None, "")
    assert (unclear.noticed, unclear.unclear) == (None, "tests/limit_test.py::test_broken fails without it, too")
    outcome = report([noticed, missed])
    assert "1 of 2 noticed: 50 %" in outcome
    assert '-        open_files.append("closed")\n+        pass' in outcome


def test_the_sample_is_the_same_for_a_seed_and_leans_to_what_matters() -> None:
    path = ROOT / "src/roost/batching/queue.py"
    found = mutants("src/roost/batching/queue.py", path.read_text()) + mutants("src/roost/cli/x.py", path.read_text())
    chosen = sample(found, 40, 3)
    assert chosen == sample(found, 40, 3) != sample(found, 40, 4)
    assert chosen[1:] == sample([each for each in found if each != chosen[0]], 39, 3)
    assert len({each.name for each in found}) == len(found)
    assert len([each for each in chosen if each.path.endswith("queue.py")]) > 25


def test_every_file_has_tests_that_are_there_and_every_equivalent_mutant_a_reason() -> None:
    paths = [str(path.relative_to(ROOT)) for path in (ROOT / "src/roost").rglob("*.py")]
    assert [test for path in paths for test in [*concern(path), *ALL] if not (ROOT / test).exists()] == []
    for (path, before, _), reason in equivalent(EQUIVALENT).items():
        assert before in (ROOT / path).read_text()
        assert len(reason) > 20
