"""Structures of Roost over the wire: their promises hold, and the library sees what clients did."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import tests.latest  # noqa: F401 - registers its kind, as an entry point does
from roost.protocols.handlersocket.opened import Session
from tests.index.databases import NAMES, Database, database
from tests.server.playing import Bench, bench

DECLARED = """
import datetime as dt, sys
from dataclasses import dataclass
import roost
from tests.latest import Latest

@dataclass
class Visit:
    uid: int
    visitor: int
    note: str | None = None

visitors = roost.Capped("visitors", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
carts = roost.Capped("carts", Visit, per="uid", keep=2, unique="visitor", on_full="reject")
events = roost.Ring("events", Visit, per="uid", keep=3)
pageviews = roost.Counter("pageviews")
likes = roost.Set("likes", key=int)

@dataclass
class Score:
    board: str
    player: int
    points: int

best = roost.Capped("best", Score, per="board", keep=2, unique="player", order="points", on_duplicate="best")
pages = roost.Cache("pages", value=str)
views = roost.Counter("views", window=dt.timedelta(days=366), keep=3)
online = roost.Set("online", member=int, keep_for=dt.timedelta(days=1))
logins, jobs = roost.RateLimit("logins", key=int, limit=3, within=86400), roost.Lease("jobs")
moods = Latest("moods", key=int, value=roost.text(20))
EVERY = visitors, carts, events, pageviews, likes, best, views, pages, online, logins, jobs, moods
store = roost.Store(sys.argv[1])

def begin():  # with every structure, as it is declared, and nothing in them
    store.create(*EVERY)
    for each in EVERY:
        for key in store.run(each.keys()):
            store.run(each.forget(key))
"""
OPENED = [
    *("P\t0\tmain\tvisitors\tPRIMARY\tuid,visitor,note", "P\t1\tmain\tcarts\tPRIMARY\tuid,visitor"),
    *("P\t2\tmain\tevents\tPRIMARY\tuid,visitor", "P\t3\tmain\tpageviews\tPRIMARY\tkey,total"),
    *("P\t4\tmain\tlikes\tPRIMARY\tkey,member", "P\t5\tmain\tevents\tPRIMARY\tsequence,visitor"),
]


# SQLite may be open in a process by one library alone: `apsw` is the server's, `sqlite3` the stores'.
PROGRAMS = """
import json, sys, traceback
for asked in map(json.loads, sys.stdin):
    names = {}
    try:
        sys.argv[1] = asked["url"]
        exec(asked["declared"] + asked["lines"], names)
        found = {"result": eval(asked["last"], names)}
    except Exception:
        found = {"error": traceback.format_exc()}
    finally:
        names["store"].close()
    print(json.dumps(found), flush=True)
"""


@functools.cache
def _interpreter() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAMS, ""]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(made.kill)
    return made


def library(url: str, program: str) -> Any:
    """Run lines of the library in a process that is not the server's, and return the last as JSON."""
    *lines, last = program.strip().splitlines()
    asked = {"url": url, "declared": DECLARED, "lines": "\n".join(lines), "last": last}
    process = _interpreter()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    found = json.loads(process.stdout.readline())
    assert "result" in found, found["error"]
    return found["result"]


@pytest.fixture(scope="module", params=NAMES)
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database of each kind, which the tests share: to make a dozen structures takes longer than to use them."""
    with database(request.param, tmp_path_factory.mktemp("structures")) as made:
        yield made


@pytest.fixture
def write(db: Database) -> Iterator[Bench]:
    library(db.url, "begin()\n1")
    with closing(bench(db, "write")) as made:
        yield made


@pytest.fixture
def session(write: Bench) -> Session:
    made = write.session()
    assert write.say(made, "\n".join(OPENED)) == ["0\t1"] * len(OPENED)
    return made


def say(write: Bench, session: Session, *lines: str) -> list[str]:
    return write.say(session, "\n".join(lines))


def test_inserting_evicts_refreshes_pushes_and_counts(write: Bench, session: Session) -> None:
    lines = [line for n in range(5) for line in (f"0\t+\t2\t7\t{n}", f"2\t+\t2\t7\t{n}", "3\t+\t2\t/home\t2")]
    assert say(write, session, *lines) == [answer for n in range(5) for answer in ("0\t1", f"0\t1\t{n + 1}", "0\t1")]
    assert say(write, session, "0\t+\t2\t7\t3", "0\t=\t1\t7\t9\t0") == ["0\t1", "0\t3\t7\t3\t\0\t7\t4\t\0\t7\t2\t\0"]
    assert say(write, session, "2\t=\t1\t7\t2\t1", "5\t=\t1\t7\t2\t0", "3\t=\t1\t/home", "3\t=\t1\t/none") == [
        *("0\t2\t7\t3\t7\t2", "0\t2\t5\t4\t4\t3", "0\t2\t/home\t10", "0\t2\t/none\t0"),
    ]
    assert library(
        write.where.url,
        "[[v.visitor for v in store.run(visitors.latest(7))], store.run(pageviews.total('/home')), len(store.check())]",
    ) == [[3, 4, 2], 10, 0]


def test_what_many_connections_insert_in_one_turn_is_answered_to_each(write: Bench, session: Session) -> None:
    sessions = [session, *[write.session() for _ in range(2)]]
    for each in sessions[1:]:
        say(write, each, *OPENED)
    answers: Any = [
        ("3\t+\t2\t/home\t1", "0\t1"),
        ("3\t+\t2\t/home\tx", "1\t1\ttype"),
        ("3\t+\t2\t/home\t\0", "0\t1"),
        ("3\t+\t2\t\0\t1", "1\t1\tnotnull"),
        ("3\t+\t2\t/home\t+2", "0\t1"),
        (f"3\t+\t2\t/home\t{2**63 - 5}", "1\t1\trange"),
        ("3\t+\t2\t/home\t1", "0\t1"),
        (f"3\t+\t2\t/home\t{10**19}", "1\t1\ttype"),
    ]
    played = write.play(*[(each, "\n".join([line for line, _ in answers[n::3]])) for n, each in enumerate(sessions)])
    assert played.texts == ["".join([f"{answer}\n" for _, answer in answers[n::3]]) for n in range(3)]
    played = write.play(*[(each, f"2\t+\t2\t7\t{n}\n2\t+\t2\t8\t{n}") for n, each in enumerate(sessions)])
    assert played.texts == [f"0\t1\t{n}\n0\t1\t{n}\n" for n in (1, 2, 3)]
    played = write.play(*[(each, f"1\t+\t2\t7\t{n // 2}\n1\t+\t2\t7\t{n}") for n, each in enumerate(sessions)])
    assert played.texts == ["0\t1\n1\t1\t121\n", "1\t1\t121\n0\t1\n", "1\t1\t121\n1\t1\tfull\n"]
    assert library(write.where.url, "[v.visitor for v in store.run(events.latest(7))]") == [2, 1, 0]


def test_one_row_and_one_member_are_found_and_removed(write: Bench, session: Session) -> None:
    say(write, session, *[f"0\t+\t3\t7\t{n}\tn{n}" for n in range(3)], *[f"4\t+\t2\t7\tm{n}" for n in range(3)])
    assert say(write, session, "0\t=\t2\t7\t1", "0\t=\t2\t7\t9", "4\t=\t2\t7\tm1", "4\t=\t2\t7\tm9") == [
        *("0\t3\t7\t1\tn1", "0\t3", "0\t2\t7\tm1", "0\t2"),
    ]
    assert say(write, session, "0\t=\t2\t7\t1\t1\t0\tD?", "4\t=\t1\t7\t2\t0\tD", "4\t=\t1\t7\t9\t0") == [
        "0\t3\t7\t1\tn1",
        "0\t1\t2",
        "0\t2\t7\tm2",
    ]
    assert (
        say(write, session, "0\t=\t1\t7\t9\t0", "0\t=\t1\t0\t9\t0\t@\t0\t3\t8\t7\tabc")
        == ["0\t3\t7\t2\tn2\t7\t0\tn0"] * 2
    )
    assert library(write.where.url, "[store.run(visitors.count(7)), store.run(likes.size(7)), len(store.check())]") == [
        2,
        1,
        0,
    ]


def test_the_best_are_found_best_first(write: Bench, session: Session) -> None:
    opened = ["P\t6\tmain\tbest\tPRIMARY\tboard,player,points", "P\t7\tmain\tbest\tPRIMARY\tsequence,player"]
    added = [f"6\t+\t3\tgo\t{player}\t{points}" for player, points in [(1, 5), (2, 5), (3, 9), (4, 5)]]
    assert say(write, session, *opened, *added) == ["0\t1"] * 6
    assert say(write, session, "6\t=\t1\tgo\t9\t0", "7\t=\t1\tgo\t9\t0", "6\t=\t2\tgo\t1") == [
        "0\t3\tgo\t3\t9\tgo\t1\t5",
        "0\t2\t3\t3\t1\t1",
        "0\t3\tgo\t1\t5",
    ]
    assert say(write, session, "6\t=\t2\tgo\t3\t1\t0\tD", "6\t=\t1\tgo\t9\t0") == ["0\t1\t1", "0\t3\tgo\t1\t5"]


def test_a_windowed_counter_opens_as_a_counter(write: Bench, session: Session) -> None:
    lines = ["P\t8\tmain\tviews\tPRIMARY\tkey,total", "8\t+\t2\t/home\t5", "8\t=\t1\t/home\t1\t0\t+\t\0\t2"]
    assert say(write, session, *lines, "8\t=\t1\t/home") == ["0\t1", "0\t1", "0\t1\t1", "0\t2\t/home\t7"]
    assert say(write, session, "8\t=\t1\t/home\t1\t0\tD", "8\t=\t1\t/home") == ["0\t1\t1", "0\t2\t/home\t0"]


def test_an_expiring_set_opens_as_a_set(write: Bench, session: Session) -> None:
    lines = ["P\t9\tmain\tonline\tPRIMARY\tkey,member", *[f"9\t+\t2\tchat\t{n}" for n in (7, 8, 9)], "9\t+\t2\tchat\t7"]
    assert say(write, session, *lines, "9\t=\t2\tchat\t9\t1\t0\tD") == ["0\t1"] * 5 + ["0\t1\t1"]
    assert say(write, session, "9\t=\t1\tchat\t9\t0", "9\t=\t2\tchat\t9") == ["0\t2\tchat\t7\tchat\t8", "0\t2"]
    write.sql("UPDATE roost_online_clock SET ahead = 86400000000")
    assert say(write, session, "9\t=\t1\tchat\t9\t0", "9\t=\t2\tchat\t7", "9\t+\t2\tchat\t7") == [
        "0\t2",
        "0\t2",
        "0\t1",
    ]
    assert say(write, session, "9\t=\t1\tchat\t9\t0") == ["0\t2\tchat\t7"]
    assert library(write.where.url, "[store.run(online.size('chat')), len(store.check())]") == [1, 0]


def test_a_full_collection_and_a_duplicate_cost_themselves_alone(write: Bench, session: Session) -> None:
    lines = ["1\t+\t2\t7\t1", "1\t+\t2\t7\t1", "1\t+\t2\t7\t2", "1\t+\t2\t7\t3", "2\t+\t2\t7\t1"]
    assert say(write, session, *lines) == ["0\t1", "1\t1\t121", "0\t1", "1\t1\tfull", "0\t1\t1"]


def test_a_total_is_added_to_and_never_taken_across_zero(write: Bench, session: Session) -> None:
    add = "3\t=\t1\t/home\t1\t0\t+\t\0\t5"
    assert say(write, session, add, "3\t=\t1\t/home\t1\t0\t-\t\0\t6", "3\t=\t1\t/home\t1\t0\t-?\t\0\t5") == [
        "0\t1\t1",
        "0\t1\t0",
        "0\t2\t/home\t5",
    ]
    assert say(write, session, add, "3\t=\t1\t/home\t1\t0\tD", "3\t=\t1\t/home") == [
        "0\t1\t1",
        "0\t1\t1",
        "0\t2\t/home\t0",
    ]
    most = f"3\t+\t2\t/home\t{2**63 - 1}"
    assert say(write, session, most, "3\t+\t2\t/home\t1") == ["0\t1", "1\t1\trange"]
    assert say(write, session, "3\t=\t1\t/home") == [f"0\t2\t/home\t{2**63 - 1}"]


REFUSED = [
    ("0\t>\t1\t7", "2\t1\tnotimpl"),
    ("0\t=\t1\t7\t1\t0\tU\t8", "2\t1\tnotimpl"),
    ("0\t=\t1\t7\t1\t0\t+\t8", "2\t1\tnotimpl"),
    ("2\t=\t1\t7\t1\t0\tD", "2\t1\tnotimpl"),
    ("5\t+\t2\t9\t1", "2\t1\tnotimpl"),
    ("0\t=\t3\t7\t1\t1", "2\t1\tkpnum"),
    ("0\t+\t2\tabc\t1", "1\t1\ttype"),
    ("0\t+\t2\t\0\t1", "1\t1\tnotnull"),
    ("0\t+\t1\t7", "1\t1\tnotnull"),
    (f"3\t+\t2\t{'x' * 256}\t1", "1\t1\ttype"),
    ("3\t+\t2\t\udcff\t1", "1\t1\ttype"),
    ("3\t=\t1\t/home\t1\t0\t+\t\0\tmany", "1\t1\ttype"),
    ("0\t=\t1\tabc", "0\t3"),
]


def test_what_has_no_meaning_or_cannot_be_stored(write: Bench, session: Session) -> None:
    for line, answer in REFUSED:
        answers = say(write, session, "0\t+\t2\t7\t1", line, "0\t=\t1\t7")
        assert answers == ["0\t1", answer, "0\t3\t7\t1\t\0"], line


OPENINGS = [
    ("P\t9\tmain\tlikes\tby_member\tkey", "2\t1\tidxnum"),
    ("P\t9\tmain\tlikes\t\tkey,member", "0\t1"),
    ("P\t9\tmain\tlikes\tPRIMARY\ttotal", "2\t1\tfld"),
    ("P\t9\tmain\troost_likes_rows\tPRIMARY\tkey", "1\t1\topen_table"),
    ("P\t9\tmain\troost_catalog\tPRIMARY\tname", "1\t1\topen_table"),
]


def test_opening(write: Bench, session: Session) -> None:
    for line, answer in OPENINGS:
        assert say(write, session, line) == [answer], line


def test_a_changed_declaration_is_seen_by_the_next_request(write: Bench, session: Session) -> None:
    say(write, session, *[f"0\t+\t2\t7\t{n}" for n in range(3)])
    library(
        write.where.url,
        'store.alter(roost.Capped("visitors", Visit, per="uid", keep=1, unique="visitor", on_duplicate="refresh"))\n1',
    )
    assert say(write, session, "0\t+\t2\t7\t9", "0\t=\t1\t7\t9\t0") == ["0\t1", "0\t3\t7\t9\t\0"]
    assert library(write.where.url, "store.alter(visitors)\nlen(store.check())") == 0


def test_a_structure_that_is_dropped_is_gone(write: Bench, session: Session) -> None:
    library(write.where.url, "store.drop(likes)\n1")
    assert say(write, session, "4\t+\t2\t7\tm", "3\t+\t1\t/home") == ["1\t1\topen_table", "0\t1"]


@pytest.mark.parametrize("tail", ["", "\t1\t0", "\t5\t0\t@\t1\t1\t7"])
def test_f58_a_row_that_is_found_by_its_id_has_its_sequence_and_moment(write: Bench, tail: str) -> None:
    session = write.session()
    lines = ["P\t0\tmain\tvisitors\tPRIMARY\tuid,visitor,note", "P\t1\tmain\tvisitors\t\tvisitor,sequence,at"]
    assert write.say(session, "\n".join(lines)) == ["0\t1", "0\t1"]
    assert write.say(session, "\n".join([f"0\t+\t3\t5\t{visitor}\t\0" for visitor in (6, 7, 8)])) == ["0\t1"] * 3
    (listed,) = write.say(session, "1\t=\t1\t5\t9\t0")
    rows = [listed.split("\t")[2:][at : at + 3] for at in (0, 3, 6)]
    assert [row[:2] for row in rows] == [["8", "3"], ["7", "2"], ["6", "1"]]
    wanted = "\t".join(["0\t3", *rows[1]])
    assert write.say(session, f"1\t=\t2\t5\t7{tail}") == [wanted]
    assert write.say(session, "1\t=\t2\t5\t99") == ["0\t3"]
    deleting = f"1\t=\t2\t5\t7{tail or chr(9).join(['', '1', '0'])}\tD?"
    assert write.say(session, f"{deleting}\n{deleting}") == [wanted, "0\t3"]
    assert write.say(session, "0\t=\t1\t5\t9\t0") == ["0\t3\t5\t8\t\0\t5\t6\t\0"]


def test_a_key_is_answered_as_it_is_stored_however_a_client_writes_it(write: Bench) -> None:
    """A moment was answered in the client's zone, as if it were UTC, and 1_0 taken for the Decimal 10."""
    declared = """
moments, prices = roost.Counter("moments", key=dt.datetime), roost.Counter("prices", key=roost.decimal(12, 2))
store.create(moments, prices)
1"""
    assert library(write.where.url, declared) == 1
    session = write.session()
    lines = [f"P\t{n}\tmain\t{name}\tPRIMARY\tkey,total" for n, name in enumerate(("moments", "prices"))]
    east, far = "2008-01-01T02:00:00+02:00", "9999-12-31T23:30:00-01:00"
    lines += [f"0\t+\t2\t{east}\t3", f"0\t=\t1\t{east}", f"0\t=\t1\t{far}", "1\t+\t2\t1e1\t4", "1\t=\t1\t10"]
    lines += ["1\t=\t1\t1_0", "1\t=\t1\tNaN", "1\t+\t2\t1_0\t4"]
    assert write.say(session, "\n".join(lines)) == [
        *["0\t1"] * 3,
        "0\t2\t2008-01-01 00:00:00.000000\t3",
        "0\t2",
        *["0\t1", "0\t2\t10.00\t4"],
        *["0\t2", "0\t2", "1\t1\ttype"],
    ]
    assert library(write.where.url, declared.replace("\n1", "\nstore.drop(moments, prices)\n1")) == 1


def test_a_whole_number_is_taken_with_all_its_digits_or_not_at_all(write: Bench, session: Session) -> None:
    """2^53 + 1 written with a point became 2^53."""
    lines = ["4\t+\t2\t9007199254740993.0\ta", "4\t+\t2\t-1e18\tb", "4\t+\t2\t1.5\tc", "4\t=\t1\t9007199254740993"]
    assert write.say(session, "\n".join([*lines, "4\t=\t1\t9007199254740992", "4\t=\t1\t-1000000000000000000"])) == [
        *["0\t1", "0\t1", "1\t1\ttype"],
        *["0\t2\t9007199254740993\ta", "0\t2", "0\t2\t-1000000000000000000\tb"],
    ]
    assert say(write, session, "4\t=\t1\t99999999999999999999", "4\t+\t2\t9223372036854775808\tc") == [
        "0\t2",
        "1\t1\ttype",
    ]


def test_a_cache(db: Database, write: Bench, session: Session) -> None:
    assert write.say(session, "P\t9\tmain\tpages\tPRIMARY\tkey,value") == ["0\t1"]
    assert write.say(session, "9\t+\t2\t/home\tHome\n9\t+\t2\t/home\tHome 2\n9\t=\t1\t/home") == [
        "0\t1",
        "0\t1",
        "0\t2\t/home\tHome 2",
    ]
    assert library(db.url, "store.run(pages.get('/home'))") == "Home 2"
    assert library(db.url, "store.run(pages.set('/about', 'About', ttl=60))\n1") == 1
    assert write.say(session, "9\t=\t1\t/about\n9\t=\t1\t/home\t1\t0\tD\n9\t=\t1\t/home") == [
        "0\t2\t/about\tAbout",
        "0\t1\t1",
        "0\t2",
    ]
    assert library(db.url, "store.run(pages.keys())") == ["/about"]


def test_a_rate_limit_and_a_lease_are_found_and_deleting_gives_back_or_ends(write: Bench, session: Session) -> None:
    taking = (
        "store.run_all(logins.take(7, 2), jobs.acquire('daily', 'ada', 86400))\nstore.run(jobs.peek('daily')).token"
    )
    token = library(write.where.url, taking)
    lines = ["P\t9\tmain\tlogins\tPRIMARY\tkey,remaining,retry_after", "9\t=\t1\t7", "9\t=\t1\t8"]
    assert say(write, session, *lines) == ["0\t1", "0\t3\t7\t1\t0.0", "0\t3\t8\t3\t0.0"]
    assert say(write, session, "9\t+\t1\t7", "9\t=\t1\t7\t1\t0\tU\t8") == ["2\t1\tnotimpl"] * 2
    assert say(write, session, "9\t=\t1\t7\t1\t0\tD", "9\t=\t1\t7") == ["0\t1\t1", "0\t3\t7\t3\t0.0"]
    lines = ["P\t9\tmain\tjobs\tPRIMARY\tkey,holder,token", "9\t=\t1\tdaily", "9\t=\t1\tweekly"]
    assert say(write, session, *lines) == ["0\t1", f"0\t3\tdaily\tada\t{token}", "0\t3"]
    assert say(write, session, "9\t+\t2\tdaily\tbob", "9\t=\t1\tdaily\t1\t0\tU\tx") == ["2\t1\tnotimpl"] * 2
    assert say(write, session, "9\t=\t1\tdaily\t1\t0\tD", "9\t=\t1\tdaily") == ["0\t1\t1", "0\t3"]


OWN = [  # of a structure that is not Roost's own
    ("P\t9\tmain\tmoods\tPRIMARY\tkey,value", "0\t1"),
    ("P\t8\tmain\tmoods\tPRIMARY\tnope", "2\t1\tfld"),
    (f"9\t+\t2\t7\t{'x' * 21}", "1\t1\ttype"),
    ("9\t+\t2\tseven\tcalm", "1\t1\ttype"),
    ("9\t+\t1\t7", "1\t1\tnotnull"),
    ("9\t=\t1\t7\t1\t0\tU\t8", "2\t1\tnotimpl"),
    ("9\t>\t1\t7", "2\t1\tnotimpl"),
    ("9\t=\t1\t7", "0\t2"),
    ("9\t+\t2\t7\tcalm", "0\t1"),
    ("9\t=\t1\t7", "0\t2\t7\tcalm"),
    ("9\t+\t2\t7\tglad", "0\t1"),
    ("9\t+\t2\t8\tsad", "0\t1"),
    ("9\t=\t1\t7\t9\t0\t@\t0\t3\t8\t9\t7", "0\t2\t8\tsad\t7\tglad"),
    ("9\t=\t1\t7\t1\t0\tD?", "0\t2\t7\tglad"),
    ("9\t=\t1\t7\t1\t0\tD", "0\t1\t0"),
    ("9\t=\t1\t7", "0\t2"),
    ("9\t=\t1\t8", "0\t2\t8\tsad"),
]


def test_a_structure_of_ones_own(write: Bench, session: Session) -> None:
    assert say(write, session, *[line for line, _ in OWN]) == [answer for _, answer in OWN]
