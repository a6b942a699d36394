"""The effect of memcached's meta commands and `gat` on one key's item, in Python, under the key's lock.

An item may be *stale*, and a client may have received its *win*: the right to recompute it. Both are bits of the column
`flags`, above the 32 bits of the flags, so they cost nothing. Storing a value clears them.
"""

from __future__ import annotations

from typing import Any

from roost.errors import Error
from roost.structures.cache.declaration import FLAGS_MAX, NEVER, SECOND, Cache
from roost.structures.cache.play import Held, added, end, longer, stored, token
from roost.structures.operation import Operation

STALE, WON = 2**32, 2**33

KEEP = -1  # in place of a ttl: the expiry time does not change, or no item is made
PLAIN = -2  # in place of seconds: nobody asks for the right to compute the value, as in `gat`
META = frozenset(["meta_get", "meta_set", "meta_delete", "meta_arithmetic"])  # verbs


def makes(op: Operation[Any]) -> bool:
    """Whether an operation may create a value."""
    match op.verb:
        case "meta_get":
            return bool(op.args[2] != KEEP)
        case "meta_set":
            return op.args[4] in "SE" and op.args[5] is None
        case "meta_arithmetic":
            return bool(op.args[5] != KEEP)
    return False


def reads_value(op: Operation[Any]) -> bool:
    """Whether the result includes, or depends on, the existing value."""
    match op.verb:
        case "meta_get" | "meta_arithmetic":
            return True
        case "meta_set":
            return op.args[4] in "AP"
    return False


def play_meta(
    cache: Cache[Any, Any], op: Operation[Any], value: Any, now: int, held: Held | None
) -> tuple[Any, Held | None]:
    """Return the result of an operation (which may be an error) and the key's new state, as `play` does."""
    match op.verb:
        case "meta_get":
            return _get(op, now, held, cache)
        case "meta_set":
            return _set(cache, op, value, now, held)
        case "meta_delete":
            return _delete(op, now, held)
    return _add(cache, op, now, held)


def _left(now: int, until: int) -> int | None:
    return None if until == NEVER else until - now


def _get(op: Operation[Any], now: int, held: Held | None, cache: Cache[Any, Any]) -> tuple[Any, Held | None]:
    # The result: the stored value, the token, the remaining time, the flags, and the marks of the answer.
    _, ttl, vivified, recached = op.args
    if held is None:
        if vivified == KEEP:
            return None, None
        empty: Any = b"" if cache.value.type.kind == "binary" else ""
        made = stored(now, empty, vivified if ttl == KEEP else ttl, WON, None)
        return (made.value, made.token, _left(now, made.until), 0, b" W"), made
    if ttl != KEEP:
        held = held._replace(until=end(now, ttl))
    left = _left(now, held.until)
    marks, wins = b"", recached != KEEP and left is not None and left < recached * SECOND
    if recached == PLAIN:
        return (held.value, held.token, left, held.flags & FLAGS_MAX, b""), held
    if held.flags & WON:
        marks, wins = b" Z", False
    if held.flags & STALE:
        marks += b" X"
        wins = wins or not held.flags & WON
    if wins:
        marks += b" W"
        held = held._replace(flags=held.flags | WON)
    return (held.value, held.token, left, held.flags & FLAGS_MAX, marks), held


def _set(
    cache: Cache[Any, Any], op: Operation[Any], value: Any, now: int, held: Held | None
) -> tuple[Any, Held | None]:
    # The result: HD, NS, EX or NF, and the token of the stored value.
    _, _, ttl, flags, mode, wanted, invalidates = op.args
    if held is None:
        if wanted is not None and mode in "SR":
            return (b"NF", 0), None
        if mode in "APR":
            return (b"NS", 0), None
    elif mode == "E":
        return (b"NS", 0), held
    elif wanted is not None and wanted != held.token:
        if mode in "AP" or not invalidates or wanted > held.token:
            return (b"EX", 0), held
        after = held._replace(value=value, token=token(now, held), flags=flags | STALE | (held.flags & WON))
        return (b"HD", after.token), after
    elif mode in "AP":
        made = longer(cache, op, held.value + value if mode == "A" else value + held.value, now, held)
        return (made, held) if isinstance(made, Error) else ((b"HD", made.token), made)
    after = stored(now, value, ttl, flags, held)
    return (b"HD", after.token), after


def _delete(op: Operation[Any], now: int, held: Held | None) -> tuple[Any, Held | None]:
    _, wanted, invalidates, ttl = op.args
    if held is None:
        return b"NF", None
    if wanted is not None and wanted != held.token:
        return b"EX", held
    if not invalidates:
        return b"HD", None
    until = held.until if ttl == KEEP else end(now, ttl)
    return b"HD", held._replace(until=until, token=token(now, held), flags=(held.flags & FLAGS_MAX) | STALE)


def _add(cache: Cache[Any, Any], op: Operation[Any], now: int, held: Held | None) -> tuple[Any, Held | None]:
    # The result: HD, NF or EX, the number, the token and the remaining time.
    _, n, sign, wanted, ttl, vivified, first = op.args
    if held is None:
        if vivified == KEEP:
            return (b"NF", 0, 0, None), None
        digits = str(first)
        until = vivified if ttl == KEEP else ttl
        made = stored(now, digits.encode() if cache.value.type.kind == "binary" else digits, until, 0, None)
        return (b"HD", first, made.token, _left(now, made.until)), made
    if wanted is not None and wanted != held.token:
        return (b"EX", 0, 0, None), held
    result, sum_ = added(cache, op, held.value, sign, n)
    if isinstance(result, Error):
        return result, held
    until = held.until if ttl == KEEP else end(now, ttl)
    after = Held(sum_, until, token(now, held), held.flags)
    return (b"HD", result, after.token, _left(now, until)), after
