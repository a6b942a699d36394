"""Reports as charts: bars of ratios with their targets, in SVG, light or dark as the reader has it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from bench.report import Line, Report

WIDTH, LEFT, RIGHT, HEIGHT = 900, 330, 560, 22  # of the picture, of the bars' begin and end, of a line
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .title { font-weight: 600 } .soft { fill: #5b6875 }
  .bar { fill: #7c93ac } .missed { fill: #c2410c } .one { stroke: #b8c2cc } .target { stroke: #1f2933; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ef } .soft { fill: #a3adba } .one { stroke: #565f6e } .target { stroke: #e6e9ef }
    .missed { fill: #fb923c }
  }
"""


def chart(reports: Sequence[Report]) -> str:
    """Draw reports below each other. A bar is a ratio, the line across it its target, the thin one 1."""
    parts: list[str] = []
    y = 10
    for report in reports:
        greatest = max([1.0, *(line.ratio for line in report.lines), *(target(line) or 0 for line in report.lines)])
        scale = (RIGHT - LEFT) / greatest
        better = "less is better" if report.less_is_better else "more is better"
        parts.append(_text(10, y + 14, report.title, "title"))
        parts.append(_text(10, y + 32, f"{report.baseline} → {report.ours}; {better}", "soft"))
        top, y = y + 40, y + 44
        for line in report.lines:
            parts.append(_text(10, y + 14, line.work))
            kind = "bar" if line.met else "missed"
            parts.append(
                f'<rect class="{kind}" x="{LEFT}" y="{y + 3}" width="{line.ratio * scale:.1f}" height="{HEIGHT - 7}"/>'
            )
            wanted = target(line)
            if wanted is not None:
                parts.append(_line("target", LEFT + wanted * scale, y, y + HEIGHT - 1))
            parts.append(_text(RIGHT + 10, y + 14, f"{line.ratio:.2f}"))
            parts.append(_text(RIGHT + 70, y + 14, f"{line.baseline} → {line.ours}", "soft"))
            y += HEIGHT
        parts.append(_line("one", LEFT + scale, top, y))
        y += 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def target(line: Line) -> float | None:
    """Return the ratio that a line should have at most, or at least; None if it has none."""
    found = re.search(r"\d+(\.\d+)?", line.target)
    return float(found[0]) if found else None


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    made = f' class="{kind}"' if kind else ""
    return f'<text{made} x="{x:g}" y="{y:g}">{html.escape(words)}</text>'


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<path class="{kind}" d="M{x:.1f} {top:g}V{bottom:g}"/>'
