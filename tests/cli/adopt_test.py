"""cap, uncap: a table of the application's own, from the command line."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest

from roost.store import bursts
from tests import servers
from tests.campaigns.processes import until
from tests.cli.conftest import Shell
from tests.suite.application import Application

NUMBERS = numbers()
CAP = ("cap", "visits", "--per", "uid", "--keep", "5")


def rows(query: str) -> list[Any]:
    with closing(sqlite3.connect("roost.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def visits(shell: Shell) -> Shell:
    make(300, 10)
    return shell


def make(n: int, people: int) -> None:
    with closing(sqlite3.connect("roost.db")) as connection:
        connection.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, uid INTEGER, visitor INTEGER, at TEXT)")
        connection.execute("CREATE INDEX visits_uid ON visits (uid, at)")
        values = [(k % people, k, f"2008-01-01 {k:06d}") for k in range(n)]
        connection.executemany("INSERT INTO visits (uid, visitor, at) VALUES (?, ?, ?)", values)
        connection.commit()


def test_a_dry_run_says_what_would_go_and_changes_nothing(visits: Shell) -> None:
    before = Path("roost.db").read_bytes()
    found = visits(*CAP, "--newest-by", "at", "--dry-run").splitlines()
    assert found[0] == (
        "visits: 250 of 300 rows are deleted, those beyond the newest 5 of uid by at, which 10 of 10 keys have"
    )
    assert found[1].startswith("rows are found by: SEARCH visits USING COVERING INDEX visits_uid")
    assert found[2] == "nothing was changed"
    assert visits.json(*CAP, "--newest-by", "at", "--dry-run") == {
        "table": "visits", "per": ["uid"], "keep": 5, "by": "at", "others": [],
        "rows": 300, "keys": 10, "full": 10, "excess": 250, "keyless": 0, "capped": False,
        "index": "SEARCH visits USING COVERING INDEX visits_uid (uid=?)",
    }  # fmt: skip
    assert Path("roost.db").read_bytes() == before
    assert rows("SELECT name FROM sqlite_master WHERE name LIKE 'roost%'") == []


def test_it_asks_before_rows_are_deleted(visits: Shell) -> None:
    assert visits(*CAP, stdin="n\n", code=1) == ""
    assert "250 of 300 rows are deleted" in visits.error
    assert "nothing was changed" in visits.error
    assert rows("SELECT count(*) FROM visits") == [(300,)]
    found = visits(*CAP, "--newest-by", "at", stdin="y\n")
    assert found.startswith("visits: 250 rows deleted in ")
    assert found.endswith("every uid keeps its newest 5 by at, and triggers keep it so\n")
    assert rows("SELECT min(visitor), count(*) FROM visits") == [(250, 50)]
    assert visits.json("cap", "visits")["deleted"] == 0
    assert visits("check") == "every promise is kept\n"


def test_without_a_terminal_lines_tell_the_progress(visits: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    visits(*CAP, "--yes")
    assert visits.error == ""
    monkeypatch.setattr("roost.cli.adopt.TELL", 0.0)
    visits("cap", "visits", "--keep", "2", "--per", "uid", "--yes")
    assert visits.error.startswith("visits: ")
    assert " so far, of 30" in visits.error


def test_what_is_capped_is_listed_and_shown_and_left_again(visits: Shell) -> None:
    visits(*CAP, "--yes", "--newest-by", "at")
    assert visits("list").splitlines()[1].split("\t") == [
        "visits",
        "adopted",
        "uid",
        "rows of its own",
        "keep 5, by at",
    ]
    assert visits("show", "visits", "--n", "2").splitlines() == ["uid\trows", "0\t5", "1\t5"]
    assert visits.json("show", "visits", "3", "--n", "1")["rows"] == [
        {"id": 294, "uid": 3, "visitor": 293, "at": "2008-01-01 000293"}
    ]
    assert visits.json("show", "visits", "99")["rows"] == []
    for command in (
        ("clear", "visits", "3", "--yes"),
        ("forget", "visits", "3", "--yes"),
        ("alter", "visits", "--keep", "3"),
    ):
        assert visits(*command, code=1) == ""
        assert "visits is a table of your own" in visits.error
    assert visits("import", "visits", "-", "--format", "csv", code=1, stdin="uid\n1\n") == ""
    assert visits("cap", "visits", "--keep", "2", "--yes").startswith("visits: 30 rows deleted")
    assert visits("uncap", "visits") == "visits: not capped any more; its rows are as they were\n"
    assert rows("SELECT name FROM sqlite_master ORDER BY name") == [("visits",), ("visits_uid",)]
    assert visits("uncap", "visits", code=1) == ""
    assert visits.error == "error: visits is not capped\n"


@pytest.mark.parametrize("per", [("--per", "room, topic"), ("--per", "room", "--per", "topic")])
def test_a_key_of_several_columns(shell: Shell, per: tuple[str, ...]) -> None:
    shell.sql("roost.db", "CREATE TABLE log (room TEXT, topic INT, x INT)", *["INSERT INTO log VALUES ('a', 1, 2)"] * 3)
    output = shell("cap", "log", *per, "--keep", "2", "--yes")
    assert output.endswith("every room, topic keeps its newest 2, and triggers keep it so\n")
    assert len(shell.json("show", "log", "a,1")["rows"]) == 2
    assert shell.json("show", "log")[0] == {"key": ["a", 1], "rows": 2}


def test_watch_is_for_mariadb_alone(visits: Shell) -> None:
    assert visits(*CAP, "--yes", "--watch", code=1) == ""
    assert "visits: triggers keep it short, so there is nothing to watch" in visits.error
    assert rows("SELECT count(*) FROM visits") == [(300,)]


@pytest.fixture
def mariadb() -> Iterator[Application]:
    app = Application(servers.mariadb().database(f"cli{next(NUMBERS)}"))
    app("CREATE TABLE visits (id {id}, uid INT, visitor INT)")
    add(app, 20)
    yield app
    app.close()


def add(app: Application, n: int) -> None:
    app(f"INSERT INTO visits (uid, visitor) SELECT 1, seq FROM seq_1_to_{n}")


def test_watch_trims_until_it_is_ended(shell: Shell, mariadb: Application) -> None:
    count = "SELECT count(*) FROM visits"
    for number in (signal.SIGINT, signal.SIGTERM):
        process = shell.start(
            *CAP, "--yes", "--watch", "--store", mariadb.url,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            assert b"and this command keeps it so, every second" in process.stdout.readline()
            for _ in range(2):
                add(mariadb, 20)
                until(lambda: mariadb(count) == [(5,)], "a pass has come by")
            if number == signal.SIGTERM:
                assert shell("check", "--store", mariadb.url) == "every promise is kept\n"
                assert shell("cap", "visits", "--watch", "--store", mariadb.url, code=1) == ""
                assert "another `roost cap visits --watch` trims it" in shell.error
            process.send_signal(number)
            assert process.communicate(timeout=600) == (b"", b"")
        assert process.returncode == 0
    add(mariadb, 20)
    output = shell("cap", "visits", "--yes", "--store", mariadb.url)
    assert output.startswith("visits: 20 rows deleted in ")
    assert "and from now on while `roost cap visits --watch` runs: event_scheduler is not ON" in output
    assert shell("uncap", "visits", "--store", mariadb.url).endswith("its rows are as they were\n")


def test_f110_it_asks_before_others_may_use_the_rights_of_root(shell: Shell, mariadb: Application) -> None:
    command = ("cap", "visits", "--per", "uid", "--keep", "50", "--store", mariadb.url)
    for stdin, code in (("n\n", 1), ("", 1)):
        assert shell(*command, stdin=stdin, code=code) == ""
        assert "would run with the rights that root@" in shell.error
        assert "; then --definer roostcap@localhost. Go on all the same? [y/N]" in shell.error
    assert "would run with the rights that root@" in shell(*command, "--dry-run")
    assert shell(*command, "--definer", "roostcap", code=2) == ""
    shell(*command, stdin="y\n")
    shell(*command, stdin="")  # it was agreed to
    shell("uncap", "visits", "--store", mariadb.url)


def test_watch_ends_when_the_table_is_uncapped(shell: Shell, mariadb: Application) -> None:
    command = (*CAP, "--yes", "--watch", "--store", mariadb.url)
    with shell.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shell("uncap", "visits", "--store", mariadb.url)
        _, error = process.communicate(timeout=600)
    assert process.returncode == 1
    assert b"was uncapped" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cap", "visits"), "visits is not capped yet: use --per COLUMN and --keep N"),
        (("cap", "visits", "--older-than", "30d"), "visits is not capped yet: use --per COLUMN"),
        (("cap", "visits", "--by", "at"), "visits is not capped yet: use --per COLUMN"),
        (("cap", "visits", "--older-than", "30d", "--by", "uid"), "uid has the type integer, such as 0: say --epoch s"),
        (("cap", "visits", "--keep", "5"), "use --per COLUMN"),
        (("cap", "visits", "--per", "", "--keep", "5"), "visits has no column ''"),
        (("cap", "nothing", "--per", "uid", "--keep", "5"), "the database has no table 'nothing'"),
        (("cap", "visits", "--per", "nobody", "--keep", "5"), "visits has no column 'nobody'"),
        (("uncap", "nothing"), "nothing is not capped"),
    ],
)
def test_what_cannot_be_is_told(visits: Shell, words: tuple[str, ...], message: str) -> None:
    assert visits(*words, code=1) == ""
    assert message in visits.error


@pytest.fixture
def events(shell: Shell) -> Shell:
    with closing(sqlite3.connect("roost.db")) as connection:
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, at DATETIME)")
        connection.execute("CREATE INDEX events_at ON events (at)")
        connection.execute("INSERT INTO events (at) VALUES (NULL)")
        for days in range(40):
            connection.execute("INSERT INTO events (at) VALUES (datetime('now', ?))", (f"-{days} days",))
        connection.commit()
    return shell


AGE = ("cap", "events", "--older-than", "30d", "--by", "at")


def test_rows_go_by_their_age(events: Shell) -> None:
    before = Path("roost.db").read_bytes()
    lines = events(*AGE, "--dry-run").splitlines()
    assert lines == [
        "events: 10 of 41 rows are deleted, those whose at is older than 30d",
        "1 row with NULL in at: left alone",
        "its times are taken for those of UTC; --utc-offset says otherwise",
        "rows are found by: SEARCH events USING COVERING INDEX events_at (at>? AND at<?)",
        "nothing was changed",
    ]
    assert events.json(*AGE, "--utc-offset", "-01:30", "--dry-run") == {
        "table": "events", "by": "at", "older_than": 2_592_000, "time": "plain", "offset": -90, "others": [],
        "rows": 41, "excess": 9, "keyless": 1, "capped": False,
        "index": "SEARCH events USING COVERING INDEX events_at (at>? AND at<?)",
    }  # fmt: skip
    assert Path("roost.db").read_bytes() == before
    assert events(*AGE, stdin="n\n", code=1) == ""
    assert rows("SELECT count(*) FROM events") == [(41,)]
    found = events(*AGE, stdin="y\n")
    assert found.startswith("events: 10 rows deleted in ")
    assert found.endswith("rows go when at is older than 30d, and triggers keep it so\n")
    assert events("list").splitlines()[1].split("\t") == [
        "events",
        "adopted",
        "",
        "rows of its own",
        "older_than 30d, by at",
    ]
    ((oldest, newest),) = rows("SELECT min(at), max(at) FROM events")
    assert events("show", "events").splitlines() == ["table\tover\toldest\tnewest", f"events\t0\t{oldest}\t{newest}"]
    assert events("show", "events", "events", code=1) == ""
    assert events("check") == "every promise is kept\n"
    for command in (("clear", "events", "events", "--yes"), ("alter", "events", "--keep", "3")):
        assert events(*command, code=1) == ""
        assert "events is a table of your own" in events.error
    assert events("cap", "events", "--older-than", "90d", stdin="").endswith(
        "older than 90d, and triggers keep it so\n"
    )
    assert events("cap", "events", "--older-than", "10d", stdin="", code=1) == ""
    assert "nobody answered, so nothing was changed" in events.error
    assert events("cap", "events", "--older-than", "10d", "--yes").startswith("events: 20 rows deleted in ")
    assert events("uncap", "events") == "events: not capped any more; its rows are as they were\n"
    assert rows("SELECT name FROM sqlite_master ORDER BY name") == [("events",), ("events_at",)]


@pytest.mark.parametrize(
    ("command", "columns", "number"), [((*CAP, "--newest-by", "at"), "uid, at", 300), (AGE, "at", 41)]
)
def test_a_large_table_without_an_index_is_not_held_up_unasked(
    visits: Shell, events: Shell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], columns: str, number: int
) -> None:
    monkeypatch.setattr("roost.cli.adopt.SMALL", number - 1)
    visits.sql("roost.db", "DROP INDEX events_at", "DROP INDEX visits_uid")
    assert visits(*command, "--yes", code=1) == ""
    assert f"no index on ({columns}), and making one on {number} rows holds up every writer" in visits.error
    assert f'an index would be made: CREATE INDEX "roostcap_{command[1]}" ON' in visits(*command, "--dry-run")
    assert rows(f"SELECT count(*) FROM {command[1]}") == [(number,)]
    visits(*command, "--yes", "--make-index")
    assert rows(f"SELECT name FROM sqlite_master WHERE name = 'roostcap_{command[1]}'") != []


def test_rows_go_by_age_or_by_their_number(events: Shell) -> None:
    assert events(*AGE, "--keep", "5", code=2) == ""
    assert "by --per and --keep, or by --older-than and --by, not by both" in events.error
    for wrong in (("--utc-offset", "1"), ("--utc-offset", "+15:00"), ("--older-than", "30 days")):
        assert events(*AGE, *wrong, code=2) == ""
    events(*AGE, "--yes")
    assert events("cap", "events", "--per", "id", "--keep", "5", code=1) == ""
    assert "events is capped by --older-than already" in events.error


def test_without_a_database_nothing_is_made(shell: Shell) -> None:
    assert shell(*CAP, code=1) == ""
    assert "there is no database at sqlite:///roost.db; `roost create` makes one" in shell.error
    assert shell.files() == []


def test_ctrl_c_stops_it_and_the_same_command_goes_on(shell: Shell) -> None:
    make(60_000, 500)
    busy = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT count(*) FROM n"
    shell.sql("roost.db", f"CREATE TRIGGER slow AFTER DELETE ON visits BEGIN {busy}; END")  # it takes half a minute
    process = shell.start(
        *CAP, "--newest-by", "at", "--yes",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    with process:
        until(lambda: rows("SELECT count(*) < 60000 FROM visits") == [(1,)], "the first rows are gone")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, b"")
    shell.sql("roost.db", "DROP TRIGGER slow")
    left = rows("SELECT count(*) FROM visits")[0][0]
    deleted = 60_000 - left
    assert f"visits: {deleted:,} row{'s' * (deleted > 1)} deleted in " in error.decode()
    assert error.decode().rstrip().endswith("`roost cap visits` goes on")
    assert 2500 < left < 60_000
    assert shell.json("cap", "visits", "--yes")["deleted"] == left - 2500
    assert rows("SELECT min(visitor), count(*) FROM visits") == [(57_500, 2500)]


def test_f41_what_was_agreed_to_once_is_not_asked_again(visits: Shell) -> None:
    visits(*CAP, "--newest-by", "at", "--yes")
    visits.sql(
        "roost.db", "DROP TRIGGER roostcap_visits_insert", "INSERT INTO visits SELECT NULL, 1, id, at FROM visits"
    )
    assert visits("cap", "visits", stdin="").startswith("visits: 50 rows deleted in ")
    visits.sql(
        "roost.db", "DROP TRIGGER roostcap_visits_insert", "INSERT INTO visits SELECT NULL, 1, id, at FROM visits"
    )
    assert visits("cap", "visits", "--keep", "4", stdin="", code=1) == ""
    assert "nobody answered, so nothing was changed" in visits.error
    assert visits("cap", "visits", "--newest-by", "id", stdin="", code=1) == ""
    assert visits("cap", "visits", "--keep", "6", stdin="").startswith("visits: 49 rows deleted in ")


def test_an_error_on_the_way_says_how_far_it_came(visits: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-6)
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    visits.sql(
        "roost.db",
        "CREATE TRIGGER own BEFORE DELETE ON visits WHEN OLD.id = 100 BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    )
    assert visits(*CAP, "--newest-by", "at", "--yes", code=1) == ""
    assert "not this one" in visits.error
    assert visits.error.rstrip().endswith("`roost cap visits` goes on")
    assert 5 < rows("SELECT count(*) FROM visits")[0][0] < 300
    visits.sql("roost.db", "DROP TRIGGER own")
    visits("cap", "visits", "--yes")
    assert rows("SELECT min(visitor), count(*) FROM visits") == [(250, 50)]
