"""The tokens of HandlerSocket, for server and client.

A request is one line, and so is an answer. A line ends with LF; its tokens are separated by TAB. A token is the single
byte 00, which means NULL, or a value. In a value the bytes 00 to 0F are written as 01 and the byte plus 40
(hexadecimal), and all others as they are. So neither TAB nor LF appears in an encoded value, and a value may contain
each of the 256 bytes.

Promise: `unescape` takes any bytes and returns a value or raises `Invalid`; `unescape(escape(value)) == value`.
"""

from __future__ import annotations

from roost.errors import Invalid

__all__ = ["END", "NULL", "SEPARATOR", "decode", "encode", "escape", "request", "split", "unescape"]

NULL = b"\x00"
SEPARATOR = b"\t"
END = b"\n"

_CONTROL = bytes(range(0x10))
# 01 comes first, since the replacements of the others contain it.
_ESCAPES = [(bytes([byte]), bytes([1, byte + 0x40])) for byte in sorted(_CONTROL, key=lambda byte: byte != 1)]
_SHIFTED = [bytes([byte - 0x40]) if byte >= 0x40 else b"" for byte in range(256)]


def escape(value: bytes) -> bytes:
    r"""Return a value as a token: the value itself, not a copy, if nothing has to be escaped.

    >>> escape(b"a\tb")
    b'a\x01Ib'
    >>> escape(b"")
    b''
    """
    if len(value.translate(None, _CONTROL)) == len(value):
        return value
    for byte, escaped in _ESCAPES:
        if byte in value:
            value = value.replace(byte, escaped)
    return value


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


def encode(value: bytes | None) -> bytes:
    r"""Return a value as a token; None is NULL.

    >>> encode(None), encode(b""), encode(b"\x00")
    (b'\x00', b'', b'\x01@')
    """
    return NULL if value is None else escape(value)


def decode(token: bytes) -> bytes | None:
    r"""Return the value of a token, None for NULL.

    Raises: Invalid for a broken escape.

    >>> decode(b"\x00"), decode(b"\x01@"), decode(b"\x00\x00")
    (None, b'\x00', b'\x00\x00')
    """
    return None if token == NULL else unescape(token)


def request(*values: bytes | None) -> bytes:
    r"""Return a line with these values, LF included; None is NULL.

    >>> request(b"1", b"=", b"1", b"a\tb", None)
    b'1\t=\t1\ta\x01Ib\t\x00\n'
    """
    return SEPARATOR.join([NULL if value is None else escape(value) for value in values]) + END


def split(line: bytes) -> list[bytes | None]:
    r"""Return the values of a line without its LF. An empty line is one empty value.

    Raises: Invalid for a broken escape.

    >>> split(b"0\t2\t7\t\x00")
    [b'0', b'2', b'7', None]
    """
    tokens = line.split(SEPARATOR)
    if b"\x00" in line or b"\x01" in line:
        return [None if token == NULL else unescape(token) for token in tokens]
    return [*tokens]
