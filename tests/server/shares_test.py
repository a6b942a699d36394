"""What a turn takes is bounded in bytes and in time: a greedy client, and a slow statement, cost themselves alone."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from random import Random

import pytest

from roost.store.served import Limits
from tests.campaigns import hostile
from tests.campaigns.processes import started, until
from tests.server.playing import bench
from tests.server.serving import Client, Serving

MIB = 2**20
ROOM = 300  # MiB that a worker may have; an idle one has about 40
NEVER = "P\t1\tmain\tnever\tPRIMARY\tn"  # finds nothing, and looks for it without an end
SCHEMA = """
CREATE TABLE big (id INTEGER PRIMARY KEY, v TEXT);
CREATE TABLE composite (a INT, b INT, v TEXT, PRIMARY KEY (a, b));
CREATE TABLE many (id INTEGER PRIMARY KEY, n INT, v TEXT);
CREATE VIEW never AS WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c;
CREATE VIEW idle AS SELECT 1 AS n;
"""


def fill(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "app.db")) as connection:
        connection.executescript(SCHEMA)
        connection.execute("INSERT INTO big VALUES (1, ?), (2, 'small')", ("x" * 10 * MIB,))
        connection.execute("INSERT INTO composite VALUES (1, 1, ?)", ("x" * 10 * MIB,))
        connection.executemany("INSERT INTO many VALUES (?, 0, 'v')", [(n,) for n in range(50_000)])
        connection.commit()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    with hostile.a_server(folder) as made:
        fill(folder)
        yield made


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("hasty")
    with hostile.a_server(folder, "--timeout", "0.3") as made:
        fill(folder)
        yield made


ASKED = {
    "lookups": ["P\t1\tmain\tbig\tPRIMARY\tid,v"] + ["1\t=\t1\t1"] * 1000,
    "lookups by two columns": ["P\t1\tmain\tcomposite\tPRIMARY\tv"] + ["1\t=\t2\t1\t1"] * 1000,
    "ranges": ["P\t1\tmain\tbig\tPRIMARY\tid,v"] + ["1\t>=\t1\t1\t2\t0"] * 1000,
    "lists": ["P\t1\tmain\tbig\tPRIMARY\tid,v"] + ["1\t=\t1\t1\t9\t0\t@\t0\t2\t1\t2"] * 1000,
    "small ones first": ["P\t1\tmain\tbig\tPRIMARY\tid,v"] + ["1\t=\t1\t2"] * 500 + ["1\t=\t1\t1"] * 1000,
    "one that is too large": ["P\t1\tmain\tbig\tPRIMARY\tid,v"] + ["1\t=\t1\t1\t99\t0\t@\t0\t60" + "\t1" * 60] * 50,
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_f54_a_pipeline_that_asks_for_gigabytes_fills_no_memory(served: Serving, asked: list[str]) -> None:
    with served.connect() as deaf, served.connect() as other:
        deaf.send(*asked)
        for _ in range(5):
            assert other.ask(hostile.OPEN, "0\t=\t1\t7") == ["0\t1", "0\t2\t7\tv7"]
        assert hostile.memory(served) < ROOM
        assert deaf.answer() == "0\t1"
        assert deaf.answer()[:4] in ("0\t2\t", "0\t1\t", "2\t1\t")
    assert hostile.memory(served) < ROOM


def test_f55_many_scans_in_a_pipeline_do_not_hold_up_others(served: Serving) -> None:
    """Fairness is counted in answers, not in seconds: the greedy one is far from its end when the other is answered."""
    scan = "1\t>=\t1\t0\t1\t0\tF\t=\t0\t1"
    with ExitStack() as stack:
        greedy = [stack.enter_context(served.connect()) for _ in range(3)]
        other = stack.enter_context(served.connect())
        assert other.ask(hostile.OPEN) == ["0\t1"]
        for each in greedy:
            assert each.ask("P\t1\tmain\tmany\tPRIMARY\tid\tn") == ["0\t1"]
            each.send(*[scan] * 2000)
        received = [0] * len(greedy)

        def read(place: int) -> None:
            while greedy[place].answer() == "0\t1":
                received[place] += 1

        threads = started(*[threading.Thread(target=read, args=(place,)) for place in range(len(greedy))])
        try:
            until(lambda: min(received) > 0, "a first answer for each")
            for _ in range(20):
                before = sum(received)
                assert other.ask("0\t=\t1\t7") == ["0\t2\t7\tv7"]
                assert sum(received) - before < 400  # of 6,000
        finally:
            for each in greedy:
                each.socket.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


@pytest.mark.parametrize("role", hostile.ROLES)
@pytest.mark.parametrize("number", [1, 3])
def test_f52_a_statement_has_a_time_limit(hasty: Serving, role: str, number: int) -> None:
    with hasty.connect(role) as client, hasty.connect(role) as other:
        assert other.ask(hostile.OPEN) == ["0\t1"]
        assert client.ask(NEVER) == ["0\t1"]
        client.send(*["1\t=\t1\t-1"] * number)
        assert other.ask("0\t=\t1\t7") == ["0\t2\t7\tv7"]
        assert [client.answer() for _ in range(number)] == ["1\t1\ttimeout"] * number
        assert client.ask("P\t1\tmain\tmany\tPRIMARY\tid", "1\t=\t1\t7") == ["0\t1", "0\t1\t7"]


def test_f52_a_slow_modification_is_undone_alone(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--timeout", "0.3") as served:
        fill(tmp_path)
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute(
                "CREATE TRIGGER slow BEFORE UPDATE ON rows WHEN new.v = 'slow' "
                "BEGIN SELECT count(*) FROM never WHERE n < 0; END"
            )
        with served.connect("write") as client:
            lines = [f"0\t=\t1\t{n}\t1\t0\tU\t{n}\t{v}" for n, v in ((1, "one"), (2, "slow"), (3, "three"))]
            assert client.ask(hostile.OPEN, *lines) == ["0\t1", "0\t1\t1", "1\t1\ttimeout", "0\t1\t1"]
            answers = ["0\t2\t1\tone", "0\t2\t2\tv2", "0\t2\t3\tthree"]
            assert client.ask(*[f"0\t=\t1\t{n}" for n in (1, 2, 3)]) == answers


def test_f59_a_request_in_work_is_finished_before_all_leave(tmp_path: Path) -> None:
    """With `drain` 0 and a request that takes as long as one may: it is answered by its own limit, and exit code 0."""
    with hostile.a_server(tmp_path, "--drain", "0", "--timeout", "7", "--workers", "1") as served:
        fill(tmp_path)
        with served.connect() as client:
            assert client.ask(NEVER) == ["0\t1"]
            client.send("1\t=\t1\t-1")
            served.send(signal.SIGTERM)
            assert served.process.wait(60) == 0


def test_f52_who_does_not_say_the_secret_is_disconnected(tmp_path: Path) -> None:
    secret = ("--write-secret", "geheim", "--auth-timeout", "0.5")
    with (
        hostile.a_server(tmp_path, *secret) as served,
        served.connect("write") as known,
        served.connect("write") as unknown,
        served.connect() as reader,
    ):
        assert known.ask("A\t1\tgeheim", hostile.OPEN) == ["0\t1", "0\t1"]
        unknown.socket.sendall(b"A\t1\t" + b"x" * 10**6)
        assert unknown.answer() == "2\t1\ttoolong"  # a line before the secret is short
        assert known.ask("0\t=\t1\t7") == ["0\t2\t7\tv7"]
        assert reader.ask(hostile.OPEN) == ["0\t1"]


def test_f52_lines_without_an_end_are_bounded_together(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path, "--workers", "1", "--write-secret", "geheim") as served, ExitStack() as stack:
        known = stack.enter_context(served.connect("write"))
        assert known.ask("A\t1\tgeheim", hostile.OPEN) == ["0\t1", "0\t1"]
        many = [stack.enter_context(served.connect("write")) for _ in range(40)]
        for each in many:
            assert each.ask("A\t1\tgeheim") == ["0\t1"]
            each.socket.sendall(b"A\t1\t" + b"x" * 15 * MIB)
        served.logged("this worker buffers .* of lines for its connections: one is closed", 10)
        assert hostile.memory(served) < 450
        assert known.ask("0\t=\t1\t8") == ["0\t2\t8\tv8"]


class Holder:
    """Somebody else's write transaction, by SQL."""

    def __init__(self, folder: Path) -> None:
        self.connection = sqlite3.connect(folder / "app.db", isolation_level=None, timeout=30)

    def __enter__(self) -> Holder:
        self.connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def test_f57_who_comes_under_somebody_elses_lock_waits_together_with_the_others(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served, ExitStack() as stack:
        clients: list[Client] = []
        with Holder(tmp_path):
            for n in range(6):  # each comes when the one before it waits already
                clients.append(stack.enter_context(served.connect("write")))
                clients[-1].send(hostile.OPEN, f"0\t=\t1\t{n}")
                until(lambda: opened(served) == len(clients), "an accepted connection", 4)  # not only after 5 s
            assert all([answered(client) == ["1\t1\t146", "2\t1\tstmtnum"] for client in clients])
        late = stack.enter_context(served.connect("write"))
        assert late.ask(hostile.OPEN, "0\t=\t1\t7") == ["0\t1", "0\t2\t7\tv7"]


def opened(served: Serving) -> int:
    """Return how many connections the writer has accepted: the kernel's own count."""
    (writer,) = served.pids("write")
    port = int(served.addresses["write"][0].rpartition(":")[2])
    inodes = {name[8:-1] for name in links(writer) if name.startswith("socket:[")}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        found += int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "01" and fields[9] in inodes
    return found


def links(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def answered(client: Client) -> list[str]:
    client.socket.settimeout(9)  # 5 s, and not 10 for the second, 15 for the third
    return [client.answer(), client.answer()]


def test_f82_a_raw_nul_in_a_key_among_others_is_found_as_by_itself(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served:
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute("CREATE TABLE words (k TEXT PRIMARY KEY, n INT)")
            connection.executemany("INSERT INTO words VALUES (?, ?)", [("a", 1), ("a\0b", 2), ("c", 3)])
            connection.commit()
        with served.connect() as client, served.connect() as other:
            assert client.ask("P\t1\tmain\twords\tPRIMARY\tn") == other.ask(hostile.OPEN) == ["0\t1"]
            asked = ["1\t=\t1\ta", "1\t=\t1\ta\0b", "1\t=\t1\tc", "1\t=\t1\tb"]
            assert client.ask(*asked) == ["0\t1\t1", "0\t1\t2", "0\t1\t3", "0\t1"]
            assert other.ask("0\t=\t1\t7") == ["0\t2\t7\tv7"]
        assert "a request failed" not in served.log


@pytest.mark.parametrize("seed", range(5))
def test_turns_that_are_cut_short_answer_every_request_in_order(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    hostile.make_table(tmp_path / "app.db")
    made = bench(tmp_path / "app.db", "write")
    waiting = {}
    wanted = {}
    for _ in range(5):
        session = made.session()
        lines, found = [hostile.OPEN], ["0\t1"]
        while len(lines) < 60:
            for _ in range(random.randrange(1, 9)):
                n = random.randrange(10)
                line, answer = random.choice(
                    [
                        (f"0\t=\t1\t{n}", f"0\t2\t{n}\tv{n}"),
                        (f"0\t>=\t1\t{n}\t1\t0", f"0\t2\t{n}\tv{n}"),
                        (f"0\t=\t1\t{n}\t1\t0\tU\t{n}\tv{n}", "0\t1\t1"),
                        ("X", "2\t1\tcmd"),
                        ("0\t=\t1\t\0", "0\t2"),
                    ]
                )
                repeated = random.randrange(1, 6)
                lines += [line] * repeated
                found += [answer] * repeated
        waiting[session], wanted[session] = "\n".join(lines), found
    got: dict[object, str] = dict.fromkeys(waiting, "")
    while waiting:
        arrived = list(waiting.items())
        made.database.limit(Limits(random.choice([1, 30, 200, 2000]), inf, inf, inf))
        played = made.play(*arrived)
        assert any(played.texts)
        for place, (session, _) in enumerate(arrived):
            got[session] += played.texts[place]
            del waiting[session]
            if place in played.rest:
                waiting[session] = played.rest[place]
    assert {session: text.split("\n")[:-1] for session, text in got.items()} == wanted
    made.database.close()


def test_f82_what_fails_at_commit_costs_those_behind_it_nothing(tmp_path: Path) -> None:
    with hostile.a_server(tmp_path) as served:
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.executescript(
                "CREATE TABLE parent (id INTEGER PRIMARY KEY);"
                "CREATE TABLE child (id INTEGER PRIMARY KEY,"
                " p INT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);"
            )
        with served.connect("write") as client, served.connect("write") as other:
            assert client.ask("P\t1\tmain\tchild\tPRIMARY\tid,p", hostile.OPEN) == ["0\t1", "0\t1"]
            assert other.ask(hostile.OPEN) == ["0\t1"]
            bad, good = "1\t+\t2\t1\t77", "0\t=\t1\t7\t1\t0\tU\t7\tv7"
            for _ in range(3):
                assert client.ask(good, bad, good, bad, bad, good) == [
                    *("0\t1\t1", "1\t1\t151", "0\t1\t1", "1\t1\t151", "1\t1\t151", "0\t1\t1")
                ]
                assert other.ask(good, "0\t=\t1\t7") == ["0\t1\t1", "0\t2\t7\tv7"]
            assert client.ask(bad) == ["1\t1\t151"]
            assert client.ask(good) == ["0\t1\t1"]


def test_f54_a_small_max_answer_counts_for_short_rows_too(tmp_path: Path) -> None:
    hostile.make_table(tmp_path / "app.db")
    with closing(bench(tmp_path / "app.db", "write")) as made:
        made.database.limit(Limits(inf, inf, inf, 1024))
        session = made.session()
        lines = ["0\t=\t1\t7", "0\t=\t1\t1000", "0\t=\t1\t8", "0\t=\t1\t9", "0\t>=\t1\t1000\t1\t0", "0\t>=\t1\t7\t1\t0"]
        answers = ["0\t2\t7\tv7", "2\t1\tlimit", "0\t2\t8\tv8", "0\t2\t9\tv9", "2\t1\tlimit", "0\t2\t7\tv7"]
        assert made.say(session, "\n".join([hostile.OPEN, *lines])) == ["0\t1", *answers]
        assert made.say(session, lines[1]) == ["2\t1\tlimit"]
