"""list, show, check: what they print for people, for a pipe and as JSON."""

from __future__ import annotations

import datetime as dt
import enum
import os
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

import roost
from tests import servers
from tests.cli.conftest import Shell

NOW = dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=dt.UTC)


class Page(NamedTuple):
    site: int
    path: str


class Colour(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark blue"


@dataclass(frozen=True)
class Thing:
    site: int
    path: str
    moment: dt.datetime
    price: Annotated[Decimal, roost.decimal(12, 7)]
    digest: bytes
    who: uuid.UUID
    colour: Colour
    flag: bool
    note: str | None = None


THING = Thing(7, "/a,b", NOW, Decimal("0.0000005"), b"\x00\xff", uuid.UUID(int=5), Colour.DARK_BLUE, True)
THING_AS_JSON = {
    "site": 7,
    "path": "/a,b",
    "moment": "2008-01-01T22:03:23+00:00",
    "price": "0.0000005",
    "digest": "00ff",
    "who": "00000000-0000-0000-0000-000000000005",
    "colour": "dark blue",
    "flag": True,
    "note": None,
}

hits = roost.Counter("hits", key=Page)
views = roost.Counter("views")
things = roost.Ring("things", Thing, per=("site", "path"), keep=3)
baskets = roost.Capped("baskets", Thing, per="site", keep=2, unique="path")
likes = roost.Set("likes", key=Colour)
days = roost.Set("days", key=int, member=Colour)
steps = roost.Ring("steps", Thing, per="moment", keep=2)


@pytest.fixture
def filled(shell: Shell) -> Shell:
    with roost.Store("sqlite:///roost.db", clock=lambda: NOW) as store:
        store.create(hits, views, things, baskets, likes, days, steps)
        store.run_all(hits.add(Page(7, "/a,b"), 2**62), hits.add(Page(7, "/c"), 5), views.add("a\tb\x1b[31m", 3))
        store.run_all(*[things.push(THING) for _ in range(5)], baskets.add(THING), steps.push(THING))
        store.run_all(*[views.add(f"page {number:03}") for number in range(30)])
        store.run_all(likes.add(Colour.RED, "bob", "ada"), likes.add(Colour.DARK_BLUE, "cy"), days.add(1, *Colour))
        store.run_all(likes.remove(Colour.DARK_BLUE, "cy"), things.push(THING), things.clear(Page(7, "/a,b")))
        store.run_all(things.push(THING), things.push(THING))
    return shell


def test_list_in_a_pipe(filled: Shell) -> None:
    assert filled("list").splitlines()[:4] == [
        "name\tkind\tkey\tholds\trules",
        "baskets\tcapped\tsite int\tpath text(255), moment datetime, price decimal(12,7), digest binary(1000000), "
        'who uuid, colour enum("red","dark blue"), flag bool, note text(1000000)?\t'
        "keep 2, unique path, on_full evict, on_duplicate error",
        'days\tset\tkey int\tmember enum("red","dark blue")\t',
        "hits\tcounter\tsite int, path text(255)\t\t",
    ]


def test_list_of_nothing(shell: Shell) -> None:
    shell.sql("roost.db", "CREATE TABLE other (x)")
    assert shell.json("list") == []
    assert shell("list") == "name\tkind\tkey\tholds\trules\n"


@pytest.mark.parametrize("key", ["7,/c", '[7, "/c"]', '["7", "/c"]', "7, /c".replace(" ", "")])
def test_show_a_key_of_a_counter(filled: Shell, key: str) -> None:
    assert filled.json("show", "hits", key) == {"structure": "hits", "key": [7, "/c"], "total": 5}
    assert filled("show", "hits", key) == "total\n5\n"


@pytest.mark.parametrize("key", ['7,"/a,b"', '[7,"/a,b"]'])
def test_show_a_key_with_a_comma_in_it(filled: Shell, key: str) -> None:
    assert filled.json("show", "hits", key)["total"] == 2**62


def test_show_a_key_that_is_not_there(filled: Shell) -> None:
    assert filled.json("show", "hits", "1,/none")["total"] == 0
    assert filled.json("show", "things", "1,/none")["entries"] == []
    assert filled.json("show", "days", "5")["members"] == []


def test_show_a_key_of_rows_newest_first(filled: Shell) -> None:
    entry = {"at": "2008-01-01T22:03:23+00:00", "row": THING_AS_JSON}
    assert filled.json("show", "things", '[7,"/a,b"]') == {
        "structure": "things",
        "key": [7, "/a,b"],
        "entries": [{"sequence": 8} | entry, {"sequence": 7} | entry],
    }
    assert [each["sequence"] for each in filled.json("show", "things", '[7,"/a,b"]', "--n", "1")["entries"]] == [8]
    assert filled.json("show", "baskets", "7")["entries"] == [{"sequence": 1} | entry]
    assert filled("show", "baskets", "7") == (
        "sequence\tat\tpath\tmoment\tprice\tdigest\twho\tcolour\tflag\tnote\n"
        "1\t2008-01-01T22:03:23+00:00\t/a,b\t2008-01-01T22:03:23+00:00\t0.0000005\t00ff\t"
        "00000000-0000-0000-0000-000000000005\tdark blue\ttrue\t\n"
    )


@pytest.mark.parametrize("key", ["2008-01-01T22:03:23Z", "2008-01-01T23:03:23+01:00", "1199225003"])
def test_show_a_key_that_is_a_moment(filled: Shell, key: str) -> None:
    assert len(filled.json("show", "steps", key)["entries"]) == 1


def test_show_a_key_of_a_set(filled: Shell) -> None:
    assert filled.json("show", "likes", "red") == {"structure": "likes", "key": "red", "members": ["ada", "bob"]}
    assert filled.json("show", "likes", "red", "--n", "1")["members"] == ["ada"]
    assert filled("show", "days", "1") == "member\ndark blue\nred\n"


def test_show_the_first_keys_and_turn_the_page(filled: Shell) -> None:
    first = filled.json("show", "views")
    assert len(first) == 20
    assert first[0] == {"key": "a\tb\x1b[31m", "total": 3}
    assert first[1] == {"key": "page 000", "total": 1}
    rest = filled.json("show", "views", "--after", first[-1]["key"])
    assert [each["key"] for each in rest] == [f"page {number:03}" for number in range(19, 30)]
    assert [each["key"] for each in filled.json("show", "views", "--after", "page 010", "--n", "2")] == [
        "page 011",
        "page 012",
    ]
    assert filled.json("show", "hits", "--after", "7,/b") == [{"key": [7, "/c"], "total": 5}]


def test_show_the_keys_with_what_they_hold(filled: Shell) -> None:
    first = {"sequence": 8, "at": "2008-01-01T22:03:23+00:00", "row": THING_AS_JSON}
    assert filled.json("show", "things") == [{"key": [7, "/a,b"], "rows": 2, "first": first}]
    assert filled.json("show", "likes") == [{"key": "dark blue", "size": 0}, {"key": "red", "size": 2}]
    filled("clear", "things", '[7,"/a,b"]', "--yes")
    assert filled.json("show", "things") == [{"key": [7, "/a,b"], "rows": 0, "first": None}]
    assert filled("show", "things").splitlines()[1] == "7\t/a,b\t0" + "\t" * 9
    assert filled("show", "hits") == "site\tpath\ttotal\n7\t/a,b\t4611686018427387904\n7\t/c\t5\n"


def test_what_is_shown_cannot_command_the_terminal(filled: Shell) -> None:
    assert filled("show", "views", "--n", "1") == "key\ttotal\na\\tb\\x1b[31m\t3\n"
    shown = filled("show", "views", "--n", "1", env={"TTY_COMPATIBLE": "1", "COLUMNS": "80"})
    assert "a\\tb\\x1b[31m" in shown
    assert "views: 1 key, the next ones with --after" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("hits", "7"), 1, "error: hits: '7' is not a key; it takes site, path, with commas between or as a JSON list"),
        (("hits", "7,/a,b"), 1, "error: hits: '7,/a,b' is not a key"),
        (("hits", "[7"), 1, "error: hits: '[7' is not a key"),
        (("hits", "[[7], 8]"), 1, "error: hits.site: ['7'] is not a whole number"),
        (("hits", "[7, 8]"), 1, "error: hits.path: 8 is not text"),
        (("hits", "x,/c"), 1, "error: hits.site: 'x' is not a whole number"),
        (("days", "99999999999999999999"), 1, "does not fit in 64 bits"),
        (("likes", "green"), 1, "error: likes.key: 'green' is not one of red, dark blue"),
        (("views", "x" * 256), 1, "has 256 characters; the limit is 255"),
        (("views", "a", "--after", "b"), 2, "it cannot be used with a KEY"),
    ],
)
def test_a_key_that_is_none_is_told(filled: Shell, arguments: tuple[str, ...], code: int, message: str) -> None:
    assert filled("show", *arguments, code=code) == ""
    assert message in filled.error


