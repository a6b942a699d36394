"""The common base of all structures: a name, columns, a definition, and the operations on whole keys."""

from __future__ import annotations

import copy
import inspect
import json
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from roost.errors import Invalid
from roost.structures.clock import fact_in_words
from roost.structures.operation import RUNS, Operation, Target
from roost.types.column_types import INT_MAX, checked_whole, shown
from roost.types.columns import Column, checked_columns, column, columns_of, parse_column, structure_name, unique_names

K = TypeVar("K")
if TYPE_CHECKING:
    import typing_extensions  # which type checkers have; typing has it from Python 3.13 on

    AnyKey = typing_extensions.TypeVar("AnyKey", default=Any)  # of a key that a declaration need not name
    Key = typing_extensions.TypeVar("Key", default=str)  # of `key=`
else:
    AnyKey, Key = TypeVar("AnyKey"), TypeVar("Key")


class Group(Generic[K]):
    """One or several columns that are one value to the caller: a key, an id, a member.

    A value of one column is that value; of several, a tuple (the caller's own NamedTuple where one was declared).
    """

    __slots__ = ("_checks", "_make", "_structure", "columns", "what")

    def __init__(self, structure: str, what: str, columns: Sequence[Column], make: type[Any] | None = None) -> None:
        self._structure = structure
        self.what = what
        self.columns = tuple(columns)
        self._checks = tuple(each.checker(structure) for each in columns)
        self._make: Callable[[Any], Any] | None = getattr(make, "_make", None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(each.name for each in self.columns)

    def check(self, value: Any) -> tuple[Any, ...]:
        """Return the neutral values of the columns, or raise `Invalid`."""
        if len(self._checks) == 1:
            return (self._checks[0](value),)
        if not isinstance(value, tuple) or len(value) != len(self._checks):
            raise Invalid(
                f"{self._structure}: {value!r} is not a {self.what}; it takes a tuple of ({', '.join(self.names)})"
            )
        return tuple([check(part) for check, part in zip(self._checks, value, strict=True)])

    def check_all(self, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Return the neutral values of the columns, for many values of the caller's, or raise `Invalid`."""
        if len(self._checks) == 1:
            return checked_columns(self.columns, self._checks, tuple(zip(values, strict=True)))
        for value in values:
            if not isinstance(value, tuple) or len(value) != len(self._checks):
                self.check(value)
        return checked_columns(self.columns, self._checks, tuple(map(tuple, values)))

    def value(self, values: Sequence[Any]) -> K:
        """Return the caller's value for the neutral values of the columns."""
        if len(self._checks) == 1:
            return cast(K, values[0])
        return cast(K, self._make(values) if self._make else tuple(values))

    @classmethod
    def declared(cls, structure: str, what: str, annotation: Any) -> Group[Any]:
        """Make the group for `key=` or `member=`: a type, a `ColumnType`, or a NamedTuple class."""
        if isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
            fields: tuple[str, ...] = annotation._fields
            columns = columns_of(structure, annotation, fields)
            if len(columns) < 2:
                raise Invalid(f"{structure}.{what}: a NamedTuple of one field; name the field's type instead")
            return Group(structure, what, columns, annotation)
        return Group(structure, what, [column(structure, what, annotation, key=True)])


class Structure(Target, Generic[AnyKey]):
    """A declared, named table that looks after itself. Holds no connection, so it may live at module level."""

    remade: tuple[Any, ...] | None = None  # what pickle calls instead, where the classes of the rows are generated
    # Facts of the definition that `alter` can change, and that a declaration of another release can live with; every
    # other fact says what is stored where.
    options: tuple[str, ...] = ()
    reads: ClassVar[tuple[str, ...]] = ()  # its verbs that change nothing, beyond those that Roost's structures have
    whole: ClassVar[Collection[str]] = RUNS  # its verbs whose arguments are rows
    name: str
    key: Group[AnyKey]
    second: Group[Any] | None = None  # what follows the key in other operations

    def __init__(self, name: str, key: Group[Any], reserved: Collection[str] = ()) -> None:
        self.name = structure_name(name)
        self.key = key
        self._reserve(key.columns, reserved)

    def _reserve(self, columns: Iterable[Column], own: Collection[str]) -> None:
        for name in [each.name for each in columns]:
            if name.lower() in own:
                raise Invalid(f"{self.name}: a column cannot be called {name!r}, which is a column of Roost's own")

    def _define(self, made_with: dict[str, Any], **facts: Any) -> None:
        self._made_with = made_with
        self.plans: dict[str, Any] = {}  # by dialect; theirs, kept here to live as long as the declaration
        # Canonical JSON: two declarations are the same if and only if these texts are.
        self.definition: str = json.dumps({"kind": self.kind, "name": self.name, **facts}, separators=(",", ":"))
        self._hash = hash(self.definition)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that the user declared, in order."""
        return self.key.columns + (self.second.columns if self.second else ())

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Self:
        """Make the declaration from what its definition says; rows get a dataclass of their own."""
        takes = {*inspect.signature(cls.__init__).parameters} - {"name"}
        arguments = {fact: value for fact, value in facts.items() if fact in takes}
        arguments |= {fact: key_from(name, fact, value) for fact, value in arguments.items() if _are_columns(value)}
        return cls(name=name, **arguments)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structure) and self.definition == other.definition)

    def __hash__(self) -> int:
        return self._hash

    def is_like(self, other: Target) -> bool:
        """Whether the other answers the same in every way: equal, and with rows and enums of the same classes."""
        return self is other or (isinstance(other, Structure) and self == other and self._made_with == other._made_with)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self.remade or (partial(type(self), **self._made_with), ())

    def replaced(self, **arguments: Any) -> Self:
        """Return the declaration that these arguments make in place of the ones it was made with."""
        return type(self)(**{**self._made_with, **arguments})

    def overlap(self, definition: str) -> Self | None:
        """Return the declaration with the stored options, and those of its columns that are stored; None if it cannot.

        While a change is being deployed, processes use two declarations, only one of which is stored. Operations of
        the other run with the stored `keep`, `slots` and options, and with the columns that both have. Their keys and
        rows are of the declared classes. A stored column that is not declared is in `rows.unknown`.

        definition: what the catalog has.
        """
        stored, wanted = facts_of(definition), json.loads(self.definition)
        for fact in {*stored, *wanted} - {*self.options, "columns"}:
            if stored.get(fact) != wanted.get(fact):
                return None
        made: Any = copy.copy(self)
        made.plans, made.definition = {}, definition
        for option in self.options:
            if option in stored:
                setattr(made, option, stored[option])
        return cast(Self, made)

    def describe(self, operation: Operation[Any]) -> str:
        """Return the call that made an operation, as a programmer would write it."""
        return f"{self.name}.{operation.verb}({', '.join(self._arguments(operation.verb, operation.args))})"

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        if verb == "keys":
            after, n = args
            return [f"after={after and self.key.value(after)!r}", f"n={n}"]
        others = [self.second.value(arg) if self.second and type(arg) is tuple else arg for arg in args[1:]]
        return [repr(self.key.value(args[0])), *map(repr, others)]

    def column_at(self, operation: Operation[Any], path: Sequence[int]) -> str:
        """Return the name of the column whose value stands at a place in an operation's arguments."""
        if operation.verb in self.whole:
            return self.columns[path[-1]].name
        group = self.second if path[0] and self.second else self.key
        return group.names[path[-1] if len(path) > 1 else 0]

    def clear(self, key: AnyKey) -> Operation[int]:
        """Remove all data of the key; return the number of rows that it had: 0 for a key that does not exist.

        Of a counter it is the total, of a rate limit or a lease 1 if something was taken or held. What numbers rows
        goes on: a ring's sequence, a lease's tokens.
        """
        return Operation(self, "clear", (self.key.check(key),))

    def forget(self, key: AnyKey) -> Operation[int]:
        """Remove the key with all its data, including its head row; returns the same as `clear`.

        A ring or a capped collection starts again at sequence 1. A lease's row stays until its token may be forgotten.
        """
        return Operation(self, "forget", (self.key.check(key),))

    def keys(self, after: AnyKey | None = None, n: int = 100) -> Operation[list[AnyKey]]:
        """Read the first `n` keys after `after`, in key order; use it to read all keys page by page.

        A ring and a capped collection list a key until `forget`, even an empty one; so does a set that has `keep`, or
        no option. Of others these are the keys that have something: a total, a value, a holder.
        """
        return Operation(self, "keys", (None if after is None else self.key.check(after), self._n(n)))

    @property
    def _record_columns(self) -> Sequence[Column]:
        # The columns of a record that is imported, or inserted over HandlerSocket.
        return self.columns

    def _record(self, values: Sequence[Any]) -> Any:
        # The operation that stores a record, whose values are in the order of these columns.
        raise Invalid(f"{self.name}: nothing can be imported into a {self.kind}")

    def _several(self, what: str, values: Iterable[Any]) -> Sequence[Any]:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise Invalid(f"{self.name}: {what}, not {shown(values)}")
        return values if isinstance(values, (list, tuple)) else list(values)

    def _n(self, n: Any) -> int:
        return checked_whole(f"{self.name}: n is a whole number from 1 on", n, 1, INT_MAX)


def facts_of(definition: str) -> dict[str, Any]:
    """Return the facts of a definition of the catalog; `Invalid` when somebody has changed it, so that it has none."""
    try:
        facts = json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"a definition that cannot be read: {shown(definition)} ({type(error).__name__})") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("kind"), str):
        raise Invalid(f"a definition that cannot be read: {shown(definition)} (it names no kind)")
    return facts


