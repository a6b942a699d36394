"""Conversion of Python objects to the bytes stored in a cache, shared by the Django and Flask caches.

An int of 64 bits is stored in decimal digits, modulo 2^64, so that the database can add to it in one operation: adding
2^64 - n subtracts n, since `increment` wraps to 0 after 2^64 - 1. Non-negative ints are stored as in memcached. All
other values are pickled; a pickle never consists of digits only.
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
    """Return whether an int fits in 64 bits, so that it is stored in digits.

    >>> is_held(2**63 - 1), is_held(2**63)
    (True, False)
    """
    return -HALF <= value < HALF


def overflowed(found: int, delta: int) -> bool:
    """Return whether adding `delta`, an int of 64 bits, has left the range of 64 bits and wrapped around.

    >>> overflowed(5, 2), overflowed(2**63 + 1, 2), overflowed(2**63 - 1, -1)
    (False, True, True)
    """
    return not is_held(signed(found) - delta)


def signed(number: int) -> int:
    """Return the signed int for the stored number from 0 to 2^64 - 1."""
    return number - WRAP if number >= HALF else number
