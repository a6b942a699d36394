"""Clients that are slow, deaf, endless or silent cost themselves alone; the long form is the campaign `hostile`."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.databases.engine import drive
from roost.dialects import Control
from roost.store.served import MOST_COLUMNS
from roost.store.served_databases import FileDatabase
from roost.structures.index.opened import OpenedIndex
from tests.campaigns import hostile
from tests.campaigns.processes import until
from tests.campaigns.serve_kills import ports_of
from tests.server.serving import Client, Serving

ROOM = 300  # MiB that a worker may have in the end; an idle one has about 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with hostile.a_server(tmp_path_factory.mktemp("served")) as made:
        yield made


def others_are_served(served: Serving) -> None:
    for role in hostile.ROLES:
        with served.connect(role) as client:
            assert client.ask(hostile.OPEN, "0\t=\t1\t7") == ["0\t1", "0\t2\t7\tv7"]


def test_one_byte_at_a_time(served: Serving) -> None:
    with hostile.drip(served, 10):
        others_are_served(served)
    with served.connect() as client:
        for byte in f"{hostile.OPEN}\n0\t=\t1\t7\n".encode():
            client.socket.sendall(bytes([byte]))
        assert [client.answer(), client.answer()] == ["0\t1", "0\t2\t7\tv7"]


def test_who_never_reads_fills_no_memory(served: Serving) -> None:
    with hostile.deaf(served, 10):
        until(lambda: received(served) > 5 * 10**5, "requests for more than a GB of answers")
        for _ in range(3):
            others_are_served(served)
        assert hostile.memory(served) < ROOM


def received(served: Serving) -> int:
    """Return how many bytes wait in the sockets of the workers, which they do not read: the kernel's own count."""
    pids = set(served.all())
    ports = set().union(*[ports_of(pid) for pid in pids])
    waiting = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rpartition(":")[2], 16) in ports:
            waiting += int(fields[4].partition(":")[2], 16)
    return waiting


@pytest.mark.parametrize("big", [0, 1, 7])
def test_a_deep_pipeline_is_answered_whole_and_in_order(served: Serving, big: int) -> None:
    """big: every so-manyth request is for a row of 50 kB; 0: none."""
    numbers = [1000 if big and n % big == 0 else n % 1000 for n in range(2000 if big else 50_000)]
    with served.connect() as client:
        sender = threading.Thread(target=client.send, args=(hostile.OPEN, *[f"0\t=\t1\t{n}" for n in numbers]))
        sender.start()
        assert client.answer() == "0\t1"
        for n in numbers:
            assert client.answer() == f"0\t2\t{n}\t{'x' * hostile.BIG if n == 1000 else f'v{n}'}"
        sender.join()
    assert hostile.memory(served) < ROOM


