"""Tables of the application's own, capped on PostgreSQL: by whose rights they are trimmed."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
import pytest

import roost
from roost.store import bursts
from tests.suite.application import Application
from tests.suite.capping import age_test as aged
from tests.suite.capping.tables import INDEX, VISITS, Connect, Open, Role, cap, count, several, visitors

pytestmark = pytest.mark.needs("trims at commit")


def owned_by(visits: Application, owner: str) -> None:
    visits(f"GRANT USAGE, CREATE ON SCHEMA public TO {owner}")
    visits(f"ALTER TABLE visits OWNER TO {owner}")


def member(application: Application, role: Role, *owners: str) -> str:
    """Return the URL of an account that is a member of these roles, and no superuser."""
    name = role("capper")
    application(f"ALTER ROLE {name} LOGIN")
    application(f"GRANT CREATE ON SCHEMA public TO {name}")
    for owner in owners:
        application(f"GRANT {owner} TO {name}")
    url = urlsplit(application.url)
    return url._replace(netloc=f"{name}@{url.netloc.rpartition('@')[2]}").geturl()


def test_an_account_that_may_only_insert(open_store: Open, visits: Application, connect: Connect, role: Role) -> None:
    aged.make(visits)
    store, writer, client = open_store(), role("writer"), connect()
    cap(store, keep=2)
    aged.cap(store)
    aged.age(visits, 5)
    visits(f"GRANT INSERT ON visits, events TO {writer}")
    client(f"SET ROLE {writer}")
    several(client, 5)
    aged.fill(client, [0], first=100)
    assert (visitors(visits), aged.numbers(visits)) == ([3, 4], [100])


def test_an_account_that_uses_a_table_of_others_finds_nothing_wrong(visits: Application, role: Role) -> None:
    owner, url = role("owner"), member(visits, role)
    owned_by(visits, owner)
    visits(f"ALTER ROLE {owner} LOGIN")
    with roost.Store(url.replace("capper", "owner")) as theirs:
        cap(theirs, keep=2)
    visits("GRANT SELECT, INSERT ON visits, roost_catalog TO PUBLIC")
    with roost.Store(url) as store:
        assert store.check() == []  # it was: only its owner can cap it, uncap it
        with pytest.raises(roost.Invalid, match="visits belongs to somebody else, and only its owner can cap it"):
            cap(store, keep=2)


BECOME = "CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN OLD; END $$"


BEFORE_DELETE = "CREATE TRIGGER own BEFORE DELETE ON visits FOR EACH ROW EXECUTE FUNCTION become()"


def test_f31_the_owner_of_a_table_gets_no_rights_of_who_caps_it(visits: Application, role: Role) -> None:
    owner = role("owner")
    owned_by(visits, owner)
    several(visits, 5)  # so that capping deletes too
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
    several(visits, 5)
    visits("RESET ROLE")
    assert count(visits) == 2
    assert visits("SELECT DISTINCT name FROM doers") == [(owner,)]


def test_f31_functions_that_somebody_made_beforehand_do_not_stay_his(
    open_store: Open, visits: Application, role: Role
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
    visits: Application, role: Role
) -> None:
    former, owner = role("former"), role("owner")
    aged.make(visits)
    owned_by(visits, former)
    visits(f"ALTER TABLE events OWNER TO {former}")
    with roost.Store(member(visits, role, former, owner)) as store:
        cap(store, keep=2)
        aged.cap(store)
        owned_by(visits, owner)
        visits(f"ALTER TABLE events OWNER TO {owner}")
        several(visits, 3)
        aged.age(visits, 5)
        aged.fill(visits, [0], first=101)
        assert (count(visits), len(aged.numbers(visits))) == (3, 6)
        assert {(each.structure, each.rule) for each in store.check()} >= {
            ("visits", "triggers"),
            ("events", "triggers"),
        }
        assert (cap(store, "", None), aged.cap(store, None, None)) == (1, 5)
        assert store.check() == []


def test_f31_who_may_not_drop_such_a_function_is_told_who_may(visits: Application, role: Role) -> None:
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
    store_url: str, visits: Application, connect: Connect, role: Role, level: str
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        several(visits, 2)
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
        several(client, 3)
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
        several(client, 3)
        assert count(visits) == 2
        assert visits("SELECT DISTINCT name FROM doers") == [(owner,)]


def test_f33_who_may_insert_by_a_view_or_a_function_alone_goes_on_doing_that(
    application: Application, role: Role
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
        several(application, 5, into="public.seen")
        application("RESET ROLE")
        assert application("SELECT visitor FROM hidden.visits ORDER BY id") == [(3,), (4,)]
        application(f"SET ROLE {writer}")
        application("SELECT public.note()")
        application("RESET ROLE")
        assert application("SELECT visitor FROM hidden.visits ORDER BY id") == [(13,), (14,)]
        assert store.check() == []


def test_f117_a_superuser_runs_no_code_of_the_owner_of_a_table(application: Application, role: Role) -> None:
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
    several(application, 5)
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


EVIL_TABLE = [
    "CREATE TYPE evil AS (n bigint)",
    "CREATE FUNCTION called(evil) RETURNS {takes} LANGUAGE plpgsql AS\n"
    "  $$ BEGIN INSERT INTO public.doers VALUES (current_user); RETURN {returns}; END $$",
    "CREATE CAST (evil AS {takes}) WITH FUNCTION called(evil) AS IMPLICIT",
    "CREATE TABLE mine ({columns})",
    "CREATE TRIGGER mine {when} INSERT ON mine {each} EXECUTE FUNCTION {function}()",
]


def test_f124_whoever_may_execute_the_functions_runs_nothing_as_the_owner(
    store_url: str, visits: Application, role: Role
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
    application: Application, role: Role
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
