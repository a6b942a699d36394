"""Options and arguments that are numbers or choices: keep, slots, on_full, on_duplicate, n, after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.structures.counter.declaration import MAX_SLOTS
from tests.values.shapes import Egg, Visit, baskets, likes, pageviews, seen, visits

MOST = 2**63 - 1


@pytest.mark.parametrize("keep", [1, 2, 12, 2**31 - 1])
def test_keep(keep: int) -> None:
    assert roost.Ring("r", Visit, per="uid", keep=keep).keep == keep
    assert roost.Capped("e", Egg, per="basket", unique="egg", keep=keep).keep == keep


NEITHER = "keep says how many rows a key has, keep_for how old they get: give one of them, or both"


@pytest.mark.parametrize("keep", [0, -1, 2**31, True, 1.0, "5", None], ids=repr)
def test_no_keep(keep: Any) -> None:
    message = f"keep is a whole number from 1 to 2147483647, not {keep!r}"
    with pytest.raises(roost.Invalid) as caught:
        roost.Ring("r", Visit, per="uid", keep=keep)
    assert str(caught.value) == f"r: {message}"
    with pytest.raises(roost.Invalid) as caught:
        roost.Capped("e", Egg, per="basket", unique="egg", keep=keep)
    assert str(caught.value) == (f"e: {message}" if keep is not None else f"e: {NEITHER}")


@pytest.mark.parametrize("slots", [None, 1, 16, MAX_SLOTS])
def test_slots(slots: int | None) -> None:
    assert roost.Counter("c", slots=slots).slots == slots


@pytest.mark.parametrize("slots", [0, -1, MAX_SLOTS + 1, True, 4.0, "4"], ids=repr)
def test_no_slots(slots: Any) -> None:
    with pytest.raises(roost.Invalid) as caught:
        roost.Counter("c", slots=slots)
    assert str(caught.value) == f"c: slots is None or a whole number from 1 to 1,024, not {slots!r}"


@pytest.mark.parametrize(
    ("option", "choices"), [("on_full", ["evict", "reject"]), ("on_duplicate", ["error", "refresh", "best"])]
)
def test_choices(option: str, choices: list[str]) -> None:
    def declare(choice: Any) -> Any:
        options: Any = {option: choice}
        return roost.Capped("e", Egg, per="basket", unique="egg", keep=1, **options)

    default = roost.Capped("e", Egg, per="basket", unique="egg", keep=1)
    assert [getattr(declare(choice), option) for choice in choices[:2]] == choices[:2]
    assert declare(choices[0]) == default
    assert declare(choices[1]) != default
    for wrong in ("", "Evict", None, True, ["evict"], *({"evict", "error"} - set(choices))):
        with pytest.raises(roost.Invalid) as caught:
            declare(wrong)
        assert str(caught.value) == f"e: {option} is {' or '.join(map(repr, choices))}, not {wrong!r}"


@pytest.mark.parametrize("n", [1, 100, MOST])
def test_how_many(n: int) -> None:
    assert visits.latest(5, n).args == ((5,), n)
    assert visits.entries(5, n=n).args == ((5,), 0, n)
    assert baskets.latest(5, n).args == ((5,), n)
    assert pageviews.top(n).args == (n,)
    assert likes.keys(None, n).args == (None, n)


@pytest.mark.parametrize("n", [0, -1, MOST + 1, True, 1.0, "1"], ids=repr)
def test_not_so_many(n: Any) -> None:
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("visits", lambda: visits.latest(5, n)),
        ("visits", lambda: visits.entries(5, n=n)),
        ("visits", lambda: visits.keys(n=n)),
        ("baskets", lambda: baskets.latest(5, n)),
        ("baskets", lambda: baskets.entries(5, n=n)),
        ("pageviews", lambda: pageviews.top(n)),
        ("pageviews", lambda: pageviews.keys(n=n)),
        ("likes", lambda: likes.keys(n=n)),
    ]
    for name, op in calls:
        with pytest.raises(roost.Invalid) as caught:
            op()
        assert str(caught.value) == f"{name}: n is a whole number from 1 on, not {n!r}"


@pytest.mark.parametrize("after", [-1, MOST + 1, True, None, 1.0, "1"], ids=repr)
def test_no_sequence(after: Any) -> None:
    with pytest.raises(roost.Invalid) as caught:
        visits.entries(5, after=after)
    assert str(caught.value) == f"visits: after is a sequence, a whole number from 0 on, not {after!r}"


@pytest.mark.parametrize("n", [0, 1, -1, MOST, -MOST - 1])
def test_how_much(n: int) -> None:
    assert pageviews.add("/home", n).args == (("/home",), n)


@pytest.mark.parametrize("n", [MOST + 1, -MOST - 2, True, 1.0, "1", None], ids=repr)
def test_not_so_much(n: Any) -> None:
    with pytest.raises(roost.Invalid) as caught:
        pageviews.add("/home", n)
    assert str(caught.value) == f"pageviews.n: {n!r} is not a whole number of 64 bits ({-MOST - 1} to {MOST})"


@pytest.mark.parametrize("keys", ["/home", b"/home"], ids=repr)
def test_totals_takes_several_keys(keys: Any) -> None:
    with pytest.raises(roost.Invalid) as caught:
        pageviews.totals(keys)
    assert str(caught.value) == f"pageviews: totals takes several keys, not the single {keys!r}"


def test_a_key_to_go_on_from_is_checked() -> None:
    with pytest.raises(roost.Invalid, match=r"^visits\.uid: '5' is of type str; it takes int$"):
        visits.keys(after="5")
    with pytest.raises(roost.Invalid, match=r"^seen: 'a' is not a key; it takes a tuple of \(site, page\)$"):
        seen.keys(after="a")  # type: ignore[arg-type]
