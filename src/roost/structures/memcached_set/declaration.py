"""MemcachedSet: the distinct members of a key, stored in memcached as a log of adds and removes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Generic, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from roost.errors import Invalid
from roost.structures.operation import Operation
from roost.structures.structure import Group, Structure, column_facts
from roost.types.column_types import ColumnType, checked_whole, shown
from roost.types.columns import Column

K = TypeVar("K")
M = TypeVar("M")
A = TypeVar("A")
B = TypeVar("B")

MOST_SHARDS = 1024
MOST_TTL = 10 * 366 * 86_400  # seconds
ITEM_NAME = 200  # bytes; memcached accepts 250, and the names of shards are longer
NAMED = frozenset(range(33, 127)) - {ord("%"), ord(":")}  # bytes that need no escape in an item's name


class Options(TypedDict, total=False):
    """The options of a set, as `MemcachedSet` describes them."""

    encoding: Literal["binary", "readable"]
    shards: int
    ttl: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class SetInfo:
    """How a set is stored in memcached.

    size: the number of members. bytes: the size of its items, headers included. shards: the number of items, besides
    the first, over which a large set is spread; 0 for a set in a single item. waste: the bytes that compaction would
    save. complete: whether nothing was lost since an explicit `replace`. expires: when the set expires, by the clock of
    the process that created it; None: never, or unknown because another program wrote it.
    """

    size: int
    bytes: int
    shards: int
    waste: int
    complete: bool
    expires: dt.datetime | None


class MemcachedSet(Structure, Generic[K, M]):
    """A set of members per key in memcached: an add and a remove are one `append`, without a read before it.

    name: lower-case identifier, at most 40 characters. The set of key 7 in `likes` is the item `likes:7`.
    key, member: their types, as for `roost.Counter`; both are compared byte for byte.
    encoding: "binary" (length-prefixed) stores every member; "readable" is `+a +b -c`, for members without white space.
    shards: the maximum number of items, besides the first, over which a large set is spread (0 to 1024); with the
        server's default of 1 MB per item each holds half a megabyte. A set that would need more raises `Full`.
    ttl: whole seconds after its creation or `replace` at which a set expires; None: never.

    Data that memcached evicts, or loses in a restart, is gone; docs/memcached.md describes the consequences.

    >>> import roost
    >>> likes = roost.MemcachedSet("likes", int, str, ttl=3600)
    >>> likes.add(7, "ada", "bob")
    likes.add(7, 'ada', 'bob')
    >>> store = roost.Store("memcached://cache1:11211,cache2:11211")  # connects when it is first used
    >>> store.close()
    """

    kind = "memcached_set"

    @overload
    def __init__(self: MemcachedSet[str, str], name: str, **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(
        self: MemcachedSet[A, str], name: str, key: type[A] | ColumnType[A], **options: Unpack[Options]
    ) -> None: ...
    @overload
    def __init__(
        self: MemcachedSet[str, B], name: str, *, member: type[B] | ColumnType[B], **options: Unpack[Options]
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, key: type[K] | ColumnType[K], member: type[M] | ColumnType[M], **options: Unpack[Options]
    ) -> None: ...

    def __init__(
        self,
        name: str,
        key: Any = str,
        member: Any = str,
        *,
        encoding: Literal["binary", "readable"] = "binary",
        shards: int = 64,
        ttl: int | None = None,
    ) -> None:
        super().__init__(name, Group.declared(name, "key", key))
        self.member: Group[M]
        self.member = self.second = Group.declared(name, "member", member)
        if encoding not in ("binary", "readable"):
            raise Invalid(f'{name}: encoding is "binary" or "readable", not {encoding!r}')
        what = f"{name}: shards is a whole number from 0 to {MOST_SHARDS:,}"
        self.shards = checked_whole(what, shards, 0, MOST_SHARDS)
        what = f"{name}: ttl is whole seconds from 1 to {MOST_TTL:,}, or None"
        self.ttl = None if ttl is None else checked_whole(what, ttl, 1, MOST_TTL)
        self.encoding = encoding
        self._blanks = encoding == "readable"  # blanks separate members, so no member may contain one
        self._key_texts = Texts(name, self.key, item=True)
        self.texts = Texts(name, self.member)
        options: dict[str, Any] = {"encoding": encoding, "shards": self.shards, "ttl": self.ttl}
        self._define(
            {"name": name, "key": key, "member": member, **options},
            key=column_facts(self.key.columns),
            member=column_facts(self.member.columns),
            **options,
        )

    def add(self, key: K, *members: M) -> Operation[None]:
        """Add members by one `append`, which cannot report how many of them were new.

        `Full`, naming the limit, when they do not fit; nothing is changed then.
        """
        return Operation(self, "add", (self.key.check(key), self._members(members)))

    def remove(self, key: K, *members: M) -> Operation[None]:
        """Remove members by one `append`. A set that does not exist is not created."""
        return Operation(self, "remove", (self.key.check(key), self._members(members)))

    def members(self, key: K) -> Operation[set[M]]:
        """Read all members; an empty set if the set does not exist or was evicted (`info` has details)."""
        return Operation(self, "members", (self.key.check(key),))

    def contains(self, key: K, member: M) -> Operation[bool]:
        """Read whether a member is in the set; reads the first item, and one shard of a large set."""
        return Operation(self, "contains", (self.key.check(key), self._member(member)))

    def size(self, key: K) -> Operation[int]:
        """Read how many members the key has; reads all of them."""
        return Operation(self, "size", (self.key.check(key),))

    def info(self, key: K) -> Operation[SetInfo]:
        """Read how the set is stored: its bytes, shards and waste, and whether it is complete."""
        return Operation(self, "info", (self.key.check(key),))

    def replace(self, key: K, members: Iterable[M]) -> Operation[None]:
        """Replace all members by these: the set is complete from then on, until memcached loses it.

        A concurrent add takes effect before or after. A new `ttl` begins.
        """
        return Operation(self, "replace", (self.key.check(key), self._members(members)))

    def clear(self, key: K) -> Operation[None]:  # type: ignore[override]
        """Delete the set; a later add creates a new one, which is not complete."""
        return Operation(self, "clear", (self.key.check(key),))

    def forget(self, key: K) -> Operation[None]:  # type: ignore[override]
        """Delete the set, as `clear` does: a key has no other data."""
        return Operation(self, "forget", (self.key.check(key),))

    def keys(self, after: Any = None, n: int = 100) -> NoReturn:
        """Raise `Invalid`: memcached cannot list its keys in order."""
        raise Invalid(f"{self.name}: memcached cannot list its keys; roost.Set on a SQL database can")

    def item(self, key: tuple[Any, ...]) -> str:
        """Return the name of a key's item; a name that is too long for memcached is replaced by a hash."""
        name = f"{self.name}:{self._key_texts.out(key)}"
        if len(name) > ITEM_NAME:
            name = f"{self.name}:%%{blake2b(name.encode(), digest_size=20).hexdigest()}"
        return name

    def key_of(self, item: str) -> K | None:
        """Return the key from an item's name; None if the name is a hash. ValueError if it is not a valid name."""
        text = item.removeprefix(f"{self.name}:")
        return None if text.startswith("%%") else self.key.value(self._key_texts.back(text))

    def _members(self, members: Iterable[M]) -> tuple[tuple[Any, ...], ...]:
        checked = [self._member(member) for member in members]
        return tuple(checked if len(checked) == 1 else dict.fromkeys(checked))

    def _member(self, member: M) -> tuple[Any, ...]:
        checked = self.member.check(member)
        if self._blanks:
            text = self.texts.out(checked)
            if len(text.split()) > 1 or text.strip() != text:
                raise Invalid(
                    f"{self.name}.member: {shown(member)} has white space, which the readable encoding separates "
                    'members with; encoding="binary" takes it'
                )
        return checked

    def _arguments(self, verb: str, args: tuple[Any, ...]) -> list[str]:
        key = repr(self.key.value(args[0]))
        match verb:
            case "add" | "remove":
                return [key, *(repr(self.member.value(member)) for member in args[1])]
            case "replace":
                return [key, f"[{', '.join(repr(self.member.value(member)) for member in args[1])}]"]
        return super()._arguments(verb, args)


