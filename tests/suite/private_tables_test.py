"""Private tables that somebody else has made, or made something of: no command runs his code by its own rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

import roost
from roost.store import bursts
from tests.suite.application import Application
from tests.suite.capping.tables import INDEX, VISITS, Open, cap
from tests.suite.shapes import Visit

postgresql = pytest.mark.needs("trims at commit")
mariadb = pytest.mark.needs("trims in passes")

hits = roost.Counter("hits", slots=2)
more = roost.Counter("hits", slots=1)  # what is in the slots that go is moved by INSERT

Work = Callable[[roost.Store], object]

CATALOG = "(name text NOT NULL PRIMARY KEY, version bigint NOT NULL, definition text NOT NULL, has_view boolean)"
BECOME = "BEGIN ALTER ROLE {} SUPERUSER; RETURN coalesce(NEW, OLD); END"
TRIGGER = "CREATE TRIGGER own BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION become()"


@pytest.fixture
def owner(application: Application) -> Iterator[str]:
    """A role that may create in the schema, and log in."""
    name = f"owner_of_{application.url.rpartition('/')[2]}"
    application(f"CREATE ROLE {name} LOGIN")
    application(f"GRANT USAGE, CREATE ON SCHEMA public TO {name}")
    yield name
    application("RESET ROLE")
    application(f"REASSIGN OWNED BY {name} TO CURRENT_USER")
    application(f"DROP OWNED BY {name} CASCADE")
    application(f"DROP ROLE {name}")


@pytest.fixture
def own(application: Application, owner: str) -> Iterator[Application]:
    """The owner's connection; he has a function that makes him a superuser, where who calls it may do that."""
    made = Application(as_user(application.url, owner))
    made(f"CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS $$ {BECOME.format(owner)} $$")
    yield made
    made.close()


