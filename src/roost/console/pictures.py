"""The geometry of the pictures that the templates draw as SVG. Pure functions; lengths are in units of the drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from typing import Any, NamedTuple

OUTER, INNER = 95.0, 62.0  # of a ring, around (0, 0)
AGES = 5  # shades, the newest first
WIDTH, HEIGHT = 600.0, 120.0  # of bars


class Shape(NamedTuple):
    """A path or a bar: how it is drawn, the class that colours it, and what is said of it."""

    path: str
    look: str
    title: str


class Bar(NamedTuple):
    """A bar: its place, its size, and what is said of it."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str


def arc(begin: float, end: float, outer: float = OUTER, inner: float = INNER) -> str:
    """Return the path of a part of a ring; 0 is at the top, 1 is once around, clockwise.

    >>> arc(0, 0.25, 10, 5)
    'M0.00 -10.00A10 10 0 0 1 10.00 -0.00L5.00 -0.00A5 5 0 0 0 0.00 -5.00Z'
    """
    end = min(end, begin + 0.9999)  # an arc that ends where it begins is none
    points = [_point(turn, radius) for radius, turn in ((outer, begin), (outer, end), (inner, end), (inner, begin))]
    large = int(end - begin > 0.5)
    return (
        f"M{points[0]}A{outer:g} {outer:g} 0 {large} 1 {points[1]}"
        f"L{points[2]}A{inner:g} {inner:g} 0 {large} 0 {points[3]}Z"
    )


def _point(turn: float, radius: float) -> str:
    return f"{sin(2 * pi * turn) * radius:.2f} {-cos(2 * pi * turn) * radius:.2f}"


def ring(sequence: int, keep: int, slots: Mapping[int, int]) -> list[Shape]:
    """Return the slots of a ring: those that hold a row by its age; of a large ring the part that was written.

    >>> [each.title for each in ring(4, 3, {0: 3, 1: 4})]
    ['slot 0: sequence 3', 'slot 1: sequence 4, the newest', 'slot 2: empty']
    """
    if not slots and keep > AGES * 24:
        filled, head = min(sequence, keep) / keep, (sequence % keep + 1) / keep
        shapes = [Shape(arc(head, head + 1), "empty", f"{keep:,} slots")]
        if filled:
            title = f"{min(sequence, keep):,} slots were written"
            shapes.append(Shape(arc(head - filled, head), "age1", title))
        return [*shapes, Shape(arc(head - 0.01, head), "age0", f"the newest: sequence {sequence:,}")]
    shapes = []
    for slot in range(keep):
        begin, gap = slot / keep, 0.08 / keep if keep > 1 else 0.0
        path = arc(begin + gap, begin + 1 / keep - gap)
        if slot not in slots:
            shapes.append(Shape(path, "empty", f"slot {slot}: empty"))
            continue
        age = min((sequence - slots[slot]) * AGES // keep, AGES - 1)
        newest = ", the newest" if slots[slot] == sequence else ""
        look = "age0 newest" if newest else f"age{age}"
        shapes.append(Shape(path, look, f"slot {slot}: sequence {slots[slot]:,}{newest}"))
    return shapes


def gauge(part: float) -> tuple[str, str]:
    """Return the paths of a gauge of three quarters: the whole, and the part of it."""
    return arc(-0.375, 0.375), arc(-0.375, -0.375 + 0.75 * min(max(part, 0.001), 1.0))


def bars(found: Sequence[tuple[str, int, str]]) -> list[Bar]:
    """Return a bar for each label, number and title; the greatest number has the whole height."""
    most = max([n for _, n, _ in found], default=0) or 1
    step = WIDTH / max(len(found), 1)
    made = []
    for place, (label, n, title) in enumerate(found):
        height = max(HEIGHT * n / most, 1.5 if n > 0 else 0.0)
        made.append(Bar(place * step + step * 0.1, HEIGHT - height, step * 0.8, height, label, title))
    return made


def shares(numbers: Sequence[Any]) -> list[float]:
    """Return how long the bars of scores are, from 0 to 1: the least has a tenth, the greatest the whole.

    >>> shares([90, 70, 50])
    [1.0, 0.55, 0.1]
    """
    if not numbers:
        return []
    least, most = min(numbers), max(numbers)
    if least == most:
        return [1.0] * len(numbers)
    return [round(0.1 + 0.9 * float((each - least) / (most - least)), 4) for each in numbers]
