"""The effect of each verb of a cache on one key's item, in Python, under the key's lock, for runs of operations."""

from __future__ import annotations

from typing import Any, NamedTuple

from roost.errors import Error, Invalid, Overflow, worded
from roost.structures.cache.declaration import COUNTER_MAX, FLAGS_MAX, NEVER, Cache
from roost.structures.operation import Operation
from roost.types.column_types import INT_MAX, INT_MIN

SLACK = 16  # `touch` writes nothing if the stored expiry time is early by less than this part of the ttl
# Verbs whose outcome depends on the stored value. It may be long, so it is not read for others.
READ_VALUES = frozenset(["increment", "decrement", "append", "prepend"])
VALUED = frozenset(
    ["set", "add", "replace", "cas", "append", "prepend", "meta_set"]
)  # verbs whose second argument is a value
MAKING = frozenset(["set", "set_many", "add"])  # verbs that store a value even if there is none


class Held(NamedTuple):
    """The stored state of a key; the value is None if it was not read."""

    value: Any
    until: int
    token: int
    flags: int


def end(now: int, ttl: int | None) -> int:
    """Return the time at which a value expires."""
    return NEVER if ttl is None else now + ttl


def stored(now: int, value: Any, ttl: int | None, flags: int, held: Held | None) -> Held:
    """Return the state of a key after `set`."""
    return Held(value, end(now, ttl), token(now, held), flags)


def token(now: int, held: Held | None) -> int:
    """Return the token of a new value: the current time, or the previous token plus one.

    Time never goes back, so a key that was removed and stored again gets new tokens, though no record of it was kept.
    """
    return now if held is None else max(now, held.token + 1)


def play(
    cache: Cache[Any, Any], op: Operation[Any], value: Any, now: int, held: Held | None
) -> tuple[Any, Held | None]:
    """Return the result of an operation (which may be an error) and the key's new state.

    value: the operation's value, in stored form.
    held: the key's state; None if it has no value or an expired one.
    """
    verb, args = op.verb, op.args
    if verb == "set" or (verb == "add" and held is None):
        return None if verb == "set" else True, stored(now, value, args[2], args[3], held)
    if held is None:
        return {"clear": 0, "forget": 0, "cas": None, "increment": None, "decrement": None}.get(verb, False), None
    match verb:
        case "replace":
            return True, stored(now, value, args[2], args[3], held)
        case "cas":
            return (True, stored(now, value, args[2], args[3], held)) if args[4] == held.token else (False, held)
        case "touch":
            return True, touched(now, args[1], held)
        case "delete":
            return True, None
        case "clear" | "forget":
            return 1, None
        case "increment" | "decrement":
            result, sum_ = added(cache, op, held.value, 1 if verb == "increment" else -1, args[1])
            return result, held if sum_ is None else Held(sum_, held.until, token(now, held), held.flags)
        case "append" | "prepend":
            made = longer(cache, op, held.value + value if verb == "append" else value + held.value, now, held)
            return (made, held) if isinstance(made, Error) else (True, made)
    return False, held  # add


def longer(cache: Cache[Any, Any], op: Operation[Any], value: Any, now: int, held: Held) -> Held | Error:
    """Return the state of a key with a lengthened value, or the error if that is too long."""
    if len(value) > (cache.value.type.limit or 0):
        return worded(Invalid(f"{op!r}: the value would be longer than {cache.value.spec}"), "toobig")
    return Held(value, held.until, token(now, held), held.flags & FLAGS_MAX)  # without the marks of `meta.py`


def touched(now: int, ttl: int | None, held: Held) -> Held:
    """Return the state of a key after `touch`: unchanged if its expiry time is close enough and not later."""
    until = end(now, ttl)
    if held.until == until or (ttl is not None and 0 <= until - held.until < ttl // SLACK):
        return held
    return held._replace(until=until)


def added(cache: Cache[Any, Any], op: Operation[Any], value: Any, sign: int, n: int) -> tuple[int | Error, Any]:
    """Return the result of adding to or subtracting from a number, and the value to store (None: no change)."""
    if isinstance(value, int):
        number = value + sign * n
        if not INT_MIN <= number <= INT_MAX:
            return Overflow(f"{op!r}: the value is {value}, and the sum {number} would leave 64 bits"), None
        return number, number
    digits = value.decode("latin-1") if isinstance(value, bytes) else value
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or int(digits) > COUNTER_MAX:
        return Invalid(f"{op!r}: the value is no number in decimal digits below 2^64"), None
    number = (int(digits) + n) % (COUNTER_MAX + 1) if sign > 0 else max(0, int(digits) - n)
    if len(str(number)) > (cache.value.type.limit or 0):
        return Invalid(f"{op!r}: {number} is longer than {cache.value.spec}"), None
    return number, str(number).encode() if isinstance(value, bytes) else str(number)
