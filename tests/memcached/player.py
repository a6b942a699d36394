"""memcached's protocol without sockets: bytes to a codec, whose operations a store runs; the same to memcached."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import roost
from roost.protocols.codec import Piece, Session
from roost.protocols.memcached.asked import Values
from roost.protocols.memcached.codec import Responder
from roost.protocols.memcached.framing import Framing
from roost.protocols.memcached.requests import Requests
from roost.structures.index.budget import Budget
from tests.memcached.cases import CONVERSATIONS

MOST = 1_000_000  # bytes of a value, as a cache has unless told otherwise
LAST = b"EN kthe-last-one\r\n"
NOW = 1_800_000_000.0
ORIGINAL = b"VERSION 1.6.18\r\n"  # whose answers are ours; 1.6.45 has others to what is wrong, and to nothing else
KEPT = Path(__file__).parents[1] / "data/memcached-1.6.18.json"  # its answers to `CONVERSATIONS`


class Player:
    """Connections to one cache. What they send is one turn."""

    def __init__(
        self,
        store: roost.Store,
        cache: Any,
        connections: int = 1,
        secret: bytes | None = None,
        most_line: int = 2**16,
        most_block: int = MOST,
    ) -> None:
        self.sessions = [Session(secret and secret.replace(b":", b" ", 1)) for _ in range(connections)]
        self._framings = [Framing(most_line, most_block) for _ in range(connections)]
        self._requests = Requests(Values(cache, lambda: NOW))
        self._store = store
        self.asked: list[Sequence[Any]] = []  # what went to the database at once

    def ask(self, *sent: bytes, budget: Budget | None = None) -> list[bytes]:
        """Return what each connection is answered."""
        self.pieces = [
            Piece(session, framing.feed(data) or b"")
            for session, framing, data in zip(self.sessions, self._framings, sent, strict=True)
        ]
        responder = Responder(self.pieces, self._requests, self._stats, budget or Budget())
        work = responder.play()
        asked = next(work, None)
        while asked is not None:
            method, operations = asked
            assert method == "operate"
            self.asked.append(operations)
            try:
                asked = work.send([self._run(op) for op in operations])
            except StopIteration:
                break
        self.responder = responder
        return [piece.answer for piece in self.pieces]

    def one(self, data: bytes) -> bytes:
        """Return what the only connection is answered."""
        (answer,) = self.ask(data)
        return answer

    def _run(self, op: Any) -> Any:
        try:
            return self._store.run(op)
        except roost.Error as error:
            return error

    @staticmethod
    def _stats(words: Sequence[bytes]) -> dict[str, object] | None:
        return {"version": "1.2.3", "pid": 4} if not words else None


def memcached_answers(address: tuple[str, int], sent: bytes) -> bytes:
    """Return what memcached answers on a connection of its own."""
    with socket.create_connection(address, timeout=180) as connection:
        connection.sendall(sent + b"mg the-last-one k\r\n")
        found = b""
        while not found.endswith(LAST):
            piece = connection.recv(65536)
            if not piece:
                break
            found += piece
    return found.removesuffix(LAST)


def is_original(address: tuple[str, int]) -> bool:
    """Whether this memcached is the one whose answers are ours, also to what is wrong."""
    return memcached_answers(address, b"version\r\n") == ORIGINAL


def answers_of_original(address: tuple[str, int], conversation: list[bytes]) -> list[bytes]:
    """Return what the original answers: it is asked where it is installed, and what is kept is the same."""
    kept = [each.encode("latin-1") for each in json.loads(KEPT.read_text())[CONVERSATIONS.index(conversation)]]
    if not is_original(address):
        return kept
    memcached_answers(address, b"flush_all\r\n")
    asked = [without_tokens(memcached_answers(address, each)) for each in conversation]
    # What is left of a time to live differs where a second ends between two requests.
    assert [re.sub(rb"t\d+", b"t", each) for each in asked] == [re.sub(rb"t\d+", b"t", each) for each in kept]
    return asked


_TOKENS = re.compile(rb"(^VALUE [^ ]+ \d+ \d+) \d+|(?<= c)[1-9]\d*|(?<= cas=)\d+|(?<= la=)\d+|(?<= size=)\d+", re.M)


def without_tokens(answer: bytes) -> bytes:
    """Return an answer without what each server numbers in its own way."""
    return _TOKENS.sub(lambda found: (found[1] or b"") + b"#", answer)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield data in pieces of a size."""
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]
