"""Views on PostgreSQL: by whose rights they write, and whose tables."""

from __future__ import annotations

import psycopg
import pytest

import roost
from tests.suite.clients import PostgreSQLClient
from tests.suite.shapes import Open, Visit, likes, pageviews, rows, visits
from tests.suite.views import WRITES, baskets, ring

pytestmark = pytest.mark.needs("psycopg")


ALL = (pageviews, visits, baskets, likes)


def test_a_grant_on_the_view_is_all_that_a_client_needs(open_store: Open, sql: PostgreSQLClient, role: str) -> None:
    store = open_store(*ALL)
    for structure in ALL:
        sql.execute(f"GRANT SELECT, INSERT, DELETE ON {structure.name} TO {role}")
    sql.execute(f"SET ROLE {role}")
    for name, (columns, good, _, _) in WRITES.items():
        sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
        assert len(rows(sql, f"SELECT * FROM {name}")) == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql.execute(f"SELECT * FROM roost_{name}_rows")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sql.execute("UPDATE visits SET visitor = 1")
    sql.execute("DELETE FROM visits")
    assert store.run_all(visits.latest(5), likes.size(7)) == ([], 1)


def test_nobody_else_can_use_a_view_s_functions(open_store: Open, sql: PostgreSQLClient, role: str) -> None:
    open_store(visits)
    sql.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    sql.execute(f"SET ROLE {role}")
    sql.execute(f"CREATE VIEW {role}.mine AS SELECT 5 AS uid, 1 AS visitor, NULL AS sequence, NULL AS at")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sql.execute(
            f"CREATE TRIGGER mine INSTEAD OF INSERT ON {role}.mine FOR EACH ROW EXECUTE FUNCTION roost_visits_insert()"
        )


def test_f124_whoever_may_execute_a_view_s_functions_runs_nothing_as_the_owner(
    open_store: Open, sql: PostgreSQLClient, role: str
) -> None:
    open_store(visits)
    sql.execute("CREATE TABLE doers (name text)")
    sql.execute("GRANT ALL ON doers TO PUBLIC")
    sql.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
    sql.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    sql.execute(f"SET ROLE {role}")
    for statement in (
        "TYPE evil AS (n bigint)",
        "FUNCTION called(evil) RETURNS bigint LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.doers VALUES (current_user); RETURN 1; END $$",
        "CAST (evil AS bigint) WITH FUNCTION called(evil) AS IMPLICIT",
        "TABLE mine (uid evil, visitor bigint, sequence bigint, at timestamptz)",
        "TRIGGER mine BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION roost_visits_insert()",
    ):
        sql.execute(f"CREATE {statement}")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        sql.execute("INSERT INTO mine VALUES (ROW(1)::evil, 1)")
    sql.execute("DROP TABLE mine")
    sql.execute("DROP TYPE evil CASCADE")
    sql.execute("RESET ROLE")
    assert rows(sql, "SELECT * FROM doers") == []
    sql.execute(f"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM {role}")


def test_default_privileges_give_nobody_what_was_taken_from_him(
    open_store: Open, sql: PostgreSQLClient, role: str
) -> None:
    given = f"GRANT ALL ON TABLES TO {role}", f"GRANT ALL ON FUNCTIONS TO {role}", "GRANT SELECT ON TABLES TO PUBLIC"
    for each in given:
        sql.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public {each}")
    store = open_store(visits)
    for statement in (f"REVOKE ALL ON visits FROM {role}, PUBLIC", f"GRANT INSERT ON visits TO {role}"):
        sql.execute(statement)
    store.alter(roost.Ring("visits", Visit, per="uid", keep=9))
    rights = [f"has_table_privilege('{role}', 'visits', '{each}')" for each in ("SELECT", "INSERT", "DELETE")]
    functions = [
        f"has_function_privilege('{role}', 'roost_visits_{each}()', 'EXECUTE')" for each in ("insert", "delete")
    ]
    assert rows(sql, f"SELECT {', '.join([*rights, *functions])}") == [(False, True, False, False, False)]
    assert store.check() == []
    sql.execute(f"GRANT EXECUTE ON FUNCTION roost_visits_insert() TO {role}")
    assert [found.rule for found in store.check()] == ["view"]
    store.alter(roost.Ring("visits", Visit, per="uid", keep=9), view=True)


