"""The console as a browser shows it: Chromium, from the packages chromium and chromium-driver.

ROOST_SCREENSHOTS=1 also writes the pictures of docs/images.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import roost
from tests import servers
from tests.console.conftest import fill, logins
from tests.suite.shapes import Visit, likes, visits

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@dataclass(frozen=True)
class Result:
    game: str
    player: str
    points: int


recent = roost.Ring("recent", Visit, per="uid", keep=24)
board = roost.Capped("board", Result, per="game", keep=8, unique="player", order="points", on_duplicate="best")
PLAYERS = ("ada", "grace", "edsger", "barbara", "donald", "tony", "frances", "niklaus", "john", "karen")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[roost.Store]:
    with roost.Store(f"sqlite:///{folder}/shop.db") as found:
        fill(found)
        found.create(recent, board)
        for n in range(19):
            found.run_all(recent.push(Visit(7, 1400 + 17 * n)), logins.take("bob"))
        found.run_all(*[board.add(Result("go", player, 90 - n * n)) for n, player in enumerate(PLAYERS)])
        found.run(likes.add(7, "שלום", "a" * 255, "<b>bold</b>"))
        yield found


@pytest.fixture(scope="module")
def link(store: roost.Store, folder: Path) -> Iterator[str]:
    options = ["--address", "127.0.0.1:0", "--no-browser", "--json", "--show-values", "--attended"]
    command = [sys.executable, "-m", "roost.cli", "console", "sqlite:///shop.db", *options]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield json.loads(process.stdout.readline())["console"]
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        servers.not_run(servers.NotHere("no Chromium: apt install chromium chromium-driver"))
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("profile")
    plain = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars")
    for argument in (*plain, f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def browser(chromium: Any, link: str) -> Iterator[Any]:
    """Chromium on the index; at the end nothing was complained of, and no other server was asked."""
    chromium.get(link)
    waited(chromium, lambda: "token" not in chromium.current_url and chromium.find_elements("id", "structures"))
    yield chromium
    complaints = [each for each in chromium.get_log("browser") if each["level"] == "SEVERE"]
    assert complaints == []
    sent = [json.loads(each["message"])["message"] for each in chromium.get_log("performance")]
    asked = {each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"}
    base = link.partition("?")[0]
    assert [url for url in asked if url.startswith("http") and not url.startswith(base)] == []


def waited(chromium: Any, condition: Any) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(chromium, 60).until(lambda _: condition())


def sized(chromium: Any, width: int, height: int = 900, scheme: str = "light") -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def opened(chromium: Any, path: str) -> None:
    chromium.get(f"{chromium.current_url.split('/', 3)[0]}//{chromium.current_url.split('/', 3)[2]}{path}")


PATHS = (
    *("/", "/structure?name=cached", "/structure?name=visits&key=5", "/structure?name=best&key=go"),
    *("/structure?name=views&key=/home", "/structure?name=logins&key=ada", "/structure?name=likes&key=7", "/doctor"),
)


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_and_can_be_read(browser: Any, width: int, scheme: str) -> None:
    for path in PATHS:
        sized(browser, width, scheme=scheme)
        opened(browser, path)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path
        ground, ink = browser.execute_script(
            "const of = getComputedStyle(document.body); return [of.backgroundColor, of.color]"
        )
        assert abs(lightness(ground) - lightness(ink)) > 0.6
        assert (lightness(ground) > 0.5) is (scheme == "light")


def lightness(colour: str) -> float:
    parts = [float(each) for each in colour.partition("(")[2].rstrip(")").replace(",", " ").split()[:3]]
    return sum(parts) / 3 / 255


def test_the_keyboard_leads_everywhere(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    sized(browser, 1400)
    opened(browser, "/")
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "To the content"
    names = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.switch_to.active_element
        names.append(element.text)
        if element.text == "visits":
            break
    assert "visits" in names
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    waited(browser, lambda: "name=visits" in browser.current_url)
    browser.find_element("css selector", ".lookup input[name=key]").send_keys("5", Keys.ENTER)
    waited(browser, lambda: "key=5" in browser.current_url)
    assert "Sequence" in browser.find_element("tag name", "main").text


def test_a_page_is_live_while_it_is_looked_at(browser: Any, store: roost.Store) -> None:
    opened(browser, "/structure?name=visits&key=99")
    assert "Sequence 0" in browser.find_element("id", "content").text
    store.run(visits.push(Visit(99, 1)))
    waited(browser, lambda: "Sequence 1," in browser.find_element("id", "content").text)
    assert browser.find_element("id", "live").text == "live"


def test_markup_in_values_stays_text(browser: Any) -> None:
    opened(browser, "/structure?name=likes&key=7")
    assert "<b>bold</b>" in browser.find_element("id", "content").text
    assert browser.find_elements("css selector", "#content b") == []


def test_the_pictures_of_the_documentation_are_small(browser: Any, store: roost.Store, tmp_path: Path) -> None:
    images = IMAGES if os.environ.get("ROOST_SCREENSHOTS") else tmp_path
    shown = {
        "console": ("/", 1100, 640, "light"),
        "console-ring": ("/structure?name=recent&key=7", 900, 720, "light"),
        "console-leaderboard": ("/structure?name=board&key=go", 900, 520, "dark"),
    }
    for name, (path, width, height, scheme) in shown.items():
        sized(browser, width, height, scheme)
        opened(browser, path)
        if path == "/":  # something to see: what is written meanwhile
            for n in range(3):
                store.run_all(*[recent.push(Visit(7 + n, each)) for each in range(40 * (n + 1))])
                browser.find_element("tag name", "body")
        waited(browser, lambda: browser.find_element("id", "live").text == "live")
        target = images / f"{name}.png"
        assert browser.save_screenshot(str(target))
        assert target.stat().st_size < 150_000
