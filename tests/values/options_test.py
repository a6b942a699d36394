"""Options and arguments that are numbers or choices: keep, slots, on_full, on_duplicate, n, after."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.structures.counter.declaration import MAX_SLOTS
from tests.values.shapes import Egg, Everything, Visit, baskets, likes, named, pageviews, seen, visits

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


logins = roost.RateLimit("logins", limit=3, within=86_400)
jobs = roost.Lease("jobs")
pages = roost.Cache("pages")
numbers = roost.Cache("numbers", key=int, value=int)
days = roost.Cache("days", key=int, value=dt.datetime)
words = roost.Cache("words", key=int, value=roost.text(30))
hourly = roost.Counter("hourly", window="hour", keep=3)
held = roost.MemcachedSet("held", int, str)
recipe = roost.MemcachedSet("recipe", encoding="readable")
NO_TIMES = [0, -1, "1h", float("nan"), dt.timedelta(0), True]
# What a declaration or an operation is asked for, what it refuses, and what is told then.
REFUSED: list[tuple[Callable[[Any], Any], list[Any], str]] = [
    (lambda n: roost.RateLimit("logins", limit=n, within=1), [0, True, 2.0], "limit is a whole number"),
    (lambda n: roost.RateLimit("logins", limit=2, within=n), NO_TIMES, "within is a timedelta or a number of seconds"),
    (lambda n: roost.RateLimit("logins", limit=10**9, within=n), [10**6], "at most 4,612"),
    (lambda n: logins.take("ada", n), [0, -1, 4, 1.0, True, None], "from 1 to 3"),
    (lambda n: roost.RateLimit("logins", key=named("Bad", ip=str, **{n: int}), limit=1, within=1), ["tat"], "tat"),
    (lambda n: roost.Lease("jobs", key=named("Bad", ip=str, **{n: int})), ["token"], "token"),
    (lambda n: roost.Cache("c", key=named("Bad", ip=str, **{n: int})), ["until"], "until"),
    (lambda n: roost.Set("s", member=named("Bad", ip=str, **{n: int}), keep_for=5), ["until"], "column of Roost's own"),
    (lambda n: jobs.acquire("daily", "ada", n), [*NO_TIMES, 10**10, None], "ttl is a timedelta or a number of seconds"),
    (lambda name: jobs.acquire("daily", name, 1), ["x" * 256, None, 7], "holder"),
    (jobs.release, [None, "ada", 7], "is not a Grant"),
    (
        lambda n: pages.set("/", b"1", ttl=n),
        [*NO_TIMES, 10**10, dt.timedelta(36_601)],
        "ttl is a timedelta or a number of seconds, more than 0",
    ),
    (lambda n: pages.set("/", b"1", flags=n), [-1, 2**32, 1.5, True, "1", None], "flags is .* from 0 to 4294967295"),
    (lambda value: pages.set("/", value), ["text"], "of type str"),
    (lambda value: words.set(1, value), ["x" * 31], "has 31 characters"),
    (pages.get_many, ["/"], "several keys"),
    (pages.set_many, [["/"]], "mapping"),
    (lambda token: pages.cas("/", b"1", token), ["7"], "token"),
    (lambda n: pages.increment("/", n), [-1], "n is a whole number"),
    (lambda value: numbers.append(1, value), [1], "append"),
    (days.increment, [1], "only a number can be added to"),
    (pages.clear, [None], "None is not allowed"),
    (lambda value: roost.Cache("c", value=value), [int | None], "None"),
    (lambda n: roost.Cache("few", max_items=n), [0, -1, True, 1.5, "1", 2**54], "max_items is None or a whole number"),
    (lambda n: roost.Cache("few", max_bytes=n), [0, -1, True, 1.5, "1", 2**54], "max_bytes is None or a whole number"),
    (lambda window: roost.Counter("c", window=window, keep=1), ["week", 60], "window is 'minute', 'hour', 'day', or a"),
    (lambda n: roost.Counter("c", window=dt.timedelta(seconds=n), keep=1), [1.5], "whole seconds"),
    (lambda n: roost.Counter("c", window=dt.timedelta(days=n), keep=1), [367], "366 days"),
    (lambda n: roost.Counter("c", window="hour", keep=n), [0, None], "keep is a number of windows"),
    (lambda n: roost.Counter("c", keep=n), [5], "goes with window"),
    (lambda n: hourly.total("/", last=n), [0, -1, "1", 1.5], "last is a number of windows"),
    *[
        (lambda given: roost.Capped("c", Everything, per="k", unique="i", **given), [options], why)
        for options, why in (
            ({}, "keep says how many rows a key has, keep_for how old they get"),
            ({"order": "f", "keep_for": 60}, "keep says how many"),
            ({"keep_for": 60, "on_full": "reject"}, "without it no key is ever full"),
            ({"keep": 3, "order": "f", "on_full": "reject"}, "on_full='reject' does not go with order"),
            ({"keep": 3, "on_duplicate": "best"}, "on_duplicate='best' goes with order"),
            ({"keep": 3, "order": "i"}, "order names a field .*not in per"),
            ({"keep": 3, "order": "nothing"}, "order names a field .*not in per"),
            ({"keep": 3, "order": "s"}, "s is text"),
            ({"keep": 3, "order": 5}, "not 5"),
        )
    ],
    (roost.MemcachedSet, ["Likes"], "cannot name a structure"),
    (lambda key: roost.MemcachedSet("m", key), [float], "a float is no key"),
    (lambda encoding: roost.MemcachedSet("m", encoding=encoding), ["json"], "encoding is"),
    (lambda n: roost.MemcachedSet("m", shards=n), [-1, 1025, True], "shards is a whole number from 0 to 1,024"),
    (lambda n: roost.MemcachedSet("m", ttl=n), [0, 1.5], "ttl is whole seconds from 1 to"),
    (lambda key: held.add(key, "ada"), ["7"], r"held\.key"),
    (lambda member: held.add(7, member), [8], r"held\.member"),
    (lambda member: held.add(7, member), ["x" * 256], "the limit is 255"),
    (lambda member: held.replace(7, [member]), [None], r"held\.member"),
    (held.keys, [None], "memcached cannot list its keys"),
    (lambda member: recipe.add("a", member), ["white space"], "recipe.member: 'white space' has white space"),
    (lambda member: recipe.contains("a", member), ["a\u2028"], "white space"),
    (lambda member: recipe.replace("a", ["a", member]), ["b "], "white space"),
    (lambda egg: baskets.rank(1, egg), [2], "baskets: rank goes with order="),
    (baskets.top, [1], "baskets: top goes with order="),
    *[
        (lambda n, kind=kind: kind(n), [*NO_TIMES, 1.5, dt.timedelta(days=400 * 365)], "keep_for")
        for kind in (
            lambda n: roost.Set("s", keep_for=n),
            lambda n: roost.Ring("r", Visit, per="uid", keep=3, keep_for=n),
            lambda n: capped(keep_for=n),
        )
    ],
]


@pytest.mark.parametrize(("call", "wrong", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_makes_no_sense_is_refused_when_it_is_said(call: Any, wrong: list[Any], message: str) -> None:
    for each in wrong:
        with pytest.raises(roost.Invalid, match=message):
            call(each)
