"""What the pages say of each kind of structure, on each database."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from html import unescape
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import roost
from roost.catalog.measure import Measuring
from roost.cli import main
from roost.console.reading import Looker, Samples
from roost.console.wording import sql_of
from roost.dialects.dialect import Statement, query
from tests import servers
from tests.console.conftest import EVERY, KEYS, Browser, fill
from tests.latest import Latest
from tests.suite.application import Application
from tests.suite.shapes import Visit, by_hand, pageviews, visits


class Two(NamedTuple):
    site: int
    path: str


# What the page of a structure's key says.
SAID = {
    "visits": ["in 5 slots", "Sequence 8, in slot 3", "next row goes into slot 4", "1007", "1003"],
    "large": ["Sequence 8, in slot 8", "in 1,000 slots"],
    "pages": ['[7, "/a,b"]', "Sequence 8, in slot 2", "t7"],
    "best": ["The best 3", "70", "needs more than 50 to get in"],
    "baskets": ["8 of 12 rows", "white"],
    "pageviews": ["8"],
    "views": ["36", "UTC"],
    "likes": ["8 members", "fan 7"],
    "online": ["8 members of 50"],
    "cached": ["<h1>1</h1>", "Expires in", "Token"],
    "small": ["never ends"],
    "logins": ["3 of 5 may be taken now"],
    "jobs": ["worker 1 holds it for", "Token"],
}
# What the page of the structure says.
TOLD = {
    "visits": ["8 pushed, the last 5 kept"],
    "best": ["3 rows"],
    "likes": ["8 members"],
    "cached": ["When values expire", "Next to expire /0"],
    "small": ["Used longest ago", "evicted next"],
    "logins": ["3 of 5 left"],
    "jobs": ["held by worker 1"],
    "pages": ['[7, "/a,b"] 8 pushed'],
}


@pytest.mark.parametrize("name", SAID)
def test_the_page_of_a_key_and_of_its_structure(store: roost.Store, name: str) -> None:
    browser = Browser(store, show_values=True)
    structure = browser.text(f"/structure?name={name}")
    for told in TOLD.get(name, []):
        assert told in structure
    key = browser.text(f"/structure?name={name}&key={KEYS[name]}")
    for said in SAID[name]:
        assert said in key


def test_the_index_has_every_structure_and_how_full_it_is(store: roost.Store) -> None:
    browser = Browser(store)
    text = browser.text("/")
    for structure in EVERY:
        assert structure.name in text
    page = browser.get("/").text
    assert re.search(r'aria-label="100 % full"', page)  # visits: five rows of five
    assert re.search(r'aria-label="67 % full"', page)  # baskets: eight of twelve
    assert re.search(r'aria-label="80 % full"', page)  # small: eight of ten


def test_values_are_hidden_unless_they_may_be_shown(store: roost.Store) -> None:
    browser = Browser(store)
    assert 'class="some"' not in browser.get("/structure?name=best&key=go").text  # how far apart scores are
    for name, values in {"visits": ["1007"], "likes": ["fan 7"], "cached": ["<h1>"], "best": ["70"]}.items():
        page = browser.text(f"/structure?name={name}&key={KEYS[name]}")
        assert "hidden" in page
        for value in values:
            assert not re.search(rf"(?<!\d){re.escape(value)}(?!\d)", page)  # a port or a database may have its digits
    assert "worker 1" in browser.text("/structure?name=jobs&key=daily")


def test_the_doctor_and_a_check_on_demand(store: roost.Store) -> None:
    browser = Browser(store)
    assert "durability" in browser.text("/doctor")
    assert "keeps its promise" not in browser.text("/check")
    checked = browser.post("/check", {"csrf": browser.csrf()}).text
    assert "Every promise is kept" in checked
    assert checked.count("keeps its promise") == len(EVERY)


# Values for the parameters of the SQL to copy.
GIVEN: dict[str, object] = {
    "uid": 5, "visitor": 7, "site": 7, "path": "'/a'", "title": "'t'", "board": "'go'", "player": 9, "points": 1,
    "value": "'v'", "basket": 42, "egg": 99, "colour": "'red'", "n": 1, "total": 1, "holder": "'me'", "token": 1,
    "ttl": 30,
}  # fmt: skip


# The kinds that these clients can write, too, on every installation.
MORE = {
    "sqlite": ["ring", "capped", "set", "counter"],
    "postgresql": ["ring", "capped", "set", "counter", "rate_limit", "lease"],
    "mariadb": ["ring", "counter", "rate_limit", "lease"],
    "mysql": ["ring", "counter", "rate_limit", "lease"],
}


@pytest.mark.parametrize("name", ["sqlite", *servers.SERVERS])
def test_the_sql_to_copy_runs(make_database: Callable[[str], str], name: str) -> None:
    url = make_database(name)
    with roost.Store(url) as store, closing(Application(url)) as sql:
        fill(store)
        looker = Looker(store, Samples())
        for structure in store.structures():
            text = {"key": "'k'", "member": "'m'", **GIVEN}
            if structure.name in ("likes", "online"):
                text |= {"key": 7} if structure.name == "likes" else {"member": 7}
            lines = sql_of(looker.plan(structure))
            assert len(lines) > (structure.kind in MORE[name])
            for each_line in lines:
                line = each_line
                for parameter in re.findall(r"(?<!:):(\w+)", line):
                    line = re.sub(rf":{parameter}\b", str(text[parameter]), line)
                sql(line)
        assert store.run(visits.latest(5, 1)) == [Visit(5, 7)]
        assert store.check() == []


def test_what_a_check_finds_is_red_and_says_what_to_do(file_store: roost.Store) -> None:
    by_hand(file_store, "DELETE FROM roost_likes_rows WHERE member = 'fan 3'")
    browser = Browser(file_store)
    checked = browser.post("/check", {"csrf": browser.csrf()}).text
    assert "the head says 8, there are 7" in checked
    assert "roost clear NAME KEY" in checked
    by_hand(file_store, "INSERT INTO roost_likes_rows VALUES (7, 'fan 3')")


def test_pages_of_keys_are_turned(file_store: roost.Store) -> None:
    file_store.run_all(*[pageviews.add(f"page {n:03}") for n in range(45)])
    browser, seen = Browser(file_store), []
    path = "/structure?name=pageviews"
    for _ in range(9):
        page = browser.get(path).text
        seen += re.findall(r"<bdi>(page \d+)</bdi>", page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        path = following[1].replace("&amp;", "&")
    assert [*dict.fromkeys(seen)] == [f"page {n:03}" for n in range(45)]


def test_expired_keys_are_listed_as_what_they_are(filled_url: str, make_database: Callable[[str], str]) -> None:
    past = roost.Cache("past", key=Two, value=str)
    url = filled_url if not filled_url.startswith("sqlite") else make_database("sqlite")
    with roost.Store(url) as store:
        store.create(past)
        store.run_all(*[past.set(Two(n // 7, f"k{n}"), "v", ttl=3600 if n % 2 else None) for n in range(44)])
        by_hand(store, f"UPDATE roost_past_rows SET until = 1 WHERE until < {2**63 - 1}")
        browser, path, seen = Browser(store), "/structure?name=past", []
        while path:
            page = browser.get(path).text
            seen += re.findall(r"\[(\d+), &#34;(k\d+)&#34;\]</bdi>\s*</a>\s*</th><td>\s*([a-z ]+)", page)
            following = re.search(r'rel="next" href="([^"]+)"', page)
            path = unescape(following[1]) if following else ""
        wanted = sorted((n // 7, f"k{n}", "expired" if n % 2 else "never ends") for n in range(44))
        assert [(int(site), key, what.strip()) for site, key, what in seen] == wanted
        store.drop(past)


def test_what_is_written_per_second_and_hot_keys(file_store: roost.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, moment = Browser(file_store), [0.0]
    monkeypatch.setattr("roost.console.reading.monotonic", lambda: moment[0])
    assert "Hot in" not in browser.text("/structure?name=visits")
    file_store.run_all(*[visits.push(Visit(9, n)) for n in range(30)])
    moment[0] += 3
    page = browser.text("/structure?name=visits")
    assert "Written/s 10.0" in page
    assert "Hot in the last minute: 9 +30" in page
    moment[0] += 120
    assert "Hot in" not in browser.text("/structure?name=visits")


def test_nothing_is_read_while_nobody_looks(filled_url: str) -> None:
    asked: list[str] = []
    with roost.Store(filled_url, trace=lambda sql, _: asked.append(sql)) as store:
        browser = Browser(store)
        assert asked == []
        browser.get("/static/console.css")
        assert asked == []
        browser.text("/")
        assert asked != []
        assert not [sql for sql in asked if re.match(r"\s*(INSERT|UPDATE|DELETE|CREATE|CALL)\b", sql)]


def test_a_page_that_would_take_longer_than_a_second_says_so(filled_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {
        "sqlite": "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10000000000)"
        " SELECT count(*) FROM c",
        "postgresql": "SELECT pg_sleep(60)",
        "mysql": "SELECT count(*) FROM information_schema.columns a, information_schema.columns b,"
        " information_schema.columns c, information_schema.columns d",
    }[filled_url.partition(":")[0]]

    def reading(*_: object) -> Measuring:
        yield Statement(query(slow), [()])
        raise AssertionError("it was read to its end")

    with roost.Store(filled_url, timeout=20) as store:
        browser = Browser(store, seconds=1.0)
        browser.get("/")
        monkeypatch.setattr("roost.console.reading.measure", reading)
        assert 'class="wrong"' in browser.get("/structure?name=visits").text
        monkeypatch.undo()
        assert "8 pushed" in Browser(store).text("/structure?name=visits")


def test_unknown_names_and_keys_are_told(store: roost.Store) -> None:
    browser = Browser(store)
    assert browser.get("/structure?name=nobody").status_code == 404
    assert browser.get("/structure").status_code == 404
    assert browser.get("/nowhere").status_code == 404
    assert browser.get("/structure?name=visits&key=five").status_code == 400
    for key in ("5", "5%0A,/a", "%0D", "["):
        assert browser.get(f"/structure?name=pages&key={key}").status_code == 400
    assert "Sequence 0" in browser.text("/structure?name=visits&key=77")
    assert "no value" in browser.text("/structure?name=cached&key=77")
    assert "Nobody holds it" in browser.text("/structure?name=jobs&key=77")
    assert "3 places are free" in browser.text("/structure?name=best&key=chess")
    assert "0 members" in browser.text("/structure?name=likes&key=77")


CAPS: dict[str, tuple[str, ...]] = {
    "by number": ("--per", "uid", "--keep", "3"),
    "by age": ("--older-than", "30d", "--by", "at"),
}


@pytest.mark.parametrize("rule", CAPS)
@pytest.mark.parametrize("name", ["sqlite", "postgresql", "mariadb"])
def test_a_table_of_the_applications_own(make_database: Callable[[str], str], name: str, rule: str) -> None:
    url = make_database(name)
    moment = "timestamptz" if name == "postgresql" else "TIMESTAMP"
    with closing(Application(url)) as sql:
        sql(f"CREATE TABLE seen (id {{id}}, uid INTEGER NOT NULL, at {moment} NOT NULL DEFAULT CURRENT_TIMESTAMP)")
        for n in range(5):
            sql("INSERT INTO seen (id, uid) VALUES (?, 5)", n + 1)
    ran = CliRunner().invoke(main, ["cap", "seen", *CAPS[rule], "--store", url, "--yes", "--make-index"])
    assert ran.exit_code == 0, ran.output
    with roost.Store(url) as store:
        browser = Browser(store, show_values=True)
        assert "seen" in browser.text("/")
        page = browser.text("/structure?name=seen")
        told = "Deleted, by whomever ≈" if name == "postgresql" else "does not count what was deleted"
        assert told in page
        if rule == "by number":
            assert "Rows 3" in page
            assert "goes when it has more than 3" in page
            assert "5 3 rows" in page
            assert "3 of 3 rows" in browser.text("/structure?name=seen&key=5")
        else:
            assert "Too old, not yet deleted 0" in page
            assert "goes when it is older than 30 days" in page
        assert "SELECT * FROM" in page


def test_a_kind_of_another_package_is_shown_as_on_the_command_line(url: str) -> None:
    moods = Latest("moods", key=int, value=str)
    with roost.Store(url) as store:
        store.create(moods)
        store.run(moods.set(7, "glad"))
        browser = Browser(store, show_values=True)
        assert "moods" in browser.text("/")
        assert "7" in browser.text("/structure?name=moods")
        assert "glad" in browser.text("/structure?name=moods&key=7")
