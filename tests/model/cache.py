"""A dumb model of a cache, and random operations on it while time passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import roost

SLACK = 16  # of a ttl, what `touch` may leave an end early by
LONGEST = 12  # characters of a value
TTLS = (100, 100, 300, 2000, None)
MOVES = (30, 103, 250, 3000)  # seconds

cache = roost.Cache("cache", key=int, value=roost.text(LONGEST))


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
        """What has not expired."""
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
        if len(new) > LONGEST:
            return roost.Invalid
        self.items[key] = (new, until, flags)
        return result


def some(chance: random.Random) -> Any:
    """Draw an operation."""

    def key() -> int:
        return chance.choice([0, 0, 0, 0, 0, 1, 2])  # one is met again and again

    value = chance.choice(["", "a", "7", "184467440737", "long enough"])
    ttl, flags, n = chance.choice(TTLS), chance.choice([0, 0, 7, 2**32 - 1]), chance.randrange(4)
    several = [key() for _ in range(n)]
    made: list[Callable[[], Any]] = [
        lambda: cache.set(key(), value, ttl, flags),
        lambda: cache.set_many(dict.fromkeys(several, value), ttl, flags),
        lambda: cache.add(key(), value, ttl, flags),
        lambda: cache.replace(key(), value, ttl),
        lambda: cache.touch(key(), ttl),
        lambda: cache.increment(key(), n),
        lambda: cache.decrement(key(), n),
        lambda: cache.append(key(), value),
        lambda: cache.prepend(key(), value),
        lambda: cache.delete(key()),
        lambda: cache.clear(key()),
        lambda: cache.clear(),
        lambda: cache.get(key()),
        lambda: cache.get_many(several),
        lambda: cache.keys(),
    ]
    return chance.choice(made)()


def play(store: Any, model: Model, chance: random.Random, pass_time: Callable[[float], None], rounds: int) -> None:
    """Run operations on a store and on the model beside it, and compare all that there is."""
    for _ in range(rounds):
        kind = chance.choice(["atom", "alone", "alone", "cas", "time passes"])
        if kind == "time passes":
            seconds = chance.choice(MOVES)
            pass_time(seconds)
            model.now += seconds
        elif kind == "cas":
            key, ttl, meanwhile = chance.randrange(3), chance.choice(TTLS), chance.random() < 0.5
            item = store.run(cache.gets(key))
            assert (item and item.value) == model.living().get(key)
            if meanwhile:
                model.run_all([cache.set(key, "meanwhile")])
                store.run(cache.set(key, "meanwhile"))
            wanted = None if item is None and not meanwhile else item is not None and not meanwhile
            assert store.run(cache.cas(key, "swapped", item.token if item else 1, ttl)) is wanted
            if wanted:
                model.run_all([cache.set(key, "swapped", ttl)])
        else:
            atom = [some(chance) for _ in range(1 if kind == "alone" else chance.randrange(1, 6))]
            answer: Any
            try:
                answer = tuple(store.run_all(*atom)) if kind == "atom" else (store.run(atom[0]),)
            except roost.Error as error:
                answer = type(error)
            assert answer == model.run_all(atom), atom
    found = store.run(cache.gets_many(range(3)))
    assert {key: (item.value, item.flags) for key, item in found.items()} == {
        key: (value, model.items[key][2]) for key, value in sorted(model.living().items())
    }
    assert store.run(cache.keys()) == sorted(model.living())
    assert store.check() == []