def test_check_of_what_is_whole(filled: Shell) -> None:
    assert filled("check") == "every promise is kept\n"
    assert filled("check", "hits", "things") == "every promise is kept\n"
    assert filled.json("check") == []


def test_check_lists_what_is_broken(shell: Shell) -> None:
    store = ("--store", "sqlite:///broken.db")
    shell("create", "set", "likes", "--key", "int", *store)
    shell("create", "counter", "hits", *store)
    shell("import", "likes", "-", "--format", "csv", *store, stdin="key,member\n7,ada\n7,bob\n8,cy\n")
    shell.sql("broken.db", "DELETE FROM roost_likes_rows WHERE member = 'bob'")
    violation = {"structure": "likes", "rule": "count", "key": 7, "detail": "the head says 2, there are 1"}
    assert shell.json("check", *store, code=1) == [violation]
    assert shell("check", "likes", *store, code=1) == (
        "structure\trule\tkey\tdetail\nlikes\tcount\t7\tthe head says 2, there are 1\n"
    )
    assert shell.error == ""
    assert shell("check", "hits", *store) == "every promise is kept\n"


def test_reading_leaves_no_file_behind(filled: Shell) -> None:
    before = filled.files()
    for arguments in (("list",), ("show", "hits"), ("show", "hits", "7,/c"), ("check",)):
        filled(*arguments)
    assert filled.files() == before


