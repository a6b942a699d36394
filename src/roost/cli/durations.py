"""Durations on the command line: `90s`, `15m`, `12h`, `30d`."""

from __future__ import annotations

import re
from typing import Any

import click

from roost.structures.adopted import FURTHEST
from roost.structures.clock import WANTED, seconds_of
from roost.structures.counter.declaration import SECONDS


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration, as a whole number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of seconds.

        >>> Duration().convert("30d", None, None)
        2592000
        """
        found = seconds_of(str(value))
        if found is None:
            self.fail(f"{value!r} is no time{_of_what(str(value))}: {WANTED}", param, ctx)
        return found


class Window(Duration):
    """A window of a counter: a word, or a duration in whole seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word, or the number of seconds as text, as definitions store it."""
        found = seconds_of(str(value))
        if found is None and value not in SECONDS:
            self.fail(f"{value!r} is no window{_of_what(str(value))}: {', '.join(SECONDS)}, or {WANTED}", param, ctx)
        return value if found is None else str(found)


def _of_what(value: str) -> str:
    return f" ({value} of what?)" if value.isdigit() else ""


class Offset(click.ParamType):  # type: ignore[type-arg]
    """The minutes by which a zone is ahead of UTC."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of minutes.

        >>> Offset().convert("-05:30", None, None)
        -330
        """
        found = re.fullmatch(r"([+-])(\d\d):([0-5]\d)", str(value))
        minutes = int(found[2]) * 60 + int(found[3]) if found else FURTHEST + 1
        if found is None or minutes > FURTHEST:
            self.fail(f"{value!r} is not a zone: + or -, hours and minutes, such as +01:00", param, ctx)
        return -minutes if found[1] == "-" else minutes
