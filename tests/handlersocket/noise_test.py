"""Lines of any bytes: each is answered, whatever it is. The long form is a campaign."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.handlersocket import noise

LINES = 20_000

ANY = st.binary(max_size=200)
TOKEN = ANY | st.sampled_from(
    [b"", b"0", b"1", b"@", b"F", b"W", b"=", b">=", b"U", b"+", b"D?", b"\0", b"\x01", b"-1"]
)


@settings(deadline=None)
@given(st.lists(TOKEN, max_size=30), st.sampled_from([b"P", b"0", b"12"]))
def test_any_tokens_are_a_request_or_are_refused(tokens: list[bytes], first: bytes) -> None:
    assert noise.reading(b"\t".join([first, *tokens])) in noise.WORDS | noise.REQUESTS


def test_noise_is_read() -> None:
    found = noise.read_alone(1, LINES)
    assert all(word in found for word in ("Open", "find", "insert", "escape", "number")), found


def test_noise_is_answered_line_by_line(tmp_path: Path) -> None:
    found = noise.serve(2, LINES, tmp_path / "hst.db")
    assert int(found.split()[0]) >= LINES
