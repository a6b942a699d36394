"""A time as the command line takes it: `90`, `90s`, `15m`, `12h`, `30d`."""

from __future__ import annotations

import re
from typing import Any

import click

from roost.structures.aged.declaration import FURTHEST

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time in whole seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of seconds.

        >>> Duration().convert("30d", None, None)
        2592000
        """
        found = re.fullmatch(r"(\d{1,12})([smhd]?)", str(value))
        if not found or not int(found[1]):
            self.fail(
                f"{value!r} is no time: a whole number with s, m, h or d behind it, such as 90s or 30d", param, ctx
            )
        return int(found[1]) * SECONDS[found[2]]


class Offset(click.ParamType):  # type: ignore[type-arg]
    """How far a zone is ahead of UTC, in minutes."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of minutes.

        >>> Offset().convert("-05:30", None, None)
        -330
        """
        found = re.fullmatch(r"([+-])(\d\d):([0-5]\d)", str(value))
        minutes = int(found[2]) * 60 + int(found[3]) if found else FURTHEST + 1
        if found is None or minutes > FURTHEST:
            self.fail(f"{value!r} is no zone: + or -, hours and minutes, such as +01:00", param, ctx)
        return -minutes if found[1] == "-" else minutes
