"""Tables of the application's own, capped on MariaDB: with whose rights triggers, passes and event run."""

from __future__ import annotations

import pytest

import roost
from roost.store import bursts
from tests.campaigns.processes import until
from tests.suite.application import Application
from tests.suite.capping.mariadb_test import COUNT, passed
from tests.suite.capping.tables import Capper, Open, cap, settle, several

pytestmark = pytest.mark.needs("trims in passes")


def evil(application: Application, definer: str = "") -> None:
    """Make a function that tells by whose rights it is called."""
    application("CREATE TABLE doers (who TEXT)")
    application(
        f"CREATE {definer} FUNCTION evil() RETURNS BIGINT SQL SECURITY INVOKER\n"
        "BEGIN INSERT INTO doers VALUES (CURRENT_USER()); RETURN 1; END"
    )


def test_an_account_that_may_make_no_event_is_told_to_watch(visits: Application, capper: Capper) -> None:
    name, as_capper = capper
    visits(f"REVOKE EVENT ON {visits.url.rpartition('/')[2]}.* FROM {name}")
    with as_capper() as store:
        cap(store, keep=2)
        assert bursts.keeper(store, bursts.inspect(store, "visits").cap) == ""
        several(visits, 5)
        assert settle(store) == 3
        bursts.uncap(store, "visits")


def test_an_account_that_may_only_write_finds_nothing_wrong(
    open_store: Open, visits: Application, capper: Capper
) -> None:
    # It may not see what triggers do: that was no text for Roost, or none of MySQL's triggers.
    name, as_capper = capper
    cap(open_store(), keep=2)
    visits(f"REVOKE CREATE, DROP, ALTER, TRIGGER, EVENT ON {visits.url.rpartition('/')[2]}.* FROM {name}")
    with as_capper() as theirs:
        assert theirs.check() == []


@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ("REVOKE INSERT ON {database}.* FROM {name}", ["roostcap_visits_insert", "roostcap_visits_update"]),
        ("REVOKE DELETE ON {database}.* FROM {name}", ["roostcap_visits"]),
        ("REVOKE EVENT ON {database}.* FROM {name}", ["roostcap_visits"]),
        ("DROP USER {name}", ["roostcap_visits", "roostcap_visits_insert", "roostcap_visits_update"]),
    ],
    ids=lambda each: each.split()[1].lower() if isinstance(each, str) else "",
)
def test_a_cap_whose_account_has_lost_its_rights_is_told_and_made_anew(
    open_store: Open, visits: Application, capper: Capper, lost: str, answer: list[str]
) -> None:
    name, as_capper = capper
    store = open_store()
    with as_capper() as theirs:
        cap(theirs, keep=2)
        assert theirs.check() == store.check() == []
    visits(lost.format(database=visits.url.rpartition("/")[2], name=name))
    found = store.check()
    assert {each.rule for each in found} == {"triggers"}
    assert sorted(each.detail.partition(" ")[0] for each in found) == answer
    assert all("an account that is gone or may not do it any more" in each.detail for each in found)
    cap(store, keep=2)
    assert store.check() == []
    several(visits, 5)
    settle(store)
    assert visits(COUNT) == [(2,)]
    bursts.uncap(store, "visits")


def test_a_view_in_place_of_the_notes_runs_nothing_by_the_rights_of_who_makes_the_passes(
    open_store: Open, visits: Application, capper: Capper
) -> None:
    name, as_capper = capper
    with as_capper() as theirs:
        theirs.create(roost.Counter("unused"), view=False)  # the account goes at the end, and a view's definer with it
    evil(visits, f"DEFINER = {name}")
    store = open_store()
    cap(store, keep=2)
    made = bursts.inspect(store, "visits", [], None, None).cap
    visits("DROP EVENT IF EXISTS roostcap_visits")  # the server's own pass, each second
    visits("RENAME TABLE roostcap_visits_grown TO taken")
    visits(
        f"CREATE DEFINER = {name} SQL SECURITY INVOKER VIEW roostcap_visits_grown AS\n"
        "  SELECT roostcap_n, roostcap_at, uid FROM taken WHERE evil() = 1"
    )
    visits("INSERT INTO taken (roostcap_n, uid) VALUES (1, 1)")
    with pytest.raises(roost.Invalid, match="made anew meanwhile"):
        list(bursts.work_off(store, made))
    with pytest.raises(roost.Invalid, match="roostcap_visits_grown is no table"):
        cap(store, keep=2)
    assert "roostcap_visits_grown is not as Roost makes it" in "".join(each.detail for each in store.check())
    assert visits("SELECT who FROM doers") == []
    visits("DROP VIEW roostcap_visits_grown")
    visits("DROP FUNCTION evil")
    cap(store, keep=2)
    assert store.check() == []
    bursts.uncap(store, "visits")
    store.drop(roost.Counter("unused"))


