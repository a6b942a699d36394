"""memcached's protocol by sockets: other clients, locks of others, processes that die, hostile clients."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymemcache.client.base import Client as Pymemcache  # type: ignore[import-untyped]

import roost
from tests import servers
from tests.campaigns.processes import started, until
from tests.index.databases import Database
from tests.lengths import length
from tests.memcached.cases import CONVERSATIONS
from tests.memcached.conftest import DATABASES, Common, Serve, on, pages, place
from tests.memcached.differential import Side, compare
from tests.memcached.player import answers_of_original, memcached_answers, without_tokens
from tests.server.serving import Client, connected, serving
from tests.server.tls_test import Authority

MEMCAPABLE = ("memccapable", ["/usr/bin"], "libmemcached-tools")


class Raw:
    """A connection of bytes."""

    def __init__(self, address: str) -> None:
        self.socket = connected(address)
        self._file = self.socket.makefile("rb")

    def ask(self, data: bytes, lines: int = 1) -> bytes:
        """Send requests, and return so many lines of answers."""
        self.socket.sendall(data)
        return b"".join([self._file.readline() for _ in range(lines)])

    def rest(self) -> bytes:
        """Return what comes until the server closes."""
        return self._file.read()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()


def raw(served: Any) -> Raw:
    return Raw(served.addresses["memcached"][0])


@on("sqlite", fixture="made_common")
def test_memcapable_finds_nothing_wrong(common: Common) -> None:
    program = servers.binary(*MEMCAPABLE)
    host, port = place(common.served)
    done = subprocess.run(
        [program, "-h", host, "-p", str(port), "-a", "-t", "30"], capture_output=True, text=True, timeout=120
    )
    assert "All tests passed" in done.stdout + done.stderr, done.stdout + done.stderr


def test_answers_are_those_of_memcached(common: Common, address: tuple[str, int]) -> None:
    where = place(common.served)
    for conversation in CONVERSATIONS[::3]:
        theirs = answers_of_original(address, conversation)
        memcached_answers(where, b"flush_all\r\n")
        ours = without_tokens(memcached_answers(where, b"".join(conversation)))
        assert re.sub(rb"VERSION.*\r\n", b"", ours) == re.sub(rb"VERSION.*\r\n", b"", b"".join(theirs)), conversation


def test_random_requests_at_memcached_and_here(common: Common, address: tuple[str, int]) -> None:
    compare(address, place(common.served), 400, int(os.environ.get("ROOST_TEST_SEED", "1")))


def test_pymemcache(common: Common) -> None:
    client = Pymemcache(place(common.served), default_noreply=False, timeout=60)
    assert client.set("/home", b"hello", expire=100, flags=7)
    assert client.get("/home") == b"hello"
    assert client.set_many({f"/{n}": b"%d" % n for n in range(50)}) == []
    assert client.get_many([f"/{n}" for n in range(60)]) == {f"/{n}": b"%d" % n for n in range(50)}
    _, token = client.gets("/home")
    assert (client.cas("/home", b"again", token), client.cas("/home", b"no", token)) == (True, False)
    assert (client.add("/home", b"x"), client.replace("/home", b"y"), client.append("/home", b"z")) == (
        False,
        True,
        True,
    )
    assert (client.incr("/7", 5), client.decr("/7", 100), client.incr("/none", 1)) == (12, 0, None)
    assert (client.touch("/home", 50), client.delete("/home"), client.delete("/home")) == (True, True, False)
    client.set("/quiet", b"\r\n" * 1000, noreply=True)
    assert client.get("/quiet") == b"\r\n" * 1000
    assert client.version().startswith(b"1.6.18-roost-")
    assert client.stats()[b"curr_connections"] == 1
    with roost.Store(common.db.url) as store:
        assert store.run(pages.get("/12")) == b"12"
        store.run(pages.set("/python", "é".encode(), flags=3))
    assert client.get("/python") == "é".encode()
    assert client.flush_all()
    assert client.get_many(["/12", "/python"]) == {}
    client.close()


def test_the_append_recipe_for_sets(common: Common) -> None:
    host, port = place(common.served)
    likes = roost.MemcachedSet("likes", int, str, shards=4)
    with roost.Store(f"memcached://{host}:{port}") as store:
        store.create(likes)
        store.run(likes.add(7, *[f"member {n}" for n in range(3000)]))
        store.run(likes.remove(7, "member 5"))
        store.run(likes.add(7, "ada"))
        assert store.run(likes.size(7)) == 3000
        assert [store.run(likes.contains(7, name)) for name in ("ada", "member 5")] == [True, False]
        store.run(likes.replace(7, {"one", "two"}))
        assert store.run(likes.members(7)) == {"one", "two"}
        store.run(likes.clear(7))
        assert store.run(likes.members(7)) == set()


@on("mariadb")
def test_it_is_served_beside_handlersocket(serve: Serve, db: Database) -> None:
    served = serve("--read", "127.0.0.1:0", "--write", "127.0.0.1:0", "--http", "127.0.0.1:0", listeners=4)
    name = db.url.rpartition("/")[2].partition("?")[0].removesuffix(".db") if db.name != "sqlite" else "main"
    with raw(served) as memcached, served.connect("write") as handlersocket:
        assert handlersocket.ask(f"P\t0\t{name}\tpages\tPRIMARY\tkey,value") == ["0\t1"]
        assert memcached.ask(b"set /a 0 0 3\r\none\r\n") == b"STORED\r\n"
        assert handlersocket.ask("0\t=\t1\t/a") == ["0\t2\t/a\tone"]
        assert handlersocket.ask("0\t+\t2\t/b\ttwo")[0].startswith("0\t1")
        assert memcached.ask(b"get /b\r\n", 3) == b"VALUE /b 0 3\r\ntwo\r\nEND\r\n"
        with Client(served.addresses["http"][0]) as http:
            http.socket.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            metrics = http._file.read().decode()
    assert 'roost_requests_total{role="memcached",worker="1"} 2.0' in metrics
    assert 'roost_open_connections{role="memcached",worker="1"} 1.0' in metrics


@on("postgresql")
def test_the_secret_comes_first(serve: Serve) -> None:
    served = serve("--memcached-secret", "me:my secret", "--auth-delay", "0")
    with raw(served) as client:
        assert client.ask(b"get a\r\n") == b"CLIENT_ERROR unauthenticated\r\n"
        assert client.ask(b"set x 0 0 7\r\nme wron\r\n") == b"CLIENT_ERROR authentication failure\r\n"
        assert client.ask(b"set x 0 0 12\r\nme my secret\r\n") == b"STORED\r\n"
        value = b"x" * 100_000
        assert client.ask(b"set a 0 0 100000\r\n%b\r\nget a\r\n" % value, 4) == (
            b"STORED\r\nVALUE a 0 100000\r\n%b\r\nEND\r\n" % value
        )
    with raw(served) as client:
        assert client.ask(b"set x 0 0 7\r\nme wron\r\n" * 10, 10).count(b"failure") == 10
        assert client.rest() == b""
    with raw(served) as client:
        assert client.ask(b"x" * 5000) == b"CLIENT_ERROR line too long\r\n"
        assert client.rest() == b""


@on("sqlite")
def test_a_client_of_the_binary_protocol_is_disconnected(serve: Serve) -> None:
    served = serve()
    for _ in range(2):
        with raw(served) as client:
            client.socket.sendall(b"\x80\x0b%bopaq%b" % (bytes(10), bytes(8)))
            assert client.rest() == b"\x81\x0b\0\0\0\0\0\x81\0\0\0\x0dopaq%btext protocol" % bytes(8)
    assert served.log.count("binary protocol") == 1
    with raw(served) as client:  # as memcached: a later line that begins so is a wrong one
        assert client.ask(b"mn\r\n\x80\r\nmn\r\n", 3) == b"MN\r\nERROR\r\nMN\r\n"


@on("sqlite")
def test_who_is_hostile_costs_itself_alone(serve: Serve) -> None:
    served = serve("--max-line", "10000", "--max-connections", "20")
    with contextlib.ExitStack() as stack:
        endless = stack.enter_context(raw(served))
        assert endless.ask(b"mn\r\nget " + b"x" * 20_000, 2) == b"MN\r\nCLIENT_ERROR line too long\r\n"
        assert endless.rest() == b""
        browser = stack.enter_context(raw(served))
        assert browser.ask(b"POST / HTTP/1.1\r\n\r\nset a 0 0 1\r\nx\r\n", 0) + browser.rest() == b""
        half = stack.enter_context(raw(served))
        half.socket.sendall(b"set a 0 0 100000\r\nxxx")
        deaf = stack.enter_context(raw(served))
        deaf.ask(b"set big 0 0 500000\r\n" + b"x" * 500_000 + b"\r\n")
        deaf.socket.sendall(b"get big\r\n" * 500)
        with raw(served) as client:
            assert client.ask(b"set a 0 0 1\r\ny\r\nget a\r\n", 4) == b"STORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"
            for byte in b"set b 0 0 2\r\n\r\n\r\nget b\r\n":
                client.socket.sendall(bytes([byte]))
            assert client.ask(b"", 5) == b"STORED\r\nVALUE b 0 2\r\n\r\n\r\nEND\r\n"
            client.socket.sendall(b"quit\r\nmn\r\n")
            assert client.rest() == b""
        with contextlib.ExitStack() as many:
            clients = [many.enter_context(raw(served)) for _ in range(20)]
            assert b"ERROR Too many open connections\r\n" in [client.ask(b"mn\r\n") for client in clients]


def test_f138_a_malformed_line_is_answered_alone(common: Common) -> None:
    with raw(common.served) as bad, raw(common.served) as innocent:
        for _ in range(5):
            bad.socket.sendall(b"cas a 0 0 1 \r\nx\r\nmn\r\n")
            assert innocent.ask(b"set a 0 0 1\r\ny\r\nget a\r\n", 4) == b"STORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n"
            assert bad.ask(b"", 3) == b"ERROR\r\nERROR\r\nMN\r\n"


def peak(served: Any) -> int:
    """Return the most memory that the largest worker has had, in MiB."""
    found = [Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0] for pid in served.all()]
    return max(map(int, found)) // 1024


@on("mariadb")
def test_f132_values_that_writes_return_are_bounded(serve: Serve) -> None:
    served = serve("--max-answer", "2M", "--timeout", "60")
    size, times = 100_000, length(1_000, 2_000)
    with raw(served) as client, raw(served) as innocent:
        assert client.ask(b"set a 0 0 %d\r\n%b\r\n" % (size, b"x" * size)) == b"STORED\r\n"
        assert innocent.ask(b"set b 0 0 1\r\ny\r\n") == b"STORED\r\n"
        before = peak(served)
        client.socket.sendall(b"gat 0" + b" a" * times + b"\r\n")
        assert innocent.ask(b"gat 0 b\r\n", 3) == b"VALUE b 0 1\r\ny\r\nEND\r\n"
        assert client.ask(b"", 1) == b"SERVER_ERROR limit\r\n"
        assert client.ask(b"gat 0 a\r\n", 3) == b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (size, b"x" * size)
        client.socket.sendall(b"mg a v T0\r\n" * (times // 2) + b"gat 0 a\r\n" * (times // 2))
        assert innocent.ask(b"gat 0 b\r\n", 3) == b"VALUE b 0 1\r\ny\r\nEND\r\n"
        for _ in range(times // 2):
            assert client.ask(b"", 2) == b"VA %d\r\n%b\r\n" % (size, b"x" * size)
        for _ in range(times // 2):
            assert client.ask(b"", 3) == b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (size, b"x" * size)
        assert peak(served) < before + 60


@on("postgresql", fixture="made_common")
def test_f139_many_keys_are_looked_up_in_lots(common: Common) -> None:
    with raw(common.served) as client:
        names = [b"%0200d" % n for n in range(10_000)]
        assert client.ask(b"set %b 0 0 1\r\nx\r\nset %b 0 0 1\r\ny\r\n" % (names[0], names[-1]), 2) == b"STORED\r\n" * 2
        found = b"VALUE %b 0 1\r\nx\r\nVALUE %b 0 1\r\ny\r\nEND\r\n" % (names[0], names[-1])
        assert client.ask(b"get %b\r\n" % b" ".join(names), 5) == found
        for command in (b"get", b"gets", b"gat 0", b"gats 0"):
            assert client.ask(b"%b %b x\r\n" % (command, b" ".join(names))) == b"CLIENT_ERROR too many keys\r\n"


@on("sqlite", "postgresql", fixture="db")
def test_what_was_answered_is_there_when_the_worker_is_killed(serve: Serve, db: Database) -> None:
    served = serve()
    answered: dict[int, set[int]] = {owner: set() for owner in range(3)}
    ended = threading.Event()

    def write(owner: int) -> None:
        number = 0
        while not ended.is_set():
            with contextlib.suppress(OSError), raw(served) as client:
                while not ended.is_set():
                    number += 1
                    if client.ask(b"set %d.%d 0 0 1\r\nx\r\n" % (owner, number)) != b"STORED\r\n":
                        break
                    answered[owner].add(number)

    threads = started(*[threading.Thread(target=write, args=(owner,)) for owner in answered])
    for _ in range(length(1, 3)):
        before = sum(map(len, answered.values()))
        until(lambda before=before: sum(map(len, answered.values())) > before + 20, "nothing is answered")  # type: ignore[misc]
        (pid,) = served.pids("write")
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: served.pids("write") not in ([], [pid]), "nobody takes its place")  # type: ignore[misc]
    ended.set()
    for thread in threads:
        thread.join()
    with roost.Store(db.url) as store:
        for owner, numbers in answered.items():
            keys = [f"{owner}.{number}" for number in numbers]
            assert len(store.run(pages.get_many(keys))) == len(keys)


@pytest.mark.parametrize("db", DATABASES[1:], indirect=True)
def test_a_lock_costs_those_alone_who_need_it(db: Database, serve: Serve) -> None:
    with roost.Store(db.url) as store:
        store.run(pages.set("locked", b"1"))
    served = serve("--timeout", "1", "--connections", "2")
    key = "`key`" if db.name == "mariadb" else '"key"'
    with contextlib.closing(db.connect()) as holder, raw(served) as waiting, raw(served) as other, raw(served) as late:
        holder.cursor().execute(f"SELECT token FROM roost_pages_rows WHERE {key} = 'locked' FOR UPDATE")
        waiting.socket.sendall(b"incr locked 1\r\n")
        late.socket.sendall(b"mn\r\nset locked 0 0 1\r\n5\r\nget x\r\n")
        for n in range(10):
            assert other.ask(b"set /%d 0 0 1\r\nx\r\nget locked\r\n" % n, 4).startswith(b"STORED\r\nVALUE locked")
        assert late.ask(b"") == b"MN\r\n"
        assert waiting.ask(b"").startswith(b"SERVER_ERROR busy")
        assert late.ask(b"", 2).endswith(b"END\r\n")
        holder.rollback()
        assert other.ask(b"incr locked 1\r\n")[:1] in b"26"


@pytest.mark.parametrize("db", DATABASES[1:], indirect=True)
def test_f140_flush_all_beside_a_locked_row_costs_itself_alone(db: Database, serve: Serve) -> None:
    with roost.Store(db.url) as store:
        store.run(pages.set_many({f"/{n}": b"x" for n in range(10)}))
    served = serve("--timeout", "10", "--connections", "2")
    key = "`key`" if db.name == "mariadb" else '"key"'
    with contextlib.closing(db.connect()) as holder, raw(served) as flushing, raw(served) as other:
        holder.cursor().execute(f"SELECT token FROM roost_pages_rows WHERE {key} = '/9' FOR UPDATE")
        flushing.socket.sendall(b"flush_all\r\n")
        for n in range(200):
            assert other.ask(b"set /%d 0 0 1\r\ny\r\n" % (n % 9)) == b"STORED\r\n"
        flushing.socket.setblocking(False)
        with pytest.raises(BlockingIOError):  # it still waits
            flushing.socket.recv(1)
        flushing.socket.settimeout(servers.PATIENCE)
        holder.rollback()
        assert flushing.ask(b"") == b"OK\r\n"
        assert other.ask(b"get /1\r\n") == b"END\r\n"


def says(client: Raw, data: bytes, answer: bytes) -> bool:
    """Whether a request is answered so."""
    return client.ask(data) == answer


def test_a_cache_that_is_made_anew_meanwhile_is_served_by_its_new_types_and_limits(db: Database, serve: Serve) -> None:
    """While the calls of the former cache fitted, it was served by its limits; MariaDB gave a text where bytes were."""
    served = serve()
    texts = roost.Cache("pages", key=roost.text(250), value=roost.text(9))
    with raw(served) as client:
        for former, made in ((pages, texts), (texts, pages)):
            assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
            with roost.Store(db.url) as store:
                store.drop(former)
                store.create(made)
            new = b"123456789012" if made is pages else b"12345678"
            storing = b"set a 0 0 %d\r\n%b\r\n" % (len(new), new)
            until(partial(says, client, storing, b"STORED\r\n"), "what it takes now")
            assert client.ask(b"get a\r\n", 3) == b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (len(new), new)
            if made is texts:
                refused = b"set a 0 0 40\r\n%b\r\n" % (b"1" * 40)
                until(partial(says, client, refused, b"SERVER_ERROR object too large for cache\r\n"), "its new limit")
            served.logged("pages was made anew, and is served as it is declared now", 1 + (made is pages))
    assert "Traceback" not in served.log, served.log


def test_a_cache_that_is_made_anew_is_served_as_it_is(db: Database, serve: Serve) -> None:
    served = serve()
    blobs = roost.Cache("pages", key=roost.binary(250), value=roost.binary(100))
    with raw(served) as client:
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        with roost.Store(db.url) as store:
            store.drop(pages)
        assert client.ask(b"get a\r\n") == b"SERVER_ERROR open_table\r\n"
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"SERVER_ERROR open_table\r\n"
        served.logged("the cache cannot be served: pages is not in this database")
        with roost.Store(db.url) as store:
            store.create(blobs)
        assert client.ask(b"set a 0 0 2\r\n\0\xff\r\n") in (b"STORED\r\n", b"SERVER_ERROR open_table\r\n")
        assert client.ask(b"set a 0 0 2\r\n\0\xff\r\n") == b"STORED\r\n"
        served.logged("pages was made anew, and is served as it is declared now")
        with roost.Store(db.url) as store:
            assert store.run(blobs.get(b"a")) == b"\0\xff"
            store.drop(blobs)
            store.create(roost.Counter("pages"))
        assert client.ask(b"get a\r\nget a\r\n", 2) == b"SERVER_ERROR open_table\r\n" * 2
        assert client.ask(b"get a\r\n") == b"SERVER_ERROR open_table\r\n"
        served.logged("pages is a counter, and memcached's protocol takes a cache")
        with roost.Store(db.url) as store:
            store.drop(roost.Counter("pages"))
            store.create(pages)
        assert client.ask(b"mn\r\n") == b"MN\r\n"
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert "Traceback" not in served.log, served.log


@on("sqlite", fixture="made_common")
def test_who_sends_much_has_a_share_like_the_others(common: Common) -> None:
    with raw(common.served) as much, raw(common.served) as little:
        much.ask(b"set big 0 0 200000\r\n" + b"x" * 200_000 + b"\r\n")
        threading.Thread(target=lambda: much.socket.sendall(b"get big\r\n" * 300 + b"set end 0 0 1\r\ny\r\n")).start()
        for _ in range(20):
            assert little.ask(b"get none\r\n") == b"END\r\n"
        assert much.ask(b"", 300 * 3 + 1).endswith(b"END\r\nSTORED\r\n")


@on("mariadb", fixture="made_common")
def test_a_pipeline_is_answered_in_its_order(common: Common) -> None:
    number = length(600, 2_000)
    side = Side(place(common.served))
    sent = b"".join([b"set %d 0 0 1\r\nx\r\nget %d\r\nmg %d k\r\n" % (n % 7, n % 7, n % 9) for n in range(number)])
    answer = side.ask(sent)
    expected = b"".join(
        [
            b"STORED\r\nVALUE %d 0 1\r\nx\r\nEND\r\n" % (n % 7)
            + (b"HD k%d\r\n" % (n % 9) if n % 9 < 7 and n % 9 <= n else b"EN k%d\r\n" % (n % 9))
            for n in range(number)
        ]
    )
    assert answer == expected
    side.close()


@on("postgresql", fixture="made_common")
def test_many_requests_that_want_no_answer(common: Common) -> None:
    number = length(1_500, 5_000)
    with contextlib.closing(Side(place(common.served))) as side:
        side.ask(b"set n 0 0 1\r\n0\r\n")
        assert side.ask(b"incr n 1 noreply\r\nset k 0 0 5 noreply\r\nvalue\r\n" * number) == b""
        assert side.ask(b"get n\r\n") == b"VALUE n 0 4\r\n%d\r\nEND\r\n" % number


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--memcached", "127.0.0.1:0"), "memcached and cache go together"),
        (
            ("--memcached", "0.0.0.0:0", "--cache", "pages"),
            "anybody could write: it takes memcached_secret, or tls_cert",
        ),
        (("--memcached", "127.0.0.1:0", "--cache", "nothing"), "nothing is not in this database"),
        (("--memcached", "127.0.0.1:0", "--cache", "numbers"), "bytes as keys and values"),
        (
            ("--memcached", "127.0.0.1:0", "--cache", "views"),
            "views is a counter, and memcached's protocol takes a cache",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/app.db") as store:
        store.create(pages, roost.Cache("numbers", key=int), roost.Counter("views"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "roost.cli",
            "serve",
            f"sqlite:///{tmp_path}/app.db",
            "--read",
            "none",
            "--write",
            "none",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert why in done.stderr


@on("mariadb")
def test_a_worker_that_leaves_answers_what_has_arrived(serve: Serve) -> None:
    served = serve()
    with raw(served) as client:
        assert client.ask(b"mn\r\n") == b"MN\r\n"
        client.socket.sendall(b"set a 0 0 1\r\nx\r\nget a\r\n")
        served.send(signal.SIGTERM)
        assert client.rest() == b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    assert served.process.wait(60) == 0


@on("sqlite")
def test_by_a_unix_socket(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    serve("--memcached", f"unix:{path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        client.sendall(b"mn\r\n")
        assert client.recv(100) == b"MN\r\n"


@pytest.mark.parametrize("name", length(["mariadb"], DATABASES[1:]))
def test_what_was_answered_is_there_when_the_database_is_killed(name: str, tmp_path: Path) -> None:
    with servers.killable(name) as (daemon, _, url):
        with roost.Store(url) as store:
            store.create(pages)
        given = (
            *("--read", "none", "--write", "none", "--memcached", "127.0.0.1:0", "--cache", "pages", "--timeout", "60"),
        )
        with serving(tmp_path, url, "--workers", "1", *given, module="roost.cli", listeners=1) as served:
            answered: list[int] = []
            ended = threading.Event()

            def write() -> None:
                with raw(served) as client:
                    for number in range(10**6):
                        if ended.is_set():
                            return
                        if client.ask(b"set %d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n":
                            answered.append(number)

            thread = threading.Thread(target=write)
            thread.start()
            for _ in range(2):
                before = len(answered)
                until(lambda before=before: len(answered) > before + 20, "nothing is answered")  # type: ignore[misc]
                daemon.kill()
                daemon.start()
            before = len(answered)
            until(lambda: len(answered) > before + 5, "nothing is answered")
            ended.set()
            thread.join()
        with roost.Store(url) as store:
            assert len(store.run(pages.get_many([str(number) for number in answered]))) == len(answered)
            assert store.check() == []


def test_a_nul_in_a_key_is_refused_where_texts_can_hold_none(common: Common) -> None:
    postgresql = common.db.name == "postgresql"
    refused = b"CLIENT_ERROR bad command line format\r\n"
    with raw(common.served) as client:
        assert client.ask(b"set x 0 0 1\r\n1\r\n") == b"STORED\r\n"
        for ask, line, answer in (
            (b"get a\0b\r\n", b"", b"END\r\n"),
            (b"gets x a\0b\r\n", b"", None),
            (b"set a\0b 0 0 1\r\n", b"1\r\n", b"STORED\r\n"),
            (b"mg a\0b v\r\n", b"", None),
            (b"delete a\0b\r\n", b"", b"DELETED\r\n"),
        ):
            if postgresql:
                assert client.ask(ask + line) == refused
            elif answer is not None:
                assert client.ask(ask + line) == answer
        assert client.ask(b"get x\r\n", 3) == b"VALUE x 0 1\r\n1\r\nEND\r\n"


@on("postgresql")
def test_over_tls(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served = serve(
        "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--memcached-secret", "me:secret", "--drain", "0.5"
    )
    client, _ = authority.connect(served, "memcached")
    with client:
        assert client.ask("set x 0 0 9\r\nme secret\r", "get x\r") == ["STORED\r", "END\r"]