def difference(stored: str, declared: str) -> str:
    """Return in words what differs between two definitions.

    >>> difference('{"kind":"ring","keep":5}', '{"kind":"ring","keep":12}')
    'keep is 5 in the database and 12 in the declaration'
    """
    old, new = facts_of(stored), json.loads(declared)
    differences = []
    for fact in dict.fromkeys([*old, *new]):
        before: Any = old.get(fact)
        after: Any = new.get(fact)
        if before == after:
            continue
        if _are_columns(before) and _are_columns(after):
            differences.append(_columns_difference(before, after))
        else:
            words = [_shown(fact_in_words(fact, value)) for value in (before, after)]
            differences.append(f"{fact} is {words[0]} in the database and {words[1]} in the declaration")
        if fact == "kind":
            break
    return "; ".join(differences)


def _are_columns(fact: Any) -> bool:
    pairs = list, tuple
    return isinstance(fact, pairs) and bool(fact) and all(isinstance(each, pairs) and len(each) == 2 for each in fact)


def _columns_difference(before: list[list[str]], after: list[list[str]]) -> str:
    old, new = dict(before), dict(after)
    differences = [f"column {name} ({old[name]}) is only in the database" for name in old if name not in new]
    differences += [f"column {name} ({new[name]}) is only in the declaration" for name in new if name not in old]
    differences += [
        f"column {name} is {old[name]} in the database and {new[name]} in the declaration"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return "; ".join(differences) or "the columns are in another order"


def _shown(fact: Any) -> str:
    return ", ".join(map(str, fact)) if isinstance(fact, list) else str(fact)


def column_facts(columns: Sequence[Column]) -> list[list[str]]:
    """Return columns as a definition has them."""
    return [[each.name, each.spec] for each in columns]


def key_from(structure: str, what: str, columns: Sequence[tuple[str, str]]) -> Any:
    """Make what `key=` or `member=` takes from columns as a definition has them."""
    made = [parse_column(structure, name, spec, key=True) for name, spec in columns]
    unique_names(structure, made)
    if len(made) == 1:
        return made[0].type.enum or made[0].type
    # Not typing.NamedTuple, whose functional form takes no types that are known only now.
    make: Any = namedtuple(what.title(), [each.name for each in made])  # type: ignore[misc]
    make.__annotations__ = {each.name: each.python for each in made}
    return make
