"""Tables of the application's own, capped on PostgreSQL: by whose rights, under which locks, with which names.

Longer than 500 lines: the tests share their tables and what they look for in the catalog.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

import roost
from roost.store import bursts
from tests import servers
from tests.campaigns.processes import until
from tests.lengths import length
from tests.suite.adopted_test import INDEX, VISITS, Open, cap
from tests.suite.application import Application

pytestmark = pytest.mark.needs("trims at commit")

Connect = Callable[[], Application]


@pytest.fixture
def connect(store_url: str) -> Iterator[Connect]:
    """Make another connection."""
    made: list[Application] = []

    def connect_() -> Application:
        made.append(Application(store_url))
        return made[-1]

    yield connect_
    for each in made:
        each.close()


@pytest.fixture
def role(application: Application) -> Iterator[Callable[[str], str]]:
    """Make a role without any right."""
    names: list[str] = []

    def role_(what: str) -> str:
        name = f"{what}_{application.url.rpartition('/')[2]}"
        if name not in names:
            application(f"CREATE ROLE {name}")
            names.append(name)
        return name

    yield role_
    application("RESET ROLE")
    for name in names:
        application(f"REASSIGN OWNED BY {name} TO CURRENT_USER")
        application(f"DROP OWNED BY {name} CASCADE")
        application(f"DROP ROLE {name}")


@pytest.fixture
def visits(application: Application) -> Application:
    application(VISITS)
    application(INDEX)
    return application


def add(application: Application, n: int, uid: int = 1, into: str = "visits") -> None:
    rows = ", ".join(f"({uid}, {k}, '2008')" for k in range(n))
    application(f"INSERT INTO {into} (uid, visitor, at) VALUES {rows}")


def count(application: Application) -> int:
    found: int = application("SELECT count(*) FROM visits")[0][0]
    return found


def owned_by(visits: Application, owner: str) -> None:
    visits(f"GRANT USAGE, CREATE ON SCHEMA public TO {owner}")
    visits(f"ALTER TABLE visits OWNER TO {owner}")


def member(application: Application, role: Callable[[str], str], *owners: str) -> str:
    """Return the URL of an account that is a member of these roles, and no superuser."""
    name = role("capper")
    application(f"ALTER ROLE {name} LOGIN")
    application(f"GRANT CREATE ON SCHEMA public TO {name}")
    for owner in owners:
        application(f"GRANT {owner} TO {name}")
    url = urlsplit(application.url)
    return url._replace(netloc=f"{name}@{url.netloc.rpartition('@')[2]}").geturl()


def test_rows_of_tables_that_inherit_later_are_neither_counted_nor_deleted(store_url: str, visits: Application) -> None:
    visits("CREATE TABLE events (id serial PRIMARY KEY, at timestamptz)")
    visits("CREATE INDEX events_at ON events (at)")
    with roost.Store(store_url) as store:
        cap(store, keep=3)
        assert sum(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600))) == 0
    for table in ("visits", "events"):
        visits(f"CREATE TABLE old_{table} () INHERITS ({table})")
    add(visits, 3)
    visits("INSERT INTO old_visits SELECT id, uid, visitor, '2007' FROM ONLY visits")  # with the same ids
    visits("INSERT INTO events (at) VALUES (now())")
    visits("INSERT INTO old_events SELECT id, at - interval '1 day' FROM events")
    add(visits, 1)
    visits("INSERT INTO events (at) VALUES (now())")
    found = [
        visits(f"SELECT id FROM ONLY {name} ORDER BY 1") for name in ("visits", "old_visits", "events", "old_events")
    ]
    assert found == [[(2,), (3,), (4,)], [(1,), (2,), (3,)], [(1,), (2,)], [(1,)]]
    with roost.Store(store_url) as store:
        assert {(found.structure, found.rule) for found in store.check()} == {
            ("visits", "tables"),
            ("events", "tables"),
        }


@pytest.mark.parametrize("again", [True, False])
def test_a_table_that_was_moved_to_another_schema_is_capped_again_or_released(
    store_url: str, visits: Application, connect: Connect, again: bool
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
    visits("CREATE SCHEMA moved")
    for table in ("visits", "roost_catalog", "roost_writers"):
        visits(f"ALTER TABLE {table} SET SCHEMA moved")
    visits(f"ALTER DATABASE {visits.url.rpartition('/')[2]} SET search_path = moved")
    moved = connect()
    with roost.Store(store_url) as store:
        assert {found.rule for found in store.check()} == {"triggers"}
        if again:
            cap(store, keep=2)
        else:
            bursts.uncap(store, "visits")
        add(moved, 5)
        assert count(moved) == (2 if again else 5)
        assert store.check() == []
    functions = moved("SELECT DISTINCT pronamespace::regnamespace::text FROM pg_proc WHERE proname LIKE 'roostcap%'")
    triggers = moved("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'roostcap%'")
    assert (functions, triggers) == (([("moved",)], [(4,)]) if again else ([], [(0,)]))


BECOME = "CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN OLD; END $$"
BEFORE_DELETE = "CREATE TRIGGER own BEFORE DELETE ON visits FOR EACH ROW EXECUTE FUNCTION become()"


def test_f31_the_owner_of_a_table_gets_no_rights_of_who_caps_it(
    visits: Application, role: Callable[[str], str]
) -> None:
    owner = role("owner")
    owned_by(visits, owner)
    add(visits, 5)  # so that capping deletes too
    visits("CREATE TABLE doers (name text)")
    visits("GRANT ALL ON doers TO PUBLIC")
    visits(f"SET ROLE {owner}")
    visits(BECOME.format("INSERT INTO public.doers VALUES (current_user);"))
    visits(BEFORE_DELETE)
    visits("RESET ROLE")
    with roost.Store(member(visits, role, owner)) as store:
        assert cap(store, keep=2) == 3
        assert store.check() == []
    visits(f"SET ROLE {owner}")
    add(visits, 5)
    visits("RESET ROLE")
    assert count(visits) == 2
    assert visits("SELECT DISTINCT name FROM doers") == [(owner,)]


def test_f31_to_become_a_superuser_by_a_trigger_is_refused(visits: Application, role: Callable[[str], str]) -> None:
    owner = role("owner")
    owned_by(visits, owner)
    with roost.Store(member(visits, role, owner)) as store:
        cap(store, keep=2)
    visits(f"SET ROLE {owner}")
    visits(BECOME.format(f"EXECUTE 'ALTER ROLE {owner} SUPERUSER';"))
    visits(BEFORE_DELETE)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        add(visits, 5)
    visits("RESET ROLE")
    assert visits(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'") == [(False,)]


def test_f31_functions_that_somebody_made_beforehand_do_not_stay_his(
    open_store: Open, visits: Application, role: Callable[[str], str]
) -> None:
    stranger = role("stranger")
    visits(f"GRANT USAGE, CREATE ON SCHEMA public TO {stranger}")
    visits(f"SET ROLE {stranger}")
    for name in ("insert", "update", "commit"):
        visits(
            f"CREATE FUNCTION roostcap_visits_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
        )
    visits("RESET ROLE")
    cap(open_store(), keep=2)
    owners = "SELECT DISTINCT pg_get_userbyid(proowner) = current_user FROM pg_proc WHERE proname LIKE 'roostcap%'"
    assert visits(owners) == [(True,)]


def test_a_table_that_was_given_away_takes_rows_by_the_functions_of_an_owner_without_rights(
    visits: Application, role: Callable[[str], str]
) -> None:
    former, owner = role("former"), role("owner")
    owned_by(visits, former)
    with roost.Store(member(visits, role, former, owner)) as store:
        cap(store, keep=2)
        owned_by(visits, owner)
        add(visits, 3)
        assert count(visits) == 3
        assert cap(store, "", None) == 1


def test_f31_who_may_not_drop_such_a_function_is_told_who_may(visits: Application, role: Callable[[str], str]) -> None:
    owner, stranger = role("owner"), role("stranger")
    owned_by(visits, owner)
    visits(f"GRANT USAGE, CREATE ON SCHEMA public TO {stranger}")
    visits(f"SET ROLE {stranger}")
    visits("CREATE FUNCTION roostcap_visits_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    visits("RESET ROLE")
    with (
        roost.Store(f"{member(visits, role, owner)}?options=-crole%3D{owner}") as store,
        pytest.raises(roost.Invalid, match=rf"roostcap_visits_commit\(\), which belongs to {stranger}; .*CASCADE"),
    ):
        cap(store, keep=2)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_f32_a_table_with_a_new_owner_takes_rows_and_check_says_what_to_do(
    store_url: str, visits: Application, connect: Connect, role: Callable[[str], str], level: str
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        add(visits, 2)
        owner, client = role("owner"), connect()
        visits("CREATE TABLE doers (name text)")
        visits("GRANT ALL ON doers TO PUBLIC")
        visits(f"GRANT ALL ON visits TO {owner}")
        client(f"SET ROLE {owner}")
        client(f"BEGIN ISOLATION LEVEL {level}")
        client("SELECT count(*) FROM doers")  # whose snapshot is older than the change
        if level == "READ COMMITTED":
            client("COMMIT")
        owned_by(visits, owner)
        other = connect()
        other(f"SET ROLE {owner}")
        other(BECOME.format("INSERT INTO public.doers VALUES (current_user);"))
        other(BEFORE_DELETE)
        add(client, 3)
        client("COMMIT")
        assert count(visits) == 5
        assert visits("SELECT * FROM doers") == []  # the superuser's functions have run nothing of the new owner's
        visits(f"GRANT ALL ON roost_catalog TO {owner}")
    with roost.Store(member(visits, role, owner)) as store:
        found = [each.detail for each in store.check() if each.rule == "triggers"]
        assert any(
            f"while the table belongs to {owner}" in each and "`roost cap visits` again" in each for each in found
        )
        with pytest.raises(roost.Invalid, match=r"DROP FUNCTION .* CASCADE") as refused:
            cap(store, "", None)
        visits(f"DROP FUNCTION{str(refused.value).rpartition('DROP FUNCTION')[2]}")
        visits(f"GRANT ALL ON roost_writers TO {owner}")
        assert cap(store, "", None) == 3
        assert store.check() == []
        add(client, 3)
        assert count(visits) == 2
        assert visits("SELECT DISTINCT name FROM doers") == [(owner,)]


def test_f33_who_may_insert_by_a_view_or_a_function_alone_goes_on_doing_that(
    application: Application, role: Callable[[str], str]
) -> None:
    application("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    writer, owner, maker = role("writer"), role("owner"), role("maker")
    application(f"CREATE SCHEMA hidden AUTHORIZATION {owner}")
    application("SET search_path = hidden, public")
    application(VISITS)
    application(INDEX)
    application(f"ALTER TABLE visits OWNER TO {owner}")
    application(f"GRANT USAGE, CREATE ON SCHEMA hidden TO {role('capper')}")
    store = roost.Store(f"{member(application, role, owner)}?options=-csearch_path%3Dhidden,public")
    with store:
        cap(store, keep=2)
        application("CREATE VIEW public.seen AS SELECT * FROM hidden.visits")
        application(f"GRANT USAGE ON SCHEMA hidden TO {maker}")
        application(f"GRANT INSERT ON hidden.visits TO {maker}")
        application(
            "CREATE FUNCTION public.note() RETURNS void LANGUAGE sql SECURITY DEFINER AS"
            " $$ INSERT INTO hidden.visits (uid, visitor, at) SELECT 1, n, 'x' FROM generate_series(10, 14) n $$"
        )
        application(f"GRANT CREATE ON SCHEMA public TO {maker}")
        application(f"ALTER FUNCTION public.note() OWNER TO {maker}")
        application(f"GRANT EXECUTE ON FUNCTION public.note() TO {writer}")
        application(f"GRANT INSERT ON public.seen TO {writer}")
        application(f"GRANT USAGE ON SCHEMA public TO {writer}")
        application(f"SET ROLE {writer}")
        add(application, 5, into="public.seen")
        application("RESET ROLE")
        assert application("SELECT visitor FROM hidden.visits ORDER BY id") == [(3,), (4,)]
        application(f"SET ROLE {writer}")
        application("SELECT public.note()")
        application("RESET ROLE")
        assert application("SELECT visitor FROM hidden.visits ORDER BY id") == [(13,), (14,)]
        assert store.check() == []


def test_f34_a_transaction_with_very_many_keys_holds_few_locks(open_store: Open, visits: Application) -> None:
    cap(open_store(), keep=1)
    visits("BEGIN")
    visits("INSERT INTO visits (uid, visitor, at) SELECT n % 20000, n, 'x' FROM generate_series(1, 40000) n")
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    held = visits("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")[0][0]
    visits("COMMIT")
    assert 0 < held <= 512
    assert visits("SELECT count(*), min(visitor) FROM visits") == [(20000, 20001)]


def test_f35_a_column_that_may_not_be_null_by_its_domain(open_store: Open, application: Application) -> None:
    application("CREATE DOMAIN filled AS text NOT NULL CHECK (VALUE <> '')")
    application("CREATE DOMAIN number AS int NOT NULL")
    application("CREATE TABLE visits (id {id}, uid number, note filled)")
    store = open_store()
    cap(store, keep=2, newest_by=None)
    application("INSERT INTO visits (uid, note) SELECT 1, 'x' FROM generate_series(1, 5)")
    assert application("SELECT id FROM visits ORDER BY id") == [(4,), (5,)]
    assert store.check() == []


def test_a_key_of_a_domain_over_an_enum_can_be_read(open_store: Open, application: Application) -> None:
    application("CREATE TYPE mood AS ENUM ('sad', 'fine', 'glad')")
    application("CREATE DOMAIN feeling AS mood")
    application("CREATE TABLE visits (id {id}, uid feeling, note text)")
    store = open_store()
    cap(store, keep=2, newest_by=None)
    application(
        "INSERT INTO visits (uid, note)\n"
        "  SELECT m::mood, n FROM unnest('{a,b,c}'::text[]) n, unnest('{fine,sad}'::text[]) m"
    )
    visits = roost.Capped.of("visits")
    assert [row.note for row in store.run(visits.latest("fine"))] == ["c", "b"]
    assert store.run_all(visits.count("sad"), visits.count("glad")) == (2, 0)
    assert store.run(visits.keys()) == ["sad", "fine"]
    assert store.run(visits.keys("sad")) == ["fine"]
    store.run(visits.add(uid="glad", note="d"))
    assert store.run(visits.keys("fine", 1)) == ["glad"]
    assert store.check() == []


INTERNAL = [
    *(
        "k",
        "k0",
        "k1",
        "n",
        "r",
        "i",
        "o",
        "v",
        "d",
        "g",
        "e",
        "f",
        "l",
        "c",
        "t",
        "x",
        "p",
        "note",
        "noted",
        "relation",
    ),
    *("roost_n", "setting", "locks", "lock", "came", "more", "part", "given", "gone", "deleted", "failed", "latest"),
    *("roostcap", "new_rows", "new", "old", "tg_relid", "tg_op", "found", "excluded", "counted", "visits", "values"),
]


@pytest.mark.parametrize("newest_by", ["by", None])
def test_f36_columns_may_be_called_as_what_the_functions_use(
    open_store: Open, application: Application, newest_by: str | None
) -> None:
    store = open_store()
    # In the short form each name is tried with one of the two.
    for name in length(INTERNAL[newest_by is None :: 2], INTERNAL):
        application(f'CREATE TABLE t_{name} ("{name}" int, other int, x1 int, "by" int, id {{id}})')
        cap(store, f"{name},other", 2, newest_by, f"t_{name}")
        application(f'INSERT INTO t_{name} ("{name}", other, x1, "by") SELECT 1, 1, n, n FROM generate_series(1, 5) n')
        application(f'UPDATE t_{name} SET "{name}" = 2')
        application(f'INSERT INTO t_{name} ("{name}", other, x1, "by") VALUES (2, 1, 6, 6)')
        assert application(f"SELECT x1 FROM t_{name} ORDER BY 1") == [(5,), (6,)], name
        assert store.run(roost.Capped.of(f"t_{name}").count((2, 1))) == 2
    assert store.check() == []


def test_f36_tables_may_be_called_as_what_the_functions_use(open_store: Open, application: Application) -> None:
    store = open_store()
    for name in INTERNAL:
        if name == "roost_n":
            continue  # as private tables are called
        application(f'CREATE TABLE "{name}" (id {{id}}, "{name}" int, x1 text)')
        cap(store, name, 2, None, name)
        for key in range(3):
            application(f'INSERT INTO "{name}" ("{name}") SELECT {key} FROM generate_series(1, 4)')
        application(f'UPDATE "{name}" SET "{name}" = 0')
        assert application(f'SELECT id, "{name}" FROM "{name}" ORDER BY id') == [(11, 0), (12, 0)], name
    assert store.check() == []


def test_f117_a_superuser_runs_no_code_of_the_owner_of_a_table(
    application: Application, role: Callable[[str], str]
) -> None:
    owner = role("owner")
    application(f"GRANT CREATE ON SCHEMA public TO {owner}")
    application(f"SET ROLE {owner}")
    application(VISITS)
    application(INDEX)
    application(
        "CREATE FUNCTION evil(bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN\n"
        f"  EXECUTE 'ALTER ROLE {owner} SUPERUSER'; RETURN true; EXCEPTION WHEN others THEN RETURN true; END $$"
    )
    application("CREATE INDEX ON visits (visitor) WHERE evil(1)")
    application("CREATE FUNCTION same(oid, regclass) RETURNS boolean LANGUAGE sql AS 'SELECT evil(1)'")
    application("CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = same)")
    add(application, 5)
    application("CREATE TABLE events (id {id}, at timestamptz)")
    application("CREATE INDEX ON events (at) WHERE evil(1)")
    application("CREATE INDEX ON events (at)")
    application("RESET ROLE")
    is_super = f"SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'"
    refused = rf"belongs to {owner}, .* run this as {owner}"
    with roost.Store(application.url) as store:
        with pytest.raises(roost.Invalid, match=refused):
            cap(store, keep=2)
        with pytest.raises(roost.Invalid, match=refused):
            bursts.inspect(store, "events", by="at", older_than=3600)
    with roost.Store(member(application, role, owner)) as store:
        application("DROP OPERATOR public.= (oid, regclass)")
        cap(store, keep=2)
        list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600)))
        assert len(store.run(roost.Capped.of("visits").latest(1))) == 2
        assert store.check() == []
    application("CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = same)")
    with roost.Store(application.url) as store:
        assert {(each.structure, each.rule) for each in store.check()} == {("visits", "tables"), ("events", "tables")}
        aged = roost.Capped.of("events")
        visits = roost.Capped.of("visits")
        for operation in (visits.latest(1), visits.count(1), visits.keys(), aged.state()):
            with pytest.raises(roost.Invalid, match=f"run this as {owner}"):
                store.run(operation)
        with pytest.raises(roost.Invalid, match=f"run this as {owner}"):
            bursts.uncap(store, "visits")
    assert application(is_super) == [(False,)]
    application("DROP OPERATOR public.= (oid, regclass)")


def test_f111_triggers_that_fail_are_found_before_the_application_meets_them(
    store_url: str, visits: Application
) -> None:
    visits("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nothing(); END $$")
    visits("CREATE TRIGGER fails AFTER INSERT ON visits EXECUTE FUNCTION fails()")
    before = visits.schema()
    with roost.Store(store_url) as store:
        with pytest.raises(roost.Invalid, match="with the triggers no row could be inserted, so it cannot be capped"):
            cap(store, keep=2)
        assert visits.schema() == before
        visits("DROP TRIGGER fails ON visits")
        cap(store, keep=2)


# A table of the attacker's, whose column has a cast of its own; the trigger functions convert or compare its values.
EVIL_TABLE = [
    "CREATE TYPE evil AS (n bigint)",
    "CREATE FUNCTION called(evil) RETURNS {takes} LANGUAGE plpgsql AS\n"
    "  $$ BEGIN INSERT INTO public.doers VALUES (current_user); RETURN {returns}; END $$",
    "CREATE CAST (evil AS {takes}) WITH FUNCTION called(evil) AS IMPLICIT",
    "CREATE TABLE mine ({columns})",
    "CREATE TRIGGER mine {when} INSERT ON mine {each} EXECUTE FUNCTION {function}()",
]


def test_f124_whoever_may_execute_the_functions_runs_nothing_as_the_owner(
    store_url: str, visits: Application, role: Callable[[str], str]
) -> None:
    stranger = role("stranger")
    visits("CREATE TABLE doers (name text)")
    visits("CREATE TABLE events (id {id}, at timestamptz)")
    visits(f"GRANT ALL ON doers TO PUBLIC; GRANT USAGE, CREATE ON SCHEMA public TO {stranger}")
    visits(f"ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {stranger}")
    functions = "SELECT proname FROM pg_proc WHERE proname LIKE 'roostcap%' ORDER BY 1"
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600)))
        assert (
            visits(f"{functions.partition('ORDER')[0]} AND has_function_privilege('{stranger}', oid, 'EXECUTE')") == []
        )
        assert store.check() == []
        visits(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {stranger}")
        found = {each.detail.partition(" ")[0] for each in store.check()}
        assert found == {each for (each,) in visits(functions)}
        visits(f"SET ROLE {stranger}")
        ways = [
            ("roostcap_visits_insert", "AFTER", "REFERENCING NEW TABLE AS new_rows", "id bigint, uid evil, at text"),
            ("roostcap_visits_commit", "AFTER", "FOR EACH ROW", "id bigint, uid evil, at text"),
            ("roostcap_events_age", "AFTER", "FOR EACH ROW", "id bigint, at evil"),
        ]
        for function, when, each, columns in ways:
            given = {"function": function, "when": when, "each": each, "columns": columns}
            for sql in EVIL_TABLE:
                visits(sql.format(takes="json", returns="'{}'", **given))
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="this function is for the table"):
                visits(f"INSERT INTO mine SELECT 1, ROW(1)::evil{', 1' if 'uid' in columns else ''}")
            visits("DROP TABLE mine")
            visits("DROP TYPE evil CASCADE")
        visits("RESET ROLE")
        assert visits("SELECT * FROM doers") == []
        cap(store, "", None)
        list(bursts.cap(store, bursts.inspect(store, "events")))
        assert store.check() == []
    visits(f"ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM {stranger}")


def test_f37_operators_casts_and_functions_that_others_make_are_not_called(
    application: Application, role: Callable[[str], str]
) -> None:
    owner, stranger = role("owner"), role("stranger")
    application(f"GRANT USAGE, CREATE ON SCHEMA public TO {owner}, {stranger}")
    application(f"SET ROLE {stranger}")
    application("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    application("CREATE DOMAIN short AS varchar(9)")
    for n, type_ in enumerate(["mood", "short", "varchar", "bigint", "text"]):
        evil = f"LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called %', '{type_}'; END $$"
        application(f"CREATE FUNCTION evil{n}({type_}, {type_}) RETURNS boolean {evil}")
        for operator in ("=", "<>", "<", ">"):
            application(f"CREATE OPERATOR {operator} (LEFTARG = {type_}, RIGHTARG = {type_}, FUNCTION = evil{n})")
    application(f"CREATE FUNCTION to_json(mood) RETURNS json {evil}")
    application(f"CREATE FUNCTION to_text(mood) RETURNS text {evil}")
    application(f"CREATE FUNCTION of_text(text) RETURNS mood {evil}")
    application("CREATE CAST (mood AS json) WITH FUNCTION to_json(mood)")
    application("CREATE CAST (mood AS text) WITH FUNCTION to_text(mood) AS ASSIGNMENT")
    application("CREATE CAST (text AS mood) WITH FUNCTION of_text(text) AS ASSIGNMENT")
    application(f"SET ROLE {owner}")
    application("CREATE TABLE visits (id {id}, m mood, s short, v varchar(9), at text)")
    application("RESET ROLE")
    # What the stranger made is in everybody's way who has `public` in the path and compares such values.
    store = roost.Store(f"{member(application, role, owner)}?options=-csearch_path%3Dpublic")
    with store:
        cap(store, "m,s,v", 2, "at")
        application(f"SET ROLE {owner}")
        for n in range(5):
            application(f"INSERT INTO visits (m, s, v, at) VALUES ('glad', 's', 'v', '{n}')")
        application("UPDATE visits SET m = 'sad'")
        application("INSERT INTO visits (m, s, v, at) VALUES ('sad', 's', 'v', '9')")
        application("RESET ROLE")
        assert application("SELECT at FROM visits ORDER BY id") == [("4",), ("9",)]


def test_keys_that_compare_by_rules_of_their_own(open_store: Open, application: Application) -> None:
    application("CREATE EXTENSION citext")
    application("CREATE DOMAIN nick AS citext")
    application("CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    application("CREATE TABLE visits (c citext, d nick, a text COLLATE anycase, x char(4), id {id})")
    store = open_store()
    cap(store, "c,d,a,x", 2, None)
    for word in ("ab", "AB", "aB", "Ab"):
        application("INSERT INTO visits VALUES (?, ?, ?, 'y')", word, word, word)
    assert application("SELECT c::text FROM visits ORDER BY id") == [("aB",), ("Ab",)]
    assert store.check() == []


def test_f38_what_goes_with_a_row_and_is_held_makes_no_deadlock(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    visits("CREATE TABLE notes (id int PRIMARY KEY, text text, visit bigint REFERENCES visits ON DELETE CASCADE)")
    visits("CREATE INDEX ON notes (visit)")
    store = open_store()
    cap(store, keep=2)
    add(visits, 2)
    visits("INSERT INTO notes SELECT 1, 'x', min(id) FROM visits")
    add(visits, 2, uid=2)
    one, other = connect(), connect()
    other("BEGIN")
    other("UPDATE notes SET text = 'y'")  # what would go with the first row of the key
    one("BEGIN")
    one("INSERT INTO visits (uid, visitor, at) VALUES (1, 9, '2009'), (2, 9, '2009')")
    other("INSERT INTO visits (uid, visitor, at) VALUES (1, 8, '2009')")
    failed: list[BaseException] = []

    def end() -> None:
        try:
            other("COMMIT")
        except psycopg.Error as error:
            failed.append(error)

    one("COMMIT")  # the row stays, and another key is trimmed all the same
    assert visits("SELECT uid, count(*) FROM visits GROUP BY 1 ORDER BY 1") == [(1, 3), (2, 2)]
    thread = threading.Thread(target=end)
    thread.start()
    thread.join(60)
    assert failed == []
    assert visits("SELECT uid, count(*) FROM visits GROUP BY 1 ORDER BY 1") == [(1, 2), (2, 2)]


def _locks(application: Application, keys: list[int]) -> dict[int, int]:
    """Return the lock of each key."""
    found = {}
    for uid in keys:
        application("BEGIN")
        add(application, 1, uid)
        found[uid] = int(application("SELECT current_setting('roostcap.locks')")[0][0].strip(" ,"))
        application("ROLLBACK")
    return found


@pytest.mark.parametrize("one_statement", [True, False])
def test_f83_the_locks_of_a_transaction_are_asked_for_in_one_order(
    open_store: Open, visits: Application, connect: Connect, one_statement: bool
) -> None:
    cap(open_store(), keep=2)
    locks = _locks(visits, list(range(8)))
    keys = sorted(locks, key=lambda uid: locks[uid])
    for order in (keys, keys[::-1], [*keys[4:], *keys[:4]]):
        client, watch = connect(), connect()
        for lock in set(locks.values()):
            visits("SELECT pg_advisory_lock(?)", lock)
        client("BEGIN")
        if one_statement:
            rows = ", ".join(f"({uid}, 1, 'x')" for uid in order)
            client(f"INSERT INTO visits (uid, visitor, at) VALUES {rows}")
        else:
            for uid in order:
                add(client, 1, uid)
        pid = client("SELECT pg_backend_pid()")[0][0]
        thread = threading.Thread(target=client, args=("COMMIT",))
        thread.start()
        waiting = (
            f"SELECT (classid::bigint << 32) + objid::bigint FROM pg_locks "
            f"WHERE pid = {pid} AND locktype = 'advisory' AND NOT granted"
        )
        until(lambda waiting=waiting, watch=watch: watch(waiting) != [], "it waits for a lock")  # type: ignore[misc]
        first = watch(waiting)
        visits("SELECT pg_advisory_unlock_all()")
        thread.join(60)
        assert not thread.is_alive()
        assert first == [(min(locks.values()),)]


def test_f38_two_tables_are_locked_in_one_order_whichever_was_written_first(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    visits("CREATE TABLE others (LIKE visits INCLUDING ALL)")
    store = open_store()
    cap(store, keep=2)
    cap(store, keep=2, table="others")
    for order in (("visits", "others"), ("others", "visits")):
        visits("BEGIN")
        for table in order:
            add(visits, 1, into=table)
        locks = [int(each) for each in visits("SELECT current_setting('roostcap.locks')")[0][0].strip(" ,").split(",")]
        visits("ROLLBACK")
        client, watch = connect(), connect()
        for lock in locks:
            visits("SELECT pg_advisory_lock(?)", lock)
        client("BEGIN")
        for table in order:
            add(client, 1, into=table)
        thread = threading.Thread(target=client, args=("COMMIT",))
        thread.start()
        waiting = (
            "SELECT (classid::bigint << 32) + objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        until(lambda waiting=waiting, watch=watch: watch(waiting) != [], "it waits for a lock")  # type: ignore[misc]
        first = watch(waiting)
        visits("SELECT pg_advisory_unlock_all()")
        thread.join(60)
        assert not thread.is_alive()
        assert first == [(min(locks),)]


# As version 0.1 made them.
OLD = """\
CREATE FUNCTION roostcap_visits_trim(relation bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = "pg_catalog", "pg_temp" AS $$ BEGIN END $$;
CREATE FUNCTION roostcap_visits_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION roostcap_visits_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION roostcap_visits_commit() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.roostcap_visits_trim(TG_RELID::bigint); RETURN NULL; END $$;
CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits REFERENCING NEW TABLE AS new_rows
  EXECUTE FUNCTION roostcap_visits_insert();
CREATE TRIGGER roostcap_visits_update AFTER UPDATE ON visits FOR EACH ROW
  WHEN (ROW(OLD.uid) IS DISTINCT FROM ROW(NEW.uid)) EXECUTE FUNCTION roostcap_visits_update();
CREATE CONSTRAINT TRIGGER roostcap_visits_inserted AFTER INSERT ON visits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION roostcap_visits_commit();
CREATE CONSTRAINT TRIGGER roostcap_visits_updated AFTER UPDATE ON visits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (ROW(OLD.uid) IS DISTINCT FROM ROW(NEW.uid)) EXECUTE FUNCTION roostcap_visits_commit()"""


def test_what_an_earlier_version_made_is_told_and_replaced(store_url: str, visits: Application) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        visits("DROP FUNCTION roostcap_visits_insert, roostcap_visits_update, roostcap_visits_commit CASCADE")
        visits("DROP FUNCTION roostcap_visits_trim")
        visits(OLD)
        add(visits, 5)
        found = store.check()
        assert {each.rule for each in found} == {"triggers", "keep"}
        assert "an earlier version of Roost" in found[0].detail
        assert cap(store, "", None) == 3
        assert store.check() == []
        add(visits, 5)
        assert count(visits) == 2
        assert visits("SELECT count(*) FROM pg_proc WHERE proname = 'roostcap_visits_trim'") == [(1,)]
        bursts.uncap(store, "visits")


def test_r9_a_function_that_has_the_name_of_the_probe_is_told(open_store: Open, visits: Application) -> None:
    store = open_store()
    visits("CREATE FUNCTION roostcap_visits_probe(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n'")
    cap(store, keep=2)
    visits("CREATE FUNCTION roostcap_visits_probe() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(roost.Invalid, match=r"there is a function public\.roostcap_visits_probe\(\)"):
        cap(store, keep=3)
    visits("DROP FUNCTION roostcap_visits_probe()")
    cap(store, keep=3)
    assert store.check() == []


# Constraints that do not wait for COMMIT


@pytest.mark.parametrize("what", ["ALL", "roostcap_visits_inserted, roostcap_visits_updated"])
def test_r4_a_transaction_whose_constraints_are_immediate_is_trimmed(
    open_store: Open, visits: Application, role: Callable[[str], str], what: str
) -> None:
    store = open_store()
    cap(store, keep=2)
    add(visits, 2, uid=3)
    writer = role("writer")
    visits(f"GRANT INSERT ON visits TO {writer}")
    visits(f"SET ROLE {writer}")
    for n in (1, 1, 1, 1, 4, 1):
        visits("BEGIN")
        visits(f"SET CONSTRAINTS {what} IMMEDIATE")
        add(visits, n)
        add(visits, 5, uid=2)
        visits("COMMIT")
    visits("RESET ROLE")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY uid") == [(1, 2), (2, 2), (3, 2)]
    visits("BEGIN")
    add(visits, 3)  # noted, and then trimmed by what follows
    visits(f"SET CONSTRAINTS {what} IMMEDIATE")
    assert visits("SELECT count(*) FROM visits WHERE uid = 1") == [(2,)]
    visits("UPDATE visits SET uid = 1")
    assert count(visits) == 2
    add(visits, 3, uid=4)
    assert visits("SELECT count(*) FROM visits WHERE uid = 4") == [(2,)]
    visits(f"SET CONSTRAINTS {what} DEFERRED")
    add(visits, 3, uid=4)
    add(visits, 3, uid=4)
    visits("COMMIT")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY uid") == [(1, 2), (4, 2)]
    assert store.check() == []


def test_r7_a_table_is_emptied_behind_an_insert_when_constraints_are_immediate(
    open_store: Open, visits: Application
) -> None:
    cap(open_store(), keep=2)
    visits("BEGIN")
    add(visits, 3)
    with pytest.raises(psycopg.errors.ObjectInUse):
        visits("TRUNCATE visits")
    visits("ROLLBACK")
    visits("BEGIN")
    add(visits, 3)
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    visits("TRUNCATE visits")
    visits("ALTER TABLE visits ADD COLUMN more integer")
    add(visits, 3)
    visits("COMMIT")
    assert count(visits) == 2


# What pg_dump writes


@pytest.mark.parametrize("per", ["uid", "uid,visitor"])
def test_r1_a_dump_of_a_capped_table_is_restored_without_an_error(
    open_store: Open, visits: Application, per: str
) -> None:
    try:
        dumps, restores = [
            servers.binary(name, servers.POSTGRESQL[1], "postgresql-client") for name in ("pg_dump", "psql")
        ]
    except servers.NotHere as error:
        servers.not_run(error)
    cap(open_store(), per, keep=2)
    add(visits, 2)
    restored = f"{visits.url}_restored"
    visits(f"CREATE DATABASE {restored.rpartition('/')[2]}")
    dump = subprocess.run([dumps, visits.url], check=True, capture_output=True).stdout
    done = subprocess.run([restores, "-qv", "ON_ERROR_STOP=1", restored], input=dump, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    application = Application(restored)
    try:
        with roost.Store(restored) as store:
            assert store.check() == []
        add(application, 3, uid=2)
        application("UPDATE visits SET uid = 1, visitor = 1")
        assert count(application) == 2
    finally:
        application.close()