def as_user(url: str, user: str) -> str:
    return urlsplit(url)._replace(netloc=f"{user}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()


def is_superuser(application: Application, owner: str) -> bool:
    found: bool = application("SELECT rolsuper FROM pg_roles WHERE rolname = ?", owner)[0][0]
    return found


def set_up(own: Application, tables: Application) -> None:
    """Make a catalog and a structure as one account, and a capped table as another."""
    tables(VISITS)
    tables(INDEX)
    with roost.Store(own.url) as store:
        store.create(hits)
        store.run_all(*[hits.add(key, 1) for key in "abcdefgh"])
    with roost.Store(tables.url) as store:
        cap(store, keep=2)


WORKS: dict[str, Work] = {
    "create": lambda store: store.create(roost.Counter("others")),
    "alter": lambda store: store.alter(more),
    "uncap": lambda store: bursts.uncap(store, "visits"),
    "cap": lambda store: cap(store, keep=3),
}


@postgresql
@pytest.mark.parametrize("name", WORKS)
def test_r3_a_trigger_on_a_private_table_gets_no_rights_of_a_superuser(
    store_url: str, application: Application, own: Application, owner: str, name: str
) -> None:
    work = WORKS[name]
    set_up(own, application)
    for table in ("roost_catalog", "roost_writers", *(["roost_hits_rows"] if name == "alter" else [])):
        own(TRIGGER.format(table))
        refused = pytest.raises(roost.Invalid, match=f"{table} has a trigger; {owner} owns it")
        with roost.Store(store_url) as store, refused:
            work(store)
        assert not is_superuser(application, owner)
        own(f"DROP TRIGGER own ON {table}")
    with roost.Store(store_url) as store:
        if name == "create":  # what it makes would be at the mercy of the catalog's owner
            with pytest.raises(roost.Invalid, match=f"roost_catalog belongs to {owner}, and not to this account"):
                work(store)
        else:
            work(store)
        assert store.check() == []


BECOME_BY = "BEGIN ALTER ROLE {} SUPERUSER; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN true; END"
VISIT = roost.Ring("seen", Visit, per="uid", keep=3)


@postgresql
@pytest.mark.parametrize("table", ["roost_catalog", "roost_once", "roost_writers"])
def test_who_makes_the_catalog_before_its_user_does_runs_nothing_by_his_rights(
    store_url: str, application: Application, own: Application, owner: str, table: str
) -> None:
    """The user's structures are there already, as an earlier version would have made them."""
    with roost.Store(store_url) as store:
        store.create(VISIT)
        application(f"ALTER TABLE {table} OWNER TO {owner}")
        own(f"GRANT ALL ON {table} TO PUBLIC")
        with pytest.raises(roost.Invalid, match=f"{table} belongs to {owner}"):
            store.create(VISIT)
    own(f"CREATE FUNCTION evil() RETURNS boolean LANGUAGE plpgsql AS $$ {BECOME_BY.format(owner)} $$")
    own(f"ALTER TABLE {table} RENAME TO hidden")
    own(f"CREATE VIEW {table} AS SELECT * FROM hidden WHERE evil()")
    with roost.Store(store_url) as store:
        for once in (None, "a token"):
            with pytest.raises(roost.Invalid, match=f"{table} belongs to {owner}, and roost_seen_rows does not"):
                store.run(VISIT.push(Visit(1, 2)), once=once)
        with pytest.raises(roost.Invalid, match=f"{table} belongs to {owner}"):
            store.run(VISIT.latest(1))
    assert not is_superuser(application, owner)


@postgresql
def test_an_account_uses_structures_of_another_one_with_its_catalog(
    store_url: str, own: Application, application: Application
) -> None:
    with roost.Store(own.url) as store:
        store.create(VISIT)
    with roost.Store(store_url) as store:
        assert store.run(VISIT.push(Visit(1, 2)), once="a token") == 1
        assert store.stats().retries == 0
        store.create(VISIT)
        assert application("SELECT count(*) FROM roost_writers") == [(1,)]
        assert store.check() == []


MADE_BEFOREHAND = [
    ("CREATE TRIGGER own BEFORE INSERT ON {} EXECUTE FUNCTION become()", "a trigger"),
    ("CREATE RULE own AS ON INSERT TO {} DO ALSO SELECT become_me()", "a rule"),
    ("ALTER TABLE {} ADD CHECK (become_me())", "a constraint"),
    ("ALTER TABLE {} ADD COLUMN own boolean DEFAULT become_me()", "has other columns"),
    ("ALTER TABLE {} ALTER COLUMN definition SET DEFAULT become_me()::text", "an expression"),
    ("ALTER TABLE {} ALTER COLUMN name TYPE varchar", "has other columns"),
    ("CREATE INDEX ON {} ((become_me()))", "an index of an expression"),
    ("CREATE TABLE child () INHERITS ({})", "is inherited from"),
    ("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", "row-level security"),
    ("CREATE TABLE child (name text REFERENCES {} ON DELETE CASCADE)", "a foreign key"),
]


@postgresql
def test_r3_a_catalog_made_beforehand_with_something_of_its_maker_is_refused(
    store_url: str, application: Application, own: Application, owner: str
) -> None:
    application(VISITS)
    application(INDEX)
    body = f"BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE {owner} SUPERUSER;"
    own(
        "CREATE FUNCTION become_me() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS "
        f"$$ {body} END IF; RETURN true; END $$"
    )
    for what, message in MADE_BEFOREHAND:
        own(f"CREATE TABLE roost_catalog {CATALOG}")
        own(what.format("roost_catalog"))
        with roost.Store(store_url) as store, pytest.raises(roost.Invalid, match=message):
            cap(store, keep=2)
        assert not is_superuser(application, owner), what
        own("DROP TABLE roost_catalog CASCADE")


@postgresql
def test_r3_who_may_make_triggers_on_a_superuser_s_catalog_gets_no_rights_of_his(
    open_store: Open, application: Application, own: Application, owner: str
) -> None:
    store = open_store(hits)
    application(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {owner}")
    own(TRIGGER.format("roost_catalog"))
    with pytest.raises(roost.Invalid, match="roost_catalog has a trigger"):
        store.create(roost.Counter("others"))
    assert not is_superuser(application, owner)


@postgresql
@pytest.mark.parametrize("table", ["roost_catalog", "roost_hits_rows"])
def test_r3_a_view_in_the_place_of_a_private_table_is_not_read(
    store_url: str, application: Application, own: Application, owner: str, table: str
) -> None:
    set_up(own, application)
    own("CREATE TABLE called (name text)")
    own("GRANT ALL ON called TO PUBLIC")
    own("ALTER TABLE called ENABLE ROW LEVEL SECURITY")
    own(f"CREATE FUNCTION called() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN {RAISE} END $$")
    own(f"ALTER TABLE {table} RENAME TO hidden")
    own(f"CREATE VIEW {table} AS SELECT * FROM hidden WHERE called()")
    with roost.Store(store_url) as store:
        if table == "roost_catalog":
            for work in (lambda: store.check(), lambda: store.structures(), lambda: cap(store, keep=2)):
                with pytest.raises(roost.Invalid, match=f"roost_catalog is no table; {owner} owns it"):
                    work()
        else:
            assert [each.detail for each in store.check()] == [f"{table} is no table; {owner} owns it"]


RAISE = "RAISE 'called by %', current_user;"


@postgresql
def test_tables_that_another_process_has_just_made_are_no_strangers(store_url: str) -> None:
    """The reader's snapshot is older than the tables that it finds by their names."""
    made: list[str] = []

    def traced(sql: str, _: object) -> None:
        if "FROM roost_catalog" in sql and not made:  # the snapshot is taken: the catalog has been looked for in it
            made.append(sql)
            another.drop(hits)
            another.create(hits)

    with roost.Store(store_url) as another, roost.Store(store_url, trace=traced) as store:
        another.create(hits)
        assert store.check() == []
        assert len(made) == 1


@postgresql
def test_r3_a_role_that_made_everything_itself_runs_everything_itself(own: Application) -> None:
    set_up(own, own)
    own("CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN coalesce(NEW, OLD); END $$")
    for table in ("roost_catalog", "roost_writers", "roost_hits_rows"):
        own(TRIGGER.format(table).replace("become", "mine").replace("ROW EXECUTE", "ROW WHEN (true) EXECUTE"))
    with roost.Store(own.url) as store:
        for work in WORKS.values():
            work(store)
        bursts.uncap(store, "visits")
        assert store.check() == []
        assert store.run(more.total("a")) == 1


@mariadb
@pytest.mark.parametrize("table", ["roost_catalog", "roost_writers", "roost_hits_rows"])
def test_r3_a_view_that_calls_a_function_gets_no_rights_of_who_runs_a_command(
    store_url: str, application: Application, table: str
) -> None:
    application("CREATE TABLE called (name TEXT)")
    application(
        "CREATE FUNCTION called() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA\n"
        "BEGIN INSERT INTO called VALUES (CURRENT_USER()); RETURN 1; END"
    )
    application(VISITS)
    application(INDEX)
    with roost.Store(store_url) as store:
        store.create(hits)
        application(f"RENAME TABLE {table} TO hidden")
        application(f"CREATE SQL SECURITY INVOKER VIEW {table} AS SELECT * FROM hidden WHERE called() = 1")
        if table == "roost_hits_rows":
            assert [each.detail for each in store.check()] == [f"{table} is no table"]
            with pytest.raises(roost.Invalid, match="roost_hits_rows is no table"):
                store.alter(more)
        else:
            for work in (lambda: store.create(roost.Counter("others")), lambda: cap(store, keep=2)):
                with pytest.raises(roost.Invalid, match=f"{table} is no table"):
                    work()
        if table == "roost_catalog":
            with pytest.raises(roost.Invalid, match="roost_catalog is no table"):
                store.check()
        assert application("SELECT * FROM called") == []
        application(f"DROP VIEW {table}")
        application(f"RENAME TABLE hidden TO {table}")


@mariadb
def test_r5_the_account_that_capped_is_dropped_and_check_says_so(store_url: str, application: Application) -> None:
    name = f"capper_of_{application.url.rpartition('/')[2]}"
    application(VISITS)
    application(INDEX)
    application(f"CREATE USER {name}@'127.0.0.1'")
    application(f"GRANT ALL ON *.* TO {name}@'127.0.0.1'")
    with roost.Store(as_user(store_url, name)) as store:
        cap(store, keep=2)
    with roost.Store(store_url) as store:
        assert store.check() == []
        application(f"DROP USER {name}@'127.0.0.1'")
        assert {each.rule for each in store.check()} == {"triggers"}
        cap(store, keep=2)
        application("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '2008')")
        assert store.check() == []


@mariadb
def test_r6_an_event_that_does_something_else_makes_no_passes(store_url: str, application: Application) -> None:
    before = application("SELECT @@event_scheduler")[0][0]
    application("SET GLOBAL event_scheduler = ON")
    try:
        application(VISITS)
        application(INDEX)
        with roost.Store(store_url) as store:
            cap(store, keep=2)
            made = bursts.inspect(store, "visits", [], None, None).cap
            assert bursts.keeper(store, made) == "event"
            application("ALTER EVENT roostcap_visits DO SELECT 1")
            assert bursts.keeper(store, made) == ""
            for _ in range(5):
                application("INSERT INTO visits (uid, visitor, at) VALUES (1, 1, '2008')")
            assert [each.rule for each in store.check()] == ["triggers", "keep"]
            cap(store, keep=2)
            assert bursts.keeper(store, made) == "event"
            bursts.uncap(store, "visits")
    finally:
        application(f"SET GLOBAL event_scheduler = {before}")
