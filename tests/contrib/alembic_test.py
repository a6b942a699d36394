"""A project with Alembic: up and down, printed, and what autogenerate makes of it."""

from __future__ import annotations

import asyncio
import enum
import io
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from click.testing import CliRunner
from sqlalchemy.ext.asyncio import create_async_engine

import roost
from roost.cli import main
from roost.contrib import alembic as contrib
from roost.contrib.alembic import ignoring
from tests import servers
from tests.contrib.kinds import KINDS
from tests.docs_test import ROOT, blocks
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits
from tests.suite.ways import alchemy_url

ENV = """\
from alembic import context
import sqlalchemy as sa
from roost.contrib.alembic import ignoring

url = context.config.get_main_option("sqlalchemy.url")
rule = ignoring()
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, include_name=rule)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=sa.MetaData(), include_name=rule)
        with context.begin_transaction():
            context.run_migrations()
"""

FIRST = """\
from dataclasses import dataclass
from typing import Annotated

import roost
import sqlalchemy as sa
from alembic import op
from roost.contrib import alembic

revision, down_revision = "1", None


@dataclass
class Visit:
    uid: int
    visitor: int


@dataclass
class Egg:
    basket: int
    egg: int
    colour: Annotated[str, roost.text(20)] = "white"


STRUCTURES = [
    roost.Counter("pageviews"),
    roost.Ring("visits", Visit, per="uid", keep=5),
    roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg"),
    roost.Set("likes", key=int, member=str),
]


def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
    alembic.create(op, *STRUCTURES)


def downgrade():
    alembic.drop(op, *STRUCTURES)
    op.drop_table("orders")
"""

SECOND = """\
from dataclasses import dataclass

import roost
from alembic import op
from roost.contrib import alembic

revision, down_revision = "2", "1"


@dataclass
class Visit:
    uid: int
    visitor: int


def upgrade():
    assert alembic.alter(op, roost.Ring("visits", Visit, per="uid", keep=3)) == ["keep: 5 -> 3"]


def downgrade():
    alembic.alter(op, roost.Ring("visits", Visit, per="uid", keep=5))
"""


taken = roost.Counter("taken")


@dataclass
class LongVisit:
    uid: int
    visitor: int
    note: str | None = None


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class MoodyVisit:
    uid: int
    visitor: int
    mood: Mood = Mood.GOOD


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with servers.own_database(request.param, f"{tmp_path}/app.db") as url:
        yield url


@contextmanager
def operations(url: str) -> Iterator[Operations]:
    """Alembic's `op` on a connection of its own, whose transaction is committed."""
    with engine(url).begin() as connection:
        yield Operations(MigrationContext.configure(connection))


def engine(url: str) -> sa.Engine:
    return sa.create_engine(alchemy_url(url), poolclass=sa.NullPool)


@pytest.fixture
def config(url: str, tmp_path: Path) -> Config:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV)
    (folder / "script.py.mako").write_text("")
    (folder / "versions" / "first.py").write_text(FIRST)
    (folder / "versions" / "second.py").write_text(SECOND)
    made = Config(output_buffer=io.StringIO())
    made.set_main_option("script_location", str(folder))
    made.set_main_option("path_separator", "os")
    made.set_main_option("sqlalchemy.url", alchemy_url(url))
    return made


def fill(store: roost.Store) -> None:
    store.run_all(pageviews.add("/"), baskets.add(Egg(1, 1)), likes.add(1, "a"))


def tables(url: str) -> set[str]:
    with engine(url).connect() as connection:
        inspector = sa.inspect(connection)
        return {*inspector.get_table_names(), *inspector.get_view_names()}


def test_up_and_down_and_up_again(config: Config, url: str) -> None:
    command.upgrade(config, "1")
    with roost.Store(url) as store:
        fill(store)
        store.create(pageviews, visits, baskets, likes)  # nothing is missing, nothing differs
        assert store.run(visits.push(Visit(1, 2))) == 1
        assert store.check() == []
    command.downgrade(config, "base")
    assert tables(url) <= {"alembic_version", "roost_catalog", "roost_former", "roost_once", "roost_writers"}
    command.upgrade(config, "1")
    with roost.Store(url) as store:
        assert store.run(pageviews.total("/")) == 0
        fill(store)
        assert store.check() == []


