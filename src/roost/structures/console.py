"""How a structure appears on the command line, how files are imported into it, and which options create and alter it.

A kind registers a class of its own where the defaults do not fit it. There is no I/O here: the commands run the
operations and print the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from roost.errors import Invalid
from roost.structures.clock import fact_in_words
from roost.structures.clock import in_words as duration_in_words
from roost.structures.operation import Operation
from roost.structures.structure import Structure
from roost.types.columns import Column

S = TypeVar("S", bound=Structure)

REQUIRED: Final = object()  # in `takes`: there is no default


class Table(NamedTuple):
    """What a command prints: for people as rows, for programs as one document. Values are as Python has them."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    document: Any


class Console(Generic[S]):
    """A structure, as the commands see it.

    takes: the options of `roost create KIND NAME`, with their defaults: `key`, `member`, `per`, `unique` and `column`
        name columns; `keep`, `slots`, `on_full` and `on_duplicate` are facts of the definition. Empty: this kind is
        declared in Python alone.
    changes: the options of `roost alter NAME`; `add` adds columns.
    read_only: the reason why the commands that write refuse a structure; `{name}` is its name.
    reads, headers: the verb that reads what a key holds in short, and how its result is called, or the attributes of
        it that are shown.
    shows: the verb that reads all that a key holds.
    holds: what a key has at most `keep` of, and for `keep_for`; "": a smaller one is no reason to ask.
    """

    takes: ClassVar[Mapping[str, Any]] = {}
    changes: ClassVar[Sequence[str]] = ()
    read_only: ClassVar[str] = ""
    reads: ClassVar[str] = ""
    headers: ClassVar[Sequence[str]] = ()
    shows: ClassVar[str] = ""
    holds: ClassVar[str] = ""

    def __init__(self, structure: S) -> None:
        self.structure = structure

    # --- create ---------------------------------------------------------------------------------------------------

    @classmethod
    def facts(cls, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of a definition that are said by options of another name or type."""
        return {}

    # --- list -----------------------------------------------------------------------------------------------------

    def listed(self) -> tuple[str, str, str]:
        """Return the columns of the key, those of what it holds, and the rules."""
        keys = self.structure.key.columns
        return (
            in_words([each for each in self.structure.columns if each in keys]),
            in_words([each for each in self.structure.columns if each not in keys]),
            self.rules(),
        )

    def rules(self) -> str:
        """Return the facts of the definition that name no columns."""
        facts: dict[str, Any] = json.loads(self.structure.definition)
        columns = [
            name for name, fact in facts.items() if isinstance(fact, list) and fact and isinstance(fact[0], list)
        ]
        hidden = ("kind", "name", "per", *columns)
        shown = {
            name: fact_in_words(name, fact) for name, fact in facts.items() if name not in hidden and fact is not None
        }
        return ", ".join(f"{name} {'+'.join(fact) if isinstance(fact, list) else fact}" for name, fact in shown.items())

    # --- show -----------------------------------------------------------------------------------------------------

    def summaries(self, keys: Sequence[Any]) -> Sequence[Operation[Any]]:
        """Return the operations whose results say what each of some keys holds."""
        return [getattr(self.structure, self.reads)(key) for key in keys] if self.reads else []

    def summary(self, keys: Sequence[Any], results: Sequence[Any]) -> Table:
        """Return what each key holds, without the key: a row and an object for each."""
        rows = [tuple([getattr(found, name, found) for name in self.headers]) for found in results or keys]
        return Table(self.headers, rows, [dict(zip(self.headers, row, strict=True)) for row in rows])

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads all that a key holds."""
        if self.shows:
            return getattr(self.structure, self.shows)(key)  # type: ignore[no-any-return]
        raise Invalid(f"{self.structure.name}: what a key of a {self.structure.kind} holds cannot be shown")

    def content(self, found: Any, n: int | None) -> Table:
        """Return the result of `contents` as a table, at most `n` rows of it.

        By default the result is a row or a list of rows, each a value, or an object with the columns as attributes.
        """
        rows = found if isinstance(found, list) else [] if found is None else [found]
        keys = self.structure.key.columns
        names = [each.name for each in self.structure.columns if each not in keys]
        values = [tuple([getattr(row, name, row) for name in names]) for row in rows[:n]]
        return Table(names, values, {"rows": [dict(zip(names, row, strict=True)) for row in values]})

    # --- clear, forget --------------------------------------------------------------------------------------------

    def removed(self, number: int) -> str:
        """Say what `clear` or `forget` removed, from its result."""
        return f"{number:,} row{'' if number == 1 else 's'}"

    # --- alter ----------------------------------------------------------------------------------------------------

    def altered(self, options: Mapping[str, Any], added: Sequence[tuple[str, Any, Any]]) -> Structure:
        """Return the declaration with other options; `added` are new fields, as `make_dataclass` takes them."""
        return self.structure.replaced(**options)

    def deletes(self, new: Structure) -> str:
        """Say which rows are deleted when the structure is altered to a new declaration; "" for none."""

        def less(option: str) -> Any:
            before, after = (getattr(each, option, None) for each in (self.structure, new))
            changes = self.holds and option in self.structure.options and after is not None
            return after if changes and (before is None or after < before) else None

        keep, keep_for = less("keep"), less("keep_for")
        which = "newest" if getattr(self.structure, "score", None) is None else "best"
        said = [] if keep is None else [f"{self.holds} beyond the {which} {keep} of each key are deleted"]
        if keep_for is not None:
            said.append(f"{self.holds} that were written longer than {duration_in_words(keep_for)} ago are deleted")
        return " and ".join(said)


class PeekConsole(Console[S]):
    """A structure whose keys are read by `peek`."""

    reads = shows = "peek"

    def content(self, found: Any, n: int | None) -> Table:
        table = self.summary([None], [found])
        return table._replace(rows=[] if found is None else table.rows, document=table.document[0])


def in_words(columns: Sequence[Column]) -> str:
    """Return columns as `roost list` shows them.

    >>> import roost
    >>> in_words(roost.Set("likes", key=int).columns)
    'key int, member text(255)'
    """
    return ", ".join(f"{each.name} {each.spec}" for each in columns)
