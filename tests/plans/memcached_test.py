"""The plan of a set in memcached, with answers given beforehand: lost races, shards, compaction.

`tests/suite/memcached_test.py` has on real servers what an operation sends when nobody interferes.
"""

from __future__ import annotations

from collections.abc import Sequence
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
)
from roost.structures.memcached_set.plan import GRACE, LOOK, MemcachedPlan
from roost.structures.memcached_set.records import Binary, Header, Readable, home

NOW = 1_700_000_000
likes = roost.MemcachedSet("likes", int, str)
brief = roost.MemcachedSet("brief", int, str, ttl=100)
recipe = roost.MemcachedSet("recipe", int, str, encoding="readable")
BINARY, READABLE = Binary(raw=False), Readable(raw=False)
PLAIN = BINARY.header(Header())
SMALL = 4096  # bytes of an item: what is shorter than an eighth of it is one


class Dice(Random):
    """Always the same."""

    def __init__(self, fate: float) -> None:
        super().__init__(1)
        self.fate = fate

    def random(self) -> float:
        return self.fate

    def getrandbits(self, _: int, /) -> int:
        return 0xABC - 1


def plan_of(structure: Any, fate: float = 1.0, limit: int | None = SMALL) -> MemcachedPlan:
    return MemcachedPlan(structure, Memory(lambda: NOW + 0.5, Dice(fate), limit=limit))


def play(work: Work[Any], *script: tuple[Command, Any]) -> Any:
    """Drive a plan: every command must be the next one of the script, which has its answer or the error it meets."""
    rest: Sequence[tuple[Command, Any]] = script
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


def change(plan: MemcachedPlan, *changes: tuple[bool, list[str]]) -> Work[None]:
    return plan.change(plan.structure.item((7,)), changes, lambda: False)


def found(data: bytes, cas: Any = b"1", flags: int = 0) -> dict[str, Item]:
    return {"likes:7": Item(data, flags, cas)}


ADA, NO_ADA = b"+\3ada", b"-\3ada"


# --- writing -----------------------------------------------------------------------------------------------------


def test_adds_and_removes_together_are_one_append_in_their_order() -> None:
    changes = (True, ["ada"]), (False, ["ada"]), (True, ["bob"])
    play(change(plan_of(likes), *changes), (Append("likes:7", ADA + NO_ADA + b"+\3bob"), True))


def test_nothing_is_sent_for_no_members() -> None:
    play(change(plan_of(likes), (True, []), (False, [])))


def test_the_first_add_makes_the_set_with_its_expiry() -> None:
    begin = BINARY.header(Header(expires=NOW + 100))
    play(
        change(plan_of(brief), (True, ["ada"])),
        (Append("brief:7", ADA), False),
        (Add("brief:7", begin + ADA, 100), True),
    )


def test_a_long_expiry_is_a_date() -> None:
    days = roost.MemcachedSet("brief", int, str, ttl=31 * 86_400)
    expires = NOW + 31 * 86_400
    play(
        change(plan_of(days), (True, ["ada"])),
        (Append("brief:7", ADA), False),
        (Add("brief:7", BINARY.header(Header(expires=expires)) + ADA, expires), True),
    )


def test_append_and_add_are_looped_when_both_lose_the_race() -> None:
    play(
        change(plan_of(likes), (True, ["ada"])),
        (Append("likes:7", ADA), False),
        (Add("likes:7", PLAIN + ADA, 0), False),
        (Append("likes:7", ADA), True),
    )


def test_a_remove_from_a_set_that_is_not_there_makes_none() -> None:
    play(
        change(plan_of(likes), (False, ["ada"])),
        (Append("likes:7", NO_ADA), False),
        (Get(("likes:7",)), {}),
    )


def test_pitfall_full_looks_like_missing_and_is_written_anew() -> None:
    waste = PLAIN + ADA * 500
    play(
        change(plan_of(likes), (True, ["bob"])),
        (Append("likes:7", b"+\3bob"), False),
        (Add("likes:7", PLAIN + b"+\3bob", 0), False),
        (Append("likes:7", b"+\3bob"), False),
        (Add("likes:7", PLAIN + b"+\3bob", 0), False),
        (Get(("likes:7",)), found(waste, b"5", flags=9)),
        (Cas("likes:7", Root(PLAIN, {"ada", "bob"}), 0, Item(waste, 9, b"5")), True),
    )