def test_a_view_writes_its_own_tables_whatever_the_search_path(
    open_store: Open, store_url: str, sql: PostgreSQLClient
) -> None:
    tenants = []
    for tenant in ("one", "it's two"):
        sql.execute(f'CREATE SCHEMA "{tenant}"')
        sql.execute(f'SET search_path = "{tenant}"')
        for statement in roost.Store(store_url).ddl(visits, likes):
            sql.execute(statement)
        tenants.append(f'"{tenant}"')
    for path in (*tenants, "pg_temp", "''"):
        sql.execute(f"SET search_path = {path}")
        for tenant in tenants:
            sql.execute(f"INSERT INTO {tenant}.visits (uid, visitor) VALUES (5, 1)")
            sql.execute(f"INSERT INTO {tenant}.likes VALUES (5, ?)", (path,))
            sql.execute(f"DELETE FROM {tenant}.likes WHERE member <> ?", (path,))
    for tenant in tenants:
        assert rows(sql, f"SELECT sequence FROM {tenant}.visits ORDER BY 1") == [(1,), (2,), (3,), (4,)]
        assert rows(sql, f"SELECT n FROM {tenant}.roost_likes_head") == [(1,)]


def test_f31_a_new_owner_of_the_tables_gets_no_rights_of_the_former_one(
    open_store: Open, sql: PostgreSQLClient, role: str
) -> None:
    store = open_store(visits, pageviews)
    sql.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    sql.execute("CREATE TABLE doers (name text)")
    sql.execute("GRANT ALL ON doers TO PUBLIC")
    for table in ("roost_visits_rows", "roost_visits_head", "roost_pageviews_rows"):
        sql.execute(f"ALTER TABLE {table} OWNER TO {role}")
    sql.execute(f"SET ROLE {role}")
    body = "BEGIN INSERT INTO public.doers VALUES (current_user); RETURN NEW; END"
    sql.execute(f"CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    for table in ("roost_visits_rows", "roost_pageviews_rows"):
        sql.execute(f"CREATE TRIGGER own BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION own()")
    sql.execute("RESET ROLE")
    for into in ("visits (uid, visitor) VALUES (5, 1)", "pageviews VALUES ('/home', 1)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="its tables were given to another owner"):
            sql.execute(f"INSERT INTO {into}")
    assert rows(sql, "SELECT * FROM doers") == []
    found = {(each.structure, each.rule) for each in store.check()}
    assert found == {(name, rule) for name in ("visits", "pageviews") for rule in ("view", "program")}
    store.alter(visits, view=True)
    store.alter(pageviews, view=True)
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 1)")
    sql.execute("INSERT INTO pageviews VALUES ('/home', 1)")
    assert rows(sql, "SELECT DISTINCT name FROM doers") == [(role,)]
    assert store.check() == []
    sql.execute("REASSIGN OWNED BY " + role + " TO CURRENT_USER")


def test_temporary_tables_of_a_client_are_not_written(open_store: Open, sql: PostgreSQLClient) -> None:
    store = open_store(visits)
    for table in ("rows", "head"):
        sql.execute(f"CREATE TEMP TABLE roost_visits_{table} (LIKE public.roost_visits_{table} INCLUDING ALL)")
    sql.execute("INSERT INTO visits (uid, visitor) VALUES (5, 1)")
    assert store.run(visits.latest(5)) == [Visit(5, 1)]


def test_operators_that_others_make_are_not_called(open_store: Open, sql: PostgreSQLClient) -> None:
    """Whoever may create in the schema would have the owner's rights."""
    store = open_store(*ALL, ring)
    for number, (operator, left, right, result) in enumerate(
        [
            ("%", "bigint", "integer", "bigint"),
            ("+", "float8", "numeric", "float8"),
            *[(each, "float8", "numeric", "boolean") for each in ("<", ">", "<=", ">=")],
            *[(each, "numeric", "bigint", "boolean") for each in ("<", ">", "<=", ">=", "<>")],
            *[(each, "numeric", "bigint", "numeric") for each in ("+", "-")],
        ]
    ):
        sql.execute(
            f"CREATE FUNCTION evil{number}({left}, {right}) RETURNS {result} LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'called'; END $$"
        )
        sql.execute(
            f"CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil{number})"
        )
    for name, (columns, good, _, _) in WRITES.items():
        sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
    sql.execute("INSERT INTO ring (k, f, price, moment, level) VALUES (1, 1.5, 1.5, now(), 2)")
    sql.execute("INSERT INTO pageviews VALUES ('/home', 1)")
    sql.execute("UPDATE ring SET f = 2")
    sql.execute("UPDATE visits SET visitor = 1")
    sql.execute("UPDATE pageviews SET total = '8'")
    for name in (*WRITES, "ring"):
        sql.execute(f"DELETE FROM {name}")
    assert store.run(pageviews.total("/home")) == 0


def test_a_schema_that_was_renamed_is_told_and_mended(open_store: Open, store_url: str, sql: PostgreSQLClient) -> None:
    sql.execute("CREATE SCHEMA old")
    store = roost.Store(f"{store_url}?options=-csearch_path%3Dold,fresh")
    store.create(visits)
    sql.execute("ALTER SCHEMA old RENAME TO fresh")
    sql.execute("CREATE SCHEMA old")  # another one of that name: what the functions say is there
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="visits: its view was made for another"):
        sql.execute("INSERT INTO fresh.visits (uid, visitor) VALUES (5, 1)")
    sql.execute("DROP SCHEMA old")
    with pytest.raises(psycopg.Error):
        sql.execute("INSERT INTO fresh.visits (uid, visitor) VALUES (5, 1)")
    assert {each.rule for each in store.check()} == {"program", "view"}
    store.alter(visits, view=True)
    sql.execute("INSERT INTO fresh.visits (uid, visitor) VALUES (5, 1)")
    assert store.run(visits.latest(5)) == [Visit(5, 1)]
    assert store.check() == []
    store.close()