# The text form of a value, which programs in other languages can read; each value has exactly one.
_OUT: dict[str, Callable[[Any], str]] = {
    "int": str,
    "text": str,
    "binary": bytes.hex,
    "bool": lambda value: "1" if value else "0",
    "datetime": dt.datetime.isoformat,
    "date": dt.date.isoformat,
    "decimal": lambda value: format(value, "f"),
    "uuid": str,
    "enum": lambda value: str(value.value),
}
_BACK: dict[str, Callable[[str], Any]] = {
    "int": int,
    "text": str,
    "binary": bytes.fromhex,
    "bool": {"0": False, "1": True}.__getitem__,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": Decimal,
    "uuid": uuid.UUID,
}


class Texts:
    """Converts values of a key or a member to text and back; a single member of type bytes stays bytes.

    item: for the name of an item, which has no blanks, no control characters and only ASCII letters.
    """

    def __init__(self, structure: str, group: Group[Any], item: bool = False) -> None:
        self._structure = structure
        kinds = [each.type.kind for each in group.columns]
        self.raw = kinds == ["binary"] and not item
        self.plain = kinds == ["text"] and not item  # the text is the member
        self._out = [_OUT[kind] for kind in kinds]
        self._back = [_back(each) for each in group.columns]
        self._item = item

    def out(self, values: tuple[Any, ...]) -> Any:
        if self.raw or self.plain:
            return values[0]
        if len(values) == 1:
            text = self._out[0](values[0])
            if not self._item or (text.isascii() and text.isalnum()):
                return text
        texts = [out(value) for out, value in zip(self._out, values, strict=True)]
        if self._item:
            safe = NAMED if len(texts) > 1 else NAMED | {ord(":")}
            return ":".join([_quoted(text, safe) for text in texts])
        return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))

    def back(self, text: Any) -> tuple[Any, ...]:
        """Return the neutral values; ValueError, KeyError, TypeError or ArithmeticError if the text is malformed."""
        if self.raw:
            return (text,)
        texts = [text]
        if self._item:
            parts = [text] if len(self._back) == 1 else text.split(":")
            texts = [_unquoted(part) for part in parts]
        elif len(self._back) > 1:
            texts = json.loads(text)
        return tuple([back(each) for back, each in zip(self._back, texts, strict=True)])


def _quoted(text: str, safe: frozenset[int]) -> str:
    return "".join([chr(byte) if byte in safe else f"%{byte:02X}" for byte in text.encode()])


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda found: bytes([int(found[1], 16)]), text.encode("ascii")).decode()


_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")


def _back(column: Column) -> Callable[[str], Any]:
    if column.type.kind != "enum":
        return _BACK[column.type.kind]
    assert column.type.enum is not None
    return {str(member.value): member for member in column.type.enum}.__getitem__
