"""How values, keys and numbers are written on a page, and the SQL that other clients would use."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from roost.catalog.measure import Count
from roost.cli.values import plain, words
from roost.errors import Invalid
from roost.structures.operation import Operation
from roost.structures.program import ProgramPlan
from roost.structures.structure import Structure

LONGEST = 200  # characters of a value
LONGEST_LINK = 2**15  # characters of an address, whose server takes twice as many
VERBS = ("push", "add", "remove", "increment", "take", "peek", "acquire", "renew", "release")
INSERTS = {"ring": "push", "capped": "add", "set": "add", "counter": "add"}
OTHERWISE = "clear or forget the key (`roost clear NAME KEY`), or restore its rows, then check again"
# What to do about a violation, by its rule.
ADVICE = {
    "catalog": "install the package of that kind; a table that belongs to no structure may be dropped",
    "tables": "make what is missing again as `roost ddl` prints it, or restore the database",
    "program": "call store.create with the declaration: it replaces the program",
    "view": "call store.alter(…, view=True) with the declaration: it makes the view anew",
}


class Text(NamedTuple):
    """A value as it is shown: on one line, without control characters, shortened."""

    text: str
    more: str = ""  # how long it is, where it was shortened


def shown(value: Any) -> Text:
    r"""Return a value for a page.

    >>> shown("a\0b\u202e")
    Text(text='a\\x00b\\u202e', more='')
    >>> shown(b"\xff" * 1_000_000).more
    '1,000,000 bytes'
    """
    if isinstance(value, (bytes, str)) and len(value) > LONGEST:
        unit = "bytes" if isinstance(value, bytes) else "characters"
        return Text(f"{words(value[:LONGEST])}…", f"{len(value):,} {unit}")
    return Text(words(value))


def key_shown(key: Any) -> Text:
    return shown(json.dumps(plain(key), ensure_ascii=False)) if isinstance(key, tuple) else shown(key)


def key_text(key: Any) -> str:
    r"""Return the text from which `key_from_text` makes this key; unlike that of a terminal, it may have any character.

    >>> key_text("a\0b"), key_text((7, "/a,b"))
    ('a\x00b', '[7, "/a,b"]')
    """
    return json.dumps(plain(key)) if isinstance(key, tuple) else key if isinstance(key, str) else words(key)


def key_json(key: Any) -> str:
    """Return that text for a form, as JSON: a field would have other ends of lines, and no NUL."""
    return json.dumps(key_text(key))


def key_of(text: str) -> str:
    """Return the text that `key_json` wrote; `Invalid` for another."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, str):
        raise Invalid("the form has no key")
    return found


def link(structure: Structure, **query: Any) -> str:
    """Return the address of a structure's page, with a key where one is given."""
    found = {name: key_text(value) for name, value in query.items()}
    return f"/structure?{urlencode({'name': structure.name, **found})}"


def count(found: Count | None) -> str:
    """Return a number, marked where it is not exact.

    >>> count(Count(1200)), count(Count(10_000, False)), count(None)
    ('1,200', '≥ 10,000', '–')
    """
    if found is None:
        return "–"
    return f"{found.n:,}" if found.exact else f"{'≥' if found.n == 10_000 else '≈'} {found.n:,}"


def number(found: float | None, digits: int = 0) -> str:
    """Return a number that is exact, where it is known."""
    return "–" if found is None else f"{found:,.{digits}f}"


def size(found: Count | None) -> str:
    """Return a number of bytes.

    >>> size(Count(1536))
    '1.5 KiB'
    """
    if found is None:
        return "–"
    number, units = float(found.n), ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number, units = number / 1024, units[1:]
    return f"{number:.0f} B" if units[0] == "B" else f"{number:.1f} {units[0]}"


def span(seconds: float | None) -> str:
    """Return a time that is left; None is for ever.

    >>> span(4.21), span(3700), span(2 * 86_400), span(None)
    ('4.2 s', '1:01:40', '2 days', 'never ends')
    """
    if seconds is None:
        return "never ends"
    return f"{seconds:.1f} s" if seconds < 60 else str(dt.timedelta(seconds=round(seconds))).removesuffix(", 0:00:00")


def sql_of(plan: Any) -> list[str]:
    """Return statements of other clients, with parameters as `:name`, for a structure in a database's words."""
    structure, dialect = plan.structure, plan.dialect
    name, quoted = structure.name, dialect.quoted
    where = " AND ".join(f"{quoted(each)} = {_hole(each)}" for each in structure.key.names)
    if structure.kind == "adopted":
        cap = structure.cap
        if cap.older_than:
            return [f"SELECT * FROM {quoted(name)} ORDER BY {quoted(cap.by)} DESC LIMIT 20"]
        order = ", ".join(f"{quoted(each)} DESC" for each in cap.order)
        return [f"SELECT * FROM {quoted(name)} WHERE {where} ORDER BY {order} LIMIT {cap.keep}"]
    if not isinstance(plan, ProgramPlan):
        return []
    table = name if plan.has_view else plan.rows_table
    order = " ORDER BY sequence DESC" if structure.kind in ("ring", "capped") else ""
    lines = [f"SELECT * FROM {table} WHERE {where}{order}"]
    columns: list[str] = []
    if structure.kind == "cache":
        columns = [] if structure.bounded or dialect.family == "mariadb" else [*structure.key.names, "value"]
    elif dialect.family == "sqlite" and structure.kind in INSERTS:
        given = [each.name for each in plan.program(INSERTS[structure.kind]).given]
        columns = ["total" if structure.kind == "counter" and each == "n" else each for each in given]
    if columns and plan.has_view:
        holes = ", ".join(map(_hole, columns))
        lines.append(f"INSERT INTO {name} ({', '.join(map(quoted, columns))}) VALUES ({holes})")
    routines = {each.name for each in plan.routines}
    for verb in VERBS if structure.kind != "cache" else ():
        if f"{name}_{verb}" in routines:
            program = plan.program(verb)
            given_to = (program.door.given if program.door else ()) or program.given
            call = f"{name}_{verb}({', '.join(_hole(each.name) for each in given_to)})"
            lines.append(f"SELECT * FROM {call}" if dialect.family == "postgresql" else f"CALL {call}")
    return lines


def _hole(column: str) -> str:
    # The column of a table of the application may have any name, which is not to end the statement.
    return f":{re.sub(r'[^0-9A-Za-z_]', '_', column)}"


def acts(structure: Structure, verb: str, key: Any, member: Any) -> Operation[Any]:
    """Return the operation that changes a key: clear, forget, or remove of what has an identity."""
    target: Any = structure
    if verb == "remove":
        if not removes(structure):
            raise Invalid(f"{structure.name}: nothing can be removed from a {structure.kind}")
        made = target.delete(key) if structure.kind == "cache" else target.remove(key, member)
    else:
        made = getattr(target, verb)(key)
    return cast(Operation[Any], made)


def removes(structure: Structure) -> bool:
    """Whether something can be removed from a key of it."""
    return structure.kind == "cache" or bool(columns_of(structure))


def columns_of(structure: Structure) -> Sequence[Any]:
    """Return the columns of what `remove` takes beside the key; none where it takes nothing."""
    group = getattr(structure, "member", None) or getattr(structure, "id", None)
    return group.columns if structure.kind in ("capped", "set") and group is not None else ()
