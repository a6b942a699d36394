"""The console as a browser shows it: Chromium, from the packages chromium and chromium-driver.

ROOST_SCREENSHOTS=1 also writes the pictures of docs/images.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest

import roost
from tests import servers
from tests.console.conftest import KEYS, fill, logins, views
from tests.console.hostile_test import MARKUP, Note
from tests.lengths import length
from tests.suite.shapes import Visit, likes, pageviews, visits

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


@dataclass(frozen=True)
class Result:
    game: str
    player: str
    points: int


recent = roost.Ring("recent", Visit, per="uid", keep=24)
board = roost.Capped("board", Result, per="game", keep=8, unique="player", order="points", on_duplicate="best")
notes = roost.Ring("notes", Note, per="who", keep=3)
PLAYERS = ("ada", "grace", "edsger", "barbara", "donald", "tony", "frances", "niklaus", "john", "karen")
STRANGE = {  # keys, and a value of each
    **{each: each for each in (MARKUP, "a\0b", "\u202egpj.exe שלום")},
    "w" * 255: "w" * 1_000_000,
}


class Served(NamedTuple):
    """A console that shows all and lets change all."""

    store: roost.Store
    link: str
    strange: dict[str, str]  # keys and values


DATABASES = ("sqlite", *servers.SERVERS)
# What Chromium makes of a page is the same whatever database it is about, and what is clicked asks a server, too; all
# of them are asked in pages_test.py, and by the campaign `suite`.
in_the_browser = pytest.mark.parametrize("served", length(["sqlite"], DATABASES), indirect=True)


@pytest.fixture(scope="module", params=length(("sqlite", "postgresql"), DATABASES))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("browser")
    with servers.own_database(request.param, f"{folder}/shop.db") as url, roost.Store(url) as store:
        fill(store)
        store.create(recent, board, notes)
        for n in range(19):
            store.run_all(recent.push(Visit(7, 1400 + 17 * n)), logins.take("bob"))
        store.run_all(*[board.add(Result("go", player, 90 - n * n)) for n, player in enumerate(PLAYERS)])
        store.run(likes.add(7, "שלום", "a" * 255, "<b>bold</b>"))
        strange = {key: STRANGE[key] for key in STRANGE if request.param != "postgresql" or "\0" not in key}
        store.run_all(*[notes.push(Note(*each)) for each in strange.items()])
        options = ["--address", "127.0.0.1:0", "--no-browser", "--json", "--attended"]
        options += ["--show-values", "--allow", "clear,forget,remove"]
        shown = "sqlite:///shop.db" if request.param == "sqlite" else url
        command = [sys.executable, "-m", "roost.cli", "console", shown, *options]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=folder, text=True, **pipes) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            yield Served(store, json.loads(process.stdout.readline())["console"], strange)
            process.stdin.close()
            assert process.wait(60) == 0
        assert store.check() == []


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise servers.NotHere("no Chromium: apt install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("profile")
    plain = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars", "disable-gpu")
    for argument in (*plain, f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def browser(chromium: Any, served: Served) -> Iterator[Any]:
    """Chromium on the index; at the end nothing was complained of, and no other server was asked."""
    chromium.get(served.link)
    waited(chromium, lambda: "token" not in chromium.current_url and chromium.find_elements("id", "structures"))
    yield chromium
    chromium.get("about:blank")  # or it would ask a console that has ended
    complaints = [each for each in chromium.get_log("browser") if each["level"] == "SEVERE"]
    assert complaints == []
    sent = [json.loads(each["message"])["message"] for each in chromium.get_log("performance")]
    asked = {each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"}
    base = served.link.partition("?")[0]
    assert [url for url in asked if url.startswith("http") and not url.startswith(base)] == []


def waited(chromium: Any, condition: Any) -> None:
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.wait import WebDriverWait

    # A page that is left, or read anew, meanwhile, is looked at again.
    WebDriverWait(chromium, 60, ignored_exceptions=[WebDriverException]).until(lambda _: condition())


def sized(chromium: Any, width: int, height: int = 900, scheme: str = "light") -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def opened(chromium: Any, path: str) -> None:
    chromium.get("/".join(chromium.current_url.split("/", 3)[:3]) + path)


def clicked(chromium: Any, css: str, leads_to: str) -> None:
    """Click, and wait for a page whose address or text has this."""
    waited(chromium, lambda: chromium.find_element("css selector", css).click() is None)
    waited(chromium, lambda: leads_to in unquote(chromium.current_url) or leads_to in text(chromium))


def text(chromium: Any) -> str:
    found: str = chromium.execute_script("return document.querySelector('main')?.innerText ?? ''")
    return found


PATHS = (
    *(f"/structure?name={name}" for name in (*KEYS, "recent", "board")),
    *(f"/structure?name={name}&key={quote(key)}" for name, key in {**KEYS, "recent": "7", "board": "go"}.items()),
)
DIFFER = ("/", "/doctor", "/structure?name=notes")  # by what a database says of itself, and the length of what it says


LOOKS = ((360, "dark"), (1400, "light"), *length((), ((360, "light"), (1400, "dark"))))


def test_every_page_fits_and_can_be_read(browser: Any, served: Served) -> None:
    paths = (*PATHS, *(f"/structure?name=notes&key={quote(key)}" for key in served.strange))
    for path in (*DIFFER, *(paths if length(served.store.url.startswith("sqlite"), True) else ())):
        opened(browser, path)
        assert browser.find_element("tag name", "h1").text, path
        for width, scheme in LOOKS:
            sized(browser, width, scheme=scheme)
            wide, ground, ink = browser.execute_script(
                "const of = getComputedStyle(document.body);"
                "return [document.documentElement.scrollWidth, of.backgroundColor, of.color]"
            )
            assert wide <= width, path
            assert abs(lightness(ground) - lightness(ink)) > 0.6
            assert (lightness(ground) > 0.5) is (scheme == "light")


def lightness(colour: str) -> float:
    parts = [float(each) for each in colour.partition("(")[2].rstrip(")").replace(",", " ").split()[:3]]
    return sum(parts) / 3 / 255


def test_what_can_be_clicked(browser: Any, served: Served) -> None:
    sized(browser, 1400)
    clicked(browser, "a[href='/check']", "Check now")
    clicked(browser, "main button", "Every promise is kept")
    clicked(browser, "a[href='/doctor']", "durability")
    clicked(browser, ".brand", "Hot keys")
    clicked(browser, "a[href='/structure?name=likes']", "Look up")
    clicked(browser, "tbody a", "11 members")
    browser.find_element("css selector", "input[name=member-member]").send_keys("<b>bold</b>")
    browser.find_element("css selector", ".act:has(input[value=remove]) [type=checkbox]").click()
    clicked(browser, ".act:has(input[value=remove]) button", "remove: 1")
    assert served.store.run(likes.size(7)) == 10
    assert served.store.run(likes.add(7, "<b>bold</b>")) == 1


def test_strange_keys_are_found_by_clicking_and_their_values_stay_text(browser: Any, served: Served) -> None:
    opened(browser, "/structure?name=notes")
    assert len(browser.find_elements("css selector", "tbody a")) == len(served.strange)
    seen = ""
    for place in range(len(served.strange)):
        clicked(browser, f"tbody tr:nth-child({place + 1}) a", "Sequence 1,")
        seen += text(browser)
        assert browser.find_elements("css selector", "main img, main script") == []
        browser.find_element("css selector", ".act:has(input[value=clear]) [type=checkbox]").click()
        clicked(browser, ".act:has(input[value=clear]) button", "clear: 1")
        opened(browser, "/structure?name=notes")
    for said in ("</bdi></script><script>alert(1)", r"\u202egpj.exe שלום", "(1,000,000 characters)"):
        assert said in seen
    assert (r"a\x00b" in seen) is ("a\0b" in served.strange)
    assert served.store.run_all(*[notes.latest(key) for key in served.strange]) == ([],) * len(served.strange)


def pressed(chromium: Any, wanted: str, *keys: str) -> None:
    """Press the key for the next element until one has this text, type or name, and can be seen to be chosen."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    for _ in range(80):
        ActionChains(chromium, duration=0).send_keys(Keys.TAB).perform()
        *known, outline = chromium.execute_script(
            "const it = document.activeElement;"
            "return [it.innerText, it.name, it.type, getComputedStyle(it).outlineStyle]"
        )
        if wanted in known:
            assert outline == "solid"
            ActionChains(chromium, duration=0).send_keys(*keys).perform()
            return
    raise AssertionError(f"no way to {wanted}")


