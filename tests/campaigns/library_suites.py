"""The tests of the libraries whose adapters Roost has, with Roost behind them: `--library` and `--database` name some.

A library's tests come with its source distribution, which pip downloads, or with its repository: `--sources` names a
folder in which each library's is unpacked under its name. What cannot be had is reported as not run. None of them is
copied here: a file of `suites` takes the tests that are for every backend and gives them Roost's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests import servers

DATABASES = ("sqlite", *servers.SERVERS)
TOOLS = (
    "pytest-asyncio",
    "pytest-mock",
    "pytest-httpbin",
    "pytest-xprocess",
    "requests-mock",
    "time-machine",
    "pyyaml",
)


class Suite(NamedTuple):
    """A library's tests.

    package: as pip knows it. needs: a file of its tests, without which the sources are not whole.
    place: the folder of the file that takes them. others: tests that do not apply, each with the reason.
    """

    package: str
    needs: str
    place: str = "."
    options: tuple[str, ...] = ()
    others: Mapping[str, str] = {}


HUGE = {"test_moving_window_huge_cost": "has a million hits in a moving window, which has at most 10,000"}
NO_POLLING = dict.fromkeys(
    ["test_on_chord_part_return", "test_chord_apply_fallback"], "is for backends that cannot count, and poll"
)
SUITES: Mapping[str, Suite] = {
    "limits": Suite("limits", "tests/test_strategy.py", others=HUGE),
    "dogpile": Suite("dogpile.cache", ""),  # they are installed with it
    "aiocache": Suite(
        "aiocache",
        "tests/acceptance/test_base.py",
        ".",
        ("-o", "asyncio_mode=auto"),
        {"test_raw": "sends commands of Redis'"},
    ),
    "diskcache": Suite("diskcache", "tests/test_core.py"),
    "celery": Suite(
        "celery", "t/unit/backends/test_base.py", "t/unit/backends", ("-o", "python_classes=test_*"), NO_POLLING
    ),
    "starsessions": Suite("starsessions", "tests/test_rolling_session.py", ".", ("-o", "asyncio_mode=auto")),
    "requests_cache": Suite("requests-cache", "tests/integration/base_storage_test.py", "tests"),
    "cachelib": Suite("cachelib", "tests/common.py", "tests"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=SUITES, action="append")
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--tools", type=Path, help="a folder, to install once what their tests need")
    given = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = given.tools or folder / "tools"
        if not tools.exists():
            install(tools)
        for library in given.library or SUITES:
            source = unpacked(library, folder, given.sources)
            if source is None:
                print(f"{library}: not run, its tests cannot be had here")
                continue
            databases = ["sqlite"] if library == "diskcache" else given.database or DATABASES
            failed += [f"{library} on {each}" for each in databases if not passes(library, source, tools, each)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def install(folder: Path) -> None:
    """Install what the tests of libraries need beside what Roost's own do."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*pip, *TOOLS], check=True)
    for name in ("pytest", "_pytest", "pluggy", "requests", "greenlet", "flask", "click"):  # which are here already
        shutil.rmtree(folder / name, ignore_errors=True)
        for each in folder.glob(f"{name}-*.dist-info"):
            shutil.rmtree(each)


def unpacked(library: str, folder: Path, sources: Path | None) -> Path | None:
    """Return a copy of a library's source, with its tests; None if it cannot be had."""
    suite, target = SUITES[library], folder / library
    if not suite.needs:
        target.mkdir()
        return target
    if sources is not None and (sources / library).exists():
        shutil.copytree(sources / library, target)
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps", "--dest"]
        where = folder / f"{library}-archive"
        if subprocess.run([*pip, str(where), f"{suite.package}=={version(suite.package)}"]).returncode:
            return None
        (archive,) = where.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder / f"{library}-unpacked", filter="data")
        (found,) = (folder / f"{library}-unpacked").iterdir()
        shutil.copytree(found, target)
    return target if (target / suite.needs).exists() else None


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


def passes(library: str, source: Path, tools: Path, name: str, *options: str) -> bool:
    """Run a library's tests on one database, in a process of its own."""
    suite, here = SUITES[library], Path(__file__).parent
    tests = source / Path(suite.needs).parts[0] if suite.needs else source
    binding = source / suite.place / "test_roost.py"
    shutil.copy(here / "suites" / f"{library}.py", binding)
    if library == "limits":
        (tests / "conftest.py").unlink(missing_ok=True)  # it needs a dozen servers
    shutil.rmtree(source / library, ignore_errors=True)  # the library that is installed is tested
    for settings in ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini"):
        (source / settings).unlink(missing_ok=True)
    path = [str(here.parents[1] / "src"), str(source), str(source / suite.place), str(tools)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore"]
    command += [] if library == "requests_cache" else ["-p", "no:httpbin"]
    try:
        with database(name, source) as url:
            environment = {**os.environ, "ROOST_TEST_URL": url, "PYTHONPATH": os.pathsep.join(path)}
            environment["USE_PYTEST_HTTPBIN"] = "true"
            print(f"--- {library} on {name}", flush=True)
            ran = subprocess.run(
                [*command, *suite.options, *options, "-k", unless(suite.others), str(binding)],
                cwd=source, env=environment,
            )  # fmt: skip
    except servers.NotHere as error:
        print(f"{library} on {name}: not run, {error}")
        return True
    return not ran.returncode


def unless(others: Mapping[str, str]) -> str:
    return " and ".join(f"not {each}" for each in others) or ""


if __name__ == "__main__":
    main()
