"""A port without a secret does nothing for other protocols: a connection ends at the first line that is no request."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.campaigns import hostile
from tests.server.serving import Serving

WRITES = "P\t1\tmain\trows\tPRIMARY\tid,v\n1\t=\t1\t1\t1\t0\tU\t1\tadmin\n"
RPC = b"HTTP/1.1\r\nHost: 127.0.0.1:9999\r\nContent-Type: text/plain\r\nContent-Length: 70\r\n\r\n"

# What comes first on a connection, before lines that a third party has chosen.
FOREIGN = {
    "POST": b"POST / " + RPC,
    "another method": b"P / " + RPC,
    "a method that is a number": b"1 / " + RPC,
    "a method that an index has": b"0 /x " + RPC,
    "a preflight": b"OPTIONS / " + RPC,
    "HTTP 0.9": b"GET /\r\n",
    "a header first": b"Host: 127.0.0.1:9999\r\n\r\n",
    "empty lines first": b"\r\n\r\nPOST / " + RPC,
    "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
    "LDAP": b"0\x0c\x02\x01\x01`\x07\x02\x01\x03\x04\x00\x80\x00\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "SMTP": b"EHLO x\r\n",
    "memcached": b"set k 0 0 1\r\n",
    "words that fail": b"1\t=\t1\t1\nPOST / " + RPC,
    "a failing P": b"P\t1\tmain\tnone\tPRIMARY\tid\r\nPOST / " + RPC,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with hostile.a_server(tmp_path_factory.mktemp("foreign")) as made:
        yield made


@pytest.mark.parametrize("role", hostile.ROLES)
@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize("first", FOREIGN.values(), ids=FOREIGN)
def test_f51_another_protocol_is_disconnected_and_nothing_of_it_is_done(
    served: Serving, first: bytes, piece: int, role: str
) -> None:
    sent = first + WRITES.encode()
    with served.connect(role) as client:
        client.socket.settimeout(10)  # it is closed, or this test fails
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = []
        try:
            for begin in range(0, len(sent), piece or len(sent)):
                client.socket.sendall(sent[begin : begin + (piece or len(sent))])
            while answer := client.answer():
                answers.append(answer)
        except ConnectionError:
            pass  # closed before all was sent
    assert len(answers) <= 2
    assert not [answer for answer in answers if answer.startswith("0")]
    assert value(served) == "v1"


def value(served: Serving) -> str:
    with closing(sqlite3.connect(served.log_path.parent / "app.db")) as connection:
        ((found,),) = connection.execute("SELECT v FROM rows WHERE id = 1")
    return str(found)


def test_f51_after_an_opened_index_a_wrong_line_is_answered_as_by_the_original(served: Serving) -> None:
    with served.connect() as client:
        answers = ["2\t1\tstmtnum", "0\t1", "2\t1\tcmd", "2\t1\tcmd", "2\t1\tnumber", "0\t2\t7\tv7"]
        assert client.ask("1\t=\t1\t7", hostile.OPEN, "", "POST / HTTP/1.1", "0x\t=\t1\t7", "0\t=\t1\t7") == answers


def test_f51_who_has_to_say_a_secret_is_answered_as_by_the_original(tmp_path: Path) -> None:
    secret = ("--write-secret", "geheim", "--auth-delay", "0")
    with hostile.a_server(tmp_path, *secret) as served, served.connect("write") as client:
        answers = ["2\t1\tcmd", "2\t1\tcmd", "3\t1\tunauth", "0\t1", "0\t1", "0\t2\t7\tv7"]
        assert client.ask("X", "", "0\t=\t1\t7", "A\t1\tgeheim", hostile.OPEN, "0\t=\t1\t7") == answers
