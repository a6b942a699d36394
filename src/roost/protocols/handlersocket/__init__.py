"""HandlerSocket: parses bytes into requests, and turns results into bytes. No sockets, no SQL.

A request is one line, and so is an answer. A line ends with LF; its tokens are separated by TAB. A token is the single
byte 00, which means NULL, or a value. In a value the bytes 00 to 0F are written as 01 and the byte plus 40
(hexadecimal), and all others as they are. So neither TAB nor LF appears in an encoded value, and a value may contain
each of the 256 bytes.

Promise: `unescape` takes any bytes and returns a value or raises `Invalid`; `unescape(escape(value)) == value`.
"""

from __future__ import annotations

import re

from roost.errors import Invalid

NULL = b"\x00"
SEPARATOR = b"\t"

_CONTROL = bytes(range(0x10))
_ESCAPED = [bytes([1, byte + 0x40]) for byte in _CONTROL]
_SHIFTED = [bytes([byte - 0x40]) if byte >= 0x40 else b"" for byte in range(256)]
_CONTROLS = re.compile(rb"[\x00-\x0f]")


def escape(value: bytes) -> bytes:
    r"""Return a value as a token: the value itself, not a copy, if nothing has to be escaped.

    >>> escape(b"a\tb")
    b'a\x01Ib'
    >>> escape(b"")
    b''
    """
    if len(value.translate(None, _CONTROL)) == len(value):
        return value
    return _CONTROLS.sub(lambda found: _ESCAPED[found[0][0]], value)


def unescape(token: bytes) -> bytes:
    r"""Return the value of a token: the token itself, not a copy, if nothing is escaped.

    01 followed by a byte of at least 40 stands for that byte minus 40, as in the original; unescaped bytes below 10 are
    taken as they are.

    Raises: Invalid if 01 stands at the end, or before a byte below 40.

    >>> unescape(b"a\x01Ib")
    b'a\tb'
    >>> unescape(b"a\x01")
    Traceback (most recent call last):
    roost.errors.Invalid: a broken escape
    """
    if b"\x01" not in token:
        return token
    first, *others = token.split(b"\x01")
    parts = [first]
    for part in others:
        if not part or part[0] < 0x40:
            raise Invalid("a broken escape")
        parts += (_SHIFTED[part[0]], part[1:])
    return b"".join(parts)
