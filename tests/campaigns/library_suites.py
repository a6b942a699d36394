"""The tests of the libraries whose adapters Roost has, with Roost behind them: `--library` and `--database` name some.

A library's tests come with its source distribution, which pip downloads once, or with its repository: `--sources`
names a folder in which each library's is unpacked under its name. What cannot be had is reported as not run. None of
them is copied here: a file of `suites` takes the tests that are for every backend and gives them Roost's.
`tests/contrib/doors_test.py` runs all of them on SQLite, but for those that wait.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests import mysql_server, servers

DATABASES = ("sqlite", *servers.SERVERS)
TOOLS = "flaky pytest-asyncio pytest-mock pytest-httpbin pytest-xprocess requests-mock time-machine pyyaml"


class Suite(NamedTuple):
    """A library's tests.

    package: as pip knows it. needs: a file of its tests, without which the sources are not whole.
    place: the folder of the file that takes them. others: tests that do not apply, each with the reason.
    waits: which tests wait, or look at a clock, in the words of pytest's `-k`: left out where it has to be quick.
    """

    package: str
    needs: str
    place: str = "."
    options: tuple[str, ...] = ()
    others: Mapping[str, str] = {}
    waits: str = ""


HUGE = {"test_moving_window_huge_cost": "has a million hits in a moving window, which has at most 10,000"}
NO_POLLING = dict.fromkeys(
    ["test_on_chord_part_return", "test_chord_apply_fallback"], "is for backends that cannot count, and poll"
)
SUITES: Mapping[str, Suite] = {
    "limits": Suite(
        "limits",
        "tests/test_strategy.py",
        others=HUGE,
        waits="(FixedWindow or SlidingWindow or MovingWindow) and not (varying or empty) or expiry",
    ),
    "dogpile": Suite("dogpile.cache", "", waits="time_intensive"),  # they are installed with it
    "aiocache": Suite(
        "aiocache",
        "tests/acceptance/test_base.py",
        ".",
        ("-o", "asyncio_mode=auto"),
        {"test_raw": "sends commands of Redis'"},
        "ttl or expire or lease or dogpile",
    ),
    "diskcache": Suite("diskcache", "tests/test_core.py"),
    "celery": Suite(
        "celery", "t/unit/backends/test_base.py", "t/unit/backends", ("-o", "python_classes=test_*"), NO_POLLING
    ),
    "starsessions": Suite("starsessions", "tests/test_rolling_session.py", ".", ("-o", "asyncio_mode=auto")),
    "requests_cache": Suite(
        "requests-cache", "tests/integration/base_storage_test.py", "tests", waits="ProcessPool or expired"
    ),
    "cachelib": Suite("cachelib", "tests/common.py", "tests", waits="expiration"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=SUITES, action="append")
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--sources", type=Path)
    given = parser.parse_args()
    failed = []
    for library in given.library or SUITES:
        for name in ["sqlite"] if library == "diskcache" else given.database or DATABASES:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    failed += [] if passes(library, name, Path(folder), given.sources) else [f"{library} on {name}"]
                except servers.NotHere as error:
                    print(f"{library} on {name}: not run, {error}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def fetched(name: str, make: Callable[[Path], Path]) -> Path:
    """Return what pip has brought once and for all."""
    try:
        return mysql_server.fetched(f"{name}-{sys.version_info.major}.{sys.version_info.minor}", make)
    except mysql_server.Unavailable as error:
        raise servers.NotHad(f"NOT RUN: {error}") from error


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--retries", "0", "--timeout", "15", *words]
    subprocess.run(command, check=True, capture_output=True, text=True)


def tools() -> Path:
    """Return a folder with what the tests of libraries need beside what Roost's own do."""

    def install(folder: Path) -> Path:
        pip("install", "--target", f"{folder}/tools", *TOOLS.split())
        for name in ("pytest", "_pytest", "pluggy", "requests", "greenlet", "flask", "click"):  # which are here already
            for each in [folder / "tools" / name, *folder.glob(f"tools/{name}-*.dist-info")]:
                shutil.rmtree(each, ignore_errors=True)
        return folder / "tools"

    return fetched("tools-of-suites", install)


def sources_of(library: str, sources: Path | None) -> Path:
    """Return the folder with a library's source and its tests."""
    suite = SUITES[library]
    asked = f"{suite.package}=={version(suite.package)}"

    def download(folder: Path) -> Path:
        pip("download", "--no-binary", ":all:", "--no-deps", "--dest", f"{folder}/archive", asked)
        (archive,) = folder.glob("archive/*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder / "unpacked", filter="data")
        (found,) = folder.glob("unpacked/*")
        return found

    given = sources / library if sources is not None else None
    found = given if given is not None and given.exists() else fetched(asked, download)
    if not (found / suite.needs).exists():
        raise servers.NotHad(f"NOT RUN: the source distribution of {asked} has no tests; its repository has them")
    return found


@contextmanager
def database(name: str, folder: Path) -> Iterator[str]:
    """Give a database of its own."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/suite.db"
        (folder / "suite.db").unlink(missing_ok=True)
        return
    servers.SERVERS[name]()
    with servers.database(name) as url:
        yield url


def passes(library: str, name: str, folder: Path, sources: Path | None = None, quick: bool = False) -> bool:
    """Run a library's tests on one database, in a process of its own; `NotHere` if they, or it, cannot be had."""
    suite, here, source = SUITES[library], Path(__file__).parent, folder / library
    if suite.needs:
        shutil.copytree(sources_of(library, sources), source)
    else:
        source.mkdir()
    tests = source / Path(suite.needs).parts[0] if suite.needs else source
    binding = source / suite.place / "test_roost.py"
    shutil.copy(here / "suites" / f"{library}.py", binding)
    if library == "limits":
        (tests / "conftest.py").unlink(missing_ok=True)  # it needs a dozen servers
    shutil.rmtree(source / library, ignore_errors=True)  # the library that is installed is tested
    for settings in ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini"):
        (source / settings).unlink(missing_ok=True)
    path = [str(here.parents[1] / "src"), str(source), str(source / suite.place)]
    path += [str(tools())] if suite.needs else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore"]
    command += [] if library == "requests_cache" else ["-p", "no:httpbin"]
    left = [*suite.others, *([f"({suite.waits})"] if quick and suite.waits else [])]
    with database(name, source) as url:
        environment = {**os.environ, "ROOST_TEST_URL": url, "PYTHONPATH": os.pathsep.join(path)}
        environment["USE_PYTEST_HTTPBIN"] = "true"
        print(f"--- {library} on {name}", flush=True)
        unless = " and ".join(f"not {each}" for each in left)
        ran = subprocess.run([*command, *suite.options, "-k", unless, str(binding)], cwd=source, env=environment)
    return not ran.returncode


if __name__ == "__main__":
    main()