def test_pitfall_a_remove_from_a_full_set_is_not_lost() -> None:
    waste = PLAIN + ADA * 500
    play(
        change(plan_of(likes), (False, ["ada"])),
        (Append("likes:7", NO_ADA), False),
        (Get(("likes:7",)), found(waste)),
        (Cas("likes:7", PLAIN, 0, Item(waste, 0, b"1")), True),
    )


def test_who_loses_the_race_for_a_full_set_begins_again() -> None:
    waste = PLAIN + ADA * 500
    play(
        change(plan_of(likes), (False, ["ada"])),
        (Append("likes:7", NO_ADA), False),
        (Get(("likes:7",)), found(waste)),
        (Cas("likes:7", PLAIN, 0, Item(waste, 0, b"1")), False),
        (Append("likes:7", NO_ADA), True),
    )


def test_who_never_wins_is_told_so() -> None:
    waste = PLAIN + ADA * 500
    with pytest.raises(roost.Busy, match="likes:7 is full"):
        play(
            plan_of(likes).change("likes:7", [(False, ["ada"])], late=lambda: True),
            (Append("likes:7", NO_ADA), False),
            (Get(("likes:7",)), found(waste)),
            (Cas("likes:7", PLAIN, 0, Item(waste, 0, b"1")), None),
        )


class Root(bytes):
    """A root with these members in any order."""

    def __new__(cls, begin: bytes, members: set[str]) -> Root:
        made = super().__new__(cls, begin)
        made.members = members
        return made

    members: set[str]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, bytes) and other.startswith(bytes(self)) and self.members == BINARY.read("", other).added
        )

    __hash__ = bytes.__hash__


NO_HEADER = Header()
MANY = [f"{n:04}" for n in range(400)]  # 2,000 bytes in one block: two shards of SMALL items


def shards_of(item: str, members: list[str], header: Header = NO_HEADER) -> dict[str, bytes]:
    begin = BINARY.header(header._replace(generation=0xABC, shards=2))
    parts: list[list[str]] = [[] for _ in range(2)]
    for member in members:
        parts[home(member, 2)].append(member)
    return {f"{item}%%abc%{n}": begin + BINARY.net(part, ()) for n, part in enumerate(parts)}


def test_what_is_large_goes_to_shards_first_and_then_the_root_names_them() -> None:
    shards = shards_of("likes:7", MANY, header=Header(complete=True))
    root = BINARY.header(Header(True, False, 0, 0xABC, 2))
    plan = plan_of(likes)
    play(
        plan.replace("likes:7", MANY),
        (Put(shards, 0), None),
        (Put({"likes:7": root}, 0), None),
    )
    assert plan.memory.hints == {"likes:7": (0xABC, 2)}


def test_shards_outlive_their_root() -> None:
    expires = NOW + 100
    header = Header(True, False, expires)
    play(
        plan_of(brief).replace("brief:7", MANY),
        (Put(shards_of("brief:7", MANY, header=header), 100 + GRACE), None),
        (Put({"brief:7": BINARY.header(header._replace(generation=0xABC, shards=2))}, 100), None),
    )


def test_replace_asks_for_the_limit_once_and_lets_old_shards_go() -> None:
    plan = plan_of(likes, limit=None)
    plan.memory.hints["likes:7"] = 5, 2
    play(
        plan.replace("likes:7", ["ada"]),
        (Limit(), SMALL),
        (Put({"likes:7": BINARY.header(Header(complete=True)) + ADA}, 0), None),
        (Touch(("likes:7%%5%0", "likes:7%%5%1"), GRACE), None),
    )
    play(plan.replace("likes:7", []), (Put({"likes:7": BINARY.header(Header(complete=True))}, 0), None))


