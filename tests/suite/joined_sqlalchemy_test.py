"""Operations on SQLAlchemy's connections and sessions: its own state stays as it would be without them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import roost
from tests.suite.engines import Engine
from tests.suite.shapes import Egg, Make, baskets, pageviews
from tests.suite.ways import alchemy_url

pytestmark = [pytest.mark.needs("second store"), pytest.mark.shared]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(sa.String(20))


@pytest.fixture
def store(open_store: Make) -> Any:
    return open_store(pageviews, baskets)


@pytest.fixture
def database(store: Any, store_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(alchemy_url(store_url), poolclass=sa.NullPool)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def test_a_transaction_is_begun_as_by_a_statement(store: Any, database: sa.Engine) -> None:
    with database.connect() as connection:
        store.on(connection).run(pageviews.add("/"))
        assert connection.in_transaction()
        with pytest.raises(sa.exc.InvalidRequestError):
            connection.begin()
        connection.rollback()
        with connection.begin():
            store.on(connection).run(pageviews.add("/"))
        assert not connection.in_transaction()
    with database.begin() as connection:
        store.on(connection).run(pageviews.add("/"))
    assert store.run(pageviews.total("/")) == 2


def test_a_nested_transaction_takes_it_back(store: Any, database: sa.Engine) -> None:
    with Session(database) as session:
        store.on(session).run(pageviews.add("/outer"))
        nested = session.begin_nested()
        store.on(session).run(pageviews.add("/inner"))
        nested.rollback()
        with session.begin_nested():
            store.on(session).run(pageviews.add("/kept"))
        session.commit()
    assert store.run(pageviews.totals(["/outer", "/inner", "/kept"])) == {"/outer": 1, "/inner": 0, "/kept": 1}


def test_nothing_is_flushed_and_nothing_expires(store: Any, database: sa.Engine) -> None:
    with Session(database) as session:
        stored = Order(id=1, note="stored")
        session.add(stored)
        session.flush()
        pending = Order(id=2, note="pending")
        session.add(pending)
        store.on(session).run(baskets.add(Egg(1, 1)))
        with pytest.raises(roost.Duplicate):
            store.on(session).run(baskets.add(Egg(1, 1)))
        assert list(session.new) == [pending]
        assert sa.inspect(stored).expired_attributes == set()
        session.commit()
        assert session.scalars(sa.select(Order.note).order_by(Order.id)).all() == ["stored", "pending"]
    assert store.run(baskets.count(1)) == 1


def test_a_session_that_is_rolled_back_takes_it_along(store: Any, database: sa.Engine) -> None:
    with Session(database) as session:
        session.add(Order(id=1, note="first"))
        store.on(session).run(pageviews.add("/"))
        session.add(Order(id=1, note="again"))
        with pytest.raises(sa.exc.IntegrityError):
            session.commit()
        session.rollback()
    assert store.run(pageviews.total("/")) == 0


def test_a_scoped_session_is_one_too(store: Any, database: sa.Engine) -> None:
    session = scoped_session(sessionmaker(database))
    store.on(session).run(pageviews.add("/"))
    session.commit()
    session.remove()
    assert store.run(pageviews.total("/")) == 1


def test_a_session_over_a_driver_of_asyncio_is_refused_by_a_store_that_waits(
    store: Any, database: sa.Engine, store_url: str, engine: Engine
) -> None:

    driver = {"sqlite-file": "aiosqlite", "mariadb": "asyncmy", "mysql": "asyncmy", "postgresql": "psycopg"}[
        engine.name
    ]

    async def main() -> None:
        made = create_async_engine(alchemy_url(store_url, driver), poolclass=sa.NullPool)
        async with AsyncSession(made) as session:
            with pytest.raises(roost.Invalid, match=r"is awaited; use AsyncStore\.on"):
                await session.run_sync(lambda inner: store.on(inner).run(pageviews.add("/")))
        await made.dispose()

    asyncio.run(main())
