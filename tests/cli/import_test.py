"""import: formats, bad lines and how an import goes on behind them."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import roost
from tests import servers
from tests.cli.conftest import Shell
from tests.suite import clients

CSV = "uid,visitor\n1,10\n1,11\n2,20\n"
TSV = CSV.replace(",", "\t")
JSONL = '{"uid": 1, "visitor": 10}\n{"visitor": 11, "uid": 1, "more": []}\n\n{"uid": "2", "visitor": 20}'
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def visits(shell: Shell) -> Shell:
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5000", "--column", "visitor:int")
    return shell


def held(shell: Shell, name: str = "visits") -> dict[int, list[int]]:
    """The visitors of every key, oldest first."""
    with roost.Store("sqlite:///roost.db") as store:
        (structure,) = (each for each in store.structures() if each.name == name)
        assert isinstance(structure, roost.Ring | roost.Capped)
        return {
            key: [row.visitor for row in store.run(structure.latest(key))][::-1] for key in store.run(structure.keys())
        }


# formats


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("visits.csv", CSV.encode()),
        ("VISITS.CSV", CSV.replace("\n", "\r\n").encode()),
        ("bom.csv", BOM + CSV.encode()),
        ("quoted.csv", b'"visitor","uid","more"\n"10",1,"a\nb"\n11,1,\n20,2,"x,y"'),
        ("visits.tsv", TSV.encode()),
        ("visits.tab", TSV.encode()),
        ("visits.jsonl", JSONL.encode()),
        ("visits.ndjson", BOM + JSONL.encode()),
        ("visits.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("bom.csv.gz", gzip.compress(BOM + CSV.encode(), mtime=0)),
        ("visits.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0)),
        ("compressed.csv", gzip.compress(CSV.encode(), mtime=0)),
    ],
)
def test_a_file_of_every_format(visits: Shell, name: str, content: bytes) -> None:
    visits.write(name, content)
    found = visits("import", "visits", name)
    assert found.startswith("visits: 3 lines imported in ")
    assert visits.error == ""
    assert held(visits) == {1: [10, 11], 2: [20]}


@pytest.mark.parametrize(
    ("format_", "content"),
    [
        ("csv", CSV),
        ("tsv", TSV),
        ("jsonl", JSONL),
        ("csv", gzip.compress(CSV.encode(), mtime=0)),
        ("csv", BOM + CSV.encode()),
    ],
)
def test_stdin(visits: Shell, format_: str, content: str | bytes) -> None:
    visits("import", "visits", "-", "--format", format_, stdin=content)
    assert held(visits) == {1: [10, 11], 2: [20]}


@pytest.mark.parametrize("content", [CSV.encode(), gzip.compress(CSV.encode(), mtime=0)])
def test_stdin_of_a_process(visits: Shell, content: bytes) -> None:
    with visits.start(
        "import", "visits", "-", "--format", "csv", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        out, _ = process.communicate(content)
    assert process.returncode == 0
    assert out.startswith(b"visits: 3 lines imported")
    assert held(visits) == {1: [10, 11], 2: [20]}


def test_the_format_that_is_named_goes_before_the_name(visits: Shell) -> None:
    visits.write("visits.csv", JSONL)
    visits("import", "visits", "visits.csv", "--format", "jsonl")
    assert held(visits) == {1: [10, 11], 2: [20]}


@pytest.mark.parametrize("name", ["visits.txt", "-"])
def test_a_format_that_nobody_knows_is_asked_for(visits: Shell, name: str) -> None:
    visits.write("visits.txt", CSV)
    visits("import", "visits", name, code=2, stdin=CSV)
    assert "is not clear; --format is one of csv, tsv, jsonl" in visits.error


def test_a_file_that_is_not_there(visits: Shell) -> None:
    visits("import", "visits", "nothing.csv", code=2)
    assert "nothing.csv" in visits.error


def test_the_answer_as_json(visits: Shell) -> None:
    visits.write("visits.csv", CSV + "x,1\n")
    answer = visits.json("import", "visits", "visits.csv", "--on-error", "skip")
    assert answer.pop("seconds") >= 0
    assert answer == {"structure": "visits", "imported": 3, "skipped": 1, "stopped": None}
    answer = visits.json("import", "visits", "visits.csv", code=1)
    assert answer.pop("seconds") >= 0
    assert answer == {
        "structure": "visits",
        "imported": 3,
        "skipped": 0,
        "stopped": {"line": 5, "reason": "visits.uid: 'x' is not a whole number", "next": 6},
    }


def test_a_terminal_sees_the_progress(visits: Shell) -> None:
    visits.write("visits.csv", "uid,visitor\n" + "1,2\n" * 2500 + "x,1\n")
    visits("import", "visits", "visits.csv", "--on-error", "skip", env={"TTY_COMPATIBLE": "1", "COLUMNS": "100"})
    assert "2,500 lines" in visits.error
    assert "100%" in visits.error
    assert "line 2502: visits.uid: 'x' is not a whole number" in visits.error
    visits("import", "visits", "visits.csv", "--on-error", "skip")
    assert visits.error == "line 2502: visits.uid: 'x' is not a whole number\n"


# every structure


def test_a_counter_has_the_fields_key_and_total(shell: Shell) -> None:
    shell("create", "counter", "hits")
    shell("import", "hits", "-", "--format", "csv", stdin="key\n/home\n/home\n")
    shell("import", "hits", "-", "--format", "csv", stdin="total,key\n5,/home\n-2,/home\n,/home\n0,/none\n")
    shell("import", "hits", "-", "--format", "jsonl", stdin='{"key": "/a"}\n{"key": "/a", "total": 41}')
    mapped = ("--map", "key=path", "--map", "total=times")
    shell("import", "hits", "-", "--format", "csv", *mapped, stdin="path,times\n/b,7\n")
    totals = {each["key"]: each["total"] for each in shell.json("show", "hits")}
    assert totals == {"/home": 6, "/none": 0, "/a": 42, "/b": 7}
    shell("import", "hits", "-", "--format", "csv", stdin="key,n\n/c,7\n")
    assert "not in the file: total; it has key, n" in shell.error


def test_a_window_of_the_past_cannot_be_imported(shell: Shell) -> None:
    shell("create", "counter", "hits", "--window", "1h", "--keep", "168")
    content = "key,start,total\n/a,2026-01-01 00:00:00Z,100\n"
    shell("import", "hits", "-", "--format", "csv", stdin=content, code=1)
    assert "start cannot be given" in shell.error
    assert shell.json("show", "hits") == []


def test_keys_and_members_of_several_columns(shell: Shell) -> None:
    shell("create", "counter", "hits", "--key", "site:int", "--key", "path:text")
    members = ("--member", "who:int", "--member", "what:text")
    shell("create", "set", "likes", "--key", "site:int", "--key", "day:date", *members)
    shell("import", "hits", "-", "--format", "csv", stdin='path,site\n"/a,b",7\n')
    shell("import", "likes", "-", "--format", "csv", stdin="site,day,who,what\n7,2008-01-01,5,x\n7,2008-01-01,4,x\n")
    assert shell.json("show", "hits") == [{"key": [7, "/a,b"], "total": 1}]
    assert shell.json("show", "likes", "7,2008-01-01")["members"] == [[4, "x"], [5, "x"]]
    assert shell("show", "likes", "7,2008-01-01") == "who\twhat\n4\tx\n5\tx\n"


def test_a_set_has_the_fields_key_and_member(shell: Shell) -> None:
    shell("create", "set", "likes")
    shell("import", "likes", "-", "--format", "tsv", stdin="member\tkey\nada\t7\nbob\t7\nada\t7\n")
    assert shell.json("show", "likes", "7")["members"] == ["ada", "bob"]


def test_a_capped_collection_keeps_the_newest(shell: Shell) -> None:
    shell("create", "capped", "baskets", "--per", "uid:int", "--unique", "visitor:int", "--keep", "2")
    shell("import", "baskets", "-", "--format", "csv", stdin="uid,visitor\n1,1\n1,2\n1,3\n")
    assert held(shell, "baskets") == {1: [2, 3]}


def test_a_column_that_may_be_empty_may_be_missing(shell: Shell) -> None:
    shell(
        "create", "ring", "notes", "--per", "uid:int", "--keep", "5", "--column", "note:text?", "--column", "n_2:int?"
    )
    shell("import", "notes", "-", "--format", "csv", stdin="uid,note\n1,\n1,a\n")
    shell("import", "notes", "-", "--format", "jsonl", stdin='{"uid": 1, "note": ""}\n{"uid": 1, "n_2": null}')
    rows = [each["row"] for each in shell.json("show", "notes", "1")["entries"]]
    assert [row["note"] for row in rows] == [None, "", "a", None]
    assert {row["n_2"] for row in rows} == {None}


def test_a_column_that_was_added_has_its_default_where_a_file_lacks_it(shell: Shell) -> None:
    for name in ("ring", "capped"):
        unique = ("--unique", "visitor:int") if name == "capped" else ("--column", "visitor:int")
        shell("create", name, "visits", "--per", "uid:int", "--keep", "8", *unique)
        shell("alter", "visits", "--add", "score:int=3", "--add", "note:text?=new")
        shell("alter", "visits", "--add", "mood:text(9)=it's", "--keep", "9")
        shell("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n1,1\n1,2\n")
        lines = [
            '{"uid": 1, "visitor": 3, "score": 8, "note": null}',
            '{"uid": 1, "visitor": 4, "score": 9}',
            '{"uid": 1, "visitor": 5, "score": 7, "note": "x", "mood": "y"}',
        ]
        shell("import", "visits", "-", "--format", "jsonl", stdin="\n".join(lines))
        shell("import", "visits", "-", "--format", "csv", code=1, stdin="uid,score\n1,1\n")
        assert "the file has no field visitor; it has uid, score" in shell.error
        found = [each["row"] for each in shell.json("show", "visits", "1")["entries"]][::-1]
        assert [[*row.values()] for row in found] == [
            [1, 1, 3, "new", "it's"],
            [1, 2, 3, "new", "it's"],
            [1, 3, 8, None, "it's"],
            [1, 4, 9, None, "it's"],
            [1, 5, 7, "x", "y"],
        ]
        shell("drop", "visits", "--yes")


# fields


def test_fields_are_mapped_by_name(visits: Shell) -> None:
    visits("import", "visits", "-", "--format", "csv", "--map", "visitor=who", stdin="who,visitor,uid\n1,2,3\n")
    visits("import", "visits", "-", "--format", "jsonl", "--map", "uid=b=c", stdin='{"b=c": 4, "visitor": 5}')
    assert held(visits) == {3: [1], 4: [5]}


@pytest.mark.parametrize(
    ("options", "content", "code", "message"),
    [
        (
            (),
            "who,uid\n1,2\n",
            1,
            "error: the file has no field visitor; it has who, uid. --map visitor=FIELD names another",
        ),
        (("--map", "visitor=x"), "who,uid\n1,2\n", 1, "error: the file has no field x; it has who, uid."),
        ((), "uid,uid,visitor\n1,2,3\n", 1, "error: field uid is in the header 2 times"),
        ((), "\x1b[31mwho,uid\n", 1, "error: the file has no field visitor; it has \\x1b[31mwho, uid."),
        ((), "", 1, "error: the file has no header"),
        ((), b"uid,visitor\xff\n", 1, "error: line 1: not UTF-8: invalid start byte at byte 12 of line 1"),
        ((), '"uid\n1,2\n', 1, "error: line 1: unexpected end of data"),
        (("--map", "who=visitor"), CSV, 2, "--map who=visitor: it takes COLUMN=FIELD, and visits has uid, visitor"),
        (("--map", "visitor"), CSV, 2, "--map visitor: it takes COLUMN=FIELD"),
    ],
)
def test_fields_that_do_not_fit_are_told(
    visits: Shell, options: tuple[str, ...], content: str | bytes, code: int, message: str
) -> None:
    visits("import", "visits", "-", "--format", "csv", *options, code=code, stdin=content)
    assert message in visits.error
    assert held(visits) == {}


# bad lines

BAD_CSV = [
    (b"1,2,3", "3 fields, where the header has 2"),
    (b"1", "1 field, where the header has 2"),
    (b"x,1", "visits.uid: 'x' is not a whole number"),
    (b",1", "visits.uid: '' is not a whole number"),
    (b"1,9223372036854775808", "visits.visitor: 9223372036854775808 does not fit in 64 bits"),
    (b"1,\xff", "not UTF-8: invalid start byte at byte 3 of line 3"),
    (b'1,"2"3', "',' expected after '\"'"),
]
BAD_JSON = [
    (b"{", "not JSON: "),
    (b"[1, 2]", "not a JSON object"),
    (b'{"uid": 1}', "there is no field visitor"),
    (b'{"uid": 1, "visitor": null}', "visits.visitor: None is not allowed"),
    (b'{"uid": 1, "visitor": NaN}', "not JSON: NaN is not a number"),
    (b'{"uid": 1, "visitor": 1.5}', "visits.visitor: 1.5 is not a whole number"),
    (b'{"uid": 1, "visitor": "\xff"}', "not UTF-8: invalid start byte at byte 24 of line 3"),
    (b"[" * 100_000, "not JSON: nested too deeply"),
]


@pytest.mark.parametrize(
    ("format_", "good", "bad", "message"),
    [
        *[("csv", (b"uid,visitor\n1,10\n", b"2,20\n"), *each) for each in BAD_CSV],
        *[("jsonl", (b'\n{"uid":1,"visitor":10}\n', b'{"uid":2,"visitor":20}\n'), *each) for each in BAD_JSON],
    ],
    ids=lambda value: value[:20].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_a_bad_line_is_told_with_its_number(
    visits: Shell, format_: str, good: tuple[bytes, bytes], bad: bytes, message: str
) -> None:
    visits.write("visits", good[0] + bad + b"\n" + good[1])
    visits("import", "visits", "visits", "--format", format_, code=1)
    first, hint = visits.error.splitlines()
    assert first.startswith(f"error: line 3: {message}")
    assert hint == (
        "All lines before it are in. Mend it and go on with --from-line 3, or pass over it with --from-line 4."
    )
    assert held(visits) == {1: [10]}
    visits("import", "visits", "visits", "--format", format_, "--from-line", "4")
    assert held(visits) == {1: [10], 2: [20]}

    told_all = visits("import", "visits", "visits", "--format", format_, "--on-error", "skip")
    assert visits.error.startswith(f"line 3: {message}")
    assert visits.error.count("\n") == 1
    assert told_all.startswith("visits: 2 lines imported")
    assert told_all.endswith("/s), 1 skipped\n")
    assert held(visits) == {1: [10, 10], 2: [20, 20]}


def test_line_numbers_are_those_of_the_file(shell: Shell) -> None:
    shell("create", "ring", "notes", "--per", "uid:int", "--keep", "9", "--column", "note:text")
    content = 'uid,note\n1,"two\nlines"\n\nx,"three\n\nlines"\n1,"one"\ny,\n'
    shell("import", "notes", "-", "--format", "csv", "--on-error", "skip", stdin=content)
    assert shell.error == (
        "line 5: notes.uid: 'x' is not a whole number\nline 9: notes.uid: 'y' is not a whole number\n"
    )
    shell("import", "notes", "-", "--format", "csv", code=1, stdin=content)
    assert shell.error.endswith("Mend it and go on with --from-line 5, or pass over it with --from-line 8.\n")
    shell("import", "notes", "-", "--format", "csv", "--from-line", "8", code=1, stdin=content)
    assert [each["row"]["note"] for each in shell.json("show", "notes", "1")["entries"]] == [
        *("one", "two\nlines", "one", "two\nlines")
    ]


def test_a_quote_that_is_not_closed_tells_how_far_it_reaches(visits: Shell) -> None:
    content = 'uid,visitor\n1,1\n1,"2\n1,3\n1,4\n'
    visits("import", "visits", "-", "--format", "csv", "--on-error", "skip", stdin=content)
    assert visits.error == "line 3: unexpected end of data (read up to line 5)\n"
    assert held(visits) == {1: [1]}


def test_bad_lines_are_told_in_their_order_whatever_is_wrong(shell: Shell) -> None:
    shell(
        "create", "capped", "eggs", "--per", "uid:int", "--unique", "visitor:int", "--keep", "2", "--on-full", "reject"
    )
    content = "uid,visitor\n1,1\n1,1\nx,1\n1,2\n1,3\n2,1\n1,1\n"
    shell("import", "eggs", "-", "--format", "csv", "--on-error", "skip", stdin=content)
    numbers, reasons = zip(*[line.split(": ", 1) for line in shell.error.splitlines()], strict=True)
    assert numbers == ("line 3", "line 4", "line 6", "line 8")
    assert ["already" in reason or "there" in reason for reason in reasons] == [True, False, False, True]
    assert held(shell, "eggs") == {1: [1, 2], 2: [1]}


def lines_before(bad: int, last: int) -> Iterator[str]:
    # Every line has an id of its own, but for the bad one, which repeats the first.
    yield "uid,visitor"
    for line in range(2, last + 1):
        yield "1,2" if line == bad else f"1,{line}"


@pytest.mark.parametrize("bad", [3, 4, 500, 999, 1000, 1001, 1002, 2001, 2500])
def test_one_that_stops_brings_in_all_before_the_bad_line_and_nothing_behind_it(shell: Shell, bad: int) -> None:
    shell("create", "capped", "eggs", "--per", "uid:int", "--unique", "visitor:int", "--keep", "5000")
    shell.write("eggs.csv", "\n".join(lines_before(bad, 2500)))
    output = shell("import", "eggs", "eggs.csv", code=1)
    assert output.startswith(f"eggs: {bad - 2:,} line")
    assert shell.error.startswith(f"error: line {bad}: ")
    assert held(shell, "eggs") == {1: list(range(2, bad))}
    shell("import", "eggs", "eggs.csv", "--from-line", str(bad + 1))
    assert held(shell, "eggs") == {1: [line for line in range(2, 2501) if line != bad]}


def test_a_total_that_would_overflow_is_a_bad_line(shell: Shell) -> None:
    shell("create", "counter", "hits")
    content = f"key,total\na,1\na,{2**63 - 2}\na,1\nb,5\n"
    shell("import", "hits", "-", "--format", "csv", code=1, stdin=content)
    assert shell.error.startswith("error: line 4: ")
    assert "64 bits" in shell.error
    assert shell.json("show", "hits") == [{"key": "a", "total": 2**63 - 1}]
    shell("import", "hits", "-", "--format", "csv", "--on-error", "skip", stdin="key,total\na,1\nb,5\na,2\n")
    assert [line.split(":")[0] for line in shell.error.splitlines()] == ["line 2", "line 4"]
    assert [each["total"] for each in shell.json("show", "hits")] == [2**63 - 1, 5]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_line_that_a_trigger_refuses_is_a_bad_line(visits: Shell, on_error: str) -> None:
    visits.sql(
        "roost.db",
        "CREATE TRIGGER no BEFORE INSERT ON roost_visits_rows WHEN NEW.visitor = 3 "
        "BEGIN SELECT RAISE(ABORT, 'not 3'); END",
    )
    code = 1 if on_error == "stop" else 0
    content = "uid,visitor\n1,1\n1,2\n1,3\n1,4\n"
    visits("import", "visits", "-", "--format", "csv", "--on-error", on_error, code=code, stdin=content)
    assert "line 4: " in visits.error
    assert "not 3" in visits.error
    assert held(visits) == {1: [1, 2] if on_error == "stop" else [1, 2, 4]}


# what ends an import from outside


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_database_that_is_locked_is_no_bad_line(
    visits: Shell, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    visits.write("visits.csv", "uid,visitor\n" + "1,2\n" * 1500)
    calls = iter([None, roost.Busy("another connection holds the write lock")])
    with each_submission(monkeypatch, calls):
        assert visits("import", "visits", "visits.csv", "--on-error", on_error, code=1) == ""
    assert visits.error == (
        "error: another connection holds the write lock\n1,000 lines are in; go on with --from-line 1002\n"
    )
    with each_submission(monkeypatch, iter([roost.OutcomeUnknown("lost")])):
        visits("import", "visits", "visits.csv", "--from-line", "1002", code=1)
    unknown = "whether lines 1002 to 1501 are is not known: look before you go on with --from-line 1002"
    assert visits.error == f"error: lost\n0 lines are in; {unknown}\n"
    visits("import", "visits", "visits.csv", "--from-line", "1002")
    assert len(held(visits)[1]) == 1500


@dataclass
class Visit:
    uid: int
    visitor: int


@pytest.mark.parametrize("database", servers.SERVERS)
def test_no_line_is_imported_twice_where_a_row_is_locked(
    shell: Shell, any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits, store = roost.Ring("visits", Visit, per="uid", keep=9), roost.Store(any_url)
    monkeypatch.setattr(roost, "Store", lambda url, timeout, real=roost.Store: real(url, timeout=timeout / 25))
    command = ("--store", any_url, "import", "visits", "-", "--format", "csv", "--on-error", "skip")
    with store, closing(clients.connect(any_url)) as other:
        store.create(visits)
        store.run_all(*[visits.push(Visit(uid, 0)) for uid in (1, 2, 3)])
        other.execute("BEGIN")
        store.on(other).run(visits.push(Visit(2, 0)))
        shell(*command, stdin="uid,visitor\n1,1\n2,1\n3,1\n")
        assert shell.error.startswith("line 3: ")
        shell(*command, code=1, stdin="uid,visitor\n1,2\n2,1\n")
        assert shell.error.endswith("\n1 line is in; go on with --from-line 3\n")
        assert [len(store.run(visits.latest(uid))) for uid in (1, 2, 3)] == [3, 1, 2]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_an_interrupt_waits_for_the_lines_under_way(
    visits: Shell, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    visits.write("visits.csv", "uid,visitor\n" + "1,2\n" * 2500)
    calls = iter([None, KeyboardInterrupt(), None])
    with each_submission(monkeypatch, calls):
        assert visits("import", "visits", "visits.csv", "--on-error", on_error, code=130) == ""
    assert visits.error == "\n2,000 lines are in; go on with --from-line 2002\n"
    assert len(held(visits)[1]) == 2000


@contextmanager
def each_submission(monkeypatch: pytest.MonkeyPatch, happens: Iterator[BaseException | None]) -> Iterator[None]:
    """Let something happen at each submission: an error is raised, an interrupt comes as a signal."""
    real = roost.Store._run_each

    def run_each(store: roost.Store, atoms: Any) -> None:
        what = next(happens)
        if isinstance(what, KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        elif what is not None:
            raise what
        real(store, atoms)

    with monkeypatch.context() as patch:
        patch.setattr(roost.Store, "_run_each", run_each)
        yield


@pytest.mark.parametrize("cut", [10, 2000])
def test_a_compressed_file_that_is_cut_off_gives_what_it_has(visits: Shell, cut: int) -> None:
    lines = "uid,visitor\n" + "".join(f"1,{number * number % 9973}\n" for number in range(3000))
    content = gzip.compress(lines.encode(), mtime=0)
    visits.write("visits.csv.gz", content[:cut])
    visits("import", "visits", "visits.csv.gz", code=1)
    assert "the file cannot be read behind line" in visits.error
    found = held(visits).get(1, [])
    assert found == [number * number % 9973 for number in range(len(found))]
    assert ("go on with --from-line" in visits.error) == bool(found)


def test_damaged_compression_is_told(visits: Shell) -> None:
    content = bytearray(gzip.compress(CSV.encode(), mtime=0))
    content[10] = 0x07  # a kind of block that there is not
    visits.write("visits.csv.gz", bytes(content))
    visits("import", "visits", "visits.csv.gz", code=1)
    assert visits.error.startswith("error: the file cannot be read behind line 0: ")


def test_long_values_are_not_collected_by_the_thousand(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("create", "cache", "pages", "--value", "text(1000000)")
    lines = "".join(f"{key},{'x' * 1_000_000}\n" for key in range(20))
    with each_submission(monkeypatch, iter([None, roost.Busy("another connection holds the write lock")])):
        shell("import", "pages", "-", "--format", "csv", stdin=f"key,value\n{lines}", code=1)
    assert shell.error.endswith("\n17 lines are in; go on with --from-line 19\n")


def test_long_values_pass(shell: Shell) -> None:
    shell("create", "ring", "blobs", "--per", "uid:int", "--keep", "1", "--column", "content:binary(8000000)")
    shell(
        "import",
        "blobs",
        "-",
        "--format",
        "csv",
        stdin=f"uid,content\n1,{'ab' * 8_000_000}\n2,{'ab' * 8_000_001}\n",
        code=1,
    )
    assert "error: line 3: field larger than field limit" in shell.error
    entry = shell.json("show", "blobs", "1")["entries"][0]
    assert entry["row"]["content"] == "ab" * 8_000_000


def test_what_was_shown_as_json_can_be_imported(visits: Shell) -> None:
    visits("import", "visits", "-", "--format", "csv", stdin=CSV)
    rows = [each["row"] for each in visits.json("show", "visits", "1")["entries"]]
    visits("import", "visits", "-", "--format", "jsonl", stdin="\n".join(map(json.dumps, reversed(rows))))
    assert held(visits) == {1: [10, 11, 10, 11], 2: [20]}