def test_f110_by_a_definer_of_its_own_nothing_is_lent_to_others(
    store_url: str, visits: Application, scheduler: None
) -> None:
    database = visits.url.rpartition("/")[2]
    definer = f"roostcap_{database}@localhost"
    evil(visits)
    with roost.Store(store_url) as store:
        assert "rights that root@" in bursts.inspect(store, "visits", ["uid"], 2, "at").runs_as
        with pytest.raises(roost.Invalid, match=rf"GRANT SELECT, .* TO `roostcap_{database}`@`localhost`"):
            list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 2, "at", definer=definer)))
        visits(f"CREATE USER {definer} ACCOUNT LOCK")
        try:
            visits(f"GRANT SELECT, INSERT, DELETE, TRIGGER, EVENT ON {database}.* TO {definer}")
            found = bursts.inspect(store, "visits", ["uid"], 2, "at", definer=definer)
            assert found.runs_as == ""
            assert list(bursts.cap(store, found)) == []
            several(visits, 5)
            until(lambda: visits(COUNT) == [(2,)], "the event has come by")
            assert (cap(store, "", None), store.check()) == (0, [])  # keeps the definer
            assert bursts.inspect(store, "visits", ["uid"], 2, "at").runs_as == ""
            made = visits(
                "SELECT DEFINER FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() UNION ALL\n"
                "SELECT DEFINER FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()"
            )
            assert made == [(definer,)] * 3
            visits("RENAME TABLE roostcap_visits_grown TO taken")
            visits(
                "CREATE SQL SECURITY INVOKER VIEW roostcap_visits_grown AS\n"
                "  SELECT roostcap_n, roostcap_at, uid FROM taken"
                "  WHERE evil() = 1 WITH CHECK OPTION"
            )
            visits(f"GRANT EXECUTE ON {database}.* TO {definer}")
            several(visits, 1)
            assert {*visits("SELECT who FROM doers")} == {(definer,)}
            visits("DROP VIEW roostcap_visits_grown")
            visits(f"REVOKE DELETE ON {database}.* FROM {definer}")
            assert "rights that root@" in bursts.inspect(store, "visits", [], None, None).runs_as
            bursts.uncap(store, "visits")
        finally:
            visits(f"DROP USER {definer}")


def test_f110_who_may_name_no_definer_is_told_before_anything_is_made(visits: Application, capper: Capper) -> None:
    _, as_capper = capper
    before = visits.schema()
    with as_capper() as theirs:
        with pytest.raises(roost.Invalid, match="may name no other definer"):
            list(bursts.cap(theirs, bursts.inspect(theirs, "visits", ["uid"], 2, "at", definer="root@localhost")))
        assert bursts.capped(theirs, "visits") is None
        made = visits.schema()
        new = [name for (name,) in made[0] if (name,) not in before[0]]
        assert new == ["roost_catalog", "roost_former", "roost_once", "roost_writers"]


def test_f110_the_event_reads_no_view_in_a_table_s_place(store_url: str, visits: Application, scheduler: None) -> None:
    evil(visits)
    visits("CREATE TABLE events (id {id}, at DATETIME, KEY (at))")
    with roost.Store(store_url) as store:
        found = bursts.inspect(store, "visits", ["uid"], 2, "at")
        visits("RENAME TABLE visits TO taken")
        visits("CREATE SQL SECURITY INVOKER VIEW visits AS SELECT * FROM taken WHERE evil() = 1")
        with pytest.raises(roost.Invalid, match="visits is no table"):
            list(bursts.cap(store, found))
        visits("DROP VIEW visits")
        visits("RENAME TABLE taken TO visits")
        cap(store, keep=2)
        list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600)))
        made = bursts.inspect(store, "events").cap
        for table, columns in (("events", "id, at"), ("roostcap_visits_grown", "roostcap_n, roostcap_at, uid")):
            visits(f"RENAME TABLE {table} TO taken_{table}")
            visits(f"CREATE SQL SECURITY INVOKER VIEW {table} AS SELECT {columns} FROM taken_{table} WHERE evil() = 1")
        visits("INSERT INTO taken_events (at) VALUES ('2008-01-01')")
        visits("INSERT INTO taken_roostcap_visits_grown (roostcap_n, uid) VALUES (1, 1)")
        passed(visits, 3)
        with pytest.raises(roost.Invalid, match="events is no table"):
            list(bursts.work_off(store, made))
        assert visits("SELECT * FROM doers") == []
        for table in ("events", "roostcap_visits_grown"):
            visits(f"DROP VIEW {table}")
            visits(f"RENAME TABLE taken_{table} TO {table}")
        until(lambda: visits("SELECT * FROM events") == [], "the event works on tables")
        for table in ("events", "visits"):
            bursts.uncap(store, table)
