"""The documentation is under test: its examples run, its tables are complete, its limits are kept."""

from __future__ import annotations

import inspect
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import roost
from roost.cli import main
from roost.client.conversation import EXPLANATIONS
from tests.suite import shapes

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Egg:
    basket: int
    egg: int


baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_example_of_the_readme_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = blocks(ROOT / "README.md", "python")[0]
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(example, "README.md", "exec", dont_inherit=True), namespace)
    store = namespace["store"]
    assert isinstance(store, roost.Store)
    said = re.findall(r"print\(.*?\)\s+# (.*)", example)
    assert capsys.readouterr().out.splitlines() == said
    with closing(sqlite3.connect("app.db")) as connection:
        connection.executescript(blocks(ROOT / "README.md", "sql")[0])
        assert connection.execute("SELECT visitor FROM visitors WHERE uid = 5").fetchall() == [(1400254,), (1270881,)]
        assert connection.execute("SELECT total FROM pageviews").fetchall() == [(3,)]
    assert store.check() == []
    store.close()


def test_the_sql_of_the_page_on_views_runs(tmp_path: Path) -> None:
    with roost.Store(f"sqlite:///{tmp_path}/views.db") as store:
        store.create(shapes.pageviews, shapes.visits, shapes.likes, baskets)
        with closing(sqlite3.connect(tmp_path / "views.db")) as connection:
            connection.executescript(blocks(ROOT / "docs/sql-views.md", "sql")[0])
            assert connection.execute("SELECT * FROM pageviews").fetchall() == [("/home", 0)]
            assert connection.execute("SELECT * FROM visits").fetchall() == []
        assert store.run(shapes.likes.members(7)) == {"ada"}
        assert store.run(baskets.count(42)) == 1
        assert store.check() == []


def test_the_examples_of_the_page_on_transactions_run(tmp_path: Path) -> None:
    first, again, session = blocks(ROOT / "docs/transactions.md", "python")
    url = f"sqlite:///{tmp_path}/orders.db"
    with roost.Store(url) as store, closing(sqlite3.connect(tmp_path / "orders.db")) as connection:
        store.create(shapes.pageviews, shapes.visits)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        names = {**vars(shapes), "roost": roost, "store": store, "connection": connection}
        exec(first, names)
        exec(again, names)
        engine = sqlalchemy.create_engine(url)
        exec(session, {**names, "engine": engine, "sqlalchemy": sqlalchemy, "Session": Session})
        engine.dispose()
        assert connection.execute("SELECT id FROM orders").fetchall() == [(7,), (8,), (9,)]
        assert store.run(shapes.pageviews.total("/thanks")) == 3
        assert store.run(shapes.visits.latest(5)) == [shapes.Visit(5, 7)]
        assert store.check() == []


def test_the_page_on_own_structures_shows_the_file_and_how_to_use_it(tmp_path: Path) -> None:
    part, use = blocks(ROOT / "docs/own-structure.md", "python")
    code = (ROOT / "tests/latest.py").read_text()
    assert part in code
    (tmp_path / "latest.py").write_text(code)
    (tmp_path / "use.py").write_text(f"{use}\n    print(store.run(moods.get(7)))\n")
    found = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout == "glad\n"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_f65_the_readme_claims_what_was_measured_on_a_quiet_machine() -> None:
    measured = (ROOT / "bench/README.md").read_text()
    claimed = " ".join((ROOT / "README.md").read_text().split())
    (threads,) = re.findall(r"\| 16 threads \|.*\| \**([\d.]+)\** \([\d., aim]+\) \|", measured)
    (tasks,) = re.findall(r"\| 16 tasks of asyncio \|.*\| \**([\d.]+)\** \([\d., aim]+\) \|", measured)
    assert f"16 threads get {threads} times" in claimed
    assert f"16 tasks of `asyncio` {tasks}, and more on a slower disk" in claimed


@pytest.mark.parametrize("name", ["README.md", "coming-from.md", "lease.md"])
def test_the_example_of_the_page_runs_and_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(ROOT / "docs" / name, "python")
    with roost.Store("sqlite://") as store:
        names = {"__name__": "example", "roost": roost, "store": store}
        exec(compile(example, name, "exec", dont_inherit=True), names)
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", example)


def test_every_guarantee_on_the_page_of_databases_names_its_test() -> None:
    page = (ROOT / "docs/databases.md").read_text()
    table = page.partition("| guarantee |")[2].partition("\n\n")[0]
    named = [row.rpartition("`")[0].rpartition("`")[2] for row in table.splitlines()[2:]]
    assert len(named) > 10
    for each in named:
        path, _, test = each.partition("::")
        assert (ROOT / path).exists(), each
        assert not test or f"def {test}(" in (ROOT / path).read_text(), each


PAGE_OF = {"rate_limit": "rate-limits"}


def operations_of(declaration: type) -> list[str]:
    public = [each for each in inspect.getmembers(declaration, inspect.isfunction) if each[0][0] != "_"]
    return [name for name, call in public if str(call.__annotations__.get("return")).startswith("Operation[")]


@pytest.mark.parametrize("kind", ["cache", "counter", "ring", "capped", "set", "lease", "rate_limit"])
def test_every_operation_has_its_line_on_the_structures_page(kind: str) -> None:
    from roost.structures.registry import declaration_of

    page = (ROOT / "docs" / f"{PAGE_OF.get(kind, kind)}.md").read_text()
    operations = operations_of(declaration_of(kind))
    assert {"clear", "forget", "keys"} < set(operations)
    assert [name for name in operations if f"{name}(" not in page] == []


