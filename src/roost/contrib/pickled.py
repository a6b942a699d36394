"""Python's objects as the bytes that a cache keeps: what Django's and Flask's caches have in common.

An int of 64 bits is written in decimal digits, modulo 2^64, so that the database adds to it in one operation: adding
2^64 - n takes n away, since `increment` begins at 0 again behind 2^64 - 1. What is not negative reads as it does in
memcached. All else is pickled; a pickle never consists of digits.
"""

from __future__ import annotations

import pickle
from typing import Any

WRAP = 2**64
HALF = 2**63


def dumps(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> bytes:
    """Return a value as bytes.

    >>> dumps(42), dumps(-1)
    (b'42', b'18446744073709551615')
    """
    if type(value) is int and is_held(value):  # neither a bool nor an IntEnum's member
        return b"%d" % (value % WRAP)
    return pickle.dumps(value, protocol)


def loads(data: bytes) -> Any:
    """Return the value.

    >>> loads(dumps(-1)), loads(dumps([True, 2**70]))
    (-1, [True, 1180591620717411303424])
    """
    return signed(int(data)) if data.isdigit() else pickle.loads(data)


def is_held(value: int) -> bool:
    """Return whether an int is one of 64 bits, which is written in digits.

    >>> is_held(2**63 - 1), is_held(2**63)
    (True, False)
    """
    return -HALF <= value < HALF


def overflowed(found: int, delta: int) -> bool:
    """Return whether adding `delta`, an int of 64 bits, has left 64 bits and begun again at the other end.

    >>> overflowed(5, 2), overflowed(2**63 + 1, 2), overflowed(2**63 - 1, -1)
    (False, True, True)
    """
    return not is_held(signed(found) - delta)


def signed(number: int) -> int:
    """Return the int that is stored as a number from 0 to 2^64 - 1."""
    return number - WRAP if number >= HALF else number
