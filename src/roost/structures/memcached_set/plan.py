"""MemcachedSet: converts operations to memcached commands, and answers to results. Generators, no I/O.

Every set has one item, its *root*: a header and a log of adds and removes. Writers only append to it, without reading
it. A large set also has *shards*: items that are written once, under names with a random generation that is never
reused, and then referenced by the header of the root. So a client that has read the root knows the whole set at one
moment, and every change is a single atomic command on the root:

- add, remove: `append`; `add` if there is no root; both again if another client was faster.
- compaction: `cas` of the root. Records appended since it was read are carried over; otherwise the `cas` fails.
- growth: the members are written to shards of a new generation, then a `cas` makes the root refer to it, with an empty
  log. No record is combined with shards of another generation; the old ones live on for `GRACE` seconds for readers.
- replace: shards first, then `set` of the root.

If the root is gone, so is the set: nothing refers to its shards. If a shard is gone, the header says so (`lost`).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from roost.errors import Busy, Error, Full, Mismatch
from roost.structures.memcached_set import commands as ask
from roost.structures.memcached_set.commands import Item, Memory, TooLarge, Work
from roost.structures.memcached_set.declaration import MemcachedSet, SetInfo
from roost.structures.memcached_set.records import ENCODINGS, Header, Log, Member, home
from roost.structures.operation import Operation

log = logging.getLogger("roost")

GRACE = 60  # seconds that the shards of an old generation live on
MONTH = 30 * 86_400  # seconds; memcached interprets a longer time as a date
SLACK = 512  # bytes of an item that memcached uses itself: its header, and the name
LIMIT = 2**20  # the assumed maximum size of an item, until a server was asked
LOOK = 32 * 1024  # appended bytes after which a writer examines the item's growth
WASTE = 128  # bytes below which compaction is not worth it
LOOSE = 256  # number of single records above which it is worth joining them into a block, which is faster to read
AT_ONCE = 4  # a reader that finds only waste compacts with a probability of 1 in twice this number
TRIES = 8  # attempts at a compaction that conflicts with other clients


Changes = Sequence[tuple[bool, Collection[Member]]]


class Whole:
    """A set at one moment: its root, and those of its shards that were requested.

    twice: reading them took two exchanges.
    """

    __slots__ = ("_live", "log", "root", "shards", "size", "twice")

    def __init__(self, root: Item, log: Log, shards: Sequence[tuple[Log, int]], twice: bool = False) -> None:
        self.root = root
        self.log = log
        self.shards = shards
        self.twice = twice
        self.size = len(root.data) + sum([size for _, size in shards])
        self._live: set[Member] | None = None

    @property
    def live(self) -> set[Member]:
        """The members. The caller must not change the set."""
        if not self.shards:
            return self.log.added
        if self._live is None:
            live = self._live = self.shards[0][0].added  # which nobody else uses
            for shard, _ in self.shards[1:]:
                live |= shard.added
            live -= self.log.removed
            live |= self.log.added
        return self._live


class MemcachedPlan:
    """The operations of one structure."""

    def __init__(self, structure: MemcachedSet[Any, Any], memory: Memory) -> None:
        self.structure = structure
        self.memory = memory
        self.encoding = ENCODINGS[structure.encoding](structure.texts.raw)

    # --- reading

    def read(self, operations: Sequence[Operation[Any]]) -> Work[list[Any]]:
        """Answer operations that only read, of any keys, by one `gets` of all items that they need."""
        wanted: dict[str, set[Member] | None] = {}
        named = []
        for op in operations:
            item = self.structure.item(op.args[0])
            named.append(item)
            if op.verb != "contains":
                wanted[item] = None
            else:
                asked = wanted.setdefault(item, set())
                if asked is not None:
                    asked.add(self.structure.texts.out(op.args[1]))
        found = yield from self.fetch(wanted)
        answers = [self._answer(op, found[item]) for op, item in zip(operations, named, strict=True)]
        for item, only in wanted.items():
            whole = found[item]
            if whole is not None and only is None and not whole.twice and self._chosen(whole):
                yield from self._aside(item, self._compact(item, whole))
        return answers

    def _answer(self, op: Operation[Any], whole: Whole | None) -> Any:
        if op.verb == "info":
            return self._info(whole)
        if op.verb == "contains":
            text = self.structure.texts.out(op.args[1])
            return whole is not None and text in whole.live
        live: Collection[Member] = () if whole is None else whole.live
        return len(live) if op.verb == "size" else self.values(self.structure.item(op.args[0]), live)

    def values(self, item: str, live: Collection[Member]) -> set[Any]:
        """Return members as values of the declared type."""
        texts = self.structure.texts
        if texts.plain or texts.raw:
            return set(live)
        value, back = self.structure.member.value, texts.back
        try:
            return {value(back(text)) for text in live}
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise Mismatch(f"the item {item} has a member of another type than it is declared: {error}") from None

    def _info(self, whole: Whole | None) -> SetInfo:
        if whole is None:
            return SetInfo(0, 0, 0, 0, False, None)
        header = whole.log.header
        moment = None if header.expires <= 0 else dt.datetime.fromtimestamp(header.expires, dt.UTC)
        return SetInfo(len(whole.live), whole.size, header.shards, self.waste(whole), header.complete, moment)

    def waste(self, whole: Whole) -> int:
        """Return the number of bytes of a set that its members do not need."""
        heads = whole.log.start + sum([shard.start for shard, _ in whole.shards])
        return max(0, whole.size - heads - self._weight(whole.live))

    def _weight(self, members: Collection[Member]) -> int:
        # The size of one record with all of these members, except its first bytes.
        if not members:
            return 0
        if self.structure.texts.raw:
            length = sum(map(len, members))
        else:
            joined = "".join(members)
            length = len(joined) if joined.isascii() else len(joined.encode())
        return length + len(members) * (1 if self.encoding.name == "binary" else 2) + 4

    def fetch(self, wanted: Mapping[str, Collection[Member] | None]) -> Work[dict[str, Whole | None]]:
        """Read sets; of large sets only the shards of certain members, if these are given.

        One exchange if the sets' shards are known, otherwise two.
        """
        memory, read = self.memory, self.encoding.read
        hints = {item: memory.hints[item] for item in wanted if item in memory.hints}
        asked = list(wanted)
        for item, hint in hints.items():
            asked += self._shards(item, *hint, wanted[item])
        found: dict[str, Item] = yield ask.Get(tuple(asked))
        roots: dict[str, tuple[Item, Log]] = {}
        more: list[str] = []
        late: set[str] = set()
        for item, only in wanted.items():
            root = found.get(item)
            if root is None:
                memory.hints.pop(item, None)
                continue
            header = (each := read(item, root.data)).header
            roots[item] = root, each
            memory.remember(item, header)
            if header.shards and hints.get(item) != (header.generation, header.shards):
                more += self._shards(item, header.generation, header.shards, only)
                late.add(item)
        if more:
            found = found | (yield ask.Get(tuple(more)))
        wholes: dict[str, Whole | None] = dict.fromkeys(wanted)
        for item, (root, each) in roots.items():
            wholes[item] = yield from self._whole(item, root, each, found, wanted[item], item in late)
        return wholes

    def _whole(
        self, item: str, root: Item, own: Log, found: Mapping[str, Item], only: Collection[Member] | None, twice: bool
    ) -> Work[Whole | None]:
        header = own.header
        if not header.shards:
            return Whole(root, own, ())
        names = self._shards(item, header.generation, header.shards, only)
        there = {name: found[name] for name in names if name in found}
        if len(there) == len(names) or header.lost:
            return Whole(root, own, self._logs(there), twice)
        return (yield from self._missing(item, only))

    def _missing(self, item: str, only: Collection[Member] | None) -> Work[Whole | None]:
        # Shards to which a root refers are missing: either it is no longer the root, or memcached has lost them. They
        # are lost if a `cas` after the search still finds the same root; this `cas` records the loss in the root.
        for _ in range(TRIES):
            root = (yield ask.Get((item,))).get(item)
            if root is None:
                return None
            own = self.encoding.read(item, root.data)
            header = own.header
            names = self._shards(item, header.generation, header.shards, only)
            found = (yield ask.Get(tuple(names))) if names else {}
            if len(found) == len(names) or header.lost:
                self.memory.remember(item, header)
                return Whole(root, own, self._logs(found), twice=True)
            data = self.encoding.header(header._replace(complete=False, lost=True)) + root.data[own.start :]
            if (yield ask.Cas(item, data, self._left(header.expires), root)):
                log.warning(
                    "%s: %d of %d shards are gone: evicted, or lost with a server",
                    *(item, len(names) - len(found), len(names)),
                )
        raise Busy(f"{item}: it changed during every attempt to read it")

    def _logs(self, shards: Mapping[str, Item]) -> list[tuple[Log, int]]:
        return [(self.encoding.read(name, each.data), len(each.data)) for name, each in shards.items()]

    def _shards(self, item: str, generation: int, shards: int, only: Collection[Member] | None = None) -> list[str]:
        numbers: Iterable[int] = range(shards) if only is None else {home(member, shards) for member in only}
        return [f"{item}%%{generation:x}%{number}" for number in numbers]

    # --- writing

    def change(self, item: str, changes: Changes, late: Callable[[], bool]) -> Work[None]:
        """Apply changes in their order, as one: True with members adds them, False removes them.

        late: returns whether the caller has waited long enough for other writers.
        """
        if len(changes) == 1:
            data = self.encoding.records(*changes[0])
        else:
            data = b"".join([self.encoding.records(adds, members) for adds, members in changes])
        if not data:
            return
        retried = False
        while True:
            try:
                if (yield ask.Append(item, data)):
                    if self.memory.random.random() * LOOK < len(data):
                        yield from self._look(item)
                    return
                if creates := _creates(changes):
                    begin = self.encoding.header(Header(expires=(expires := self._expires())))
                    if (yield ask.Add(item, begin + data, self._left(expires))):
                        return
            except TooLarge:
                creates, retried = _creates(changes), True
            # The root exists now, so another client has just made it, or it is full; memcached's answer is the same.
            if creates and not retried:
                retried = True
                continue
            if (yield from self._rewrite(item, changes, creates)):
                return
            retried = False
            if late():
                raise Busy(f"{item} is full, and it changed during every attempt to rewrite it")

    def _rewrite(self, item: str, changes: Changes, creates: bool) -> Work[bool]:
        # Rewrites a set with these changes; returns whether this was done, or there was nothing to do.
        whole = (yield from self.fetch({item: None}))[item]
        live: set[Member] = set() if whole is None else set(whole.live)
        if whole is None and not creates:
            return True
        for adds, members in changes:
            if adds:
                live.update(members)
            else:
                live.difference_update(members)
        if whole is not None:
            return (yield from self._grow(item, whole, live, carry=False))
        expires = self._expires()
        root, header = yield from self._spread(item, live, False, expires)
        made: bool = yield ask.Add(item, root, self._left(expires))
        yield from self._after(item, header, Header(), made)
        return made

    def _grow(self, item: str, whole: Whole, live: set[Member], carry: bool = True) -> Work[bool]:
        # Writes shards of a new generation if the set needs them, then the root by `cas`. If this changes no member,
        # records that others have appended since the root was read are carried over; a change must be the last record.
        old = whole.log.header
        expires = old.expires
        if expires < 0:
            left = yield ask.Left(item)
            if left is None:
                raise Full(
                    f"{item} is full, and was made by another program; its expiry time cannot be read here, "
                    "so it is not written anew"
                )
            expires = int(self.memory.clock()) + left if left else 0
        root, header = yield from self._spread(item, live, old.complete, expires)
        was = whole.root
        now: Item | None = was
        done = False
        for _ in range(TRIES):
            assert now is not None
            try:
                done = yield ask.Cas(item, root + now.data[len(was.data) :], self._left(expires), now)
            except TooLarge:
                self.memory.limit = None  # the server was restarted with another limit since it was asked
                break
            if done:
                break
            self.memory.lost_races += 1
            now = (yield ask.Get((item,))).get(item) if carry else None
            if now is None or not now.data.startswith(was.data):
                break
        yield from self._after(item, header, old, bool(done))
        return bool(done)

    def _after(self, item: str, new: Header, old: Header, done: bool) -> Work[None]:
        # Lets shards expire that are no longer referenced.
        if done:
            self.memory.remember(item, new)
        leave = old if done else new
        if leave.shards:
            yield ask.Touch(tuple(self._shards(item, leave.generation, leave.shards)), GRACE)

    def _spread(self, item: str, live: Collection[Member], complete: bool, expires: int) -> Work[tuple[bytes, Header]]:
        # Writes members to as many shards as they need, none if they fit into the root; returns the root.
        if self.memory.limit is None:
            self.memory.limit = yield ask.Limit()
        room = self.memory.limit - SLACK
        net = self.encoding.net(live, ())
        most = self.structure.shards
        if len(net) <= (room // 4 if most else room):
            header = Header(complete=complete, expires=expires)
            return self.encoding.header(header) + net, header
        count = -(-2 * len(net) // room)
        while count <= most:
            header = Header(complete, False, expires, self.memory.random.getrandbits(62) + 1, count)
            begin = self.encoding.header(header)
            parts: list[list[Member]] = [[] for _ in range(count)]
            for member in live:
                parts[home(member, count)].append(member)
            shards = [begin + self.encoding.net(part, ()) for part in parts]
            if max(map(len, shards)) > room:
                count += 1 + count // 4
                continue
            names = self._shards(item, header.generation, count)
            # The shards must not expire before their root.
            yield ask.Put(dict(zip(names, shards, strict=True)), self._left(expires + GRACE if expires else 0))
            return begin, header
        raise Full(
            f"{item}: its {len(live):,} members take {len(net):,} bytes, which is more than "
            f"{'shards=' + str(most) if most else 'one item'} can hold: an item of this memcached has at most "
            f"{self.memory.limit:,} bytes"
        )

    def replace(self, item: str, members: Collection[Member]) -> Work[None]:
        """Replace the members; the set is complete from now on."""
        expires = self._expires()
        root, header = yield from self._spread(item, members, True, expires)
        old = (yield from self._header(item)) if self.structure.shards else None
        yield ask.Put({item: root}, self._left(expires))
        yield from self._after(item, header, old or Header(), True)

    def clear(self, item: str) -> Work[None]:
        header = yield from self._header(item)
        if header is None:
            return
        yield ask.Delete((item,))
        self.memory.hints.pop(item, None)
        if header.shards:
            yield ask.Delete(tuple(self._shards(item, header.generation, header.shards)))

    def _header(self, item: str) -> Work[Header | None]:
        # The header of a root that is to go, whatever it contains.
        root = (yield ask.Get((item,))).get(item)
        try:
            return None if root is None else self.encoding.read(item, root.data).header
        except Mismatch:
            return Header()

    # --- compaction

    def savings(self, whole: Whole) -> tuple[float, float]:
        """Return the share of a root's bytes that is waste, and the share of its members that are in single records.

        Each is 0 if it is too small to matter. Single records take a reader twice the time of those in one block.
        """
        own, size = whole.log, len(whole.root.data) - whole.log.start
        if size <= WASTE or (self.encoding.name == "binary" and not own.loose):
            return 0.0, 0.0
        removed: Collection[Member] = own.removed if own.header.shards else ()
        waste = size - self._weight(own.added) - self._weight(removed) - len(removed)
        loose = own.loose - len(removed)
        return waste / size if waste > WASTE else 0.0, min(1.0, loose / len(own.added)) if loose > LOOSE else 0.0

    def _chosen(self, whole: Whole) -> bool:
        # Whether this reader compacts: more than half must be waste; the probability grows with the waste, so that not
        # all readers do it at once. A set that another program has made is left to a writer, which asks for its expiry
        # time first.
        chance = (max(self.savings(whole)) - 0.5) / AT_ONCE
        return chance > 0 and whole.log.header.expires >= 0 and self.memory.random.random() < chance

    def _compact(self, item: str, whole: Whole) -> Work[None]:
        # Rewrites only the root, in one `cas`.
        own = whole.log
        removed = own.removed if own.header.shards else ()
        data = self.encoding.header(own.header) + self.encoding.net(own.added, removed)
        if not (yield ask.Cas(item, data, self._left(own.header.expires), whole.root)):
            self.memory.lost_races += 1

    def _look(self, item: str) -> Work[None]:
        # Checks a set for compaction, which a writer does occasionally, for sets that are seldom read.
        yield from self._aside(item, self._tidy(item))

    def _tidy(self, item: str) -> Work[None]:
        root = (yield ask.Get((item,))).get(item)
        if root is None:
            return
        own = self.encoding.read(item, root.data)
        seen = Whole(root, own, ())
        limit = self.memory.limit or LIMIT
        waste, loose = self.savings(seen)
        if self.structure.shards and len(root.data) * (1 - waste) > limit // 4:
            whole = (yield from self.fetch({item: None}))[item]
            if whole is not None:
                yield from self._grow(item, whole, whole.live)
        elif max(waste, loose) > 0.5:
            if own.header.shards:
                yield from self._compact(item, seen)
            else:
                yield from self._grow(item, seen, own.added)

    def _aside(self, item: str, work: Work[None]) -> Work[None]:
        # The operation itself is done, so a failure of the compaction is only logged.
        try:
            yield from work
        except (Error, TooLarge) as error:
            log.warning("%s was not compacted: %s", item, error)

    def _expires(self) -> int:
        return 0 if self.structure.ttl is None else int(self.memory.clock()) + self.structure.ttl

    def _left(self, expires: int) -> int:
        # The expiry time in memcached's form. An item whose time is past expires within a second.
        if expires <= 0:
            return 0
        left = max(1, expires - int(self.memory.clock()))
        return left if left <= MONTH else expires


def _creates(changes: Changes) -> bool:
    # A removal does not make a set.
    return any([adds and members for adds, members in changes])