@in_the_browser
def test_the_keyboard_leads_everywhere(browser: Any, served: Served) -> None:
    from selenium.webdriver.common.keys import Keys

    sized(browser, 1400)
    opened(browser, "/")
    pressed(browser, "To the content", Keys.ENTER)
    pressed(browser, "visits", Keys.ENTER)
    waited(browser, lambda: "name=visits" in browser.current_url)
    pressed(browser, "key", "5", Keys.ENTER)
    waited(browser, lambda: "Sequence 8" in text(browser))
    pressed(browser, "checkbox", Keys.SPACE)
    pressed(browser, "Clear", Keys.ENTER)
    waited(browser, lambda: "clear: 5" in text(browser))
    pressed(browser, "Check", Keys.ENTER)
    waited(browser, lambda: "Check now" in text(browser))
    pressed(browser, "Check now", Keys.ENTER)
    waited(browser, lambda: "Every promise is kept" in text(browser))
    served.store.run(visits.forget(5))
    served.store.run_all(*[visits.push(Visit(5, 1000 + n)) for n in range(8)])


@in_the_browser
def test_without_scripts_everything_works(browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, "/")
        for css, words in (
            ("a[href='/structure?name=visits']", "8 pushed"),
            ("tbody a", "Sequence 8"),
            ("a[href='/check']", "Check now"),
            ("main button", "Every promise is kept"),
        ):
            browser.find_element("css selector", css).click()
            waited(browser, lambda words=words: words in browser.page_source)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@in_the_browser
