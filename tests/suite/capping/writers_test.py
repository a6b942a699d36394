"""Capping a table while several processes write it, and when the trimming is killed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

import roost
from roost.store import bursts
from tests.campaigns.processes import Child, Line, Start, children
from tests.lengths import length
from tests.suite.application import Application
from tests.suite.capping.tables import INDEX, VISITS, Open, cap, settle

pytestmark = pytest.mark.needs("application", "capped tables")

PEOPLE, KEEP, ROWS = 20, 5, 4000
Held = dict[int, list[tuple[int, int]]]


@pytest.fixture
def visits(application: Application) -> Application:
    application(VISITS)
    application(INDEX)
    chance = random.Random(1)
    rows = [f"({chance.randrange(PEOPLE)}, {n}, 'x')" for n in range(ROWS)]
    application(f"INSERT INTO visits (uid, visitor, at) VALUES {', '.join(rows)}")
    return application


def found(application: Application) -> Held:
    """What the table holds: person -> (id, number), oldest first."""
    held: Held = defaultdict(list)
    for id_, uid, n in application("SELECT id, uid, visitor FROM visits ORDER BY id"):
        held[uid].append((id_, n))
    return held


def test_several_write_meanwhile_and_the_newest_of_all_are_there(
    open_store: Open, store_url: str, visits: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 0.002)
    monkeypatch.setattr(bursts, "PAUSE", 0.001)
    start, writers, each = Start(), 4, length(20, 60)

    def write(line: Line, number: int) -> None:
        # Transactions with several keys, in any order: nobody may be told of a deadlock, and each row is reported.
        application = Application(store_url)
        line.say("ready")
        start.wait()
        chance = random.Random(number)
        for n in range(each):
            mark = ROWS + 1000 * (number + 1) + n
            people = [chance.randrange(PEOPLE) for _ in range(1 if application.kind == "sqlite" else 4)]
            application("BEGIN")
            for uid in people:
                application("INSERT INTO visits (uid, visitor, at) VALUES (?, ?, 'x')", uid, mark)
            outcome = application(f"SELECT id, uid FROM visits WHERE visitor = {mark}")
            application("COMMIT")
            line.say(f"{mark} {' '.join(f'{id_} {uid}' for id_, uid in outcome)}")
        application.close()

    wanted = found(visits)
    with children(writers, write) as clients:
        assert [child.hear() for child in clients] == ["ready"] * writers
        store = open_store()
        start.go()
        deleted = sum(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], KEEP, None)))
        outcome = [list(map(int, text.split())) for child in clients for text in child.rest()]
    assert deleted > 0
    assert len(outcome) == writers * each
    for mark, *pairs in outcome:
        for id_, uid in zip(pairs[::2], pairs[1::2], strict=True):
            wanted[uid].append((id_, mark))
    settle(store)
    assert found(visits) == {uid: sorted(rows)[-KEEP:] for uid, rows in wanted.items()}


@pytest.mark.needs("trims at commit")
@pytest.mark.parametrize("people", [1, 10])
def test_no_moment_has_more_rows_than_are_kept(
    open_store: Open, store_url: str, application: Application, people: int
) -> None:
    application(VISITS)
    application(INDEX)
    store = open_store()
    cap(store, keep=KEEP, newest_by=None)

    def write(line: Line, number: int) -> None:
        mine, chance = Application(store_url), random.Random(number)
        for n in range(length(40, 150)):
            mine("INSERT INTO visits (uid, visitor, at) VALUES (?, ?, 'x')", chance.randrange(people), n)
        mine.close()

    with children(6, write) as clients:
        most: Counter[int] = Counter()
        while not application("SELECT 1 FROM visits LIMIT 1"):
            assert all(child.status is None for child in clients)
        while sum(most.values()) < 200 or KEEP not in most:  # in the end each key has so many
            most.update(n for (n,) in application("SELECT count(*) FROM visits GROUP BY uid"))
        assert [child.wait() for child in clients] == [0] * 6
    assert max(most) == KEEP
    assert application("SELECT count(*) FROM visits") == [(people * KEEP,)]


def test_killed_at_any_moment_it_goes_on_where_it_was(
    open_store: Open, store_url: str, visits: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 0.001)
    monkeypatch.setattr(bursts, "PAUSE", 0.0)
    before = found(visits)

    def work(line: Line) -> None:
        store = roost.Store(store_url)
        for step in bursts.cap(store, bursts.inspect(store, "visits", ["uid"], KEEP, None)):
            line.say(step)

    for times in (1, 2, 3):
        with Child(work) as child:
            for _ in range(times):
                child.hear()
    held = found(visits)
    assert PEOPLE * KEEP < sum(map(len, held.values())) < ROWS
    assert all(rows[-KEEP:] == before[uid][-KEEP:] and set(rows) <= set(before[uid]) for uid, rows in held.items())
    store = open_store()
    assert cap(store, "", None) > 0
    assert store.check() == []
    assert found(visits) == {uid: rows[-KEEP:] for uid, rows in before.items()}
