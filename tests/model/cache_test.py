"""Random operations on a cache while time passes, and a dictionary beside it."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roost

EXAMPLES = int(os.environ.get("ROOST_MODEL_EXAMPLES", "50"))
START = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
SLACK = 16  # of a ttl, what `touch` may leave an end early by

cache = roost.Cache("cache", key=int, value=roost.text(12))

keys = st.sampled_from([0, 0, 0, 0, 0, 1, 2])  # one is met again and again
values = st.sampled_from(["", "a", "7", "18446744073709551615"[:12], "long enough"])
ttls = st.sampled_from([1, 1, 3, 20, None])
flags = st.sampled_from([0, 0, 7, 2**32 - 1])
operations = st.one_of(
    st.builds(cache.set, keys, values, ttls, flags),
    st.builds(cache.set_many, st.dictionaries(keys, values, max_size=3), ttls, flags),
    st.builds(cache.add, keys, values, ttls, flags),
    st.builds(cache.replace, keys, values, ttls),
    st.builds(cache.touch, keys, ttls),
    st.builds(cache.increment, keys, st.integers(0, 3)),
    st.builds(cache.decrement, keys, st.integers(0, 3)),
    st.builds(cache.append, keys, values),
    st.builds(cache.prepend, keys, values),
    st.builds(cache.delete, keys),
    st.builds(cache.clear, keys),
    st.just(cache.clear()),
    st.builds(cache.get, keys),
    st.builds(cache.get_many, st.lists(keys, max_size=4)),
    st.just(cache.keys()),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ops"), st.lists(operations, min_size=1, max_size=6)),
        st.tuples(st.just("ops"), st.lists(operations, min_size=1, max_size=1)),
        st.tuples(st.just("cas"), st.tuples(keys, values, ttls, st.booleans())),
        st.tuples(st.just("passes"), st.sampled_from([0.1, 1, 1, 2, 30])),
    ),
    min_size=20,
    max_size=80,
)


class Model:
    """Values with their ends, in seconds since the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self.items: dict[int, tuple[str, float, int]] = {}

    def run_all(self, operations: list[Any]) -> Any:
        """Run all, or nothing and the class of the first error."""
        before = dict(self.items)
        results = []
        for operation in operations:
            result = self.run(operation)
            if isinstance(result, type):
                self.items = before
                return result
            results.append(result)
        return tuple(results)

    def living(self) -> dict[int, str]:
        """What is not over."""
        return {key: value for key, (value, until, _) in self.items.items() if until > self.now}

    def store(self, key: int, value: str, ttl: int | None, flags: int) -> None:
        """Store a value."""
        self.items[key] = (value, float("inf") if ttl is None else self.now + ttl / 1_000_000, flags)

    def run(self, operation: Any) -> Any:
        """Return the result, or the class of an error."""
        living, verb, args = self.living(), operation.verb, operation.args
        if verb == "set_many":
            for (key,), value, ttl, flags in args:
                self.store(key, value, ttl, flags)
            return None
        if verb == "get_many":
            return {key: living[key] for (key,) in args[0] if key in living}
        if verb == "keys":
            return sorted(living)
        if args[0] is None:
            self.items.clear()
            return len(living)
        (key,), *rest = args
        value = living.get(key)
        match verb:
            case "get":
                return value
            case "set":
                return self.store(key, *rest)
            case "add" | "replace":
                if (value is None) is (verb == "add"):
                    self.store(key, *rest)
                return (value is None) is (verb == "add")
            case "clear":
                return int(self.items.pop(key, None) is not None and value is not None)
            case "delete":
                return self.items.pop(key, None) is not None and value is not None
        if value is None:
            return None if verb in ("increment", "decrement") else False
        _, until, flags = self.items[key]
        if verb == "touch":
            self.store(key, value, rest[0], flags)
            late = self.items[key][1]
            if rest[0] is not None and 0 <= late - until < rest[0] / 1_000_000 / SLACK:
                self.items[key] = (value, until, flags)
            return True
        if verb in ("append", "prepend"):
            new: str = value + rest[0] if verb == "append" else rest[0] + value
            result: Any = True
        elif not value.isdigit():
            return roost.Invalid
        else:
            result = (int(value) + rest[0]) % 2**64 if verb == "increment" else max(0, int(value) - rest[0])
            new = str(result)
        if len(new) > 12:
            return roost.Invalid
        self.items[key] = (new, until, flags)
        return result


@given(steps)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_cache_answers_like_a_dictionary(played: list[Any]) -> None:
    model = Model()
    with roost.Store("sqlite://", clock=lambda: START + dt.timedelta(seconds=model.now)) as store:
        store.create(cache)
        for what, given_ in played:
            if what == "passes":
                model.now += given_
            elif what == "cas":
                key, value, ttl, meanwhile = given_
                item = store.run(cache.gets(key))
                assert (item and item.value) == model.living().get(key)
                if meanwhile:
                    model.run_all([cache.set(key, "meanwhile")])
                    store.run(cache.set(key, "meanwhile"))
                wanted = None if item is None and not meanwhile else item is not None and not meanwhile
                assert store.run(cache.cas(key, value, item.token if item else 1, ttl)) is wanted
                if wanted:
                    model.run_all([cache.set(key, value, ttl)])
            else:
                answer: Any
                try:
                    answer = store.run_all(*given_) if len(given_) > 1 else (store.run(given_[0]),)
                except roost.Error as error:
                    answer = type(error)
                assert answer == model.run_all(given_)
        found = store.run(cache.gets_many(range(3)))
        assert {key: (item.value, item.flags) for key, item in found.items()} == {
            key: (value, model.items[key][2]) for key, value in sorted(model.living().items())
        }
        assert store.run(cache.keys()) == sorted(model.living())
        assert store.check() == []