def test_what_is_more_than_an_item_is_written_to_shards() -> None:
    plan = plan_of(likes)
    data = BINARY.records(True, MANY)
    play(
        change(plan, (True, MANY)),
        (Append("likes:7", data), TooLarge()),
        (Get(("likes:7",)), {}),
        (AnyPut(), None),
        (Add("likes:7", BINARY.header(Header(generation=0xABC, shards=2)), 0), True),
    )


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


def test_who_makes_a_large_set_second_begins_again() -> None:
    root = BINARY.header(Header(generation=0xABC, shards=2))
    play(
        change(plan_of(likes), (True, MANY)),
        (Append("likes:7", BINARY.records(True, MANY)), TooLarge()),
        (Get(("likes:7",)), {}),
        (AnyPut(), None),
        (Add("likes:7", root, 0), False),
        (Touch(("likes:7%%abc%0", "likes:7%%abc%1"), GRACE), None),
        (Append("likes:7", BINARY.records(True, MANY)), True),
    )


def test_clear_deletes_the_root_and_then_its_shards() -> None:
    plan = plan_of(likes)
    play(plan.clear("likes:7"), (Get(("likes:7",)), {}))
    play(plan.clear("likes:7"), (Get(("likes:7",)), found(b"whatever")), (Delete(("likes:7",)), None))
    root = BINARY.header(Header(generation=5, shards=2))
    play(
        plan.clear("likes:7"),
        (Get(("likes:7",)), found(root)),
        (Delete(("likes:7",)), None),
        (Delete(("likes:7%%5%0", "likes:7%%5%1")), None),
    )


# --- reading -----------------------------------------------------------------------------------------------------


def test_operations_on_several_keys_are_one_get() -> None:
    asked = [likes.size(7), likes.members(8), likes.contains(7, "ada"), likes.contains(9, "ada"), likes.members(7)]
    got = {"likes:7": Item(PLAIN + ADA, 0, b"1"), "likes:9": Item(PLAIN + NO_ADA, 0, b"2")}
    assert play(plan_of(likes).read(asked), (Get(("likes:7", "likes:8", "likes:9")), got)) == [
        1, set(), True, False, {"ada"},
    ]  # fmt: skip


ROOT = BINARY.header(Header(generation=0xABC, shards=2))
TWO = ("likes:7%%abc%0", "likes:7%%abc%1")


def kept(root: bytes = ROOT, members: list[str] = MANY) -> dict[str, Item]:
    shards = {name: Item(data, 0, b"1") for name, data in shards_of("likes:7", members).items()}
    return {"likes:7": Item(root, 0, b"1"), **shards}


@pytest.mark.parametrize("stale", [None, (5, 1)])
def test_a_fetch_of_one_whose_shards_are_not_known_is_two(stale: tuple[int, int] | None) -> None:
    plan = plan_of(likes, fate=0.0)
    first: tuple[str, ...] = ("likes:7",)
    if stale is not None:
        plan.memory.hints["likes:7"] = stale
        first = ("likes:7", "likes:7%%5%0")
    everything = kept(ROOT + ADA * 300)  # also where compaction would be worth it: never three
    two = {name: everything[name] for name in TWO}
    one = {"likes:7": everything["likes:7"]}
    assert play(plan.read([likes.members(7)]), (Get(first), one), (Get(TWO), two)) == [{*MANY, "ada"}]
    assert plan.memory.hints == {"likes:7": (0xABC, 2)}


def test_contains_reads_one_shard() -> None:
    plan = plan_of(likes)
    plan.memory.hints["likes:7"] = 0xABC, 2
    there = kept(ROOT + b"-\0040001")
    shard = {n: next(name for name in TWO if n.encode() in there[name].data) for n in ("0000", "0001")}
    for member, answer in (("0000", True), ("0001", False)):
        got = {name: there[name] for name in ("likes:7", shard[member])}
        asked = Get(("likes:7", shard[member]))
        assert play(plan.read([likes.contains(7, member)]), (asked, got)) == [answer]


