"""What is public is complete, sorted and explained; and imports go one way, downwards."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roost

SOURCE = Path(roost.__file__).parent
PUBLIC: dict[str, Any] = {name: getattr(roost, name) for name in roost.__all__}
CLASSES = {name: each for name, each in PUBLIC.items() if inspect.isclass(each)}
ERRORS = {name for name, each in CLASSES.items() if issubclass(each, roost.Error)}

# Classes that a user makes, and the value that the methods of a structure make: each shows how, in a doctest.
WITH_EXAMPLE = "AsyncStore Cache Capped Counter Index Lease MemcachedSet Operation RateLimit Ring Set Store"


def test_all_names_everything_that_init_imports_once_and_nothing_else() -> None:
    names = ast.parse((SOURCE / "__init__.py").read_text()).body
    imported = [alias.name for node in names if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(roost.__all__) == sorted({*imported, *ERRORS} - {"errors", "*"})
    kinds = [type(node).__name__ for node in names if not isinstance(node, ast.ImportFrom)]
    assert kinds == ["Expr", "Assign", "AugAssign"]


def test_every_error_is_public() -> None:
    errors = importlib.import_module("roost.errors")
    assert errors.__all__ == sorted(errors.__all__)
    assert set(errors.__all__) == ERRORS
    defined = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, Exception) and each.__module__ == errors.__name__
    }
    assert defined == ERRORS


def methods(name: str, cls: type[Any]) -> Iterator[tuple[str, Any]]:
    for attribute, value in vars(cls).items():
        if not attribute.startswith("_") and (callable(value) or isinstance(value, (property, classmethod))):
            yield f"{name}.{attribute}", value


def test_everything_public_has_a_docstring_of_its_own() -> None:
    explained = [*PUBLIC.items(), *[each for name, cls in CLASSES.items() for each in methods(name, cls)]]
    for where, each in explained:
        doc = vars(each).get("__doc__") if inspect.isclass(each) else each.__doc__
        assert doc, where
        assert not doc.startswith(f"{where.rpartition('.')[2]}("), where  # what dataclass writes when nobody did
        first = doc.strip().splitlines()[0]
        assert first.endswith("."), where
        assert len(first) > 10, where


@pytest.mark.parametrize("name", WITH_EXAMPLE.split())
def test_what_a_user_makes_has_an_example(name: str) -> None:
    lines = (inspect.getdoc(PUBLIC[name]) or "").splitlines()
    example = [line for line in lines if line.startswith((">>> ", "... "))]
    assert any("import" in line and "roost" in line for line in example)
    assert len(example) > 2


def test_every_class_has_an_example_or_is_an_error_or_an_answer() -> None:
    # Answers (Entry, Stats, Violation) and the bases of stores are shown where they come from.
    others = "AsyncRunner Entry Grant Item Runner SetInfo Stats Structure Taken Violation Where While"
    assert set(CLASSES) - ERRORS - set(WITH_EXAMPLE.split()) == set(others.split())


# --- imports -----------------------------------------------------------------------------------------------------

# The packages below the store, lowest first: each imports from itself and from those before it.
PACKAGES = ["errors", "types", "dialects", "structures", "protocols", "catalog", "capping", "databases", "batching"]
# What makes something of stores, and may therefore import `roost` itself.
USERS = {"console", "__init__", "__main__", "cli", "contrib", "server", "client"}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path, *, at_runtime: bool = False) -> set[str]:
    """Return the modules of Roost that a file imports, wherever in it."""
    found: set[str] = set()

    def look(node: ast.AST) -> None:
        if at_runtime and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if at_runtime and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the package"
            module = node.module or ""
            submodules = {f"{module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found.update(submodules or {module})
        for child in ast.iter_child_nodes(node):
            look(child)

    look(parsed(path))
    return {name for name in found if name.split(".")[0] == "roost"}


MODULES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def package_of(module: str) -> str:
    """Return the part behind `roost.`, the file or the folder; that of `roost` itself is `__init__`."""
    return [*module.split("."), "__init__"][1]


def test_there_are_files_in_every_room() -> None:
    found = {package_of(module) for module in MODULES}
    assert found >= {*PACKAGES, "store", "__init__"}


def test_imports_go_downwards() -> None:
    for module, path in MODULES.items():
        package = package_of(module)
        packages = {package_of(module) for module in imports(path)}
        if package in PACKAGES:
            assert packages <= set(PACKAGES[: PACKAGES.index(package) + 1]), module
        elif package not in USERS:
            assert not packages & USERS, module
        if package not in USERS | {"store"}:
            assert "store" not in packages, module


def third_party(path: Path) -> set[str]:
    """Return what a file imports from other libraries, by their first names."""
    tree = parsed(path)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"roost"}


# What is imported where it is needed, so that Roost is installed without it.
OPTIONAL = {
    "apsw": {"databases.sqlite.apsw"},
    "asyncmy": {"databases"},
    "asyncpg": {"databases"},
    "pymemcache": {"databases"},
    "pymysql": {"databases"},
    "psycopg": {"databases", "contrib"},
    "jinja2": {"console"},
    "starlette": {"console"},
    "uvicorn": {"console"},
    "click": {"cli"},
    "rich": {"cli"},
    "alembic": {"contrib.alembic"},
    "aiocache": {"contrib.aiocache"},
    "cachelib": {"contrib.cachelib"},
    "celery": {"contrib.celery"},
    "dogpile": {"contrib.dogpile"},
    "limits": {"contrib.limits"},
    "msgpack": {"contrib.serializers"},
    "requests_cache": {"contrib.requests_cache"},
    "starsessions": {"contrib.starsessions"},
    "django": {"contrib.django"},
    "sqlalchemy": {"contrib.alembic"},
    "greenlet": {"server.tasks"},
    "uvloop": {"server"},
    "prometheus_client": {"console.app", "contrib.prometheus", "server.http"},
    "typing_extensions": {"structures"},  # for type checkers alone
    "asgiref": {"contrib.django"},  # comes with Django
}


def test_other_libraries_are_imported_in_their_rooms() -> None:
    for name, path in MODULES.items():
        module = name.removeprefix("roost.")
        for library in third_party(path):
            rooms = OPTIONAL[library]
            assert any(module == room or module.startswith(f"{room}.") for room in rooms), f"{name}: {library}"


def test_entry_points_lead_somewhere() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for group, points in project["entry-points"].items():
        for name, target in points.items():
            module, _, attribute = target.partition(":")
            found = importlib.import_module(module)
            assert not attribute or hasattr(found, attribute), f"{group}: {name}"


def test_what_one_integration_needs_is_not_imported_by_roost() -> None:
    names = ", ".join(map(repr, sorted(OPTIONAL)))
    program = f"import roost, roost.cli, sys; print(*sorted({{{names}}} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["click", "rich"]


def test_no_module_needs_itself() -> None:
    graph = {module: imports(path, at_runtime=True) - {module} for module, path in MODULES.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
    assert order.index("roost.errors") < order.index("roost.store.store") < order.index("roost")


def test_the_rooms_below_the_databases_do_no_io() -> None:
    # Not proof, but what would be needed for it: files, sockets, threads, processes, clocks, databases.
    io = {"asyncio", "concurrent", "io", "os", "pathlib", "random", "select", "selectors", "shutil", "socket"}
    io |= {"sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib"}
    for module, path in MODULES.items():
        if package_of(module) in PACKAGES[: PACKAGES.index("databases")]:
            tree = parsed(path)
            names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not {name.split(".")[0] for name in names} & io, module
            used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            assert not used & {"open", "print", "input"}, module


def test_the_server_and_protocols_know_no_database() -> None:
    """The server has sockets, turns and processes; a protocol has neither sockets nor SQL."""
    below = {
        "server",
        "protocols",
        "errors",
        "store.served",
        "databases.addresses",
        "databases.urls",
        "databases.waits",
        "batching.batch",
        "batching.atoms",
    }
    below |= {"store.served_databases"}
    of_protocols = {"protocols", "errors", "structures.index.declaration", "structures.index.runs"}
    of_protocols |= {"structures.index.budget"}
    of_protocols |= {"structures.operation", "structures.cache.declaration"}  # without SQL
    for module, path in MODULES.items():
        package = package_of(module)
        if package in ("server", "protocols"):
            names = {name.removeprefix("roost.") for name in imports(path)}
            allowed = below if package == "server" else of_protocols
            strange = {name for name in names if not {name, name.split(".")[0]} & allowed}
            assert not strange, f"{module}: {strange}"
            if package == "protocols":
                assert not third_party(path)


def test_no_two_modules_need_each_other_even_for_types() -> None:
    for package in ("server", "protocols", "structures.index"):
        graph = {
            module: imports(path) - {module}
            for module, path in MODULES.items()
            if module.startswith(f"roost.{package}")
        }
        list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
