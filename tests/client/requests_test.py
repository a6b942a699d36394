"""Requests and the conversation, without a server: what is refused when it is made, and answers in any pieces."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import roost
from roost.client import HandlerSocket, Index, Pool, Where
from roost.client.conversation import Deadline, Outcomes
from roost.databases.callers import now

users: Any = Index("app", "users", "PRIMARY", ["id", "email"], filters=["visits"])
fruit = Index("test", "fruit", "PRIMARY", ["id", "name"], ["count"])

REFUSED: dict[str, Callable[[], object]] = {
    "not one of = <": lambda: fruit.find("==", 1),  # type: ignore[arg-type]
    "not one of = !=": lambda: fruit.find("=", 1, filters=[Where("count", "<>", 1)]),  # type: ignore[arg-type]
    "no filter column": lambda: fruit.find("=", 1, filters=[Where("name", "=", 1)]),
    "at least one value": lambda: fruit.find("=", ()),
    "limit 0": lambda: fruit.find("=", 1, limit=0),
    "offset -1": lambda: fruit.find("=", 1, offset=-1),
    "below 2": lambda: fruit.find("=", 1, limit=2**32 - 1, offset=1),
    "no place 1": lambda: fruit.find("=", 1, in_=(1, [2])),
    "in_ has no values": lambda: fruit.find("=", 1, in_=(0, [])),
    "1 to 2 values, not 3": lambda: fruit.insert((1, 2, 3)),
    "1 to 2 values, not 0": lambda: fruit.insert(()),
    "2 values are needed": lambda: fruit.update("=", 1, "x"),
    "not a whole number": lambda: fruit.increment("=", 1, (1, 0.5)),
    "is not a value": lambda: fruit.find("=", object()),  # type: ignore[arg-type]
    "nan is not": lambda: fruit.find("=", float("nan")),
    "inf is not": lambda: fruit.find("=", (float("-inf"),)),
    "lone surrogates": lambda: fruit.find("=", "\ud800"),
    "without columns": lambda: Index("a", "b", "", []),
    "lists of names": lambda: Index("a", "b", "", "id"),
    "comma": lambda: Index("a", "b", "", ["id,name"]),
    "empty name": lambda: Index("a", "b", "", [""]),
    "control characters": lambda: Index("a\t", "b", "", ["id"]),
    "is not an address": lambda: HandlerSocket("localhost"),
    "'a:70000'": lambda: HandlerSocket("a:70000"),
    "timeout": lambda: HandlerSocket("a:1", timeout=0),
    "at least one connection": lambda: Pool("a:1", size=0),
    "is not a filter": lambda: users.find("=", 7, filters=[("visits", ">", 3)]),
    "a list of values, not .1, 2": lambda: users.find("=", 7, in_=[1, 2]),
    "a list of values, not 5": lambda: users.find("=", 7, in_=5),
    "limit": lambda: users.find("=", 7, limit="3"),
    "offset": lambda: users.find("=", 7, offset=None),
    "None is not a name": lambda: Index("app", None, "PRIMARY", ["id"]),  # type: ignore[arg-type]
    "1 is not a name": lambda: Index("app", "t", "PRIMARY", [1]),  # type: ignore[list-item]
    "is no request": lambda: HandlerSocket("127.0.0.1:1").run("1\t=\t1\t1"),  # type: ignore[arg-type]
    "None is no request": lambda: HandlerSocket("127.0.0.1:1").pipeline([None]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_said_is_refused_when_it_is_made(why: str) -> None:
    with pytest.raises(roost.Invalid, match=why):
        REFUSED[why]()


def test_requests_are_values() -> None:
    for request in (fruit.find("=", 1), fruit.insert((1, "x")), fruit.delete("=", 1), fruit.delete("=", 1).returning()):
        twin = pickle.loads(pickle.dumps(request))
        assert twin == request
        assert hash(twin) == hash(request)
        assert repr(twin) == repr(request)
    assert fruit.find("=", 1) != fruit.as_bytes().find("=", 1)
    assert fruit.find("=", 1).changes is False
    assert fruit.delete("=", 1).returning().changes is True


ASKED = [fruit.find("=", 1), fruit.insert((2, "b")), fruit.find(">", 1, limit=5), fruit.delete("=", 9)]
ANSWERS = b"0\t1\n0\t1\n0\t2\t1\ta\x01J\n1\t1\t121\n0\t2\t2\tb\t3\t\x00\n0\t1\t0\n"


@given(some.lists(some.integers(0, len(ANSWERS)), max_size=20), some.lists(some.integers(1, 60), max_size=5))
def test_answers_in_any_pieces(cuts: list[int], sends: list[int]) -> None:
    places = sorted({0, *cuts, len(ANSWERS)})
    pieces = [ANSWERS[begin:end] for begin, end in itertools.pairwise(places)]
    sent, outcomes = exchanged(pieces, sends)
    assert outcomes[0] == [("1", "a\n")]
    assert outcomes[1].word == "121"
    assert outcomes[2:] == [[("2", "b"), ("3", None)], 0]
    assert sent == (
        b"A\t1\tsecret\nP\t0\ttest\tfruit\tPRIMARY\tid,name\tcount\n"
        b"0\t=\t1\t1\n0\t+\t2\t2\tb\n0\t>\t1\t1\t5\t0\n0\t=\t1\t9\t1\t0\tD\n"
    )


class Pieces:
    """A wire that takes and gives pieces."""

    def __init__(self, pieces: list[bytes], sends: list[int]) -> None:
        self._pieces, self._sends = pieces, sends
        self.sent = b""

    def is_stale(self) -> bool:
        return False

    def close(self) -> None:
        pass

    async def transfer(self, data: memoryview, deadline: Deadline) -> tuple[int, bytes | None]:
        if not data:
            return 0, self._pieces.pop(0)
        taken = bytes(data[: self._sends.pop() if self._sends else len(data)])
        self.sent += taken
        return len(taken), None


def exchanged(pieces: list[bytes], sends: list[int]) -> tuple[bytes, Outcomes]:
    wire = Pieces(pieces, sends)
    client = HandlerSocket("127.0.0.1:1", secret="secret")
    client._wire = wire  # type: ignore[assignment]
    outcomes = now(client._converse(ASKED, Deadline(None)))
    return wire.sent, outcomes
