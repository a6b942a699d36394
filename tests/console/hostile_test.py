"""Names and values that were chosen to do harm, or that are merely strange, are shown as what they are."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import roost
from roost.cli import main
from tests.console.conftest import Browser
from tests.suite.application import Application
from tests.suite.shapes import by_hand, likes

MARKUP = "</bdi></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'{{ 7919 * 7907 }}&amp;"
HOSTILE = (
    *(MARKUP, "a\0b", "line\r\nbreak\tand\x1b[31m", "\u202egpj.exe", "שלום עולם", "  blanks  ", "%00%0d", "#?&=+ /"),
    *("[7", "😀", "\ufeff", "null"),
)


@dataclass(frozen=True)
class Note:
    who: str
    text: Annotated[str, roost.text(2_000_000)]


class Place(NamedTuple):
    site: str
    data: bytes


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_key_and_value_are_shown_and_their_page_is_found(url: str, text: str) -> None:
    notes = roost.Ring("notes", Note, per="who", keep=3)
    places = roost.Counter("places", key=Place)
    with roost.Store(url) as store:
        store.create(notes, places, likes)
        store.run_all(notes.push(Note(text, text)), places.add(Place(text, b"\xff\0")), likes.add(7, text))
        browser = Browser(store, show_values=True, allow=frozenset(["clear"]))
        for name in ("notes", "places"):
            listed = browser.get(f"/structure?name={name}").text
            (address,) = re.findall(r'<th scope="row"><a href="([^"]+)"', listed)
            page = browser.get(unescape(address))
            assert page.status_code == 200
            assert re.search(r">\s*1( pushed|\s*<)", listed)
            assert "Sequence 1" in page.text or '<p class="big">1</p>' in page.text
            for shown in (listed, page.text):
                assert "<script>alert" not in shown
                assert "<img src=x" not in shown
                assert "62615533" not in shown
                assert not re.search("[\0\x1b\u202e\ufeff]", shown)
        assert "<script>alert" not in browser.get("/structure?name=likes&key=7").text
        own = browser.get(f"/structure?name=notes&key={quote(text)}").text
        (key,) = re.findall(r'name="key" value="([^"]*)"', own)
        found = unescape(key)
        assert json.loads(found) == text
        data = {"csrf": browser.csrf(), "verb": "clear", "name": "notes", "key": found}
        assert browser.post("/act", data).status_code == 303
        assert store.run(notes.latest(text)) == []


def test_a_table_with_a_strange_column_and_long_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    with closing(Application(url)) as sql:
        sql('CREATE TABLE seen (id INTEGER PRIMARY KEY, "x; DROP TABLE seen --" TEXT NOT NULL)')
        for n in range(30):
            sql("INSERT INTO seen VALUES (?, ?)", n, "k" * 100_000 + str(n))
    ran = CliRunner().invoke(
        main, ["cap", "seen", "--per", "x; DROP TABLE seen --", "--keep", "3", "--store", url, "--yes", "--make-index"]
    )
    assert ran.exit_code == 0, ran.output
    with roost.Store(url) as store:
        page = Browser(store).get("/structure?name=seen").text
    (line,) = re.findall(r"<code>(.*?)</code>", page)
    assert re.search(r" = :\w+ ORDER BY", unescape(line))
    assert len(page) < 50_000


def test_a_long_value_is_shortened(url: str) -> None:
    notes = roost.Ring("notes", Note, per="who", keep=3)
    blobs = roost.Cache("blobs")
    with roost.Store(url) as store:
        store.create(notes, blobs)
        store.run_all(notes.push(Note("me", "é" * 1_000_000)), blobs.set("k", b"\xff" * 1_000_000))
        browser = Browser(store, show_values=True)
        page = browser.text("/structure?name=notes&key=me")
        assert "(1,000,000 characters)" in page
        assert len(page) < 5_000
        page = browser.text("/structure?name=blobs&key=k")
        assert "(1,000,000 bytes)" in page
        assert len(page) < 5_000


def test_a_catalog_that_somebody_has_changed_is_shown_and_told(url: str) -> None:
    with roost.Store(url) as store:
        store.create(likes)
        by_hand(
            store,
            "INSERT INTO roost_catalog VALUES ('<b>x</b>', 1, '{\"kind\": \"<i>none</i>\"}', NULL)",
            "INSERT INTO roost_catalog VALUES ('torn', 1, '{', NULL)",
        )
        browser = Browser(store)
        page = browser.get("/").text
        assert "&lt;b&gt;x&lt;/b&gt;" in page
        assert "<i>none" not in page
        assert page.count("cannot be read") >= 2
        assert 'href="/structure?name=likes"' in page
        assert browser.get("/structure?name=torn").status_code == 400
        assert "kind" in browser.post("/check", {"csrf": browser.csrf()}).text
        by_hand(store, "DELETE FROM roost_catalog WHERE name <> 'likes'")


def test_a_database_without_structures(url: str) -> None:
    with roost.Store(url) as store:
        store.create(likes)
        store.drop(likes)
        assert "There are no structures yet" in Browser(store).text("/")
