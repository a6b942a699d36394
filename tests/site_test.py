"""The site has every page, and every link of every page leads to a place in the tree, heading included."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ELSEWHERE = {  # what the site has from other places of the tree (docs/_site/hooks.py)
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "measurements.md": "bench/README.md",
    "campaigns.md": "tests/campaigns/README.md",
}
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *(ROOT / each for each in ELSEWHERE.values())]


def anchors(page: Path) -> set[str]:
    """The fragments by which parts of a page are linked, as GitHub and the site name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).replace("`", "").strip().lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in plain} | {
        *re.findall(r'<a id="([^"]+)">', text)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_place_in_the_tree(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for path, fragment in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)", text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if fragment and not re.search("only-(light|dark)$|-mode-only$", fragment):
            assert fragment[1:] in anchors(target), f"{path}{fragment}"


def test_the_site_has_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"- ([\w-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted([*(path.name for path in DOCS.glob("*.md")), *ELSEWHERE])
    assert f"site_dir: build/site/{version('roost')} " in (ROOT / "mkdocs.yml").read_text()
    hooks = (DOCS / "_site/hooks.py").read_text()
    assert [f'"{source}": "{page}"' in hooks for page, source in ELSEWHERE.items()] == [True] * len(ELSEWHERE)


def test_the_pictures_are_those_that_their_text_draws() -> None:
    names = runpy.run_path(str(DOCS / "_site/draw.py"))
    drawn = {name: draw(theme) for name, (draw, theme) in names["DRAWN"].items()}
    assert drawn == {path.name: path.read_text() for path in (DOCS / "pictures").glob("*.svg")}


def test_the_files_that_the_chapter_on_the_code_names_are_there() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", (DOCS / "design.md").read_text())
    assert len(named) > 10
    assert [path for path in named if not [*ROOT.glob(f"src/**/{path}"), *ROOT.glob(path)]] == []