def test_a_declaration_changes_and_changes_back(config: Config, url: str) -> None:
    command.upgrade(config, "1")
    with roost.Store(url) as store:
        for n in range(7):
            store.run(visits.push(Visit(1, n)))
        command.upgrade(config, "2")
        shorter = roost.Ring("visits", Visit, per="uid", keep=3)
        for declared in shorter, visits:  # visits: the release before
            assert store.run(declared.latest(1)) == [Visit(1, n) for n in (6, 5, 4)]
        command.downgrade(config, "1")
        assert store.run(visits.push(Visit(1, 7))) == 8
        assert store.check() == []


@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_f123_every_kind_goes_up_changes_and_goes_down(url: str, way: str) -> None:
    driver = {"sqlite": "aiosqlite", "mysql": "asyncmy", "postgresql": "asyncpg"}[url.partition(":")[0]]

    async def migrating(change: Callable[[Any, Any], Any], structure: Any) -> None:
        async with create_async_engine(alchemy_url(url, driver), poolclass=sa.NullPool).begin() as connection:
            await connection.run_sync(lambda below: change(Operations(MigrationContext.configure(below)), structure))

    def migrate(change: Callable[[Any, Any], Any], structure: Any) -> None:
        if way == "asyncio":
            asyncio.run(migrating(change, structure))
        else:
            with operations(url) as op:
                change(op, structure)

    for first, second, operation in KINDS:
        migrate(contrib.create, first)
        with roost.Store(url) as store:
            store.create(first)  # nothing is missing, nothing differs
            store.run(operation(first))
            if second is not None:
                migrate(contrib.alter, second)
                store.run(operation(second))
                assert [each.definition for each in store.structures()] == [second.definition]
            assert store.check() == []
        migrate(contrib.drop, second or first)
    assert tables(url) <= {"roost_catalog", "roost_former", "roost_once", "roost_writers"}
    with engine(url).begin() as connection:
        connection.execute(sa.text("CREATE TABLE roost_pageviews_rows (id INT PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO roost_pageviews_rows VALUES (1)"))
    with pytest.raises((roost.StatementFailed, roost.Invalid), match="roost_pageviews_rows"):
        migrate(contrib.create, pageviews)


def test_f120_the_way_back_keeps_an_added_column(url: str) -> None:
    longer = roost.Ring("visits", LongVisit, per="uid", keep=5)
    other = roost.Ring("visits", MoodyVisit, per="uid", keep=5)  # of another branch
    with operations(url) as op:
        contrib.create(op, visits)
        assert contrib.alter(op, longer) == ["column note (text(1000000)?) added"]
        with pytest.raises(roost.Invalid, match="column note cannot be dropped"):
            contrib.alter(op, visits)
        assert contrib.alter(op, visits, keep_columns=True) == []
        assert contrib.alter(op, other, keep_columns=True) == ['column mood (enum("good","bad")) added']
    with roost.Store(url) as store:
        assert store.run_all(visits.push(Visit(1, 2)), longer.latest(1))[1] == [LongVisit(1, 2)]
        assert store.check() == []


def test_what_it_prints_is_what_store_ddl_has_and_can_be_run(config: Config, url: str) -> None:
    command.upgrade(config, "1", sql=True)
    printed = config.output_buffer.getvalue()  # type: ignore[union-attr]
    for sql in roost.Store(url).ddl(pageviews, visits, baskets, likes):
        assert sql in printed
    assert printed.count("DELIMITER") == 2 * url.startswith("mysql")  # for the database's own client
    with pytest.raises(roost.Invalid, match="cannot be printed"):
        command.upgrade(config, "1:2", sql=True)
    command.downgrade(config, "1:base", sql=True)
    assert "DROP TABLE IF EXISTS roost_visits_rows" in config.output_buffer.getvalue()  # type: ignore[union-attr]


def test_the_statements_of_store_ddl_can_be_given_to_op_execute(url: str) -> None:
    statements = roost.Store(url).ddl(pageviews, visits, baskets, likes)
    with engine(url).begin() as connection:
        for sql in statements:
            connection.execute(sa.text(sql.replace(":", r"\:")))
    with roost.Store(url) as store:
        fill(store)
        assert store.check() == []


