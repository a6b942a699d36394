"""The codec of memcached's protocol: conversations as memcached has them, in whatever pieces they arrive."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import roost
from roost.protocols.codec import Piece, Session, TooLong
from roost.protocols.memcached.asked import Values
from roost.protocols.memcached.codec import Memcached
from roost.protocols.memcached.framing import Framing, end_of
from roost.protocols.memcached.requests import Requests
from roost.structures.index.budget import Budget, Limits
from tests.memcached.cases import CONVERSATIONS
from tests.memcached.player import MOST, NOW, Player, answers_of_original, pieces, without_tokens

pages = roost.Cache("pages")
blobs = roost.Cache("blobs", key=roost.binary(250), value=roost.binary(100))
texts = roost.Cache("texts", value=roost.text(10))
bounded = roost.Cache("bounded", max_items=1000, max_bytes=10**7)


@pytest.fixture(scope="module")
def made() -> Iterator[roost.Store]:
    with roost.Store("sqlite://") as store:
        store.create(pages, blobs, texts, bounded, view=False)
        yield store


@pytest.fixture
def store(made: roost.Store) -> Iterator[roost.Store]:
    """A database that the tests share, with empty caches."""
    made.run_all(*[cache.clear() for cache in (pages, blobs, texts, bounded)])
    yield made
    assert made.check() == []


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_answers_are_those_of_memcached(
    conversation: list[bytes], store: roost.Store, address: tuple[str, int]
) -> None:
    sent = b"".join(conversation)
    for _ in range(5):  # a second may end between the two: what is left of a time to live differs then
        theirs = answers_of_original(address, conversation)
        store.run(pages.clear())
        player = Player(store, pages)
        ours = [without_tokens(player.one(each)) for each in conversation]
        version = [b"VERSION" in each for each in theirs]
        found, wanted = (
            [b"VERSION" if v else each for each, v in zip(x, version, strict=True)] for x in (ours, theirs)
        )
        if found == wanted:
            break
    assert found == wanted
    for size in (1, 7):
        store.run(pages.clear())
        player = Player(store, pages)
        answers = [without_tokens(player.one(piece)) for piece in pieces(sent, size)]
        assert b"".join(answers) == b"".join(ours)
    store.run(pages.clear())
    for cache in (pages, bounded):
        assert without_tokens(Player(store, cache).one(sent)) == b"".join(ours)


def test_requests_of_many_connections_are_few_operations(store: roost.Store) -> None:
    player = Player(store, pages, 5)
    player.ask(*[b"set /%d 1 0 1\r\n%d\r\nset /all 0 0 1\r\n%d\r\n" % (n, n, n) for n in range(5)])
    assert [len(each) for each in player.asked] == [10]
    player.asked.clear()
    answers = player.ask(
        b"get /0\r\n",
        b"get /1\r\nget /none\r\n",
        b"gets /2\r\n",
        b"set /3 0 0 1\r\nx\r\nget /3\r\n",
        b"get /4 /0\r\nincr /4 1\r\nmn\r\nget /4\r\n",
    )
    assert answers[0] == b"VALUE /0 1 1\r\n0\r\nEND\r\n"
    assert answers[1] == b"VALUE /1 1 1\r\n1\r\nEND\r\nEND\r\n"
    assert without_tokens(answers[2]) == b"VALUE /2 1 1#\r\n2\r\nEND\r\n"
    assert answers[3] == b"STORED\r\nVALUE /3 0 1\r\nx\r\nEND\r\n"
    assert answers[4] == (b"VALUE /4 1 1\r\n4\r\nVALUE /0 1 1\r\n0\r\nEND\r\n5\r\nMN\r\nVALUE /4 1 1\r\n5\r\nEND\r\n")
    verbs = [[op.verb for op in each] for each in player.asked]
    assert verbs == [["fetch"], ["fetch"], ["set"], ["fetch"], ["increment"], ["fetch"]]


def test_f139_many_keys_are_a_few_operations(store: roost.Store) -> None:
    player = Player(store, pages, 2)
    store.run(pages.set("/2999", b"x"))
    names = b" ".join([b"/%d" % n for n in range(3000)])
    assert player.ask(b"get %b\r\nget /2999\r\n" % names, b"get /2999\r\n")[0] == b"VALUE /2999 0 1\r\nx\r\nEND\r\n" * 2
    assert max([len(op.args[0]) for (op,) in player.asked]) == 1024


def test_reads_are_told_from_writes_in_the_time_of_one_look(store: roost.Store) -> None:
    codec = Memcached(Values(pages, lambda: 0.0), lambda words: {})
    reads = b"get /home\r\nmn\r\nversion\r\n" * 1_000
    session = Session(None)
    assert not codec.writes([Piece(session, reads), Piece(session, b"gets a b\nstats\nverbosity 1\r\n")])
    for other in (b"set a 0 0 1\r\nx\r\n", b"gat 1 a\r\n", b"get\r\n", b"mn x\r\n"):
        assert codec.writes([Piece(session, reads + other)])


def test_requests_that_arrive_together_are_counted_and_cut_in_the_time_of_one_look(store: roost.Store) -> None:
    # A look at all that follow, at each of them, would take hours.
    codec, sent = Memcached(Values(pages, lambda: 0.0), lambda words: {}), b"x\n" * 300_000
    assert codec.count(sent) == 300_000
    assert codec.halves(sent) == (sent[:300_000], sent[300_000:])
    assert codec.cut(sent, 500_000) == (sent[:500_000], sent[500_000:])


def test_a_turn_has_an_end(store: roost.Store) -> None:
    player = Player(store, pages, 2)
    player.ask(b"set a 0 0 100\r\n" + b"x" * 100 + b"\r\n", b"")
    sent = b"get a b\r\nmn\r\n" * 3 + b"set a 0 0 1\r\nx\r\n"
    answers = player.ask(sent, b"", budget=Budget(Limits(answers=200)))
    assert (answers[0].count(b"END"), answers[0].count(b"MN")) == (2, 1)
    assert player.pieces[0].rest == b"mn\r\nget a b\r\nmn\r\nset a 0 0 1\r\nx\r\n"
    answers = player.ask(b"mn\r\n", b"get a\r\n", budget=Budget(Limits(answers=1)))
    assert (answers[0], answers[1][:7], player.pieces[0].rest) == (b"", b"VALUE a", b"mn\r\n")
    for secret, asked in ((None, b"mn\r\n"), (b"me:my secret", b"x\r\n")):  # nothing for the database
        player = Player(store, pages, secret=secret)
        assert player.ask(asked * 3000, budget=Budget(Limits(answers=1)))[0].count(b"\n") == 1024


def test_a_block_that_is_too_long_is_passed_over(store: roost.Store) -> None:
    long = b"set a 0 0 %d\r\n%b\r\n" % (MOST + 1, b"x" * (MOST + 1))
    for size in (len(long), 65_536, 100_001):
        player = Player(store, pages)
        player.one(b"set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n")
        sent = b"get a\r\n" + long + long.replace(b"set a", b"add a") + b"get a b\r\n"
        answers = b"".join([player.one(piece) for piece in pieces(sent, size)])
        assert answers == (
            b"VALUE a 0 1\r\nx\r\nEND\r\nSERVER_ERROR object too large for cache\r\n"
            b"SERVER_ERROR object too large for cache\r\nVALUE b 0 1\r\ny\r\nEND\r\n"
        )
    framing = Framing(100, MOST)
    framing.feed(long[:500_000].replace(b"1000001", b"2000000"))
    assert framing.held == 0
    player = Player(store, pages)
    player.one(b"set a 0 0 999999\r\n" + b"x" * 999_999 + b"\r\n")
    assert player.one(b"append a 0 0 1\r\ny\r\nappend a 0 0 1\r\nz\r\n") == (
        b"STORED\r\nSERVER_ERROR object too large for cache\r\n"
    )


def test_a_line_without_an_end_is_refused() -> None:
    framing = Framing(100, 100)
    assert framing.feed(b"x" * 99) is None
    with pytest.raises(TooLong):
        framing.feed(b"x" * 2)
    with pytest.raises(TooLong):
        Framing(100, 100).feed(b"set " + b"x" * 100)


def test_a_block_behind_a_line_that_is_wrong_is_no_request(store: roost.Store) -> None:
    # memcached takes the block for requests; whoever can choose a value could send what he likes.
    player = Player(store, pages)
    for line in (
        *(b"set a x 0 11", b"set a 0 x 11", b"set a -1 0 11", b"set " + b"k" * 251 + b" 0 0 11", b"cas a 0 0 11 x"),
    ):
        assert player.one(line + b"\r\nflush_all\r\n\r\nmn\r\n") == b"CLIENT_ERROR bad command line format\r\nMN\r\n"
        assert player.one(line + b" noreply\r\nflush_all\r\n\r\nmn\r\n") == b"MN\r\n"


def test_who_speaks_another_protocol_is_left(store: roost.Store) -> None:
    # A page whose name was made to point here may choose any method.
    for method, answer in ((b"POST", b""), (b"patch", b""), (b"gets", b"END\r\n"), (b"stats", b"ERROR\r\n")):
        player = Player(store, pages)
        assert player.one(method + b" / HTTP/1.1\r\nHost: x\r\n\r\nset a 0 0 1\r\nx\r\n") == answer
        assert player.sessions[0].foreign
        assert store.run(pages.get("a")) is None
    player = Player(store, pages)
    assert (player.one(b"mn\r\nquit\r\nmn\r\n"), player.sessions[0].foreign) == (b"MN\r\n", True)


def test_the_secret_comes_first(store: roost.Store) -> None:
    player = Player(store, pages, secret=b"me:my secret")
    assert player.one(b"get a\r\nadd x 0 0 12\r\nme my secret\r\n") == b"CLIENT_ERROR unauthenticated\r\n" * 2
    assert player.one(b"set x 0 0 12\r\nme my secreT\r\nget a\r\n") == b""
    (late,) = player.pieces
    assert (late.late, late.rest) == (b"CLIENT_ERROR authentication failure\r\n", b"get a\r\n")
    assert player.one(b"set x 0 0 12\r\nme my secretxx") == b"CLIENT_ERROR bad data chunk\r\n"
    player = Player(store, pages, secret=b"me:my secret")
    assert player.one(b"set x 0 0 12\r\nme my secret\r\nget a\r\nset x 0 0 1\r\ny\r\nget x\r\n") == (
        b"STORED\r\nEND\r\nSTORED\r\nVALUE x 0 1\r\ny\r\nEND\r\n"
    )
    player.responder.undo()
    assert not player.sessions[0].authorized


def test_keys_and_values_of_other_types(store: roost.Store) -> None:
    binary, text = Player(store, blobs), Player(store, texts)
    assert binary.one(b"set \xff 0 0 1\r\n\xfe\r\nget \xff\r\n") == b"STORED\r\nVALUE \xff 0 1\r\n\xfe\r\nEND\r\n"
    assert binary.one(b"ms AAE= 1 b\r\nx\r\nmg AAE= b k v\r\n") == b"HD\r\nVA 1 kAAE= b\r\nx\r\n"
    assert store.run(blobs.keys()) == [b"\0\1", b"\xff"]
    assert (
        text.one(b"set \xc3\xa9 0 0 2\r\n\xc3\xa9\r\nget \xc3\xa9\r\n")
        == b"STORED\r\nVALUE \xc3\xa9 0 2\r\n\xc3\xa9\r\nEND\r\n"
    )
    assert store.run(texts.get("é")) == "é"
    assert (
        text.one(b"get a \xff\r\nset \xff 0 0 1\r\nx\r\nmn\r\n")
        == b"CLIENT_ERROR bad command line format\r\n" * 2 + b"MN\r\n"
    )
    for value in (b"\xff", b"x" * 11, b"\xc3\xa9" * 11):
        assert text.one(b"add a 0 0 %d\r\n%b\r\nget a\r\n" % (len(value), value)) == (
            b"SERVER_ERROR object too large for cache\r\nEND\r\n"
        )
    assert (
        text.one(b"mg new N0 v\r\nappend new 0 0 1\r\ny\r\nget new\r\n")
        == b"VA 0 W\r\n\r\nSTORED\r\nVALUE new 0 1\r\ny\r\nEND\r\n"
    )
    with pytest.raises(roost.Invalid, match="bytes as keys and values"):
        Values(roost.Cache("numbers", key=int), lambda: 0.0)


def test_a_cache_with_bounds_lets_values_go(store: roost.Store) -> None:
    small = roost.Cache("small", max_items=3)
    store.create(small)
    player = Player(store, small)
    player.one(b"".join([b"set %d 0 0 1\r\nx\r\n" % n for n in range(5)]))
    assert player.one(b"mg 9 N30\r\nma 8 N0\r\nget 0 1 2 3 4 8 9\r\n") == (
        b"HD W\r\nHD\r\nVALUE 4 0 1\r\nx\r\nVALUE 8 0 1\r\n0\r\nVALUE 9 0 0\r\n\r\nEND\r\n"
    )


def test_flush_all_takes_no_delay(store: roost.Store) -> None:
    player = Player(store, pages)
    assert player.one(b"set a 0 0 1\r\nx\r\nflush_all 5\r\nflush_all 5 noreply\r\nget a\r\n") == (
        b"STORED\r\nSERVER_ERROR flush_all takes no delay\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    )


def test_f138_any_bytes_are_framed_alike_in_any_pieces_and_parsed_as_they_are_framed() -> None:
    generator = random.Random(7)
    requests = Requests(Values(pages, lambda: NOW))
    words = [
        *(b"set a 0 0 ", b"ms k ", b"cas a 0 0 3 4", b"cas a 0 0 1 \r\nx\r\n", b"get a", b"\r\n", b"\n", b" ", b"3"),
        *(b"12", b"xyz", b"\r", b"\t", b"noreply", b"\0", b"1000"),
    ]
    for _ in range(3_000):
        data = b"".join(generator.choices(words, k=generator.randrange(1, 30)))
        whole = Framing(10_000, 50)
        once = whole.feed(data) or b""
        place = 0
        while place < len(once):
            _, end = requests.parse(once, place)
            place = end_of(once, place)
            assert place == end, once
        assert place == len(once)
        parts = Framing(10_000, 50)
        begin, found = 0, b""
        while begin < len(data):
            size = generator.randrange(1, 9)
            found += parts.feed(data[begin : begin + size]) or b""
            begin += size
        assert (found, parts.held) == (once, whole.held), data
