"""What the site has beyond docs/: pages from elsewhere in the tree, files that pages link to, and other versions."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# From the place in the tree to that on the site. Files that are no Markdown are copied as they are.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "measurements.md",
    "tests/campaigns/README.md": "campaigns.md",
    "tests/latest.py": "files/latest.py",
    "contrib/grafana/roost.json": "files/roost.json",
    "contrib/grafana/alerts.yml": "files/alerts.yml",
    **{f"examples/{path.name}": f"files/{path.name}" for path in (ROOT / "examples").glob("*.py")},
    **{f"bench/charts/{path.name}": f"files/{path.name}" for path in (ROOT / "bench/charts").glob("*.svg")},
}
SITE = {target: source for source, target in ELSEWHERE.items()}


def on_files(files: Files, *, config: Any) -> Files:
    """Add what lies elsewhere."""
    for source, target in ELSEWHERE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turn links between places in the tree into links between places on the site."""
    here = SITE.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def linked(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[1]))
        target = ELSEWHERE.get(path, path.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or '.')}{found[2] or ''})"

    return re.sub(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)", linked, markdown)


def on_post_build(*, config: Any) -> None:
    """List the versions that lie beside this one for the selector, and lead from the root to the newest."""
    site = Path(config.site_dir).parent
    if site.name != "site":  # of `mkdocs serve`
        return
    found = [path.parent.name for path in site.glob("[0-9]*/index.html")]
    found.sort(key=lambda name: [*map(int, re.findall(r"\d+", name))], reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in found]
    (site / "versions.json").write_text(json.dumps(listed))
    (site / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={found[0]}/index.html">'
    )
