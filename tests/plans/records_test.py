"""The log of records: a table of bytes and what they mean, both ways; and what is no log is refused, whatever it is."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.structures.memcached_set.records import ENCODINGS, Binary, Header, Readable, home, varint

TEXT, RAW = Binary(raw=False), Binary(raw=True)
READABLE, READABLE_RAW = Readable(raw=False), Readable(raw=True)
PLAIN = b"\0\1\0\0\0\0"  # the header of a set in one item that does not expire

# encoding, header, [(adds, members)], bytes
WRITTEN: list[tuple[Binary, Header, list[tuple[bool, list[Any]]], bytes]] = [
    (TEXT, Header(), [], PLAIN),
    (TEXT, Header(), [(True, ["a"])], PLAIN + b"+\1a"),
    (TEXT, Header(), [(True, ["a", "b"]), (False, ["a"])], PLAIN + b"+\1a+\1b-\1a"),
    (TEXT, Header(), [(True, [""])], PLAIN + b"+\0"),
    (TEXT, Header(), [(True, ["ö"])], PLAIN + b"+\2\xc3\xb6"),
    (TEXT, Header(), [(True, ["x" * 200])], PLAIN + b"+\xc8\1" + b"x" * 200),
    (TEXT, Header(), [(False, ["x" * 200, "y"])], PLAIN + b"-\xc8\1" + b"x" * 200 + b"-\1y"),
    (TEXT, Header(), [(True, list("abcde"))], PLAIN + b"*\0\x09a\0b\0c\0d\0e"),
    (TEXT, Header(), [(True, ["a\0", *"bcde"])], PLAIN + b"*\x0a\x0aa\0\x0ab\x0ac\x0ad\x0ae"),
    (TEXT, Header(), [(False, list("abcde"))], PLAIN + b"-\1a-\1b-\1c-\1d-\1e"),
    (TEXT, Header(complete=True), [(True, ["a"])], b"\0\1\1\0\0\0+\1a"),
    (TEXT, Header(lost=True, expires=300), [], b"\0\1\2\xac\2\0\0"),
    (TEXT, Header(True, False, 0, 129, 3), [(True, ["a"])], b"\0\1\1\0\x81\1\3+\1a"),
    (RAW, Header(), [(True, [b"\xff\0"])], PLAIN + b"+\2\xff\0"),
    (RAW, Header(), [(True, [b"\0", b"\n", b"\1", b"\2", b"\3"])], PLAIN + b"+\1\0+\1\n+\1\1+\1\2+\1\3"),
    (READABLE, Header(), [(True, ["a", "b", "c"]), (False, ["b"])], b"=,0,0,0 +a +b +c -b "),
    (READABLE, Header(True, True, 1700000000, 255, 2), [], b"=cl,1700000000,ff,2 "),
    (READABLE, Header(expires=-1), [], b"=,-1,0,0 "),
    (READABLE, Header(), [(True, ["", "+", "ö"])], "=,0,0,0 + ++ +ö ".encode()),
    (READABLE_RAW, Header(), [(True, [b"\xff"]), (False, [b"\xfe"])], b"=,0,0,0 +\xff -\xfe "),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "header", "changes", "data"), WRITTEN)
def test_what_is_written_is_read(
    encoding: Binary, header: Header, changes: list[tuple[bool, list[Any]]], data: bytes
) -> None:
    assert encoding.header(header) + b"".join([encoding.records(*each) for each in changes]) == data
    log = encoding.read("x", data)
    assert log.header == header
    assert data[: log.start] == encoding.header(header)
    members: set[Any] = set()
    for adds, some in changes:
        members = members | set(some) if adds else members - set(some)
    assert log.added == members


# What the original recipe writes, and with blanks as nobody does.
FOREIGN = [
    (b"", set(), set()),
    (b"+a +b +c ", {"a", "b", "c"}, set()),
    (b"+a +b +c -b -x", {"a", "c"}, {"b", "x"}),
    (b"-a +a ", {"a"}, set()),
    (b"+a\r\n+b\t+a  ", {"a", "b"}, set()),
]


@pytest.mark.parametrize(("data", "added", "removed"), FOREIGN)
def test_what_the_original_recipe_writes_is_read(data: bytes, added: set[str], removed: set[str]) -> None:
    log = READABLE.read("x", data)
    assert (log.added, log.removed, log.header) == (added, removed, Header(expires=-1))


def test_the_original_recipe_reads_what_is_readable() -> None:
    data = READABLE.header(Header(True, False, 5, 7, 2)) + READABLE.records(True, ["a", "b"])
    keys = set()
    for token in data.decode().split():  # as its decodeSet does
        op, key = token[0], token[1:]
        if op == "+":
            keys.add(key)
        elif op == "-":
            keys.discard(key)
    assert keys == {"a", "b"}


BROKEN = [
    (TEXT, b""),
    (TEXT, b"+a +b "),
    (TEXT, PLAIN[:-1]),
    (TEXT, PLAIN + b"+"),
    (TEXT, PLAIN + b"+\2a"),
    (TEXT, PLAIN + b"?\1a"),
    (TEXT, PLAIN + b"+\1\xff"),
    (TEXT, PLAIN + b"*\0"),
    (TEXT, PLAIN + b"*\0\5a\0b"),
    (TEXT, PLAIN + b"+" + b"\xff" * 11),
    (TEXT, b"\0\2\0\0\0\0"),
    (READABLE, b"a "),
    (READABLE, b"+a ?b "),
    (READABLE, b"=,0 +a "),
    (READABLE, b"=,0,0,0"[:3]),
    (READABLE, b"+\xff "),
    (READABLE, PLAIN + b"+\1a"),
]


@pytest.mark.parametrize(("encoding", "data"), BROKEN)
def test_what_is_no_log_is_refused_with_its_name(encoding: Binary, data: bytes) -> None:
    with pytest.raises(roost.Mismatch, match="likes:7"):
        encoding.read("likes:7", data)


@given(st.sampled_from([TEXT, READABLE, RAW, READABLE_RAW]), st.binary())
def test_whatever_it_is_it_is_read_or_refused(encoding: Binary, data: bytes) -> None:
    for each in (data, PLAIN + data, b"=,0,0,0 +" + data):
        with contextlib.suppress(roost.Mismatch):
            assert encoding.read("x", each).start <= len(each)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_log_that_is_cut_off_is_refused_or_ends_at_a_record(member: bytes, cut: int) -> None:
    data = (
        PLAIN
        + RAW.records(True, [member])
        + RAW.records(False, [b"x"])
        + RAW.records(True, [b"%d" % n for n in range(6)])
    )
    ends = {len(PLAIN), len(PLAIN) + 2 + len(member), len(PLAIN) + 5 + len(member), len(data)}
    if cut >= len(data) or cut in ends:
        RAW.read("x", data[:cut] if cut in ends else data)
    else:
        with pytest.raises(roost.Mismatch):
            RAW.read("x", data[:cut])


_members = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_words = _members.filter(lambda text: len(text.split()) <= 1 and text.strip() == text)
_changes = st.lists(st.tuples(st.booleans(), st.lists(_words, max_size=8)), max_size=8)


@given(st.sampled_from(sorted(ENCODINGS)), _changes)
def test_a_log_means_what_a_set_does_and_compaction_changes_nothing(
    name: str, changes: list[tuple[bool, list[str]]]
) -> None:
    encoding = ENCODINGS[name](raw=False)
    base = {"a", "b", "stays"}
    expected, alone = set(base), set[str]()
    for adds, members in changes:
        expected = expected | set(members) if adds else expected - set(members)
        alone = alone | set(members) if adds else alone - set(members)
    header = encoding.header(Header())
    log = encoding.read("x", header + b"".join([encoding.records(*each) for each in changes]))
    assert log.added == alone
    assert base - log.removed | log.added == expected
    again = encoding.read("x", header + encoding.net(log.added, log.removed))
    assert (again.added, again.removed) == (log.added, log.removed)


def test_a_block_takes_back_what_was_removed_before_it() -> None:
    data = PLAIN + TEXT.records(False, ["a", "x"]) + TEXT.records(True, list("abcde"))
    log = TEXT.read("x", data)
    assert (log.added, log.removed, log.loose) == (set("abcde"), {"x"}, 2)


@given(st.lists(st.binary(max_size=200)))
def test_binary_takes_every_member(members: list[bytes]) -> None:
    log = RAW.read("x", PLAIN + RAW.records(True, members))
    assert log.added == set(members)


@given(_members)
def test_binary_takes_every_text(member: str) -> None:
    several = [member, *(f"{member}{n}" for n in range(6))]
    assert TEXT.read("x", PLAIN + TEXT.records(True, several)).added == set(several)


@pytest.mark.parametrize(
    ("number", "data"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**63, b"\x80" * 9 + b"\1")]
)
def test_varints(number: int, data: bytes) -> None:
    assert varint(number) == data


def test_the_shard_of_a_member_never_changes() -> None:
    assert [home(member, 7) for member in ("ada", "bob", "ö", b"ada", "")] == [1, 2, 2, 1, 0]
