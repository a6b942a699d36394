"""What users install: wheel and sdist are built and installed into empty environments, with each extra alone.

It downloads, and takes minutes: only where everything has to be run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
# What an extra is for, in an environment that has nothing else.
USES = {
    "": "store = roost.Store('sqlite://'); c = roost.Counter('c'); store.create(c); print(store.run(c.increment('a')))",
    "aiocache": "from roost.contrib.aiocache import RoostCache; print(1)",
    "celery": "from roost.contrib.celery import RoostBackend; print(1)",
    "console": "from roost.console.app import Pages, Options; "
    "print(Pages(roost.Store('sqlite://'), Options()).page('doctor.html', found=[]).status_code - 199)",
    "django": "import roost.contrib.django; print(1)",
    "dogpile": "from roost.contrib.dogpile import RoostBackend; print(1)",
    "limits": "import roost.contrib.limits; print(1)",
    "memcached": "roost.Store('memcached://127.0.0.1:1'); print(1)",
    "msgpack": "from roost.contrib.serializers import MsgPack; MsgPack(); print(1)",
    "mysql": "print(len(roost.Store('mysql://host/db?dialect=mysql').ddl(roost.Counter('c'))) and 1)",
    "postgresql": "print(len(roost.Store('postgresql://').ddl(roost.Counter('c'))) and 1)",
    "postgresql-binary": "import psycopg; print(len(roost.Store('postgresql://').ddl(roost.Counter('c'))) and 1)",
    "prometheus": "import roost.contrib.prometheus; print(1)",
    "requests-cache": "from roost.contrib.requests_cache import RoostCache; print(1)",
    "server": "import roost.server.settings, apsw, greenlet, uvloop; print(1)",
    "starsessions": "from roost.contrib.starsessions import RoostStore; print(1)",
}

pytestmark = pytest.mark.skipif(os.environ.get("ROOST_TEST_ALL") != "1", reason="long: with ROOST_TEST_ALL=1")


def run(*command: str | Path, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment that has nothing, not even pip; return its interpreter, when packages are installed."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin/python"
    install = ("install", "--quiet", "--no-compile", *packages)  # a whole Django takes seconds to compile
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder.parent)
    return python


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist; the wheel is built from the sdist.

    In an environment that has what builds it: the installation from the sdist has that fetched by pip.
    """
    folder = tmp_path_factory.mktemp("built")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    maker = environment(folder / "maker", "build", *project["build-system"]["requires"])
    run(maker, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_the_packages_have_what_they_need_and_no_more(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"roost/__init__.py", "roost/__main__.py", "roost/py.typed"} <= set(names)
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/roost").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    for shown in ("roost/console/static/console.css", "roost/console/templates/index.html"):
        assert shown in names
    with tarfile.open(sdist) as archive:
        members = [name.partition("/")[2] for name in archive.getnames()]
    assert {"README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "docs/README.md", "pyproject.toml"} <= set(members)
    assert [name for name in members if name.startswith(("tests/", "bench/", "."))] in ([], [".gitignore"])


def test_every_extra_has_its_use() -> None:
    assert sorted(USES) == sorted(["", *EXTRAS])


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_it_is_installed_where_nothing_else_is(built: Path, tmp_path: Path, extra: str) -> None:
    (package,) = built.glob("*.tar.gz" if extra == "" else "*.whl")
    python = environment(tmp_path / "empty", f"{package}[{extra}]" if extra else str(package))
    assert run(python, "-c", f"import roost; {USES[extra]}", cwd=tmp_path) == "1\n"
    assert run(python, "-m", "roost", "--version", cwd=tmp_path).startswith("roost ")
    assert "doctor" in run(tmp_path / "empty/bin/roost", "--help", cwd=tmp_path)