def test_a_statement_is_copied(browser: Any, served: Served) -> None:
    rights = {
        "origin": served.link.partition("/?")[0],
        "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"],
    }
    browser.execute_cdp_cmd("Browser.grantPermissions", rights)
    opened(browser, "/structure?name=visits")
    clicked(browser, "[data-copy]", "Copied")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied.startswith("SELECT * FROM visits WHERE")


@in_the_browser
def test_a_page_is_live_while_it_is_looked_at(browser: Any, served: Served) -> None:
    opened(browser, "/structure?name=visits&key=99")
    assert "Sequence 0" in text(browser)
    served.store.run(visits.push(Visit(99, 1)))
    waited(browser, lambda: "Sequence 1," in text(browser))
    assert browser.find_element("id", "live").text == "live"
    served.store.run(visits.forget(99))


def source() -> str:
    """A sum of what the pages are drawn by."""
    console = ROOT / "src/roost/console"
    files = [*sorted(console.glob("templates/*")), *sorted(console.glob("static/*")), console / "pictures.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() + "\n"


@pytest.mark.parametrize("served", ["sqlite"], indirect=True)
def test_the_pictures_of_the_documentation_are_small(browser: Any, served: Served, tmp_path: Path) -> None:
    images = IMAGES if os.environ.get("ROOST_SCREENSHOTS") else tmp_path
    shown = {
        "console": ("/", 1100, 740, "light"),
        "console-ring": ("/structure?name=recent&key=7", 900, 720, "light"),
        "console-leaderboard": ("/structure?name=board&key=go", 900, 475, "dark"),
    }
    for name, (path, width, height, scheme) in shown.items():
        sized(browser, width, height, scheme)
        opened(browser, path)
        if path == "/":  # something to see: what is written meanwhile
            for n in range(3):
                served.store.run_all(*[recent.push(Visit(7 + n, each)) for each in range(40 * (n + 1))])
                served.store.run_all(*[pageviews.add(f"/page/{n}") for each in range(90 - 20 * n)])
                served.store.run_all(views.add("/home", n), board.add(Result("go", "ada", 91 + n)))
                browser.find_element("tag name", "body")
        waited(browser, lambda: browser.find_element("id", "live").text == "live")
        target = images / f"{name}.png"
        assert browser.save_screenshot(str(target))
        assert target.stat().st_size < 150_000
    (images / "source.sha256").write_text(source())


def test_the_pictures_of_the_documentation_are_of_these_pages() -> None:
    kept = (IMAGES / "source.sha256").read_text()
    assert kept == source(), "make them anew: ROOST_SCREENSHOTS=1 pytest tests/console/browser_test.py -k pictures"
