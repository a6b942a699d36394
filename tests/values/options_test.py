"""Options and arguments that are numbers or choices: keep, slots, on_full, on_duplicate, n, after."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.structures.counter.declaration import MAX_SLOTS
from tests.values.shapes import Egg, Visit, baskets, likes, pageviews, seen, visits

MOST = 2**63 - 1
NEITHER = "keep says how many rows a key has, keep_for how old they get: give one of them, or both"


def ring(keep: Any) -> Any:
    return roost.Ring("r", Visit, per="uid", keep=keep)


def capped(**options: Any) -> Any:
    return roost.Capped("e", Egg, **{"per": "basket", "unique": "egg", "keep": 1, **options})


def test_what_is_an_option_or_an_argument() -> None:
    for keep in (1, 2, 12, 2**31 - 1):
        assert ring(keep).keep == capped(keep=keep).keep == keep
    for slots in (None, 1, 16, MAX_SLOTS):
        assert roost.Counter("c", slots=slots).slots == slots
    for n in (1, 100, MOST):
        assert visits.latest(5, n).args == baskets.latest(5, n).args == ((5,), n)
        assert visits.entries(5, n=n).args == ((5,), 0, n)
        assert pageviews.top(n).args == (n,)
        assert likes.keys(None, n).args == (None, n)
    for n in (0, 1, -1, MOST, -MOST - 1):
        assert pageviews.add("/home", n).args == (("/home",), n)


CHOICES = {"on_full": ("evict", "reject"), "on_duplicate": ("error", "refresh", "best")}


@pytest.mark.parametrize("option", CHOICES)
def test_choices(option: str) -> None:
    first, second, *_ = choices = CHOICES[option]
    assert capped(**{option: first}) == capped() != capped(**{option: second})
    for wrong in ("", "Evict", None, True, ["evict"], *({"evict", "error"} - set(choices))):
        with pytest.raises(roost.Invalid) as caught:
            capped(**{option: wrong})
        assert str(caught.value) == f"e: {option} is {' or '.join(map(repr, choices))}, not {wrong!r}"


KEEP = "keep is a whole number from 1 to 2147483647, not {!r}"
N = "n is a whole number from 1 on, not {!r}"
COUNTED: list[tuple[str, Any]] = [
    ("visits", lambda n: visits.latest(5, n)),
    ("visits", lambda n: visits.entries(5, n=n)),
    ("visits", lambda n: visits.keys(n=n)),
    ("baskets", lambda n: baskets.latest(5, n)),
    ("baskets", lambda n: baskets.entries(5, n=n)),
    ("pageviews", pageviews.top),
    ("pageviews", lambda n: pageviews.keys(n=n)),
    ("likes", lambda n: likes.keys(n=n)),
]
# What a number is for, what it may not be, and what is told then.
NUMBERS: dict[str, tuple[Any, list[Any], str]] = {
    "a ring's keep": (ring, [0, -1, 2**31, True, 1.0, "5", None], f"r: {KEEP}"),
    "a collection's keep": (lambda n: capped(keep=n), [0, -1, 2**31, True, 1.0, "5"], f"e: {KEEP}"),
    "neither keep nor keep_for": (lambda n: capped(keep=n), [None], f"e: {NEITHER}"),
    "slots": (
        lambda n: roost.Counter("c", slots=n),
        [0, -1, MAX_SLOTS + 1, True, 4.0, "4"],
        "c: slots is None or a whole number from 1 to 1,024, not {!r}",
    ),
    "after": (
        lambda n: visits.entries(5, after=n),
        [-1, MOST + 1, True, None, 1.0, "1"],
        "visits: after is a sequence, a whole number from 0 on, not {!r}",
    ),
    "what is added": (
        lambda n: pageviews.add("/home", n),
        [MOST + 1, -MOST - 2, True, 1.0, "1", None],
        f"pageviews.n: {{!r}} is not a whole number of 64 bits ({-MOST - 1} to {MOST})",
    ),
    "several keys": (
        pageviews.totals,
        ["/home", b"/home"],
        "pageviews: totals takes several keys, not the single {!r}",
    ),
    **{
        f"n of {name} {place}": (call, [0, -1, MOST + 1, True, 1.0, "1"], f"{name}: {N}")
        for place, (name, call) in enumerate(COUNTED)
    },
}


@pytest.mark.parametrize("what", NUMBERS)
def test_what_is_no_number_is_told(what: str) -> None:
    call, wrong, message = NUMBERS[what]
    for number in wrong:
        with pytest.raises(roost.Invalid) as caught:
            call(number)
        assert str(caught.value) == message.format(number)


def test_a_key_to_go_on_from_is_checked() -> None:
    with pytest.raises(roost.Invalid, match=r"^visits\.uid: '5' is of type str; it takes int$"):
        visits.keys(after="5")
    with pytest.raises(roost.Invalid, match=r"^seen: 'a' is not a key; it takes a tuple of \(site, page\)$"):
        seen.keys(after="a")  # type: ignore[arg-type]