def test_a_shard_that_is_gone_is_noted_in_the_root_unless_the_root_is_another_by_then() -> None:
    plan = plan_of(likes)
    plan.memory.hints["likes:7"] = 0xABC, 2
    complete = BINARY.header(Header(True, False, 0, 0xABC, 2)) + ADA
    lost = BINARY.header(Header(False, True, 0, 0xABC, 2)) + ADA
    part = {name: each for name, each in kept(complete).items() if name != TWO[1]}
    remaining = BINARY.read("", part[TWO[0]].data).added
    before = Item(complete, 0, b"1")
    (info,) = play(
        plan.read([likes.info(7)]),
        (Get(("likes:7", *TWO)), part),
        (Get(("likes:7",)), {"likes:7": before}),
        (Get(TWO), {TWO[0]: part[TWO[0]]}),
        (Cas("likes:7", lost, 0, before), False),
        (Get(("likes:7",)), {"likes:7": Item(complete, 0, b"2")}),
        (Get(TWO), {TWO[0]: part[TWO[0]]}),
        (Cas("likes:7", lost, 0, Item(complete, 0, b"2")), True),
        (Get(("likes:7",)), {"likes:7": Item(lost, 0, b"3")}),
        (Get(TWO), {TWO[0]: part[TWO[0]]}),
    )
    assert (info.complete, info.size, info.shards) == (False, len(remaining) + 1, 2)
    # From then on it is one get again.
    part["likes:7"] = Item(lost, 0, b"3")
    assert play(plan.read([likes.size(7)]), (Get(("likes:7", *TWO)), part)) == [len(remaining) + 1]


def test_a_set_that_was_replaced_while_its_shards_were_looked_for() -> None:
    plan = plan_of(likes)
    plan.memory.hints["likes:7"] = 0xABC, 2
    assert play(
        plan.read([likes.members(7)]),
        (Get(("likes:7", *TWO)), {"likes:7": Item(ROOT, 0, b"1")}),
        (Get(("likes:7",)), found(PLAIN + ADA)),
    ) == [{"ada"}]


# --- compaction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [False, None])
def test_a_compaction_that_loses_the_race_is_left_alone(answer: bool | None) -> None:
    there = Item(PLAIN + ADA * 100, 0, b"5")
    script = (Get(("likes:7",)), {"likes:7": there}), (Cas("likes:7", PLAIN + ADA, 0, there), answer)
    assert play(plan_of(likes, fate=0.0).read([likes.members(7)]), *script) == [{"ada"}]


def test_a_fetch_whose_compaction_fails_has_its_answer() -> None:
    there = Item(PLAIN + ADA * 100, 0, b"5")
    lost = roost.OutcomeUnknown("the connection broke")
    script = (Get(("likes:7",)), {"likes:7": there}), (Cas("likes:7", PLAIN + ADA, 0, there), lost)
    assert play(plan_of(likes, fate=0.0).read([likes.members(7)]), *script) == [{"ada"}]


