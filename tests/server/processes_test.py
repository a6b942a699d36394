"""The processes of `roost serve`: who dies is replaced, who leaves answers first, and nobody else notices."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roost import CannotOpen
from roost.databases.addresses import Address
from roost.server.listeners import Listener, listen
from tests.campaigns.processes import until
from tests.server.conftest import Serve
from tests.server.serving import Serving, alive, connected
from tests.servers import free_port


def test_every_address_is_announced_and_served_by_all_workers(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "read.sock"
    places = ("--read", f"127.0.0.1:0,[::1]:0,unix:{path}", "--write", "127.0.0.1:0")
    served = serve("--workers", "2", *places, listeners=4)
    assert [each.rpartition(":")[0] for each in served.addresses["read"]] == ["127.0.0.1", "[::1]", "unix"]
    for role, which in (("read", 0), ("read", 1), ("read", 2), ("write", 0)):
        with served.connect(role, which) as client:
            assert client.ask("a", "b") == ["0\t1", "0\t1"]
    pids = set()
    for _ in range(100):  # the chance that one worker got none is 2 ** -99
        with served.connect() as client:
            pids.add(int(client.ask("pid")[0]))
    assert pids == set(served.pids("read"))
    assert len(pids) == 2
    assert served.stop() == 0
    assert not path.exists()


def test_as_json(tmp_path: Path, serve: Serve) -> None:
    served = serve("--json", "--read", "127.0.0.1:0", "--write", "none", listeners=0)
    assert served.process.stdout is not None
    output = served.process.stdout.readline()
    assert output.startswith('{"read": ["127.0.0.1:')
    assert output.endswith('"], "write": [], "http": []}\n')


def test_a_worker_that_was_killed_is_replaced(serve: Serve) -> None:
    served = serve("--workers", "1")
    for times, (role, other) in enumerate([("read", "write"), ("write", "read")] * 2, 1):
        with served.connect(role) as client, served.connect(other) as neighbour:
            assert client.ask("a") == neighbour.ask("a") == ["0\t1"]
            (pid,) = served.pids(role)
            os.kill(pid, signal.SIGKILL)
            served.logged("was killed by SIGKILL; another takes its place", times)
            assert neighbour.ask("a") == ["0\t1"]
            with served.connect(role) as again:
                assert again.ask("a") == ["0\t1"]
            assert client.answer() == ""
    assert served.stop() == 0


def test_a_process_that_was_started_in_advance_takes_the_place(serve: Serve) -> None:
    served = serve("--workers", "1")
    for kill_the_standby in (False, True, False):
        until(served.standby, "a process in advance")
        (standby,) = served.standby()
        if kill_the_standby:
            os.kill(standby, signal.SIGKILL)
        (dead,) = served.pids("write")
        os.kill(dead, signal.SIGKILL)
        until(lambda dead=dead: served.pids("write") not in ([], [dead]), "the next writer")  # type: ignore[misc]
        assert (served.pids("write") == [standby]) is not kill_the_standby
        with served.connect("write") as client:
            assert client.ask("a") == ["0\t1"]
    assert served.stop() == 0


def test_who_waits_in_the_queue_of_a_worker_that_is_killed_is_served_by_the_next(serve: Serve) -> None:
    served = serve("--workers", "1")
    (pid,) = served.pids("read")
    os.kill(pid, signal.SIGSTOP)
    clients = [served.connect() for _ in range(20)]
    for client in clients:
        client.send("a", "b")
    os.kill(pid, signal.SIGKILL)
    for client in clients:
        assert [client.answer(), client.answer()] == ["0\t1", "0\t1"]
        client.close()


def test_a_polite_signal_answers_what_has_arrived(serve: Serve) -> None:
    served = serve()
    with served.connect() as reader, served.connect("write") as writer:
        assert reader.ask("a") == writer.ask("a") == ["0\t1"]
        for client in (reader, writer):
            client.send("slowly", "slow", "slow")
        for client in (reader, writer):
            assert client.answer() == "slowly"
        assert served.stop(signal.SIGTERM) == 0
        for client in (reader, writer):
            assert [client.answer() for _ in range(3)] == ["0\t1", "0\t1", ""]
    with pytest.raises(ConnectionRefusedError):
        connected(served.addresses["read"][0])
    assert "ERROR" not in served.log


def test_who_was_not_accepted_yet_is_answered_before_all_leave(serve: Serve) -> None:
    served = serve("--workers", "1")
    (pid,) = served.pids("read")
    os.kill(pid, signal.SIGSTOP)
    with served.connect() as client:
        client.send("a", "b")
        served.send(signal.SIGINT)
        served.logged("stopping: ")
        os.kill(pid, signal.SIGCONT)
        assert [client.answer() for _ in range(3)] == ["0\t1", "0\t1", ""]
    assert served.process.wait() == 0


def test_a_second_signal_ends_it_at_once(serve: Serve) -> None:
    served = serve("--workers", "1")
    (pid,) = served.pids("read")
    os.kill(pid, signal.SIGSTOP)
    served.send(signal.SIGTERM)
    served.logged("stopping: ")
    assert served.stop() == 1
    served.logged("read worker 1: told twice to leave, killed")
    assert not alive(pid)


def test_a_worker_that_does_not_leave_is_killed(serve: Serve) -> None:
    served = serve("--workers", "1", "--drain", "0", "--timeout", "0", env={"ROOST_TEST_GRACE": "0.1"})
    (pid,) = served.pids("write")
    os.kill(pid, signal.SIGSTOP)
    assert served.stop() == 1
    served.logged(r"the writer: not gone after 0\.1 seconds, killed")
    assert not alive(pid)


def test_a_supervisor_that_was_killed_can_be_followed_at_once(serve: Serve, tmp_path: Path) -> None:
    place = f"127.0.0.1:0,unix:{tmp_path}/read.sock"
    served = serve("--read", place, "--write", "127.0.0.1:0", listeners=3)
    pids = [*served.pids("read"), *served.pids("write")]
    reads, writes = served.addresses["read"], served.addresses["write"]
    with served.connect() as client:
        assert client.ask("a") == ["0\t1"]
        client.send("slow")
        served.process.kill()
        served.process.wait()
        again = serve("--read", ",".join(reads), "--write", ",".join(writes), listeners=3)
        assert again.addresses == served.addresses
        for role, which in (("read", 0), ("read", 1), ("write", 0)):
            with again.connect(role, which) as next_client:
                assert next_client.ask("a") == ["0\t1"]
        assert [client.answer(), client.answer()] == ["0\t1", ""]
    until(lambda: not any(map(alive, pids)), "the workers of the killed supervisor have left")
    assert "the supervisor is gone" in served.log


def test_an_address_that_is_taken_is_told(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.server.listeners.PATIENCE", 0.0)
    path = tmp_path / "read.sock"
    served = serve("--read", f"127.0.0.1:0,unix:{path}", "--write", "none", listeners=2)
    for address in served.addresses["read"]:
        with pytest.raises(CannotOpen, match=f"cannot listen at {address}: another process does"):
            listen("read", Address.parse(address), 2)
        with served.connect() as client:
            assert client.ask("a") == ["0\t1"]
    other = tmp_path / "file"
    other.write_text("precious")
    with pytest.raises(CannotOpen, match="there is something else of that name"):
        listen("read", Address.parse(f"unix:{other}"), 1)
    assert other.read_text() == "precious"
    with pytest.raises(CannotOpen, match="cannot listen at"):
        listen("read", Address.parse("192.0.2.1:1"), 1)


def _at_once(place: str) -> list[Listener]:
    def attempt(_: int) -> list[Listener]:
        with contextlib.suppress(CannotOpen):
            return listen("read", Address.parse(place), 1)
        return []

    with ThreadPoolExecutor(2) as threads:
        return [*itertools.chain(*threads.map(attempt, range(2)))]


def test_of_two_that_begin_at_the_same_time_one_listens_at_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    class Slow(socket.socket):
        def listen(self, *given: int) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait()  # until both have bound it
            both.abort()
            super().listen(*given)

    monkeypatch.setattr("roost.server.listeners.PATIENCE", 0.0)
    monkeypatch.setattr("socket.socket", Slow)
    found = _at_once(f"127.0.0.1:{free_port()}")
    for each in found:
        each.close()
    assert len(found) == 1


def test_of_two_that_begin_at_the_same_time_one_listens_at_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.server.listeners.PATIENCE", 0.0)
    for n in range(200):
        with socket.socket(socket.AF_UNIX) as left:  # by one that was killed
            left.bind(f"{tmp_path}/{n}")
        found = _at_once(f"unix:{tmp_path}/{n}")
        for each in found:
            each.close()
        assert len(found) == 1


def test_a_path_that_somebody_else_has_taken_stays(tmp_path: Path) -> None:
    address = Address.parse(f"unix:{tmp_path}/s")
    (listener,) = listen("read", address, 1)
    os.unlink(address.path)
    (other,) = listen("read", address, 1)
    listener.close()
    assert Path(address.path).exists()
    other.close()
    assert not Path(address.path).exists()


def test_a_worker_that_cannot_start_is_told_once_and_tried_again(serve: Serve, tmp_path: Path) -> None:
    served = serve("--workers", "1")
    broken = tmp_path / "app.db.broken"
    broken.touch()
    with served.connect() as client:
        client.ask("a")
        os.kill(served.pids("write")[0], signal.SIGKILL)
        served.logged("the writer cannot start: app.db: broken; it is tried again and again")
        started = tmp_path / "app.db.started"
        until(lambda: len(started.read_bytes()) >= 5, "five attempts")
        assert served.log.count("cannot start") == 1
        broken.unlink()
        assert client.ask("a") == ["0\t1"]
    with served.connect("write") as client:
        assert client.ask("a") == ["0\t1"]


def test_what_cannot_start_at_all_ends_with_the_reason(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "app.db.broken").touch()
    served = serve("--read", "127.0.0.1:0", "--write", "none", listeners=0)
    assert served.process.wait() == 1
    assert "error: read worker" in served.log
    assert "cannot start: app.db: broken" in served.log
    assert "Traceback" not in served.log


def test_a_worker_that_fails_by_a_mistake_of_ours_tells_where(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "app.db.mistake").touch()
    served = serve("--workers", "1", "--read", "127.0.0.1:0", "--write", "none", listeners=0)
    assert served.process.wait() == 1
    assert "cannot start: ZeroDivisionError: division by zero" in served.log
    (line,) = {line for line in served.log.splitlines() if "Traceback" in line and "read 1" in line}
    assert line.endswith("ZeroDivisionError: division by zero")


def test_workers_tell_no_secret_open_no_database_by_sqlite3_and_leave_signals_to_the_supervisor(serve: Serve) -> None:
    served = serve("--workers", "1", env={"ROOST_SERVE_READ_SECRET": "geheim", "ROOST_SERVE_WRITE_SECRET": "geheim"})
    told = ["geheim", "any.db: a worker of roost serve opens databases by apsw, never by sqlite3"]
    with served.connect() as reader, served.connect("write") as writer:
        for pid in served.all():
            for what in ("cmdline", "environ"):
                assert b"geheim" not in Path(f"/proc/{pid}/{what}").read_bytes()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # as a service manager sends them to all
                os.kill(pid, number)
        assert reader.ask("secret", "sqlite") == writer.ask("secret", "sqlite") == told  # it has arrived all the same
    assert served.stop() == 0
    assert "geheim" not in served.log


def test_connections_beyond_the_limit_are_refused_and_those_within_are_served(serve: Serve) -> None:
    served = serve("--workers", "1", "--max-connections", "3")
    within = [served.connect() for _ in range(3)]
    for client in within:
        assert client.ask("a") == ["0\t1"]
    for _ in range(100):
        with served.connect() as client:
            client.send("a")
            assert [client.answer(), client.answer()] == ["2\t1\tlimit", ""]
    for client in within:
        assert client.ask("a") == ["0\t1"]
    within[0].close()
    until(lambda: _served_again(served), "a place that became free")
    for client in within[1:]:
        client.close()


def _served_again(served: Serving) -> bool:
    with served.connect() as client:
        return client.ask("a") == ["0\t1"]


def test_what_the_limit_of_open_files_has_no_room_for_is_told(tmp_path: Path, serve: Serve) -> None:
    served = serve("--workers", "1", "--max-connections", "1000000")
    served.logged(r"read worker 1 takes \d+ connections, not 1000000: the limit of open files \(RLIMIT_NOFILE\)")


def test_systemd_is_told(serve: Serve, tmp_path: Path) -> None:
    place = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(60)
        served = serve(env={"NOTIFY_SOCKET": str(place)})
        assert manager.recv(100) == b"READY=1"
        served.stop()
        assert manager.recv(100) == b"STOPPING=1"
    assert serve(env={"NOTIFY_SOCKET": str(tmp_path / "gone")}).stop() == 0


def test_a_signal_before_it_is_ready_ends_it(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "app.db.hang").touch()
    served = serve("--read", "127.0.0.1:0", "--write", "none", "--drain", "0", listeners=0)
    until(lambda: (tmp_path / "app.db.started").exists(), "a worker that starts")
    served.send(signal.SIGTERM)
    served.logged("stopping: ")
    (tmp_path / "app.db.hang").unlink()
    assert served.process.wait() == 0
    assert served.process.stdout is not None
    assert served.process.stdout.read() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sqlite:///nowhere.db"], "error: there is no database at sqlite:///nowhere.db; `roost create` makes one"),
        (["mysql://root:geheim@127.0.0.1:1/x", "--write", "none", "--workers", "1"], "error: read worker 1 cannot"),
        (["--config", "nowhere.toml"], "error: nowhere.toml cannot be read: No such file or directory"),
        (["sqlite:///app.db", "--tls-cert", "nowhere.pem"], "error: TLS: nowhere.pem cannot be read: No such file"),
    ],
)
def test_what_cannot_be_served_is_told(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "app.db").touch()
    command = [sys.executable, "-m", "roost.cli", "serve", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith(message)
    assert "geheim" not in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
