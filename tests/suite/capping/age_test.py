"""Tables of the application's own that lose their rows by age, on every engine: nothing younger ever goes."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.capping.postgresql_sql import PLANS
from roost.store import bursts
from tests.campaigns.processes import Line, Start, children
from tests.suite.application import Application
from tests.suite.capping.tables import Open
from tests.suite.engines import Engine

pytestmark = pytest.mark.needs("application", "capped tables")


DAY = 86_400
MONTH = 30 * DAY
EVENTS = "CREATE TABLE events (id {id}, n BIGINT, at %s)"
INDEX = "CREATE INDEX events_at ON events (at)"
INSERT = "INSERT INTO events (n, at) VALUES (?, ?)"
# How a column may tell the time: its type by database, and the unit of its numbers.
COLUMNS: dict[str, tuple[dict[str, str], str | None]] = {
    "zoned": ({"postgresql": "timestamptz", "mysql": "TIMESTAMP(6) NULL", "sqlite": "TIMESTAMP"}, None),
    "plain": ({"postgresql": "timestamp", "mysql": "DATETIME(6)", "sqlite": "TEXT"}, None),
    "date": ({"postgresql": "date", "mysql": "DATE", "sqlite": "DATE"}, None),
    "seconds": ({"postgresql": "bigint", "mysql": "INT UNSIGNED", "sqlite": "INTEGER"}, "s"),
    "milliseconds": ({"postgresql": "bigint", "mysql": "BIGINT", "sqlite": "INTEGER"}, "ms"),
}


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def told(application: Application, how: str, moment: dt.datetime) -> Any:
    """A moment as the column has it."""
    if how in ("seconds", "milliseconds"):
        return int(moment.timestamp() * (1000 if how == "milliseconds" else 1))
    if how == "date":
        return moment.date().isoformat()
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"{text}+00" if how == "zoned" and application.kind == "postgresql" else text


def make(application: Application, how: str = "plain", index: bool = True) -> None:
    application(EVENTS % COLUMNS[how][0][application.kind])
    if index:
        application(INDEX)
    if application.kind == "mysql":
        application("SET time_zone = '+00:00'")


def fill(application: Application, ages: Sequence[float], how: str = "plain", first: int = 0) -> None:
    """Rows that are so many seconds old."""
    application("BEGIN")
    for n, age in enumerate(ages, first):
        application(INSERT, n, told(application, how, now() - dt.timedelta(seconds=age)))
    application("COMMIT")


def cap(store: roost.Store, older_than: int | None = MONTH, by: str | None = "at", **options: Any) -> int:
    return sum(bursts.cap(store, bursts.inspect(store, "events", by=by, older_than=older_than, **options)))


def settle(store: roost.Store) -> int:
    """Make a pass, where there are any."""
    return sum(bursts.work_off(store, bursts.inspect(store, "events").cap))


def numbers(application: Application) -> list[int]:
    return [n for (n,) in application("SELECT n FROM events ORDER BY n")]


def age(application: Application, n: int = 1000) -> None:
    """PostgreSQL: let rows of a capped table get too old without a write that a trigger sees."""
    application("SET session_replication_role = replica")
    fill(application, [31 * DAY + k for k in range(n)])
    application("RESET session_replication_role")


def test_what_is_over_goes_and_nothing_else(open_store: Open, application: Application) -> None:
    store = open_store()
    for how in COLUMNS:
        make(application, how)
        ages = [40 * DAY, 31.1 * DAY, 28.9 * DAY, 1, -DAY, -400 * DAY]
        fill(application, ages, how)
        application("INSERT INTO events (n) VALUES (77)")
        schema = application.schema()
        epoch = COLUMNS[how][1]
        found = bursts.inspect(store, "events", by="at", older_than=MONTH, epoch=epoch)
        assert (found.rows, found.excess, found.keyless) == (7, 2, 1)
        assert (numbers(application), application.schema()) == ([0, 1, 2, 3, 4, 5, 77], schema)
        assert sum(bursts.cap(store, found)) == 2
        assert numbers(application) == [2, 3, 4, 5, 77]
        assert store.check() == []
        # By the writes from now on; where no trigger can, by the next pass.
        fill(application, [35 * DAY, 34 * DAY, 33 * DAY], how, 10)
        fill(application, [0, 0, 0], how, 20)
        settle(store)
        assert numbers(application) == [2, 3, 4, 5, 20, 21, 22, 77]
        bursts.uncap(store, "events")
        assert application.schema() == schema
        fill(application, [35 * DAY, 0], how, 30)
        assert numbers(application)[-3:] == [30, 31, 77]
        application("DROP TABLE events")


def test_an_index_that_is_missing_is_made_and_one_that_is_there_is_used(
    open_store: Open, application: Application
) -> None:
    make(application, index=False)
    store = open_store()
    drop = "DROP INDEX own ON events" if application.kind == "mysql" else "DROP INDEX own"
    for index, good in [
        ("CREATE INDEX own ON events (at)", True),
        ("CREATE INDEX own ON events (at, n)", True),
        ("CREATE INDEX own ON events (n, at)", False),
    ]:
        application(index)
        found = bursts.inspect(store, "events", by="at", older_than=MONTH)
        assert bool(found.index) is good, index
        list(bursts.cap(store, found))
        assert ("roostcap_events'" in str(application.schema())) is not good
        assert store.check() == []
        if good:
            application(drop)
            assert [each.rule for each in store.check()] == ["tables"]
        bursts.uncap(store, "events")
        if not good:
            application(drop)
    assert "roost" not in str(application.schema())


@pytest.mark.parametrize("how", COLUMNS)
@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.spread
def test_what_is_over_is_found_by_the_index(
    open_store: Open, application: Application, how: str, analyzed: bool
) -> None:
    make(application, how)
    store = open_store()
    chance = random.Random(2)
    cap(store, epoch=COLUMNS[how][1])
    fill(application, [chance.uniform(0, 29 * DAY) for _ in range(300)], how)
    if analyzed:
        application({"mysql": "ANALYZE TABLE events"}.get(application.kind, "ANALYZE"))
    made: Any = bursts.inspect(store, "events").cap
    words: Any = bursts._adoption(store).words(made)
    if application.kind == "sqlite":
        steps = application(f"EXPLAIN QUERY PLAN {words.excess(1)}")
        assert [step[-1] for step in steps] == ["SEARCH i USING COVERING INDEX events_at (at>? AND at<?)"]
    elif application.kind == "mysql":
        is_mysql = "MariaDB" not in application("SELECT VERSION()")[0][0]
        ((*plan, extra),) = application(f"EXPLAIN {'FORMAT=TRADITIONAL' if is_mysql else ''} {words.victims(0)}")
        plan[3:4] = [] if is_mysql else plan[3:4]  # the partitions
        assert (plan[3], plan[5]) == ("range", "events_at")
        assert "filesort" not in extra
    else:
        application("BEGIN")
        for setting in PLANS.split(";")[1:]:
            application(f"SET LOCAL {setting}")
        found = str(application("EXPLAIN " + words.too_old("10").replace('"".', "")))
        application("ROLLBACK")
        assert "Index Scan using events_at" in found
        assert "Index Cond" in found
        assert "Sort" not in found


# Ages in hours around the limit, and what is asked of the table.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "several", "undone", "renew", "age", "delete"]),
        st.integers(0, 30),
        st.integers(0, 240),
    ),
    max_size=25,
)


def test_a_model_of_it(open_store: Open, application: Application) -> None:
    make(application)
    store = open_store()
    cap(store, 100 * 3600)

    @settings(max_examples=15, deadline=None)
    @given(steps=STEPS)
    def played(steps: list[tuple[str, int, int]]) -> None:
        play(store, application, steps)

    played()


def play(store: roost.Store, application: Application, steps: list[tuple[str, int, int]]) -> None:
    """Nothing that is not over ever goes; whatever was over is gone once enough was written."""
    application("DELETE FROM events")
    model: dict[int, float] = {}
    number = 0

    def moment(age: float) -> str:
        text: str = told(application, "plain", now() - dt.timedelta(seconds=age))
        return text

    for what, chosen, hours in steps:
        there = sorted(model)[chosen % len(model)] if model else -1
        age = (hours + 0.5) * 3600
        if what in ("insert", "several", "undone"):
            application("BEGIN")
            for _ in range(1 if what == "insert" else 7):
                application(INSERT, number, moment(age))
                if what != "undone":
                    model[number] = age
                number += 1
            application("ROLLBACK" if what == "undone" else "COMMIT")
        elif what in ("renew", "age"):
            age = 0.0 if what == "renew" else age
            application("UPDATE events SET at = ? WHERE n = ?", moment(age), there)
            if there in model:
                model[there] = age
        else:
            application("DELETE FROM events WHERE n = ?", there)
            model.pop(there, None)
        held = set(numbers(application))
        assert {n for n, age in model.items() if age < 100 * 3600} <= held <= set(model)
        model = {n: age for n, age in model.items() if n in held}
    for _ in range(len(model) + 1):
        application(INSERT, number, moment(0))
        model[number] = 0
        number += 1
    settle(store)
    assert numbers(application) == sorted(n for n, age in model.items() if age < 100 * 3600)


def test_several_write_and_renew_and_nothing_that_is_not_over_goes(
    open_store: Open, store_url: str, application: Application
) -> None:
    make(application)
    fill(application, [31 * DAY + n for n in range(600)])
    start, writers, each = Start(), 4, 40

    def write(line: Line, number: int) -> None:
        # Old rows are renewed while others delete them: one that was renewed stays.
        mine = Application(store_url)
        line.say("ready")
        start.wait()
        chance = random.Random(number)
        for n in range(each):
            moment = told(mine, "plain", now())
            mark = 10_000 * (number + 1) + n
            mine("BEGIN")
            mine(INSERT, mark, moment)
            mine("COMMIT")
            renewed = chance.randrange(600)
            # The key is looked up and locked first, as an application does that changes a row.
            mine("BEGIN")
            mine("UPDATE events SET at = ? WHERE n = ?", moment, renewed)
            kept = mine("SELECT n FROM events WHERE n = ?", renewed)
            mine("COMMIT")
            line.say(f"{mark} {renewed if kept else mark}")
        mine.close()

    with children(writers, write) as clients:
        assert [child.hear() for child in clients] == ["ready"] * writers
        store = open_store()
        start.go()
        cap(store)
        kept = {int(part) for child in clients for text in child.rest() for part in text.split()}
    assert kept <= set(numbers(application))
    for _ in range(4):
        fill(application, [0] * 10, first=90_000)
    settle(store)
    assert kept <= set(numbers(application))
    assert len([n for n in numbers(application) if n < 600]) == len([n for n in kept if n < 600])


def test_again_it_goes_by_what_was_said_and_another_age_replaces_it(open_store: Open, application: Application) -> None:
    make(application)
    fill(application, [n * DAY + 60 for n in range(40)])
    store = open_store()
    with pytest.raises(roost.Invalid, match="not capped yet: use --per"):
        cap(store, None, None)
    assert cap(store, 35 * DAY) == 5
    assert cap(store, None, None) == 0
    assert cap(store, 10 * DAY, None) == 25
    assert store.check() == []
    cap(store, 20 * DAY)
    fill(application, [15 * DAY, 25 * DAY, 0, 0], first=100)
    settle(store)
    assert numbers(application)[-3:] == [100, 102, 103]
    with pytest.raises(roost.Invalid, match="events is capped by --older-than already"):
        list(bursts.cap(store, bursts.inspect(store, "events", ["n"], 5, None)))
    with pytest.raises(roost.Invalid, match="is capped by --older-than"):
        bursts.inspect(store, "events", [], 5, None)
    with pytest.raises(roost.Mismatch, match="has no keys"):
        store.run(roost.Capped.of("events").count(1))
    bursts.uncap(store, "events")
    sum(bursts.cap(store, bursts.inspect(store, "events", ["n"], 5, None)))
    with pytest.raises(roost.Invalid, match="events is capped by --keep already"):
        cap(store)
    with pytest.raises(roost.Invalid, match="a table of your own"):
        store.create(*store.structures())


NEVER = 9_999_999_999_999  # as some say what does not end


@pytest.mark.parametrize(
    ("how", "more", "column", "options", "why"),
    [
        ("plain", [], "n", {}, "say --epoch s"),
        ("plain", [], "at", {"epoch": "s"}, "leave out --epoch"),
        ("plain", [], "n", {"epoch": "ms"}, "is it --epoch s"),
        ("plain", [], "n", {"epoch": "s", "offset": 60}, "leave out --utc-offset"),
        ("plain", [], "nothing", {}, "has no column 'nothing'"),
        ("seconds", [], "at", {"epoch": "ms"}, "its greatest value, 1,.* is it --epoch s"),
        ("milliseconds", [], "at", {"epoch": "s"}, "its least value, 1,.* is it --epoch ms"),
        # One value that is far off does not tell the unit.
        ("seconds", [NEVER], "at", {"epoch": "ms"}, "its least value, 1,.* is it --epoch s"),
        ("seconds", [NEVER], "at", {"epoch": "s"}, ""),
        ("seconds", [20_000], "at", {"epoch": "s"}, ""),
    ],
)
@pytest.mark.spread
def test_what_tells_no_time_is_refused_before_anything_is_made(
    open_store: Open, application: Application, how: str, more: list[int], column: str, options: Any, why: str
) -> None:
    make(application, "milliseconds" if how == "seconds" else how)  # whose numbers may be large
    fill(application, [0, 60], how, first=int(now().timestamp()))
    for each in more:
        application(INSERT, 7, each)
    schema = application.schema()
    if why:
        with pytest.raises(roost.Invalid, match=why):
            cap(open_store(), by=column, **options)
        assert application.schema() == schema
    else:
        assert cap(open_store(), by=column, **options) == 0
    assert len(numbers(application)) == 2 + len(more)


def test_what_tells_no_time_stays(open_store: Open, application: Application) -> None:
    make(application, "seconds")
    store = open_store()
    for n, at in enumerate([0, 1, 86_400, None, 400_000_000]):
        application(INSERT, n, at)
    fill(application, [0], "seconds", 5)
    assert cap(store, epoch="s") == 1
    assert numbers(application) == [0, 1, 2, 3, 5]


def test_times_without_a_zone_are_of_the_one_that_was_named(open_store: Open, application: Application) -> None:
    make(application)
    store = open_store()
    # A clock that is five hours behind UTC: what is 28 hours old looks as if it were 33.
    fill(application, [33 * 3600, 28 * 3600, 36 * 3600])
    assert bursts.inspect(store, "events", by="at", older_than=30 * 3600).excess == 2
    assert cap(store, 30 * 3600, offset=-300) == 1
    assert numbers(application) == [0, 1]
    fill(application, [6 * 3600] * 3, first=10)
    settle(store)
    assert numbers(application) == [0, 1, 10, 11, 12]
    assert cap(store, None, None) == 0


@pytest.mark.needs("programs for SQL")
@pytest.mark.parametrize("east", [True, False])
def test_a_session_in_another_zone_changes_nothing(open_store: Open, application: Application, east: bool) -> None:
    make(application, "zoned")
    store, zone = open_store(), "Pacific/Kiritimati" if east else "Pacific/Niue"
    fill(application, [3 * 3600, 3600], "zoned")
    if application.kind == "postgresql":
        application(f"SET TIME ZONE '{zone}'")
    else:
        application(f"SET GLOBAL time_zone = '{'+13:00' if east else '-12:00'}'")
    try:
        assert cap(store, 2 * 3600) == 1
        fill(application, [3 * 3600, 0], "zoned", first=2)
        settle(store)
        assert numbers(application) == [1, 3]
    finally:
        if application.kind == "mysql":
            application("SET GLOBAL time_zone = 'SYSTEM'")


def test_names_that_sql_has_words_for(open_store: Open, application: Application) -> None:
    quote = "`" if application.kind == "mysql" else '"'
    table, by = f"{quote}Old Log's{quote}", f"{quote}or'der{quote}"
    type_ = COLUMNS["plain"][0][application.kind]
    application(f"CREATE TABLE {table} (id {{id}}, {quote}each{quote} INT, gone INT, {by} {type_})")
    store = open_store()
    found = bursts.inspect(store, "Old Log's", by="or'der", older_than=MONTH)
    list(bursts.cap(store, found))
    for age in (31 * DAY, 31 * DAY, 0):
        moment = told(application, "plain", now() - dt.timedelta(seconds=age))
        application(f"INSERT INTO {table} (gone, {by}) VALUES (1, ?)", moment)
    sum(bursts.work_off(store, bursts.inspect(store, "Old Log's").cap))
    assert application(f"SELECT count(*) FROM {table}") == [(1,)]
    assert store.check() == []
    assert [each.kind for each in store.structures()] == ["adopted"]
    bursts.uncap(store, "Old Log's")


def test_the_state_is_read(open_store: Open, application: Application) -> None:
    make(application, "seconds")
    store = open_store()
    cap(store, epoch="s")
    moment = int(now().timestamp())
    application(INSERT, 1, moment)
    application(INSERT, 2, 0)
    (events,) = store.structures()
    assert store.run(events.state()) == (0, *[str(moment) if application.kind == "postgresql" else moment] * 2)  # type: ignore[attr-defined]
    assert store.run(events.keys()) == ["events"]
    assert store.run(events.keys(after="events")) == []
    with pytest.raises(roost.Invalid, match="with SQL"):
        events.clear("events")


def test_a_foreign_key_takes_rows_along(open_store: Open, application: Application) -> None:
    make(application)
    store = open_store()
    application("CREATE TABLE notes (event BIGINT, FOREIGN KEY (event) REFERENCES events (id) ON DELETE CASCADE)")
    if application.kind != "mysql":
        application("CREATE INDEX notes_event ON notes (event)")
    fill(application, [40 * DAY, 0])
    application("INSERT INTO notes SELECT id FROM events")
    assert bursts.inspect(store, "events", by="at", older_than=MONTH).others == ("notes",)
    cap(store)
    assert application("SELECT count(*) FROM notes") == [(1,)]
    application("UPDATE events SET at = ?", told(application, "plain", now() - dt.timedelta(days=50)))
    fill(application, [0])
    settle(store)
    assert application("SELECT count(*) FROM notes") == [(0,)]


@pytest.mark.parametrize("damage", ["trigger", "ALTER TABLE events RENAME TO others", "column"])
@pytest.mark.spread
def test_check_finds_what_keeps_rows_from_going(store_url: str, application: Application, damage: str) -> None:
    make(application)
    with roost.Store(store_url) as store:
        cap(store)
        assert store.check() == []
        if damage == "trigger":
            if application.kind == "mysql":
                fill(application, [40 * DAY])
            else:
                name = "roostcap_events_insert" if application.kind == "sqlite" else "roostcap_events_age ON events"
                application(f"DROP TRIGGER {name}")
        elif damage == "column":
            application("ALTER TABLE events RENAME COLUMN at TO moment")
        else:
            application(damage)
        if application.kind == "sqlite" and damage == "column":
            return  # SQLite renames it in the triggers, and the catalog alone has the old one
        assert len(store.check()) == 1
        if damage == "trigger":
            cap(store, None, None)
            assert store.check() == []
        bursts.uncap(store, "events")
        assert "roost" not in str(application.schema())


def test_the_application_s_statement_returns_its_own(
    open_store: Open, application: Application, engine: Engine
) -> None:
    make(application)
    fill(application, [40 * DAY] * 3)
    store = open_store()
    cap(store)
    fill(application, [40 * DAY], first=50)
    moment = told(application, "plain", now())
    returns, told_back = ("", []) if engine.name == "mysql" else ("RETURNING n", [(60,)])
    assert application(f"INSERT INTO events (n, at) VALUES (60, ?) {returns}", moment) == told_back
    settle(store)
    assert numbers(application) == [60]


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("between", [" ", "T"])
def test_a_day_without_a_time_among_times_counts_from_its_end(
    open_store: Open, application: Application, between: str
) -> None:
    make(application)
    store, moment = open_store(), now()
    since = int((moment - moment.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds())
    for n, at in enumerate([moment - dt.timedelta(days=3), moment]):
        application(INSERT, n, at.strftime(f"%Y-%m-%d{between}%H:%M:%S"))
    application(INSERT, 2, moment.date().isoformat())
    application(INSERT, 3, (moment - dt.timedelta(days=1)).date().isoformat())
    assert cap(store, since + DAY // 2) == 1
    assert numbers(application) == [1, 2, 3]
    if since > 120:
        assert cap(store, since - 60) == 1
        assert numbers(application) == [1, 2]