WORTH = [
    (PLAIN + ADA * 100, 0.1, True),  # pitfall: duplicate adds are waste
    (PLAIN + ADA * 100, 0.13, False),  # not every reader at once
    (PLAIN + ADA * 25, 0.0, False),  # too little to matter
    (PLAIN + (ADA + NO_ADA) * 50, 0.1, True),
    (PLAIN + BINARY.records(True, MANY), 0.0, False),
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
    plan = plan_of(likes, fate=0.0)
    plan.memory.hints["likes:7"] = 0xABC, 2
    there = kept(ROOT + ADA * 100 + b"-\0040000" * 30)
    play(
        plan.read([likes.size(7)]),
        (Get(("likes:7", *TWO)), there),
        (Cas("likes:7", ROOT + b"-\0040000" + ADA, 0, there["likes:7"]), True),
    )


def test_a_writer_looks_by_chance_and_what_was_appended_meanwhile_is_carried_over() -> None:
    data = PLAIN + ADA * 100
    play(
        change(plan_of(likes, fate=4.9 / LOOK), (True, ["ada"])),
        (Append("likes:7", ADA), True),
        (Get(("likes:7",)), found(data)),
        (Cas("likes:7", PLAIN + ADA, 0, Item(data, 0, b"1")), False),
        (Get(("likes:7",)), found(data + NO_ADA, b"2")),
        (Cas("likes:7", PLAIN + ADA + NO_ADA, 0, Item(data + NO_ADA, 0, b"2")), True),
    )


def test_a_writer_does_not_carry_over_what_is_another_set() -> None:
    data = PLAIN + ADA * 100
    play(
        change(plan_of(likes, fate=0.0), (True, ["ada"])),
        (Append("likes:7", ADA), True),
        (Get(("likes:7",)), found(data)),
        (Cas("likes:7", PLAIN + ADA, 0, Item(data, 0, b"1")), False),
        (Get(("likes:7",)), found(PLAIN, b"2")),
    )


def test_a_writer_who_finds_much_moves_it_to_shards_and_later_to_new_ones() -> None:
    plan = plan_of(likes, fate=0.0)
    data = PLAIN + BINARY.records(True, MANY)
    play(
        change(plan, (True, ["0000"])),
        (Append("likes:7", b"+\0040000"), True),
        (Get(("likes:7",)), found(data)),
        (Get(("likes:7",)), found(data)),
        (AnyPut(), None),
        (Cas("likes:7", ROOT, 0, Item(data, 0, b"1")), True),
    )
    older = BINARY.header(Header(generation=5, shards=1)) + BINARY.records(True, MANY)
    old = Item(BINARY.header(Header(generation=5, shards=1)) + BINARY.records(True, MANY), 0, b"1")
    names = ("likes:7%%5%0",)
    play(
        change(plan, (True, ["0000"])),
        (Append("likes:7", b"+\0040000"), True),
        (Get(("likes:7",)), {"likes:7": old}),
        (Get(("likes:7", *TWO)), {"likes:7": old}),
        (Get(names), {names[0]: Item(older, 0, b"1")}),
        (AnyPut(), None),
        (Cas("likes:7", ROOT, 0, old), True),
        (Touch(names, GRACE), None),
    )


def test_a_write_is_done_even_if_looking_after_the_set_fails() -> None:
    play(
        change(plan_of(likes, fate=0.0), (True, ["ada"])),
        (Append("likes:7", ADA), True),
        (Get(("likes:7",)), roost.ConnectionLost("gone")),
    )


# --- what the original recipe has written ------------------------------------------------------------------------


def test_what_another_program_made_keeps_its_expiry_so_a_writer_asks_for_it() -> None:
    data = b"+ada " * 100
    there = {"recipe:7": Item(data, 3, b"1")}
    read = (Get(("recipe:7",)), there)
    assert play(plan_of(recipe, fate=0.0).read([recipe.members(7)]), read) == [{"ada"}]
    header = READABLE.header(Header(expires=NOW + 50))
    play(
        change(plan_of(recipe, fate=0.0), (True, ["ada"])),
        (Append("recipe:7", b"+ada "), True),
        read,
        (Left("recipe:7"), 50),
        (Cas("recipe:7", header + b"+ada ", 50, there["recipe:7"]), True),
    )


def test_one_that_is_full_and_cannot_be_asked_is_left_alone_and_said_so() -> None:
    with pytest.raises(roost.Full, match="made by another program"):
        play(
            change(plan_of(recipe), (False, ["ada"])),
            (Append("recipe:7", b"-ada "), False),
            (Get(("recipe:7",)), {"recipe:7": Item(b"+ada ", 0, b"1")}),
            (Left("recipe:7"), None),
        )


def test_info_of_what_another_program_made() -> None:
    there = {"recipe:7": Item(b"+ada +bob -bob ", 0, b"1")}
    (info,) = play(plan_of(recipe).read([recipe.info(7)]), (Get(("recipe:7",)), there))
    assert info == roost.SetInfo(size=1, bytes=15, shards=0, waste=6, complete=False, expires=None)


def test_a_member_of_another_type_is_told() -> None:
    numbers = roost.MemcachedSet("likes", int, int)
    with pytest.raises(roost.Mismatch, match="likes:7"):
        play(plan_of(numbers).read([numbers.members(7)]), (Get(("likes:7",)), found(PLAIN + ADA)))