def test_every_command_that_reads_answers_with_one_json_document(filled: Shell) -> None:
    documents: list[Any] = [
        filled.json(*arguments) for arguments in (("list",), ("show", "hits"), ("show", "hits", "7,/c"), ("check",))
    ]
    assert [type(document) for document in documents] == [list, list, dict, list]


def test_a_leaderboard_is_made_filled_and_shown_best_first(shell: Shell) -> None:
    options = ("--per", "board:text(9)", "--unique", "player:int", "--column", "points:int")
    shell("create", "capped", "best", *options, "--keep", "2", "--order", "points", "--on-duplicate", "best")
    lines = "".join(f'{{"board": "go", "player": {n}, "points": {n * 7 % 5}}}\n' for n in range(1, 5))
    shell("import", "best", "-", "--format", "jsonl", stdin=lines)
    shown = [each["row"] for each in shell.json("show", "best", "go")["entries"]]
    assert shown == [{"board": "go", "player": 2, "points": 4}, {"board": "go", "player": 4, "points": 3}]
    (board,) = shell.json("show", "best")
    assert (board["rows"], board["first"]["row"]) == (2, shown[0])
    assert "on_duplicate best, order points" in shell("list")
    shell("alter", "best", "--keep", "1", "--yes")
    assert [each["row"]["player"] for each in shell.json("show", "best", "go")["entries"]] == [2]
    assert shell.json("check") == []


def test_an_expiring_set_is_made_filled_shown_and_altered(shell: Shell) -> None:
    shell("create", "set", "online", "--member", "int", "--keep", "5", "--keep-for", "30d")
    shell("import", "online", "-", "--format", "jsonl", stdin='{"key": "chat", "member": 7}\n')
    assert shell.json("show", "online") == [{"key": "chat", "size": 1}]
    assert shell.json("show", "online", "chat")["members"] == [7]
    assert "keep 5, keep_for 30d" in shell("list")
    shell("alter", "online", "--keep", "3", code=1)
    assert "members beyond the newest 3 of each key are deleted" in shell.error
    shell("alter", "online", "--keep-for", "1h", code=1)
    assert "members that were written longer than 1h ago are deleted" in shell.error
    assert "keep_for: 30d -> 1h" in shell("alter", "online", "--keep-for", "1h", "--yes")
    shell("alter", "online", "--keep-for", "2h")
    shell("create", "set", "seen", "--keep-for", "soon", code=2)
    assert "'soon' is no time" in shell.error
    assert shell.json("check") == []