def test_a_deep_pipeline_is_answered_before_all_leave(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served, served.connect() as client:
        client.send(hostile.OPEN, *["0\t=\t1\t1000"] * 500)
        assert client.answer() == "0\t1"
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        answers = 0
        while client.answer():
            answers += 1
        stopping.join()
        assert answers == 500


def test_a_half_closed_connection_is_answered_and_closed(served: Serving) -> None:
    with hostile.half(served):
        others_are_served(served)
    with served.connect() as client:
        client.send(hostile.OPEN, *["0\t=\t1\t1000"] * 300)
        client.socket.shutdown(1)
        assert client.answer() == "0\t1"
        assert sum([1 for _ in iter(client.answer, "")]) == 300


def test_an_endless_line_is_refused(served: Serving) -> None:
    with hostile.endless(served):
        others_are_served(served)
    assert hostile.memory(served) < ROOM


def test_a_line_is_refused_when_it_is_too_long_and_not_before(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--max-line", "100K") as served, served.connect() as client:
        assert client.ask(hostile.OPEN, f"0\t=\t1\t7\t1\t0\t{'x' * 90_000}")[0] == "0\t1"
        assert client.ask(*["0\t=\t1\t7"] * 15_000) == ["0\t2\t7\tv7"] * 15_000  # together they are longer
        client.send("0\t=\t1\t8", f"0\t=\t1\t{'7' * 110_000}", "0\t=\t1\t9")  # it comes at once
        assert [client.answer() for _ in range(3)] == ["0\t2\t8\tv8", "2\t1\ttoolong", ""]


def test_f130_before_the_secret_lines_are_short(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--read-secret", "s" * 5000) as served:
        for line in ("P" * 20_000, "A\t1\t" + "x" * 20_000 + "\n"):
            with served.connect() as client:
                client.socket.sendall(line.encode())
                assert client.rest() == b"2\t1\ttoolong\n"
        with served.connect() as client:
            client.socket.sendall(b"A\t1\twrong\n" + b"x" * 20_000)
            assert client.answer() == "3\t1\tunauth"
            client.socket.sendall(b"x")
            assert client.rest() == b"2\t1\ttoolong\n"
        with served.connect() as client:  # the lines behind the right secret may come with it
            long = f"0\t=\t1\t7\t1\t0\t{'x' * 2_000_000}"
            assert client.ask("A\t1\t" + "s" * 5000, hostile.OPEN, long, "0\t=\t1\t7") == [
                *("0\t1", "0\t1", "2\t1\treadonly", "0\t2\t7\tv7")
            ]


def test_a_secret_can_be_wrong_and_be_revoked(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--read-secret", "s", "--auth-delay", "0.1") as served, served.connect() as client:
        for empty in ([""], ["", ""]):
            assert client.ask("A\t1\twrong", *empty) == ["3\t1\tunauth", *["2\t1\tcmd"] * len(empty)]
        find = "0\t=\t1\t7"
        for finds in ([find], [find] * 50):  # a single line, and a chunk of one form
            assert client.ask("A\t1\ts", hostile.OPEN, *finds) == ["0\t1", "0\t1", *["0\t2\t7\tv7"] * len(finds)]
            assert client.ask("A\t1\twrong") == ["3\t1\tunauth"]
            assert client.ask(*finds) == ["3\t1\tunauth"] * len(finds)
            assert client.ask("A\t1\ts", *finds) == ["0\t1", *["0\t2\t7\tv7"] * len(finds)]
            assert client.ask("A\t1\twrong", *finds) == ["3\t1\tunauth"] * (1 + len(finds))


def test_f130_long_lines_that_wait_are_counted(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served, contextlib.ExitStack() as stack:
        lock = stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)))
        lock.execute("BEGIN IMMEDIATE")  # lines that modify wait for it
        innocent = stack.enter_context(served.connect("write"))
        line = f"{hostile.OPEN}\n0\t=\t1\t8\t1\t0\tU\t8\t{'x' * 15_000_000}"
        for _ in range(20):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(served.connect("write")).send(line)
        innocent.send(hostile.OPEN, "0\t=\t1\t7\t1\t0\tU\t7\tnew")  # which waits for five seconds
        served.logged(r"buffers \d+ bytes of lines for its connections: one is closed")
        lock.execute("ROLLBACK")
        assert [innocent.answer(), innocent.answer()] == ["0\t1", "0\t1\t1"]


def test_many_silent_connections(served: Serving) -> None:
    with hostile.silent(served, 400):
        others_are_served(served)


ACTS = {hostile.drip: 10, hostile.deaf: 10, hostile.half: 10, hostile.endless: 1, hostile.silent: 400}


def test_on_memcacheds_protocol(tmp_path: Path) -> None:
    wire = hostile.MEMCACHED
    with hostile.a_server(tmp_path, wire=wire) as served:
        for act, number in ACTS.items():
            with act(served, number):
                with Client(wire.address(served, "read")) as client:
                    for asked, expected in (wire.reads(7), wire.writes(7)):
                        client.socket.sendall(asked)
                        assert client.read(len(expected)) == expected
                assert hostile.memory(served) < ROOM


def test_the_campaign_measures(served: Serving) -> None:
    found = hostile.measure(served, 0.2)
    assert found.keys() == {"read", "write"}
    assert all(found.values())


def test_a_client_that_goes_away_in_the_middle_costs_nobody(served: Serving) -> None:
    for _ in range(20):
        client: Client = served.connect("write")
        client.send(hostile.OPEN, *["0\t=\t1\t1000"] * 50)
        client.close()
    others_are_served(served)
    until(lambda: not any([ports_of(pid) - {0} for pid in served.all()]), "the end of all connections")


def test_who_is_silent_for_too_long_is_disconnected(tmp_path: Path) -> None:
    with (
        hostile.a_server(tmp_path, "--idle", "0.4") as served,
        served.connect("write") as busy,
        served.connect() as silent,
        served.connect() as dripping,
    ):
        assert silent.ask(hostile.OPEN) == ["0\t1"]
        dripping.socket.sendall(b"P")  # no whole request, so nothing
        silent.socket.setblocking(False)
        asked = 0

        def is_closed() -> bool:
            nonlocal asked
            asked += 1
            assert busy.ask(hostile.OPEN) == ["0\t1"]
            try:
                return silent.socket.recv(1) == b""
            except BlockingIOError:
                return False

        until(is_closed, "the end of a silent connection")
        assert asked > 10
        assert dripping.answer() == ""
        assert busy.ask("0\t=\t1\t7") == ["0\t2\t7\tv7"]


@pytest.mark.parametrize("shown", [False, True])
def test_a_slow_turn_is_logged_and_its_values_only_if_they_may_be(tmp_path: Path, shown: bool) -> None:
    with hostile.a_server(tmp_path, "--slow", "0.000001", "--log-values", str(shown)) as served:
        with served.connect() as client:
            client.ask(hostile.OPEN, "0\t=\t1\tgeheim")
            served.logged(r"a turn of 1 connections took 0\.\d+ s" + (r": P.*\\x09geheim" if shown else r"\n"))
        assert ("geheim" in served.log) is shown


def test_what_is_remembered_of_opened_indexes_is_bounded_by_their_columns(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    database = FileDatabase(f"sqlite:///{tmp_path}/app.db", writes=False, lock_wait=1.0)
    database._connection.execute(Control.BEGIN_READ)
    for place in range(40):
        columns = ("id",) * place + ("v",) * (4000 - place)
        assert isinstance(drive(database.open("main", "t", "PRIMARY", columns, ()), database._connection), OpenedIndex)
        kept = sum(len(asked[3]) for asked in database._remembered.indexes)
        assert 0 < kept <= MOST_COLUMNS
    database.close()
