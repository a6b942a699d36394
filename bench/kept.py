"""What was measured last, kept in the tree: as JSON to compare with, and drawn as charts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.charts import chart
from bench.report import Line, Report, machine

KEPT = Path(__file__).parent / "kept"
CHARTS = Path(__file__).parent / "charts"
TOLERANCE = 1.25  # of one ratio's median of three runs: single runs of the same code differ by a third


def keep(name: str, quick: bool, reports: Sequence[Report]) -> None:
    """Write the JSON and the chart of a measurement; one without targets has neither."""
    if not reports:
        return
    document = {"machine": machine(), "quick": quick, "reports": [asdict(report) for report in reports]}
    KEPT.mkdir(exist_ok=True)
    CHARTS.mkdir(exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (CHARTS / f"{name}.svg").write_text(chart(reports))


def names() -> list[str]:
    """Return which measurements are kept."""
    return sorted(path.stem for path in KEPT.glob("*.json"))


def read(name: str) -> tuple[bool, list[Report]]:
    """Return what is kept of a measurement, and whether it was a quick one."""
    document = json.loads((KEPT / f"{name}.json").read_text())
    made = [Report(**{**each, "lines": tuple(Line(**line) for line in each["lines"])}) for each in document["reports"]]
    return document["quick"], made


def worse(before: Sequence[Report], runs: Sequence[Sequence[Report]]) -> list[str]:
    """Compare the medians of runs with what was before; return a text for each ratio that is worse, or gone."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for report in (report for run in runs for report in run):
        for line in report.lines:
            ratios.setdefault((report.title, line.work), []).append(line.ratio)
    found = []
    for report in before:
        for line in report.lines:
            now = ratios.get((report.title, line.work))
            if now is None:
                found.append(f"{report.title}: {line.work}: is not measured any more")
                continue
            median = statistics.median(now)
            if median > line.ratio * TOLERANCE if report.less_is_better else median < line.ratio / TOLERANCE:
                found.append(f"{report.title}: {line.work}: {median:.2f}, kept {line.ratio:.2f}")
    return found
