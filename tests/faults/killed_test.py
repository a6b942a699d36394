"""kill -9: what was answered is there, nothing is there twice or in part, and the others go on."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable

import pytest

import roost
from tests.campaigns.kill import alone, crowd
from tests.campaigns.ledger import STRUCTURES, Event, counts, events, recent, tags
from tests.campaigns.processes import Child, Line, started, until
from tests.lengths import length
from tests.servers import wait_for_silence

ROUNDS = length(10, 40)


def test_what_a_killed_process_was_answered_is_there_once(url: str) -> None:
    found = alone(url, rounds=ROUNDS, seed=1)
    assert found.kills == ROUNDS
    assert found.answers > 0


def test_what_a_killed_client_of_a_server_was_answered_is_there_once(server_url: str) -> None:
    rounds = length(3, 5)
    found = alone(server_url, rounds=rounds, seed=3, over=wait_for_silence)
    assert found.kills == rounds


def test_the_others_go_on_when_a_writing_process_is_killed(url: str) -> None:
    found = crowd(url, rounds=12, seed=2)
    assert found.kills == 12 + 3
    assert found.answers > 0


ATOM = (counts.add(1, 5), events.push(Event(1, 1)), recent.add(Event(1, 1)), tags.add(1, 1, 2))


def killed_before(last: int, url: str, call: Callable[[roost.Store], object]) -> None:
    """Call a store in a process that is killed before this statement, counted from 0."""

    def work(line: Line) -> None:
        sent = -1

        def trace(sql: str, row: object) -> None:
            nonlocal sent
            sent += 1
            if sent == last:
                os.kill(os.getpid(), signal.SIGKILL)

        call(roost.Store(url, trace=trace))

    with Child(work) as child:
        assert child.wait() == -signal.SIGKILL


def _statements(url: str) -> list[str]:
    seen: list[str] = []
    with roost.Store(url, trace=lambda sql, _: seen.append(sql)) as store:
        store.create(*STRUCTURES)
        seen.clear()
        store.run_all(*ATOM)
        store.run_all(counts.clear(1), events.forget(1), recent.forget(1), tags.forget(1))
    return seen[: seen.index("COMMIT") + 1]


def test_killed_before_any_statement_of_an_atom_nothing_of_it_is_there(url: str) -> None:
    statements = _statements(url)
    assert statements[0] == "BEGIN IMMEDIATE"
    assert len(statements) > 10
    tried = range(0, len(statements), length(3, 1))
    for last in tried:
        killed_before(last, url, lambda store: store.run_all(*ATOM))
        with roost.Store(url) as store:
            nothing = store.run_all(counts.total(1), events.latest(1), recent.count(1), tags.size(1))
            assert nothing == (0, [], 0, 0), f"killed before {statements[last]}"
            assert store.check() == []
            store.run(counts.add(2))  # and whoever comes next is not hindered
    with roost.Store(url) as store:
        assert store.run(counts.total(2)) == len(tried)


def test_killed_right_after_an_answer_it_is_there(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def work(line: Line) -> None:
        roost.Store(url).run_all(*ATOM)
        os.kill(os.getpid(), signal.SIGKILL)

    for times in range(1, 6):
        with Child(work) as child:
            assert child.wait() == -signal.SIGKILL
        with roost.Store(url) as store:
            assert store.run_all(counts.total(1), tags.size(1), recent.count(1)) == (5 * times, 2, 1)
            assert [entry.sequence for entry in store.run(events.entries(1))] == list(range(1, times + 1))


@pytest.mark.parametrize("stopped_before", ["BEGIN IMMEDIATE", "COMMIT"])
def test_a_killed_process_lets_go_of_the_lock_that_others_wait_for(url: str, stopped_before: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def work(line: Line) -> None:
        def trace(sql: str, row: object) -> None:
            if sql == stopped_before:
                line.say("inside")
                line.hear()

        line.hear()
        roost.Store(url, trace=trace).run(counts.add(1))

    with Child(work) as child:
        waiting = roost.Store(url, timeout=60)
        waiting.run(counts.add(2))
        child.say("go")
        assert child.hear() == "inside"
        others = started(*[threading.Thread(target=waiting.run, args=(counts.add(2),)) for _ in range(4)])
        until(lambda: waiting.stats().waits, "a thread that waits for the lock")
        child.kill()
        for other in others:
            other.join()
    assert waiting.run(counts.totals([1, 2])) == {1: 0, 2: 5}
    waiting.close()


def test_a_process_killed_while_it_makes_the_database_leaves_one_that_create_completes(url: str) -> None:
    statements: list[str] = []
    with roost.Store(f"{url}-counted", trace=lambda sql, _: statements.append(sql)) as store:
        store.create(*STRUCTURES)
    for last in range(0, len(statements), length(3, 1)):
        path = f"{url}-{last}"
        killed_before(last, path, lambda store: store.create(*STRUCTURES))
        raw = sqlite3.connect(path.removeprefix("sqlite:///"))
        made = raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
        raw.close()
        assert made == (0,), f"killed before {statements[last]}, something was made"
        with roost.Store(path) as store:
            store.create(*STRUCTURES)
            assert store.check() == []
            assert store.run_all(*ATOM) == (None, 1, None, 2)
