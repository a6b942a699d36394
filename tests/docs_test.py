"""The documentation is under test: its examples run, its links lead somewhere, its limits are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import roost

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench/README.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_example_of_the_readme_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = blocks(ROOT / "README.md", "python")[0]
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(example, "README.md", "exec", dont_inherit=True), namespace)
    store = namespace["store"]
    assert isinstance(store, roost.Store)
    said = re.findall(r"print\(.*?\)\s+# (.*)", example)
    assert capsys.readouterr().out.splitlines() == said
    assert store.check() == []
    store.close()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("kind", ["counter", "ring", "capped", "set"])
def test_every_operation_has_its_line_on_the_structures_page(kind: str) -> None:
    from roost.structures import KINDS

    page = (ROOT / "docs" / f"{kind}.md").read_text()
    operations = [
        name
        for name in dir(KINDS[kind])
        if not name.startswith("_") and name not in ("kind", "columns", "describe", "from_facts")
    ]
    assert [name for name in operations if f"{name}(" not in page] == []


def test_every_error_is_drawn_in_the_tree() -> None:
    from roost import errors

    assert errors.__doc__ is not None
    assert [name for name in errors.__all__ if name not in errors.__doc__] == []


def test_the_version_is_in_the_changelog() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_is_longer_than_500_lines_without_a_reason() -> None:
    long = [path for path in (ROOT / "src").rglob("*.py") if len(path.read_text().splitlines()) > 500]
    assert long == []
