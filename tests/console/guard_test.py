"""Who is let in, what may be changed, and what a page of somebody else's cannot do."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from uvicorn.server import ServerState

import roost
from roost.console.app import Connection, Options, Pages, allowed, configured, link
from roost.errors import Invalid
from tests.console.conftest import BASE, Browser
from tests.suite.shapes import baskets, likes, visits

TOKEN = "the token"
PAGES = ("/", "/structure?name=visits", "/check", "/doctor", "/metrics", "/static/console.js", "/nowhere")


def test_every_answer_has_the_headers_that_keep_others_out(file_store: roost.Store) -> None:
    for token in (None, TOKEN):
        for path in PAGES:
            headers = Browser(file_store, token=token).get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers


def test_no_page_has_inline_scripts_or_styles_or_asks_another_server(file_store: roost.Store) -> None:
    browser = Browser(file_store, show_values=True, allow=frozenset(["clear"]))
    for path in ("/", "/structure?name=cached", "/structure?name=visits&key=5", "/check", "/doctor"):
        page = browser.get(path).text
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", page)
        assert re.findall(r"<script[^>]*>", page) == ['<script src="/static/console.js" defer>']
        assert not re.search(r'(src|href|action)="(?!/)', page.replace('href="#main"', ""))


@pytest.mark.parametrize("path", PAGES)
def test_without_the_token_nothing_is_shown(file_store: roost.Store, path: str) -> None:
    browser = Browser(file_store, token=TOKEN)
    for refused in (browser.get(path), browser.get(path, headers={"cookie": "roost-console-8808=guess"})):
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
    for wrong in ("", "the", "the token ", "%00", "the%20token%20"):
        separator = "&" if "?" in path else "?"
        assert browser.get(f"{path}{separator}token={wrong}").status_code == 403


def test_the_link_with_the_token_sets_a_cookie_that_no_other_site_sends(file_store: roost.Store) -> None:
    browser = Browser(file_store, token=TOKEN)
    entered = browser.get("/", params={"token": TOKEN})
    assert entered.status_code == 200
    assert "visits" not in entered.text  # it goes on to a page without the token in its address
    (cookie,) = entered.headers.get_list("set-cookie")
    assert cookie.startswith("roost-console-8808=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert "visits" in browser.text("/")
    assert Browser(file_store, token=TOKEN).get("/").status_code == 403
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert Browser(file_store, token=TOKEN).get("/metrics", headers=bearer).status_code == 200


def test_a_token_of_any_characters_is_that_of_its_link(file_store: roost.Store) -> None:
    token = "a+b/c==&d#%20é"
    assert Browser(file_store, token=token).get(link(BASE, token)).status_code == 200


def test_the_ticket_of_the_browser_is_good_once(file_store: roost.Store) -> None:
    browser = Browser(file_store, token=TOKEN)
    ticket = browser.app.ticket()
    assert browser.get("/", params={"token": ticket}).status_code == 200
    assert Browser(file_store, token=TOKEN).get("/").status_code == 403
    browser.cookies = httpx.Cookies()
    assert browser.get("/", params={"token": ticket}).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1:8808", 200), ("localhost:8808", 200), ("LOCALHOST", 200), ("[::1]:8808", 200), ("10.0.0.7", 200)),
        *(("console.internal:8808", 200), ("evil.example", 421), ("evil.example:8808", 421), ("", 421)),
        *(("127.0.0.1.evil.example", 421), ("localhost.evil.example", 421), ("127.0.0.1:x", 421), ("[::1", 421)),
        *(("user@evil.example", 421), ("2130706433.evil", 421), ("a b", 421)),
    ],
)
def test_only_addresses_and_known_names_are_hosts(file_store: roost.Store, host: str, status: int) -> None:
    browser = Browser(file_store, names=("console.internal",))
    assert browser.get("/check", headers={"host": host}).status_code == status


def form(browser: Browser, verb: str, **fields: str) -> dict[str, str]:
    return {"csrf": browser.csrf(), "verb": verb, "name": "visits", "key": '"5"', **fields}


def test_nothing_can_be_changed_unless_it_is_allowed(file_store: roost.Store) -> None:
    browser = Browser(file_store)
    assert '<form method="post" action="/act"' not in browser.get("/structure?name=visits&key=5").text
    for verb in ("clear", "forget", "remove", "drop", ""):
        assert browser.post("/act", form(browser, verb)).status_code == 403
    some = Browser(file_store, allow=frozenset(["forget"]))
    assert some.post("/act", form(some, "clear")).status_code == 403
    assert len(file_store.run(visits.latest(5))) == 5


def test_what_is_allowed_is_done(file_store: roost.Store) -> None:
    browser = Browser(file_store, allow=allowed("clear, forget,remove"))
    page = browser.get("/structure?name=baskets&key=42").text
    assert page.count('action="/act"') == 3
    done = browser.post("/act", form(browser, "remove", name="baskets", key='"42"', **{"member-egg": "7"}))
    assert done.status_code == 303
    assert "remove: 1" in browser.text(done.headers["location"])
    assert file_store.run(baskets.count(42)) == 7
    browser.post("/act", form(browser, "remove", name="likes", key='"7"', **{"member-member": "fan 7"}))
    assert file_store.run(likes.size(7)) == 7
    assert browser.post("/act", form(browser, "clear")).status_code == 303
    assert file_store.run(visits.latest(5)) == []
    browser.post("/act", form(browser, "forget"))
    assert file_store.run(visits.keys()) == []
    assert browser.post("/act", form(browser, "remove", name="likes", key='"7"')).status_code == 303  # of the member ""
    assert browser.post("/act", form(browser, "remove", name="baskets", key='"42"')).status_code == 400
    for key in ("5", "[" * 20_000, '"\\ud800"'):
        assert browser.post("/act", form(browser, "clear", key=key)).status_code == 400
    assert browser.post("/act", form(browser, "remove")).status_code == 400  # of a ring


def test_a_form_of_another_site_changes_nothing(file_store: roost.Store) -> None:
    browser = Browser(file_store, allow=frozenset(["clear"]))
    good = form(browser, "clear")
    for data in ({**good, "csrf": "guess"}, {**good, "csrf": ""}, {k: v for k, v in good.items() if k != "csrf"}):
        assert browser.post("/act", data).status_code == 403
        assert browser.post("/check", data).status_code == 403
    for headers in (
        *({"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"}),
        *({"origin": ""}, {"origin": "http://[x"}, {"origin": "http://user@127.0.0.1:8808"}),
        *({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}),
    ):
        assert browser.post("/act", good, headers=headers).status_code == 403
    assert browser.get("/act?verb=clear&name=visits&key=5").status_code == 405
    assert len(file_store.run(visits.latest(5))) == 5
    assert browser.post("/act", good, headers={"origin": BASE, "sec-fetch-site": "same-origin"}).status_code == 303


def test_connections_are_few_and_closed_when_they_ask_nothing(
    file_store: roost.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(*sent: bytes) -> list[bytes]:
        config = configured(Pages(file_store, Options(token=TOKEN)).guard)
        state = ServerState()
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1")
        port = listening.sockets[0].getsockname()[1]
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in sent]
        for (_, writer), data in zip(pairs, sent, strict=True):
            writer.write(data)
        answers = [await asyncio.wait_for(reader.read(), 60) for reader, _ in pairs]  # until it is closed
        for _, writer in pairs:
            writer.close()
        listening.close()
        return answers

    host, refused = b"Host: localhost\r\n", b"HTTP/1.1 403 Forbidden"
    body = b"POST /act HTTP/1.1\r\n" + host + b"Content-Length: 99999999\r\n\r\nx"
    begun = b"GET / HTTP/1.1\r\n" + host + b"Authorization: Bearer " + TOKEN.encode()
    half = begun.replace(b"GET /", b"POST /check") + b"\r\nContent-Length: 9\r\n\r\nx"
    monkeypatch.setattr("roost.console.app.PATIENCE", 0.1)
    found = asyncio.run(main(b"", b"GET / HTTP/1.1\r\nX: ", begun, half, body, begun + b"\r\n\r\n"))
    assert found[:4] == [b""] * 4
    assert [each.partition(b"\r\n")[0] for each in found[4:]] == [refused, b"HTTP/1.1 200 OK"]
    monkeypatch.undo()
    monkeypatch.setattr("roost.console.app.MOST", 0)
    assert asyncio.run(main(b"", b"")) == [b"", b""]


def test_a_long_form_is_refused(file_store: roost.Store) -> None:
    browser = Browser(file_store, allow=frozenset(["clear"]))
    assert browser.post("/act", form(browser, "clear", key="x" * 2**17)).status_code == 413


def test_who_goes_in_the_middle_of_a_form_is_no_error(file_store: roost.Store) -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def unheard(message: object) -> None:
        pass

    address = {"path": "/check", "query_string": b"", "headers": [(b"host", b"127.0.0.1")]}
    asyncio.run(Browser(file_store).app({"type": "http", "method": "POST", **address}, gone, unheard))


def test_what_may_be_allowed() -> None:
    assert allowed("") == frozenset()
    with pytest.raises(Invalid, match="clear, forget, remove"):
        allowed("clear,drop")