def test_the_page_of_the_server_has_every_setting_with_its_default_and_every_metric() -> None:
    from roost.server.http import METRICS
    from roost.server.settings import FILES, SETTINGS, load

    page = (ROOT / "docs/server.md").read_text()
    table = page.partition("| in the file |")[2].partition("\n\n")[0]
    rows = {name: row for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert rows.keys() == SETTINGS.keys()
    assert [name for name in FILES if f"`{name}`" not in table] == []
    for name, setting in SETTINGS.items():
        default = rows[name].split("|")[2].strip(" `")
        if name not in ("workers", "tls_cert", "tls_key", "http", "console") and not setting.secret:
            found = load(None, {f"ROOST_SERVE_{name.upper()}": default.replace(" MiB", "M")}, {})
            assert getattr(found, name) == setting.default, name
    example = tomllib.loads(blocks(ROOT / "docs/server.md", "toml")[0])
    assert example.keys() <= {*SETTINGS, *FILES}
    assert [name for name, _ in METRICS.values() if f"`{name}_total`" not in page] == []


def test_every_operation_of_a_set_in_memcached_has_its_line() -> None:
    page = (ROOT / "docs/memcached.md").read_text()
    operations = operations_of(roost.MemcachedSet)
    assert {"add", "info", "replace"} < set(operations)
    assert [name for name in operations if f"{name}(" not in page] == []


COMPLETION = """\
## Completion

The shell can complete commands, options and file names. For bash (4.4 or newer), put this into `~/.bashrc`:

```bash
eval "$(_ROOST_COMPLETE=bash_source roost)"
```

For zsh, in `~/.zshrc`: `eval "$(_ROOST_COMPLETE=zsh_source roost)"`. For fish, in
`~/.config/fish/completions/roost.fish`: `_ROOST_COMPLETE=fish_source roost | source`.
"""


def test_f64_bash_completes_as_the_page_says(tmp_path: Path) -> None:
    (line,) = blocks(ROOT / "docs/cli.md", "bash")
    assert COMPLETION in (ROOT / "docs/cli.md").read_text()
    asked = f"""{line}
COMP_WORDS=(roost doc) COMP_CWORD=1
_roost_completion roost doc
echo "${{COMPREPLY[@]}}"
complete -p roost
"""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, cwd=tmp_path, env={"PATH": path}, timeout=600
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[0] == "doctor"
    assert ran.stdout.splitlines()[-1].startswith("complete ")


def test_f64_blackhole_is_loaded_before_what_needs_it_is_shown() -> None:
    for page in (ROOT / "docs/sql-views.md", ROOT / "README.md"):
        text = page.read_text()
        assert 0 < text.find("BLACKHOLE") < text.find("_in (") or "_in (" not in text
    text = (ROOT / "docs/sql-views.md").read_text()
    assert 0 < text.find("INSTALL SONAME 'ha_blackhole'") < text.find("NAME_in")


def test_f64_the_page_of_the_store_has_every_argument_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/store.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    for kind in (roost.Store, roost.AsyncStore):
        parameters = inspect.signature(kind).parameters
        assert rows.keys() == parameters.keys()
        for name in ("timeout", "lock_wait", "trace"):
            assert rows[name] == str(parameters[name].default)
            assert name == "timeout" or f"## `{name}=`" in page
    example = blocks(ROOT / "docs/store.md", "python")[-1]
    exec(example, {"roost": roost, "pageviews": shapes.pageviews})
    assert capsys.readouterr().out == f"{example.rpartition(': ')[2]}"


def cli_page() -> str:
    """The page of the command line; `python -m tests.docs_test` writes it."""
    parts = [
        "# The command line\n",
        "`roost COMMAND --help` has all options, and more examples. Commands that use a database take `--store URL`",
        "(`ROOST_STORE`) and `--json`.\n",
    ]

    def add(command: click.Command, words: list[str]) -> None:
        context = click.Context(command, info_name=" ".join(words))
        said, _, examples = inspect.cleandoc(command.help or "").partition("\nExample")
        parts.append(f"## {context.info_name}\n")
        parts.append(f"{said.partition(f'{chr(10)}{chr(10)}')[0].strip()}\n")
        lines = [line.strip() for line in examples.splitlines()[1:] if line.strip().startswith("roost ")]
        if lines:
            parts.append("```sh\n" + "\n".join(lines[:2]) + "\n```\n")
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                add(each, [*words, name])

    add(main, ["roost"])
    parts.append(COMPLETION)
    return "\n".join(parts)


def test_the_page_of_the_command_line_is_the_newest() -> None:
    assert (ROOT / "docs/cli.md").read_text().split() == cli_page().split()


def test_every_error_is_drawn_in_the_tree() -> None:
    from roost import errors

    assert errors.__doc__ is not None
    assert [name for name in errors.__all__ if name not in errors.__doc__] == []


def test_the_version_is_in_the_changelog() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_is_longer_than_500_lines_without_a_reason() -> None:
    long = [path.read_text() for path in (ROOT / "src").rglob("*.py") if len(path.read_text().splitlines()) > 500]
    assert [text[:60] for text in long if "\nLonger than 500 lines: " not in text[:1500]] == []


def test_the_page_on_handlersocket_names_every_error_that_the_client_explains() -> None:
    shown = (ROOT / "docs/handlersocket.md").read_text().partition("## Errors")[2].partition("## Structures")[0]
    missing = [word for word in EXPLANATIONS if not re.search(rf"`([123] 1 )?{word}`", shown)]
    assert missing == ["lock_tables"]  # which only the plugin says


if __name__ == "__main__":
    (ROOT / "docs/cli.md").write_text(cli_page())
