"""What is measured is kept, drawn and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench import kept
from bench.charts import chart
from bench.report import Line, Report

TIMES = Report("Calls", "by hand", "Roost", (Line("add & push", "1.0 µs", "1.1 µs", 1.1, "<= 1.3", True),))
RATES = Report("Threads", "alone", "together", (Line("16 threads", "6/s", "31/s", 5.2, ">= 5 (aim 8)", True),))


def with_ratio(report: Report, ratio: float) -> Report:
    return replace(report, lines=(replace(report.lines[0], ratio=ratio),))


def test_what_is_kept_is_read_again_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(kept, "CHARTS", tmp_path / "charts")
    kept.keep("calls", True, [TIMES, RATES])
    kept.keep("bulk", True, [])
    assert kept.names() == ["calls"]
    assert kept.read("calls") == (True, [TIMES, RATES])
    drawn = ElementTree.fromstring((tmp_path / "charts/calls.svg").read_text())
    words = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Calls", "add & push", "1.10", "Threads", "16 threads", "5.20"} <= set(words)


@pytest.mark.parametrize(
    ("report", "ratios", "is_worse"),
    [
        (TIMES, (1.1, 1.2, 9.9), False),  # the median
        (TIMES, (1.5, 1.5, 1.0), True),
        (TIMES, (0.5, 0.5, 0.5), False),
        (RATES, (5.0, 4.5, 0.1), False),
        (RATES, (4.0, 4.0, 9.0), True),
        (RATES, (9.0, 9.0, 9.0), False),
    ],
)
def test_a_ratio_that_got_worse_is_told(report: Report, ratios: tuple[float, ...], is_worse: bool) -> None:
    found = kept.worse([report], [[with_ratio(report, ratio)] for ratio in ratios])
    assert [report.lines[0].work in text for text in found] == [True] * is_worse


def test_what_is_not_measured_any_more_is_told() -> None:
    assert kept.worse([TIMES], [[RATES]] * 3) == ["Calls: add & push: is not measured any more"]


@pytest.mark.parametrize("name", kept.names())
def test_the_charts_in_the_tree_are_drawn_from_what_is_kept(name: str) -> None:
    _, reports = kept.read(name)
    assert (kept.CHARTS / f"{name}.svg").read_text() == chart(reports)
    assert all(line.ratio > 0 for report in reports for line in report.lines)
