"""The pictures of the documentation as text: `python docs/_site/draw.py` writes them, light and dark."""

from __future__ import annotations

import html
import math
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "pictures"
NAMES = ("paper", "ink", "soft", "box", "line", "hot")
COLOURS = {
    "light": dict(zip(NAMES, ("#ffffff", "#1f2933", "#5b6875", "#eef2f6", "#b8c2cc", "#c2410c"), strict=True)),
    "dark": dict(zip(NAMES, ("#1e2129", "#e6e9ef", "#a3adba", "#2b303b", "#565f6e", "#fb923c"), strict=True)),
}


class Picture:
    """An SVG of a fixed size, in the colours of one theme."""

    def __init__(self, title: str, width: int, height: int, theme: str) -> None:
        self.colours = COLOURS[theme]
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'font-family="system-ui, sans-serif" font-size="15">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{self.colours["paper"]}"/>',
        ]

    def text(
        self, x: float, y: float, words: str, colour: str = "ink", anchor: str = "middle", code: bool = False
    ) -> None:
        """Write one line."""
        family = ' font-family="ui-monospace, monospace" font-size="14"' if code else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{self.colours[colour]}"{family}>'
            f"{html.escape(words)}</text>"
        )

    def box(self, x: float, y: float, width: float, lines: list[str], code: bool = False, height: float = 0) -> None:
        """Draw a box with lines in it, the first in full colour."""
        height = height or 18 + 20 * len(lines)
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{self.colours["box"]}" '
            f'stroke="{self.colours["line"]}"/>'
        )
        for place, line in enumerate(lines):
            self.text(x + width / 2, y + 24 + 20 * place, line, "soft" if place else "ink", code=code and not place)

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an arrow."""
        angle = math.atan2(to_y - y, to_x - x)
        wings = [(to_x - 9 * math.cos(angle + side), to_y - 9 * math.sin(angle + side)) for side in (-0.45, 0.45)]
        soft = self.colours["soft"]
        self.parts.append(f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{soft}" stroke-width="1.5"/>')
        self.parts.append(
            f'<path d="M{to_x:g} {to_y:g}L{wings[0][0]:.1f} {wings[0][1]:.1f}L{wings[1][0]:.1f} {wings[1][1]:.1f}Z" '
            f'fill="{soft}"/>'
        )

    def ring(self, x: float, y: float, radius: float, sequences: list[int], newest: int) -> None:
        """Draw the slots of a ring, each with the sequence that it holds."""
        count = len(sequences)
        for place, sequence in enumerate(sequences):
            begin, end = (2 * math.pi * (each / count) - math.pi / 2 for each in (place + 0.04, place + 0.96))
            points = [
                (x + size * math.cos(angle), y + size * math.sin(angle))
                for size, angle in ((radius, begin), (radius, end), (radius * 0.55, end), (radius * 0.55, begin))
            ]
            fill, ink = ("hot", "paper") if sequence == newest else ("box", "ink")
            (a, b, c, d) = (f"{px:.1f} {py:.1f}" for px, py in points)
            self.parts.append(
                f'<path d="M{a}A{radius:g} {radius:g} 0 0 1 {b}L{c}A{radius * 0.55:g} {radius * 0.55:g} 0 0 0 {d}Z" '
                f'fill="{self.colours[fill]}" stroke="{self.colours["line"]}"/>'
            )
            middle = (begin + end) / 2
            text_x, text_y = x + radius * 0.78 * math.cos(middle), y + radius * 0.78 * math.sin(middle) + 5
            self.text(text_x, text_y, str(sequence), ink)

    def svg(self) -> str:
        """Return it."""
        return "\n".join([*self.parts, "</svg>", ""])


def roost(theme: str) -> str:
    """Draw what Roost is: many writers, one program, a table that stays as large as it is."""
    picture = Picture("Every client runs one program, which keeps the table within its limit", 860, 320, theme)
    clients = [
        ["store.run(visits.push(visit))", "Python: threads, asyncio, Django"],
        ["INSERT INTO visits VALUES (5, 7)", "any SQL client, in any language"],
        ["HandlerSocket · memcached", "roost serve"],
    ]
    for place, lines in enumerate(clients):
        picture.box(14, 30 + 90 * place, 282, lines, code=place < 2)
        picture.arrow(296, 59 + 90 * place, 385, 149 + (place - 1) * 12)
    picture.parts.append(
        f'<rect x="350" y="16" width="490" height="288" rx="10" fill="none" stroke="{picture.colours["line"]}" '
        'stroke-dasharray="6 5"/>'
    )
    picture.text(595, 42, "the SQL database that you already run", "soft")
    picture.box(390, 110, 150, ["visits_push", "one program", "keeps the promise"], code=True)
    picture.arrow(540, 149, 592, 149)
    picture.ring(690, 158, 92, [6, 7, 8, 4, 5], newest=8)
    picture.text(690, 163, "keep = 5", "soft")
    picture.text(595, 284, "the next row overwrites the oldest: no job, no growth", "soft")
    return picture.svg()


def way(theme: str) -> str:
    """Draw the way of one call, from the application to the tables."""
    picture = Picture("The way of one call through the packages to the database", 860, 560, theme)
    layers = [
        ("structures/NAME.py", "declaration: checks values, makes an Operation. No SQL, no I/O"),
        ("store/", "threads, asyncio; one operation alone goes straight to its connection"),
        ("batching/", "who waits together commits together; retries, refusals. No I/O"),
        ("structures/program.py", "operations become rows of one call; outcomes become results"),
        ("databases/NAME/", "sends, waits, maps errors, looks up lost COMMITs"),
    ]
    for place, (name, does) in enumerate(layers):
        picture.box(20, 44 + 66 * place, 210, [name], code=True)
        picture.text(250, 69 + 66 * place, does, "soft", "start")
        if place < len(layers) - 1:
            picture.arrow(125, 82 + 66 * place, 125, 108 + 66 * place)
    picture.text(20, 28, 'store.run(pageviews.add("/home"))', anchor="start", code=True)
    picture.parts.append(
        f'<rect x="12" y="378" width="836" height="170" rx="10" fill="none" stroke="{picture.colours["line"]}" '
        'stroke-dasharray="6 5"/>'
    )
    picture.text(250, 402, "the database: SQL clients and store.on enter here, too", "soft", "start")
    picture.arrow(125, 346, 125, 416)
    picture.box(20, 418, 210, ["pageviews_add", "a routine of the steps"], code=True)
    picture.text(250, 443, "structures/words/ makes it of the steps in structures/NAME.py:", "soft", "start")
    picture.text(250, 463, "head locked, rows written, an outcome: a number, or why it is refused", "soft", "start")
    picture.arrow(125, 476, 125, 492)
    picture.box(20, 494, 210, ["roost_pageviews_rows"], code=True)
    picture.text(250, 519, "and the relation pageviews: a view whose triggers call the program", "soft", "start")
    return picture.svg()


def demo(theme: str) -> str:
    """Draw a terminal with the text of demo.txt, which `roost demo` has printed."""
    lines = (Path(__file__).parent / "demo.txt").read_text().splitlines()
    picture = Picture("roost demo in a terminal", 860, 30 + 19 * len(lines), theme)
    for place, line in enumerate(lines):
        colour = "hot" if line.startswith("$") else "ink"
        picture.text(24, 30 + 19 * place, line.replace(" ", "\N{NO-BREAK SPACE}"), colour, "start", code=True)
    return picture.svg()


PICTURES_OF = {"roost": roost, "way": way, "demo": demo}
DRAWN = {f"{name}-{theme}.svg": (draw, theme) for name, draw in PICTURES_OF.items() for theme in COLOURS}


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, (draw, theme) in DRAWN.items():
        (PICTURES / name).write_text(draw(theme))


if __name__ == "__main__":
    main()
