"""create, alter, ddl: declarations of the user's own modules and in words."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import roost
from tests import servers
from tests.cli.conftest import Shell

MODULE = """
import dataclasses
import roost

@dataclasses.dataclass
class Visit:
    uid: int
    visitor: int
{more}
visits = roost.Ring("visits", Visit, per="uid", keep={keep})
hits = pageviews = roost.Counter("hits")
unrelated = 5
"""


def module(keep: int = 5, more: str = "") -> str:
    return MODULE.format(keep=keep, more=more)


def definitions(shell: Shell) -> dict[str, Any]:
    return {each["name"]: each for each in shell.json("list")}


# create: from modules


def test_create_makes_all_structures_of_a_module_in_the_current_directory(shell: Shell) -> None:
    shell.write("app/structures.py", module())
    assert shell("create", "app.structures") == "visits: made\nhits: made\n"
    assert definitions(shell) == {
        "hits": {"kind": "counter", "name": "hits", "key": [["key", "text(255)"]], "slots": None},
        "visits": {
            "kind": "ring",
            "name": "visits",
            "columns": [["uid", "int"], ["visitor", "int"]],
            "per": ["uid"],
            "keep": 5,
        },
    }


def test_create_takes_one_structure_of_a_module_or_several_modules(shell: Shell) -> None:
    shell.write("one.py", module())
    shell.write("two.py", "import roost\nlikes = roost.Set('likes')")
    made = shell.json("create", "one:hits", "two", "one:pageviews")
    assert made == [
        {"name": "hits", "kind": "counter", "created": True},
        {"name": "likes", "kind": "set", "created": True},
    ]


def test_create_again_leaves_what_is_there(shell: Shell) -> None:
    shell.write("structures.py", module())
    shell("create", "structures:hits")
    assert shell("create", "structures") == "visits: made\nhits: is there already\n"


def test_create_refuses_a_changed_declaration_and_names_the_difference(shell: Shell) -> None:
    shell("create", "ring", "visits", "--per", "uid:int", "--column", "visitor:int", "--keep", "4")
    shell.write("structures.py", module())
    shell("create", "structures", code=1)
    assert "keep is 4 in the database and 5 in the declaration; `roost alter` changes" in shell.error
    assert list(definitions(shell)) == ["visits"]  # nothing else was made


@pytest.mark.parametrize(
    ("content", "target", "code", "message"),
    [
        (None, "structures", 1, "error: there is no module structures; the current directory is searched first"),
        (None, "rings", 1, ", and the kinds of structures are cache, counter, ring, capped, set, lease, rate_limit"),
        (None, "no.such.module", 1, "error: there is no module no; "),
        ("x = 1", "structures", 1, "error: structures has no structures at its top level"),
        (module(), "structures:nothing", 1, "error: structures has no structure 'nothing'; it has visits, hits"),
        (module(), "structures:unrelated", 1, "error: structures has no structure 'unrelated'"),
        ("import no_such_library", "structures", 1, "structures cannot be imported: No module named 'no_such_library'"),
        ("\n1 / 0", "structures", 1, "structures cannot be imported: ZeroDivisionError: division by zero ("),
        ("x = (", "structures", 1, "structures cannot be imported: SyntaxError: "),
        ("raise SystemExit(3)", "structures", 1, "structures cannot be imported: SystemExit: 3"),
        ("", "structures.py", 2, "'structures.py' is not a module"),
        ("", "./structures", 2, "'./structures' is not a module"),
    ],
)
def test_a_module_that_cannot_be_used_is_told(
    shell: Shell, content: str | None, target: str, code: int, message: str
) -> None:
    if content is not None:
        shell.write("structures.py", content)
    shell("create", target, code=code)
    assert message in shell.error
    assert "roost.db" not in shell.files()


def test_a_declaration_that_is_refused_is_told_with_the_line_of_the_user(shell: Shell) -> None:
    shell.write("structures.py", module(keep=0))
    shell("create", "structures", code=1)
    assert "Invalid: visits: keep is a whole number" in shell.error
    assert "structures.py, line 10)" in shell.error


# create: in words


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("counter",), {"key": [["key", "text(255)"]], "slots": None}),
        (("counter", "--key", "int", "--slots", "8"), {"key": [["key", "int"]], "slots": 8}),
        (
            ("counter", "--key", "site:int", "--key", "path:text(200)"),
            {"key": [["site", "int"], ["path", "text(200)"]], "slots": None},
        ),
        (("counter", "--key", 'enum("a:b", "c")'), {"key": [["key", 'enum("a:b","c")']], "slots": None}),
        (("set",), {"key": [["key", "text(255)"]], "member": [["member", "text(255)"]]}),
        (
            ("set", "--key", "uuid", "--member", "day:date", "--member", "hour:int"),
            {"key": [["key", "uuid"]], "member": [["day", "date"], ["hour", "int"]]},
        ),
        (
            ("ring", "--per", "uid:int", "--keep", "5", "--column", "visitor:int"),
            {"columns": [["uid", "int"], ["visitor", "int"]], "per": ["uid"], "keep": 5},
        ),
        (
            ("ring", "--column", "a:int", "--column", "b:int", "--per", "b", "--per", "c:text", "--keep", "5"),
            {"columns": [["c", "text(255)"], ["a", "int"], ["b", "int"]], "per": ["b", "c"], "keep": 5},
        ),
        (
            ("capped", "--per", "basket:int", "--unique", "egg:int", "--keep", "12"),
            {
                "columns": [["basket", "int"], ["egg", "int"]],
                "per": ["basket"],
                "keep": 12,
                "unique": ["egg"],
                "on_full": "evict",
                "on_duplicate": "error",
            },
        ),
        (
            (
                *("capped", "--per", "basket:int", "--unique", "egg:int", "--keep", "12"),
                *("--on-full", "reject", "--on-duplicate", "refresh", "--column", "colour:text(9)?"),
            ),
            {
                "columns": [["basket", "int"], ["egg", "int"], ["colour", "text(9)?"]],
                "per": ["basket"],
                "keep": 12,
                "unique": ["egg"],
                "on_full": "reject",
                "on_duplicate": "refresh",
            },
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_create_in_words(shell: Shell, words: tuple[str, ...], facts: dict[str, Any]) -> None:
    kind, *options = words
    assert shell("create", kind, "thing", *options) == "thing: made\n"
    assert definitions(shell) == {"thing": {"kind": kind, "name": "thing", **facts}}
    assert shell("create", kind, "thing", *options) == "thing: is there already\n"


def test_create_in_words_has_every_type(shell: Shell) -> None:
    types = {
        "number": "int",
        "ratio": "float?",
        "short": "text(9)",
        "long": "text",
        "hash": "binary(16)",
        "flag": "bool",
        "moment": "datetime",
        "day": "date?",
        "price": "decimal(12,2)",
        "who": "uuid",
        "colour": 'enum("red","dark blue")',
        "level": "enum(1,2)?",
    }
    columns = [argument for name, type_ in types.items() for argument in ("--column", f"{name}:{type_}")]
    shell("create", "ring", "things", "--per", "key:int", "--keep", "2", *columns)
    stored = dict(definitions(shell)["things"]["columns"])
    assert stored == {"key": "int", **types, "long": "text(1000000)"}


RING = ("ring", "visits", "--per", "uid:int", "--keep", "5")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("ring",), 2, "a ring takes one NAME: roost create ring NAME --per uid:int --keep 5"),
        (("ring", "--per", "uid"), 2, "a ring takes one NAME: roost create ring NAME --per uid:int --keep 5"),
        (("ring", "a", "b"), 2, "a ring takes one NAME"),
        (("ring", "visits", "--keep", "5"), 2, "a ring needs --per: roost create ring visits --per uid:int --keep 5"),
        (("ring", "visits", "--per", "uid:int"), 2, "a ring needs --keep"),
        (("capped", "visits", "--per", "uid:int", "--keep", "5"), 2, "a capped needs --unique"),
        ((*RING, "--unique", "x:int"), 2, "a ring takes --per, --keep, --keep-for, --column here, not --unique"),
        (("counter", "hits", "--keep", "5"), 1, "keep is a number of windows, and goes with window"),
        (("counter", "hits", "--window", "hour"), 1, "hits: keep is a number of windows"),
        (("set", "s", "--keep-for", "30"), 2, "'30' is no time (30 of what?)"),
        (
            ("structures", "--keep", "5"),
            2,
            "'structures' is no kind of structure: --keep goes with a KIND (cache, counter, ring, capped, set, lease, ",
        ),
        ((*RING, "--column", "visitor"), 2, "'visitor' is not a column"),
        ((*RING, "--column", "uid:int"), 2, "column uid is declared twice"),
        (("counter", "hits", "--key", "path:text"), 2, "--key of one column has no name: --key 'text'"),
        ((*RING, "--column", "x:integer"), 1, "error: visits.x: 'integer' is not a type; there are int, float"),
        ((*RING, "--column", "class:int"), 1, "error: visits: 'class' cannot name a column"),
        ((*RING, "--column", "at:datetime"), 1, "error: visits: a column cannot be called 'at'"),
        ((*RING, "--per", "nothing"), 2, "--per nothing: which type has it? Write --per nothing:int, for example"),
        (("capped", "visits", "--per", "uid:int", "--keep", "5", "--unique", "egg"), 2, "Write --unique egg:int"),
        (("capped", "a", "--per", "b:int", "--unique", "c:int", "--keep", "5", "--order", "d"), 2, "--column d:int"),
        (("counter", "hits", "--key", "_a:int", "--key", "b:int"), 1, "error: hits: "),
        (("counter", "hits", "--key", "float"), 1, "error: hits.key: a float is no key"),
        (("counter", "Hits"), 1, "error: 'Hits' cannot name a structure"),
        (("ring", "visits", "--per", "uid:int", "--keep", "0"), 1, "error: visits: keep is a whole number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_words_that_declare_nothing_are_told(shell: Shell, words: tuple[str, ...], code: int, message: str) -> None:
    for command in ("create", "ddl"):
        assert shell(command, *words, code=code) == ""
        assert message in shell.error
    assert shell.files() == []


# ddl


def test_ddl_prints_what_create_runs_and_opens_nothing(shell: Shell) -> None:
    shell.write("structures.py", module())
    sql = shell("ddl", "structures", "--store", "sqlite:////no/such/directory/roost.db")
    assert "roost.db" not in shell.files()
    with closing(sqlite3.connect("by_hand.db", isolation_level=None)) as connection:
        connection.executescript(sql)
    shell("create", "structures")
    assert tables("by_hand.db") == tables("roost.db")
    assert shell("check", "--store", "sqlite:///by_hand.db") == "every promise is kept\n"
    assert shell("create", "structures", "--store", "sqlite:///by_hand.db").count("is there already") == 2


@pytest.mark.parametrize("name", ["mariadb", "mysql"])
def test_the_client_of_mariadb_and_mysql_runs_what_ddl_prints(shell: Shell, name: str) -> None:
    shell.write("structures.py", module())
    client = servers.binary("mariadb", ["/usr/bin"], "mariadb-client")
    with servers.own_database(name) as url:
        sql = shell("ddl", "structures", "--store", f"{url}?dialect={name}")
        host, port, database = re.fullmatch(r"mysql://root@(.*):(\d+)/(\w+)", url).groups()  # type: ignore[union-attr]
        command = [client, "--skip-ssl", f"--host={host}", f"--port={port}", "--user=root", database]
        subprocess.run(command, input=sql, text=True, check=True)
        assert shell("create", "structures", "--store", url).count("is there already") == 2
        assert shell("check", "--store", url) == "every promise is kept\n"


def rows(path: str, sql: str) -> list[Any]:
    with closing(sqlite3.connect(Path(path))) as connection:
        return connection.execute(sql).fetchall()


def tables(path: str) -> list[Any]:
    with closing(sqlite3.connect(Path(path))) as connection:
        return [
            *connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name"),
            *connection.execute("SELECT * FROM roost_catalog ORDER BY name"),
        ]


def test_ddl_in_words_and_as_json(shell: Shell) -> None:
    statements = shell.json("ddl", "counter", "hits")
    entry = [statement.split()[0] for statement in statements].index("INSERT")
    assert [statement.split()[1] for statement in statements[:entry]] == ["TABLE"] * 4 + ["VIEW", "TRIGGER"] * 3
    assert [statement.split()[1] for statement in statements[entry + 1 :]] == ["VIEW"] + ["TRIGGER"] * 3
    without = [*statements[:entry], statements[entry].replace(", true)", ", false)")]
    assert shell.json("ddl", "counter", "hits", "--no-view") == without
    assert shell("ddl", "counter", "hits") == "".join(f"{statement};\n" for statement in statements)


@pytest.mark.parametrize(
    ("driver", "url", "word"),
    [
        ("pymysql", "mysql://localhost/app", "ENGINE=InnoDB"),
        ("pymysql", "mysql://localhost/app?dialect=mysql8", "ENGINE=InnoDB"),
        ("psycopg", "postgresql://localhost/app", "timestamptz"),
    ],
)
def test_ddl_needs_no_driver(shell: Shell, driver: str, url: str, word: str) -> None:
    wanted = shell("ddl", "counter", "hits", "--store", url)
    assert word in wanted
    shell.write(f"{driver}.py", f"raise ModuleNotFoundError(name={driver!r})")
    process = shell.start("ddl", "counter", "hits", "--store", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60) == (wanted.encode(), b"")


def test_ddl_of_what_no_database_holds(shell: Shell) -> None:
    shell.write("structures.py", "import roost\nlog = roost.Capped.of('log')\nhits = roost.Counter('hits')\n")
    shell("ddl", "structures:log", code=1)
    assert "log is a table of your own" in shell.error
    for url in ("nonsense", "oracle://localhost/app"):
        shell("ddl", "structures:hits", "--store", url, code=1)
        assert "is not a store; a store takes the URL of a database" in shell.error
    shell("ddl", "structures:hits", "--store", "memcached://localhost", code=1)
    assert "memcached has no catalog" in shell.error


# alter


def test_alter_by_a_module_that_has_changed(shell: Shell) -> None:
    shell.write("before.py", module())
    shell.write("after.py", module(keep=9, more="    note: str | None = None\n    score: int = 3"))
    shell("create", "before")
    shell("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n1,2\n")
    assert shell.json("alter", "after") == [
        {
            "name": "visits",
            "changes": ["column note (text(1000000)?) added", "column score (int) added", "keep: 5 -> 9"],
        },
        {"name": "hits", "changes": []},
    ]
    assert shell("alter", "after:hits") == "hits: nothing to change\n"
    row = shell.json("show", "visits", "1")["entries"][0]["row"]
    assert row == {"uid": 1, "visitor": 2, "note": None, "score": 3}


def test_a_view_can_be_left_out_and_come_and_go(shell: Shell) -> None:
    views = "SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')"
    views += " AND tbl_name NOT LIKE 'roost_%'"  # the programs stay
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5", "--no-view")
    assert rows("roost.db", views) == []
    assert shell("alter", "visits", "--view") == "visits: view added\n"
    assert shell("alter", "visits", "--view") == "visits: nothing to change\n"
    assert len(rows("roost.db", views)) == 4
    assert shell("alter", "visits", "--keep", "6") == "visits: keep: 5 -> 6\n"
    assert len(rows("roost.db", views)) == 4
    assert shell("alter", "visits", "--no-view", "--keep", "7") == "visits: keep: 6 -> 7; view dropped\n"
    assert rows("roost.db", views) == []


def test_a_view_whose_name_is_taken_is_refused(shell: Shell) -> None:
    with closing(sqlite3.connect("roost.db")) as connection:
        connection.execute("CREATE TABLE Visits (uid)")
    words = ("create", "ring", "visits", "--per", "uid:int", "--keep", "5")
    assert shell(*words, code=1) == ""
    assert "the database has something of that name already (table Visits)" in shell.error
    assert "--no-view" in shell.error
    assert shell(*words, "--no-view") == "visits: made\n"


def test_alter_by_options(shell: Shell) -> None:
    shell("create", "capped", "baskets", "--per", "basket:int", "--unique", "egg:int", "--keep", "2")
    shell("import", "baskets", "-", "--format", "csv", stdin="basket,egg\n1,1\n")
    output = shell(
        *("alter", "baskets", "--keep", "3", "--on-full", "reject", "--on-duplicate", "refresh"),
        *("--add", "note:text(40)?", "--add", "score:int=-5", "--add", 'colour:enum("a=b","c)")=c)'),
        *("--add", "moment:datetime=2008-01-01T22:03:23Z", "--add", "empty:text="),
    )
    assert output == (
        'baskets: column note (text(40)?) added; column score (int) added; column colour (enum("a=b","c)")) added; '
        "column moment (datetime) added; column empty (text(1000000)) added; keep: 2 -> 3; "
        "on_full: evict -> reject; on_duplicate: error -> refresh\n"
    )
    assert shell.json("show", "baskets", "1")["entries"][0]["row"] == {
        "basket": 1,
        "egg": 1,
        "note": None,
        "score": -5,
        "colour": "c)",
        "moment": "2008-01-01T22:03:23+00:00",
        "empty": "",
    }


def test_alter_slots_of_a_counter(shell: Shell) -> None:
    shell("create", "counter", "hits")
    assert shell("alter", "hits", "--slots", "8") == "hits: slots: None -> 8\n"


def test_alter_asks_before_rows_are_deleted(shell: Shell) -> None:
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5", "--column", "visitor:int")
    shell("import", "visits", "-", "--format", "csv", stdin="uid,visitor\n1,1\n1,2\n1,3\n")

    shell("alter", "visits", "--keep", "2", code=1, stdin="n\n")
    assert shell.error.startswith("visits: rows beyond the newest 2 of each key are deleted. Go on? [y/N]")
    assert shell.error.endswith("error: nothing was changed\n")
    shell("alter", "visits", "--keep", "2", code=1)
    assert "nobody answered, so nothing was changed; --yes answers beforehand" in shell.error
    assert definitions(shell)["visits"]["keep"] == 5

    assert shell.json("alter", "visits", "--keep", "2", stdin="y\n") == [
        {"name": "visits", "changes": ["keep: 5 -> 2"]}
    ]
    assert len(shell.json("show", "visits", "1")["entries"]) == 2
    shell("alter", "visits", "--keep", "1", "--yes")
    assert shell.error == ""
    assert len(shell.json("show", "visits", "1")["entries"]) == 1


def test_alter_asks_before_a_module_deletes_rows(shell: Shell) -> None:
    shell.write("before.py", module())
    shell.write("after.py", module(keep=2))
    shell("create", "before")
    shell("alter", "after", code=1, stdin="no\n")
    assert definitions(shell)["visits"]["keep"] == 5
    shell("alter", "after", stdin="Yes\n")
    assert definitions(shell)["visits"]["keep"] == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nothing",), 1, "error: there is no module nothing; the current directory is searched first; to change a"),
        (("nothing", "--keep", "5"), 1, "error: there is no structure 'nothing'"),
        (("visits", "--slots", "5"), 2, "a ring takes --keep, --keep-for, --add here, not --slots"),
        (("hits", "--keep", "5"), 1, "keep is a number of windows, and goes with window"),
        (("likes", "--keep", "5"), 1, "likes: keep cannot change from None to 5"),
        (("visits", "--keep-for", "30d"), 1, "visits: keep_for cannot change from None to 30d: the rows have no times"),
        (("visits", "--add", "uid:int=0"), 2, "visits has a column uid already"),
        (("visits", "--add", "a:int=0", "--add", "a:int=0"), 2, "visits has a column a already"),
        (("visits", "--add", "score:int"), 2, "score needs a value for the rows that are there: score:int=VALUE, or"),
        (("visits", "--add", "score"), 2, "'score' is not a column"),
        (("visits", "--add", "score:int)"), 2, "'score:int)' is not a column"),
        (("visits", "--add", "score:number=1"), 1, "error: visits.score: 'number' is not a type"),
        (("visits", "--add", "score:int=many"), 1, "error: visits.score: 'many' is not a whole number"),
        (("visits", "--add", "score:int=9223372036854775808"), 1, "does not fit in 64 bits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_changes_that_cannot_be_made_are_told(shell: Shell, words: tuple[str, ...], code: int, message: str) -> None:
    shell("create", "ring", "visits", "--per", "uid:int", "--keep", "5")
    shell("create", "counter", "hits")
    shell("create", "set", "likes")
    before = definitions(shell)
    shell("alter", *words, code=code)
    assert message in shell.error
    assert definitions(shell) == before


def test_alter_tells_what_was_changed_before_one_that_is_refused(shell: Shell) -> None:
    shell("create", "counter", "hits")
    shell("create", "counter", "views", "--key", "int")
    shell.write("after.py", "import roost\nhits = roost.Counter('hits', slots=4)\nviews = roost.Counter('views')")
    shell("alter", "after", code=1)
    assert "views: key cannot change" in shell.error
    assert shell.error.endswith("; changed before it: hits\n")


def test_a_store_of_a_program_understands_what_the_command_line_made(shell: Shell) -> None:
    shell("create", "set", "likes", "--key", "int", "--member", "text(40)")
    likes = roost.Set("likes", key=int, member=roost.text(40))
    with roost.Store("sqlite:///roost.db") as store:
        assert store.run(likes.add(7, "ada")) == 1
        assert [json.loads(each.definition) for each in store.structures()] == shell.json("list")


def test_a_cache_in_words(shell: Shell) -> None:
    made = shell("create", "cache", "pages", "--key", "text(40)", "--value", "text(100)", "--max-items", "3")
    assert made == "pages: made\n"
    assert shell("list").splitlines()[1:] == ["pages\tcache\tkey text(40)\tvalue text(100)\tmax_items 3"]
    shell.write("pages.csv", "key,value\n/home,Home\n/about,About\n/a,A\n/b,B\n")
    assert shell.json("import", "pages", "pages.csv")["imported"] == 4
    assert shell("show", "pages").splitlines() == ["key", "/a", "/about", "/b"]
    assert shell("show", "pages", "/a").splitlines() == ["value", "A"]
    assert shell("alter", "pages", "--max-items", "2", "--yes") == "pages: max_items: 3 -> 2\n"
    assert shell("clear", "pages", "/b", "--yes") == "pages: 1 value removed from key /b\n"
    assert shell("show", "pages").splitlines() == ["key", "/a"]
    assert shell("check") == "every promise is kept\n"
    lines = ["key,value,expires,flags", "a,1,,", "b,2,2099-01-01 00:00:00,7", "c,3,2099-01-01T00:00:00+02:00,0"]
    shell.write("ends.csv", "\n".join([*lines, "a,4,2008-01-01 00:00:00,1", "d,5,4070908800,\n"]))
    shell("create", "cache", "ends", "--value", "text(100)")
    assert shell("import", "ends", "ends.csv").startswith("ends: 5 lines imported")
    assert rows("roost.db", "SELECT key, value, substr(expires, 1, 13), flags FROM ends ORDER BY key") == [
        ("b", "2", "2099-01-01 00", 7),
        ("c", "3", "2098-12-31 22", 0),
        ("d", "5", "2099-01-01 00", 0),
    ]
    shell("import", "ends", "-", "--format", "jsonl", stdin='{"key": "e", "value": "6", "flags": -1}\n', code=1)
    assert "flags is a whole number from 0" in shell.error
    assert shell("create", "cache", "sessions") == "sessions: made\n"
    assert shell("list").splitlines()[3:] == ["sessions\tcache\tkey text(255)\tvalue binary(1000000)\t"]
