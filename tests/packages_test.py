"""What users install: wheel and sdist go into empty environments; each extra has all that its use needs.

Building and installing downloads: only where everything has to be run.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = sorted(PROJECT["project"]["optional-dependencies"])
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

downloads = pytest.mark.skipif(os.environ.get("ROOST_TEST_ALL") != "1", reason="downloads: with ROOST_TEST_ALL=1")

# Run before a use of an extra, with the modules that an environment with this extra alone has not.
HIDE = """\
import sys
sys.path.insert(0, {sources!r})

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import roost
"""


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
    maker = environment(folder / "maker", "build", *PROJECT["build-system"]["requires"])
    run(maker, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@downloads
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


@downloads
@pytest.mark.parametrize("extra", ["", "console"])
def test_it_is_installed_where_nothing_else_is(built: Path, tmp_path: Path, extra: str) -> None:
    (package,) = built.glob("*.tar.gz" if extra == "" else "*.whl")
    python = environment(tmp_path / "empty", f"{package}[{extra}]" if extra else str(package))
    assert run(python, "-c", f"import roost; {USES[extra]}", cwd=tmp_path) == "1\n"
    assert run(python, "-m", "roost", "--version", cwd=tmp_path).startswith("roost ")
    assert "doctor" in run(tmp_path / "empty/bin/roost", "--help", cwd=tmp_path)


def installed_with(extra: str) -> set[str]:
    """Return the distributions that pip installs with an extra, by what each of them requires."""
    found: set[tuple[str, str]] = set()
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].get(extra, [])]
    todo = [(each, "") for each in asked]
    while todo:
        text, within = todo.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": within}):
            continue
        for each in {"", *requirement.extras}:
            if (name := (canonicalize_name(requirement.name), each)) not in found:
                found.add(name)
                todo += [(needed, each) for needed in metadata.requires(requirement.name) or []]
    return {name for name, _ in found}


modules = functools.cache(metadata.packages_distributions)  # reads every distribution's list of files


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_has_all_that_its_use_needs(extra: str, tmp_path: Path) -> None:
    allowed = {"roost", *installed_with(extra)}
    hidden = {name for name, of in modules().items() if not allowed & {canonicalize_name(each) for each in of}}
    assert {"pytest", "mypy"} <= hidden
    program = HIDE.format(hidden=hidden, sources=str(ROOT / "src")) + USES[extra]
    assert run(sys.executable, "-c", program, cwd=tmp_path) == "1\n"