def test_a_view_is_made_only_where_its_tables_are(open_store: Open, store_url: str, sql: PostgreSQLClient) -> None:
    open_store().create(visits, view=False)
    sql.execute("CREATE SCHEMA nearer")
    store = roost.Store(f"{store_url}?options=-csearch_path%3Dnearer,public")
    with pytest.raises(roost.Error, match="its tables are not in schema nearer"):
        store.alter(visits, view=True)
    store.close()
    assert sql.view_objects() == []


def test_no_program_writes_another_schema_that_has_the_former_name_of_its_own(
    store_url: str, sql: PostgreSQLClient
) -> None:
    def tenant(name: str) -> roost.Store:
        return roost.Store(f"{store_url}?options=-csearch_path%3D{name}")

    writes = [
        visits.push(Visit(5, 1)),
        pageviews.add("/home", 1),
        likes.add(7, "ada"),
        visits.push_all([Visit(6, 1)] * 2),
    ]
    sql.execute("CREATE SCHEMA one")
    with tenant("one") as store:
        store.create(*ALL)
    sql.execute("ALTER SCHEMA one RENAME TO two")
    sql.execute("CREATE SCHEMA one")
    with tenant("one") as one, tenant("two") as two:
        one.create(*ALL)
        for write in writes:
            with pytest.raises(roost.StatementFailed, match="its programs were made for another schema"):
                two.run(write)
        assert [one.run(each.keys()) for each in ALL] == [[]] * len(ALL)
        two.create(*ALL)
        for write in writes:
            two.run(write)
        assert two.check() == []
        assert [one.run(each.keys()) for each in ALL] == [[]] * len(ALL)