def test_the_examples_of_the_page_on_migrations_run(config: Config, url: str, tmp_path: Path) -> None:
    first, later, rule, statements = blocks(ROOT / "docs/migrations.md", "python")
    versions = tmp_path / "migrations" / "versions"
    (versions / "first.py").write_text(first)
    declarations = first.partition("def upgrade")[0]
    second = declarations.replace('revision = "1"\ndown_revision = None', 'revision = "2"\ndown_revision = "1"')
    (versions / "second.py").write_text(second + later)
    configure = "        context.configure(connection=connection, target_metadata=sa.MetaData(), include_name=rule)\n"
    assert configure in ENV
    env = ENV.replace(configure, indent(rule, "        ")).replace(
        "rule = ignoring()", "rule, metadata = None, sa.MetaData()"
    )
    (tmp_path / "migrations" / "env.py").write_text(f"{declarations}\n{env}")
    command.upgrade(config, "2")
    with roost.Store(url) as store:
        assert [each.name for each in store.structures()] == ["pageviews", "visits"]
        assert store.structures()[1].definition == roost.Ring("visits", Visit, per="uid", keep=12).definition
    command.downgrade(config, "base")
    names: dict[str, Any] = {"roost": roost, "sqlalchemy": sa, "pageviews": pageviews, "visits": visits}
    with operations(url) as names["op"]:
        exec(statements.replace("postgresql://", url), names)
        names["upgrade"]()
    with roost.Store(url) as store:
        store.create(pageviews, visits)
        assert store.check() == []


def test_autogenerate_sees_nothing_of_ours(config: Config, url: str) -> None:
    command.upgrade(config, "1")
    metadata = sa.MetaData()
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))

    def found(**options: Any) -> list[Any]:
        with engine(url).connect() as connection:
            return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    assert found(include_name=ignoring(pageviews, visits, baskets, likes)) == []
    assert found() != []  # without the rule it would drop them


def test_f114_autogenerate_sees_nothing_of_roost_cap(url: str) -> None:
    metadata = sa.MetaData()
    for name in ("orders", "entries"):
        at = sa.Column("at", sa.DateTime, nullable=False)
        sa.Table(name, metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("uid", sa.Integer), at)
    metadata.create_all(engine(url))
    capping = [["orders", "--per", "uid", "--keep", "2"], ["entries", "--older-than", "90d", "--by", "at"]]
    for arguments in capping:
        assert CliRunner().invoke(main, ["cap", *arguments, "--yes", "--store", url]).exit_code == 0
    with engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": ignoring()})
        assert compare_metadata(context, metadata) == []
        assert compare_metadata(MigrationContext.configure(connection), metadata) != []


def test_the_rule_leaves_what_is_not_ours_to_the_applications_own() -> None:
    rule = ignoring(visits, also=lambda name, type_, parents: name != "legacy")
    names = ("orders", "legacy", "roost_visits_rows", "visits_in", "visits")
    assert [name for name in names if rule(name, "table", {})] == ["orders", "visits"]
    assert rule("roost_of_mine", "column", {})
    assert rule(None, "schema", {})


def test_in_a_transaction_of_its_own_postgresql_takes_it_back() -> None:
    with servers.own_database("postgresql") as url:
        with closing(engine(url).connect()) as connection:
            contrib.create(Operations(MigrationContext.configure(connection)), visits)
            connection.rollback()
        assert tables(url) == set()


@pytest.mark.parametrize("driver", ["", "aiosqlite", "asyncpg"])
def test_with_autocommit_a_change_is_done_as_a_whole(driver: str, tmp_path: Path) -> None:
    def change(connection: Any) -> None:
        op = Operations(MigrationContext.configure(connection))
        contrib.create(op, visits)
        assert contrib.alter(op, roost.Ring("visits", Visit, per="uid", keep=3)) == ["keep: 5 -> 3"]
        with pytest.raises(roost.Error):
            contrib.create(op, likes, taken)
        connection.rollback()

    async def changed(url: str) -> None:
        made = create_async_engine(alchemy_url(url, driver), poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        async with made.connect() as connection:
            await connection.run_sync(change)

    for name in {"": ["sqlite", "postgresql"], "aiosqlite": ["sqlite"], "asyncpg": ["postgresql"]}[driver]:
        with servers.own_database(name, f"{tmp_path}/app.db") as url, closing(engine(url).connect()) as connection:
            connection.execute(sa.text("CREATE TABLE taken (id INT)"))
            connection.commit()
            if driver:
                asyncio.run(changed(url))
            else:
                change(connection.execution_options(isolation_level="AUTOCOMMIT"))
            with roost.Store(url) as store:
                assert [each.name for each in store.structures()] == ["visits"]
                assert store.check() == []
            assert not {each for each in tables(url) if "likes" in each}


def test_another_engine_is_refused() -> None:
    op = Operations(MigrationContext.configure(dialect_name="oracle", opts={"as_sql": True}))
    with pytest.raises(roost.Invalid, match="not oracle"):
        contrib.create(op, visits)
