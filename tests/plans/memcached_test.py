"""The plan of a set in memcached, with answers given beforehand: lost races, shards, compaction.

`tests/suite/memcached_test.py` has on real servers what an operation sends when nobody interferes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

import roost
from roost.structures.memcached_set.commands import (
    Add,
    Append,
    Cas,
    Command,
    Delete,
    Get,
    Item,
    Left,
    Limit,
    Memory,
    Put,
    TooLarge,
    Touch,
    Work,
)  # fmt: skip
from roost.structures.memcached_set.plan import GRACE, LOOK, MemcachedPlan
from roost.structures.memcached_set.records import Binary, Header, home

NOW = 1_700_000_000
likes = roost.MemcachedSet("likes", int, str)
brief = roost.MemcachedSet("brief", int, str, ttl=100)
recipe = roost.MemcachedSet("recipe", int, str, encoding="readable")
numbers = roost.MemcachedSet("likes", int, int)
BINARY = Binary(raw=False)
NO_HEADER = Header()
PLAIN = BINARY.header(NO_HEADER)
SMALL = 4096  # bytes of an item: what is shorter than an eighth of it is one
ADA, NO_ADA = b"+\3ada", b"-\3ada"
WASTE = PLAIN + ADA * 500
MANY = [f"{n:04}" for n in range(400)]  # 2,000 bytes in one block: two shards of SMALL items
ROOT = BINARY.header(Header(generation=0xABC, shards=2))
TWO = ("likes:7%%abc%0", "likes:7%%abc%1")
ROOT_ONLY = ("likes:7",)
KNOWN = {"likes:7": (0xABC, 2)}

Script = list[tuple[Command, Any]]


class Dice(Random):
    """Always the same."""

    def __init__(self, fate: float) -> None:
        super().__init__(1)
        self.fate = fate

    def random(self) -> float:
        return self.fate

    def getrandbits(self, _: int, /) -> int:
        return 0xABC - 1


class AnyPut(Put):
    """Shards of `MANY`, in whatever order."""

    def __new__(cls) -> AnyPut:
        return super().__new__(cls, {}, 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Put):
            return False
        logs = [BINARY.read(name, data) for name, data in other.items.items()]
        return set().union(*[log.added for log in logs]) == set(MANY) and len({log.header for log in logs}) == 1

    __hash__ = None  # type: ignore[assignment]


def plan_of(structure: Any, fate: float = 1.0, limit: int | None = SMALL, hints: Any = None) -> MemcachedPlan:
    plan = MemcachedPlan(structure, Memory(lambda: NOW + 0.5, Dice(fate), limit=limit))
    plan.memory.hints.update(hints or {})
    return plan


def play(work: Work[Any], script: Sequence[tuple[Command, Any]]) -> Any:
    """Drive a plan: every command must be the next one of the script, which has its answer or the error it meets."""
    rest = script
    try:
        wanted = next(work)
        while True:
            assert rest, f"not in the script: {wanted}"
            (expected, answer), rest = rest[0], rest[1:]
            assert wanted == expected
            wanted = work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
    except StopIteration as stop:
        assert not rest, f"never sent: {rest}"
        return stop.value


def change(plan: MemcachedPlan, *changes: tuple[bool, list[str]], late: bool = False) -> Work[None]:
    return plan.change(plan.structure.item((7,)), changes, lambda: late)


def add(*members: str) -> Callable[[MemcachedPlan], Work[None]]:
    return lambda plan: change(plan, (True, list(members)))


def remove_ada(plan: MemcachedPlan) -> Work[None]:
    return change(plan, (False, ["ada"]))


def found(data: bytes, cas: Any = b"1", flags: int = 0) -> dict[str, Item]:
    return {"likes:7": Item(data, flags, cas)}


def shards_of(item: str, members: list[str], header: Header = NO_HEADER) -> dict[str, bytes]:
    begin = BINARY.header(header._replace(generation=0xABC, shards=2))
    parts: list[list[str]] = [[] for _ in range(2)]
    for member in members:
        parts[home(member, 2)].append(member)
    return {f"{item}%%abc%{n}": begin + BINARY.net(part, ()) for n, part in enumerate(parts)}


def kept(root: bytes = ROOT) -> dict[str, Item]:
    shards = {name: Item(data, 0, b"1") for name, data in shards_of("likes:7", MANY).items()}
    return {"likes:7": Item(root, 0, b"1"), **shards}


# --- writing -----------------------------------------------------------------------------------------------------

MANY_AT_ONCE = BINARY.records(True, MANY)
COMPLETE = Header(complete=True)
BRIEFLY = Header(True, False, NOW + 100)

WRITES: dict[str, tuple[Any, Callable[[MemcachedPlan], Work[None]], Script]] = {
    "nothing is sent for no members": (likes, lambda plan: change(plan, (True, []), (False, [])), []),
    "append and add are looped when both lose the race": (
        likes,
        add("ada"),
        [(Append("likes:7", ADA), False), (Add("likes:7", PLAIN + ADA, 0), False), (Append("likes:7", ADA), True)],
    ),
    "a remove from a set that is not there makes none": (
        likes, remove_ada, [(Append("likes:7", NO_ADA), False), (Get(ROOT_ONLY), {})],
    ),
    "who loses the race for a full set begins again": (
        likes,
        remove_ada,
        [
            (Append("likes:7", NO_ADA), False),
            (Get(ROOT_ONLY), found(WASTE)),
            (Cas("likes:7", PLAIN, 0, Item(WASTE, 0, b"1")), False),
            (Append("likes:7", NO_ADA), True),
        ],
    ),
    "what is large goes to shards first and then the root names them": (
        likes,
        lambda plan: plan.replace("likes:7", MANY),
        [
            (Put(shards_of("likes:7", MANY, COMPLETE), 0), None),
            (Get(ROOT_ONLY), {}),
            (Put({"likes:7": BINARY.header(Header(True, False, 0, 0xABC, 2))}, 0), None),
        ],
    ),
    "shards outlive their root": (
        brief,
        lambda plan: plan.replace("brief:7", MANY),
        [
            (Put(shards_of("brief:7", MANY, BRIEFLY), 100 + GRACE), None),
            (Get(("brief:7",)), {}),
            (Put({"brief:7": BINARY.header(BRIEFLY._replace(generation=0xABC, shards=2))}, 100), None),
        ],
    ),
    "who makes a large set second begins again": (
        likes,
        add(*MANY),
        [
            (Append("likes:7", MANY_AT_ONCE), TooLarge()),
            (Get(ROOT_ONLY), {}),
            (AnyPut(), None),
            (Add("likes:7", ROOT, 0), False),
            (Touch(TWO, GRACE), None),
            (Append("likes:7", MANY_AT_ONCE), True),
        ],
    ),
    "clear of nothing": (likes, lambda plan: plan.clear("likes:7"), [(Get(ROOT_ONLY), {})]),
    "clear of whatever": (
        likes, lambda plan: plan.clear("likes:7"), [(Get(ROOT_ONLY), found(b"whatever")), (Delete(ROOT_ONLY), None)],
    ),
    "clear deletes the root and then its shards": (
        likes,
        lambda plan: plan.clear("likes:7"),
        [(Get(ROOT_ONLY), found(ROOT)), (Delete(ROOT_ONLY), None), (Delete(TWO), None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_a_write(name: str) -> None:
    structure, work, script = WRITES[name]
    assert play(work(plan_of(structure)), script) is None


def test_what_cannot_be_written_is_told() -> None:
    full: Script = [(Append("likes:7", NO_ADA), False), (Get(ROOT_ONLY), found(WASTE))]
    lost: tuple[Command, Any] = (Cas("likes:7", PLAIN, 0, Item(WASTE, 0, b"1")), None)
    with pytest.raises(roost.Busy, match="likes:7 is full"):
        play(change(plan_of(likes), (False, ["ada"]), late=True), [*full, lost])
    foreign = {"recipe:7": Item(b"+ada ", 0, b"1")}
    with pytest.raises(roost.Full, match="made by another program"):
        play(
            remove_ada(plan_of(recipe)),
            [(Append("recipe:7", b"-ada "), False), (Get(("recipe:7",)), foreign), (Left("recipe:7"), None)],
        )
    with pytest.raises(roost.Mismatch, match="likes:7"):
        play(plan_of(numbers).read([numbers.members(7)]), [(Get(ROOT_ONLY), found(PLAIN + ADA))])


def test_replace_asks_for_the_limit_once_and_lets_shards_go_that_another_process_has_written() -> None:
    plan, begin = plan_of(likes, limit=None), BINARY.header(COMPLETE)
    put, old = Put({"likes:7": begin + ADA}, 0), Touch(TWO, GRACE)
    play(plan.replace("likes:7", ["ada"]), [(Limit(), SMALL), (Get(ROOT_ONLY), kept()), (put, None), (old, None)])
    play(plan.replace("likes:7", []), [(Get(ROOT_ONLY), {}), (Put({"likes:7": begin}, 0), None)])


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", [None, (5, 1)])
def test_a_fetch_of_one_whose_shards_are_not_known_is_two(stale: tuple[int, int] | None) -> None:
    plan = plan_of(likes, fate=0.0, hints=stale and {"likes:7": stale})
    first = ROOT_ONLY if stale is None else ("likes:7", "likes:7%%5%0")
    everything = kept(ROOT + ADA * 300)  # also where compaction would be worth it: never three
    script = [(Get(first), {"likes:7": everything["likes:7"]}), (Get(TWO), {name: everything[name] for name in TWO})]
    assert play(plan.read([likes.members(7)]), script) == [{*MANY, "ada"}]
    assert plan.memory.hints == KNOWN


def test_contains_reads_one_shard() -> None:
    there = kept(ROOT + b"-\0040001")
    for member, answer in (("0000", True), ("0001", False)):
        shard = next(name for name in TWO if member.encode() in there[name].data)
        got = {name: there[name] for name in ("likes:7", shard)}
        work = plan_of(likes, hints=KNOWN).read([likes.contains(7, member)])
        assert play(work, [(Get(("likes:7", shard)), got)]) == [answer]


def test_a_shard_that_is_gone_is_noted_in_the_root_unless_the_root_is_another_by_then() -> None:
    plan = plan_of(likes, hints=KNOWN)
    complete = BINARY.header(Header(True, False, 0, 0xABC, 2)) + ADA
    lost = BINARY.header(Header(False, True, 0, 0xABC, 2)) + ADA
    part = {name: each for name, each in kept(complete).items() if name != TWO[1]}
    remaining = BINARY.read("", part[TWO[0]].data).added
    left: tuple[Command, Any] = (Get(TWO), {TWO[0]: part[TWO[0]]})
    (info,) = play(
        plan.read([likes.info(7)]),
        [
            (Get(("likes:7", *TWO)), part),
            *[(Get(ROOT_ONLY), found(complete)), left, (Cas("likes:7", lost, 0, Item(complete, 0, b"1")), False)],
            *[(Get(ROOT_ONLY), found(complete, b"2")), left, (Cas("likes:7", lost, 0, Item(complete, 0, b"2")), True)],
            *[(Get(ROOT_ONLY), found(lost, b"3")), left],
        ],
    )
    assert (info.complete, info.size, info.shards) == (False, len(remaining) + 1, 2)
    # From then on it is one get again.
    part["likes:7"] = Item(lost, 0, b"3")
    assert play(plan.read([likes.size(7)]), [(Get(("likes:7", *TWO)), part)]) == [len(remaining) + 1]


def test_a_set_that_was_replaced_while_its_shards_were_looked_for() -> None:
    script = [(Get(("likes:7", *TWO)), found(ROOT)), (Get(ROOT_ONLY), found(PLAIN + ADA))]
    assert play(plan_of(likes, hints=KNOWN).read([likes.members(7)]), script) == [{"ada"}]


# --- compaction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, False, None, roost.OutcomeUnknown("the connection broke")], ids=repr)
def test_a_fetch_that_compacts_keeps_flags_and_expiry_and_has_its_answer_whatever_comes_of_it(answer: Any) -> None:
    begin = BINARY.header(Header(expires=NOW + 60, complete=True))
    there = Item(begin + ADA * 100, 7, b"5")
    script: Script = [(Get(("brief:7",)), {"brief:7": there}), (Cas("brief:7", begin + ADA, 60, there), answer)]
    assert play(plan_of(brief, fate=0.0).read([brief.members(7)]), script) == [{"ada"}]


WORTH = [
    (PLAIN + ADA * 100, 0.1, True),  # pitfall: duplicate adds are waste
    (PLAIN + ADA * 100, 0.13, False),  # not every reader at once
    (PLAIN + ADA * 25, 0.0, False),  # too little to matter
    (PLAIN + (ADA + NO_ADA) * 50, 0.1, True),
    (PLAIN + MANY_AT_ONCE, 0.0, False),
    (PLAIN + b"".join(BINARY.records(True, [m]) for m in MANY), 0.1, True),  # one block is read faster
    (PLAIN + b"".join(BINARY.records(True, [m]) for m in MANY[:200]), 0.0, False),
]


@pytest.mark.parametrize(("data", "fate", "worth"), WORTH)
def test_compaction_is_for_much_waste_and_some_readers(data: bytes, fate: float, worth: bool) -> None:
    work = plan_of(likes, fate).read([likes.size(7)])
    next(work)
    try:
        command: Command | None = work.send(found(data))
    except StopIteration:
        command = None
    assert isinstance(command, Cas) is worth


def test_the_log_of_a_set_in_shards_is_compacted_alone() -> None:
    there = kept(ROOT + ADA * 100 + b"-\0040000" * 30)
    compacted = (Cas("likes:7", ROOT + b"-\0040000" + ADA, 0, there["likes:7"]), True)
    work = plan_of(likes, fate=0.0, hints=KNOWN).read([likes.size(7)])
    play(work, [(Get(("likes:7", *TWO)), there), compacted])


AGAIN, BEFORE = PLAIN + ADA * 100, Item(PLAIN + ADA * 100, 0, b"1")
LOOKS: Script = [(Append("likes:7", ADA), True), (Get(ROOT_ONLY), found(AGAIN))]
LOOKING: dict[str, Script] = {
    "what was appended meanwhile is carried over": [
        *LOOKS,
        (Cas("likes:7", PLAIN + ADA, 0, BEFORE), False),
        (Get(ROOT_ONLY), found(AGAIN + NO_ADA, b"2")),
        (Cas("likes:7", PLAIN + ADA + NO_ADA, 0, Item(AGAIN + NO_ADA, 0, b"2")), True),
    ],
    "what is another set by then is not": [
        *LOOKS,
        (Cas("likes:7", PLAIN + ADA, 0, BEFORE), False),
        (Get(ROOT_ONLY), found(PLAIN, b"2")),
    ],
    "the write is done even if looking fails": [LOOKS[0], (Get(ROOT_ONLY), roost.ConnectionLost("gone"))],
}


@pytest.mark.parametrize("name", LOOKING)
def test_a_writer_looks_by_chance_whether_there_is_something_to_compact(name: str) -> None:
    play(add("ada")(plan_of(likes, fate=4.9 / LOOK)), LOOKING[name])


def test_a_writer_who_finds_much_moves_it_to_shards_and_later_to_new_ones() -> None:
    plan, data = plan_of(likes, fate=0.0), PLAIN + MANY_AT_ONCE
    written: tuple[Command, Any] = (Append("likes:7", b"+\0040000"), True)
    moved = (Cas("likes:7", ROOT, 0, Item(data, 0, b"1")), True)
    play(add("0000")(plan), [written, *[(Get(ROOT_ONLY), found(data))] * 2, (AnyPut(), None), moved])
    older = BINARY.header(Header(generation=5, shards=1)) + MANY_AT_ONCE
    names, old = ("likes:7%%5%0",), Item(older, 0, b"1")
    play(
        add("0000")(plan),
        [
            written,
            (Get(ROOT_ONLY), found(older)),
            (Get(("likes:7", *TWO)), found(older)),
            (Get(names), {names[0]: old}),
            (AnyPut(), None),
            (Cas("likes:7", ROOT, 0, old), True),
            (Touch(names, GRACE), None),
        ],
    )
