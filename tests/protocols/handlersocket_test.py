"""The tokens: every byte, every fast path, every broken escape; and anything at all, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

import roost
from roost.protocols.handlersocket import NULL, decode, encode, escape, request, split, unescape
from roost.protocols.handlersocket.codec import HandlerSocket
from roost.protocols.handlersocket.opened import Openings

# Bytes, the special ones often.
values = some.lists(
    some.one_of(some.sampled_from([b"\x00", b"\x01", b"@", b"A", b"\t", b"\n", b"\x0f"]), some.binary())
)
value = values.map(b"".join)


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_there_and_back(byte: int) -> None:
    for whole in (bytes([byte]), b"a%cb" % byte, bytes([byte, byte]), b"%c@" % byte, b"\x01%c" % byte):
        written = escape(whole)
        assert not {0, 9, 10} & set(written)
        assert unescape(written) == whole
        assert decode(encode(whole)) == whole
    assert escape(bytes([byte])) == (bytes([1, byte + 0x40]) if byte < 0x10 else bytes([byte]))


def test_all_bytes_in_one_value() -> None:
    whole = bytes(range(256))
    assert escape(whole) == b"".join(bytes([1, byte + 0x40]) for byte in range(16)) + whole[16:]
    assert unescape(escape(whole)) == whole


def test_nothing_is_copied_where_nothing_is_escaped() -> None:
    plain = bytes(range(0x10, 256)) * 100
    assert escape(plain) is plain
    assert unescape(plain) is plain


@pytest.mark.parametrize("byte", range(256))
def test_what_stands_behind_01(byte: int) -> None:
    # Any byte from 40 on is meant less 40, also where nobody had to escape it.
    token = b"x\x01%cy" % byte
    if byte < 0x40:
        with pytest.raises(roost.Invalid, match="broken escape"):
            unescape(token)
    else:
        assert unescape(token) == b"x%cy" % (byte - 0x40)


@pytest.mark.parametrize("token", [b"\x01", b"a\x01", b"\x01A\x01", b"\x01\x01", b"\x01\x01A", b"\x01\x00"])
def test_a_broken_escape_is_refused(token: bytes) -> None:
    for read in (unescape, decode, split):
        with pytest.raises(roost.Invalid, match="broken escape"):
            read(token)


@given(value)
def test_any_value_there_and_back(whole: bytes) -> None:
    written = escape(whole)
    assert unescape(written) == whole
    assert not {0, *range(2, 16)} & set(written)


@given(value)
def test_any_bytes_are_a_value_or_refused(token: bytes) -> None:
    try:
        read = unescape(token)
    except roost.Invalid:
        assert b"\x01" in token
    else:
        assert unescape(escape(read)) == read
        assert len(read) == len(token) - token.count(b"\x01")


@given(some.lists(some.one_of(some.none(), value), min_size=1))
def test_any_line_there_and_back(whole: list[bytes | None]) -> None:
    line = request(*whole)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert split(line[:-1]) == whole


def test_null_is_no_empty_value() -> None:
    assert encode(None) == NULL
    assert decode(b"") == b""
    assert split(b"") == [b""]
    assert split(b"\t") == [b"", b""]
    assert split(b"\x00\t\x00\x00") == [None, b"\x00\x00"]


def test_an_empty_line_behind_the_cut_is_left_and_not_lost() -> None:
    codec = HandlerSocket(Openings(lambda database, table: True, writes=False, looks=True))
    assert codec.cut("P\n", 1) == ("P", "")
    assert codec.cut("PP\nP", 1) == ("PP", "P")
    assert codec.cut("PPP", 1) == ("PPP", None)
    assert codec.cut("PPP\n", 0) == ("PPP", "")  # the rest of a line that waits for somebody's lock
