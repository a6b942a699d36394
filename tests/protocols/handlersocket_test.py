"""The tokens of HandlerSocket: every value there and back, and what is no value is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

import roost
from roost.protocols.handlersocket import escape, unescape
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.handlersocket.opened import Openings

# Bytes, the special ones often.
values = some.lists(
    some.one_of(some.sampled_from([b"\x00", b"\x01", b"@", b"A", b"\t", b"\n", b"\x0f"]), some.binary())
).map(b"".join)


def test_every_byte_there_and_back_and_behind_01() -> None:
    for byte in range(256):
        for whole in (b"%c" % byte, b"a%cb" % byte, b"%c@" % byte, b"\x01%c" % byte):
            written = escape(whole)
            assert not {0, 9, 10} & set(written)
            assert unescape(written) == whole
        assert escape(b"%c" % byte) == (bytes([1, byte + 0x40]) if byte < 0x10 else bytes([byte]))
        if byte >= 0x40:  # meant less 40, also where nobody had to escape it
            assert unescape(b"x\x01%cy" % byte) == b"x%cy" % (byte - 0x40)
            continue
        with pytest.raises(roost.Invalid, match="broken escape"):
            unescape(b"x\x01%cy" % byte)
    for token in (b"\x01", b"a\x01", b"\x01A\x01", b"\x01\x01A"):
        with pytest.raises(roost.Invalid, match="broken escape"):
            unescape(token)


def test_nothing_is_copied_where_nothing_is_escaped() -> None:
    plain = bytes(range(0x10, 256)) * 100
    assert escape(plain) is plain
    assert unescape(plain) is plain


@given(values)
def test_any_bytes_there_and_back_and_as_a_token_or_refused(whole: bytes) -> None:
    written = escape(whole)
    assert unescape(written) == whole
    assert not {0, *range(2, 16)} & set(written)
    try:
        read = unescape(whole)
    except roost.Invalid:
        assert b"\x01" in whole
    else:
        assert unescape(escape(read)) == read
        assert len(read) == len(whole) - whole.count(b"\x01")


def test_an_empty_line_behind_the_cut_is_left_and_not_lost() -> None:
    codec = HandlerSocket(Openings(lambda database, table: True, writes=False, looks=True))
    assert codec.cut("P\n", 1) == ("P", "")
    assert codec.cut("PP\nP", 1) == ("PP", "P")
    assert codec.cut("PPP", 1) == ("PPP", None)
    assert codec.cut("PPP\n", 0) == ("PPP", "")  # the rest of a line that waits for somebody's lock
    for whole in ("P\n\nP", "\n", "P\n"):
        halves = codec.halves(whole)
        assert halves is not None
        assert codec.join(*halves) == whole