def test_an_expiring_ring_is_made_filled_shown_and_altered(shell: Shell) -> None:
    options = ("--per", "uid:int", "--column", "visitor:int", "--keep", "2", "--keep-for", "30d")
    shell("create", "ring", "visits", *options)
    lines = "".join(f'{{"uid": 5, "visitor": {n}}}\n' for n in range(3))
    shell("import", "visits", "-", "--format", "jsonl", stdin=lines)
    assert [each["row"]["visitor"] for each in shell.json("show", "visits", "5")["entries"]] == [2, 1]
    assert shell.json("show", "visits")[0]["rows"] == 2
    assert "keep 2, keep_for 30d" in shell("list")
    shell("alter", "visits", "--keep", "1", "--keep-for", "1h", code=1)
    assert "rows beyond the newest 1 of each key are deleted and rows that were written longer than" in shell.error
    shell("alter", "visits", "--keep", "1", "--keep-for", "1h", "--add", "note:int=7", "--yes")
    assert [each["row"]["note"] for each in shell.json("show", "visits", "5")["entries"]] == [7]
    assert shell.json("check") == []


def test_an_expiring_capped_collection_is_made_filled_shown_and_altered(shell: Shell) -> None:
    options = ("--per", "uid:int", "--unique", "visitor:int", "--keep", "2", "--keep-for", "30d")
    shell("create", "capped", "visits", *options, "--on-duplicate", "refresh")
    lines = "".join(f'{{"uid": 5, "visitor": {n}}}\n' for n in (0, 1, 2, 1))
    shell("import", "visits", "-", "--format", "jsonl", stdin=lines)
    assert [each["row"]["visitor"] for each in shell.json("show", "visits", "5")["entries"]] == [1, 2]
    assert "on_duplicate refresh, keep_for 30d" in shell("list")
    shell("alter", "visits", "--keep-for", "1h", "--add", "note:int=7", "--on-full", "reject", "--yes")
    assert [each["row"]["note"] for each in shell.json("show", "visits", "5")["entries"]] == [7, 7]
    assert shell.json("check") == []


def test_a_windowed_counter_is_made_filled_and_shown(shell: Shell) -> None:
    shell("create", "counter", "views", "--window", "365d", "--keep", "3")
    shell(
        "import",
        "views",
        "-",
        "--format",
        "jsonl",
        stdin='{"key": "/home", "total": 5}\n{"key": "/home", "total": null}\n',
    )
    assert shell.json("show", "views") == [{"key": "/home", "total": 6}]
    shown = shell.json("show", "views", "/home")
    assert shown["total"] == 6
    assert [window["total"] for window in shown["windows"]] == [6]
    assert "window 365d, keep 3" in shell("list")
    shell("alter", "views", "--keep", "2", "--yes")
    shell("create", "counter", "weeks", "--window", "week", "--keep", "3", code=2)
    assert "'week' is no window: minute, hour, day, or a whole number with s, m, h or d" in shell.error
    shell("create", "counter", "years", "--window", "367d", "--keep", "3", code=1)
    assert "window is 'minute', 'hour', 'day'" in shell.error
    assert shell.json("check") == []


def test_an_account_that_may_not_read_the_catalog_is_told_so(shell: Shell) -> None:
    with servers.database("postgresql") as url:
        role = f"reader{os.getpid()}"
        with roost.Store(url) as store, psycopg.connect(url, autocommit=True) as connection:
            store.create(roost.Counter("hits"))
            connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            parts = urlsplit(url)
            own = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
            for command in (["list"], ["show", "hits"], ["check"], ["create", "counter", "other"]):
                shell(*command, "--store", own, code=1)
                assert "permission denied for table roost_catalog; an account that uses structures" in shell.error
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP ROLE {role}")
