"""The policy of batches on real databases: deadlines, bounds, what is unknown, what is blocked, and for how long."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import roost
from roost.batching import atoms
from roost.batching import batch as batches
from roost.batching.atoms import Atom
from roost.batching.queue import Queue
from roost.databases import server
from roost.databases.server import USES
from tests import servers
from tests.campaigns.processes import PATIENCE, Call, until
from tests.faults.messages import committing
from tests.faults.slow_transaction_test import held
from tests.proxy import Cut, Proxy
from tests.suite import clients
from tests.suite.shapes import Egg, Visit, baskets, likes, pageviews, visits

HEAD = "SELECT * FROM roost_visits_head WHERE uid = 1 FOR UPDATE"


def test_f80_a_commit_of_which_nothing_can_be_known_is_not_done_again(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to COMMIT is lost, and somebody holds the writer's row for longer than it is asked for."""
    monkeypatch.setattr(server, "LOOKUP", 0.5)
    holder = clients.connect(server_url)

    def hold() -> None:
        holder.execute("BEGIN")
        assert holder.execute("SELECT * FROM roost_writers FOR UPDATE").fetchall()

    with (
        Proxy(urlsplit(server_url).port or 0) as proxy,
        roost.Store(proxy.url(server_url), random=random.Random(3), timeout=2) as store,
    ):
        store.create(pageviews, view=False)
        store.run(pageviews.add("/home"))
        proxy.arm(committing(server_url), Cut.AFTER, meanwhile=hold)
        with pytest.raises(roost.OutcomeUnknown):
            store.run(pageviews.add("/home"))
        assert proxy.cuts == 1
        holder.execute("ROLLBACK")
        assert store.run(pageviews.total("/home")) == 2
    holder.close()


def test_a_commit_that_nobody_answers_for_is_unknown_and_not_done_again(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to COMMIT is lost, and from then on every connection breaks before it is asked anything."""
    monkeypatch.setattr(server, "LOOKUP", 0.5)
    with (
        Proxy(urlsplit(server_url).port or 0) as proxy,
        roost.Store(proxy.url(server_url), random=random.Random(3), timeout=2) as store,
    ):
        store.create(pageviews, view=False)
        store.run(pageviews.add("/home"))
        proxy.arm(1, Cut.AFTER, again=1, endless=True)
        with pytest.raises(roost.OutcomeUnknown, match="whether it was committed cannot be asked"):
            store.run_all(pageviews.add("/home"), pageviews.add("/home"))
        proxy.disarm()
        assert store.run(pageviews.total("/home")) == 3


def test_f84_who_still_has_time_is_not_refused_with_the_late(server_url: str) -> None:
    with roost.Store(server_url, timeout=2 * PATIENCE) as store:
        store.create(visits, view=False)
        store.run(visits.push(Visit(1, 0)))
        late, patient = Atom([visits.push(Visit(1, 1))]), Atom([visits.push(Visit(1, 2))])
        now = time.monotonic()
        late.deadline, patient.deadline = now + 0.5, now + PATIENCE
        late.slow_path = patient.slow_path = 0
        waiting = threading.Thread(target=store._core.submit_slow, args=([late, patient],))
        with held(server_url, HEAD):
            waiting.start()
            until(lambda: late.done, "the end of the first one's time")
            assert not patient.done
        waiting.join(PATIENCE)
        assert isinstance(late.error, roost.Busy)
        assert patient.answer == (2,)
        assert store.run(visits.latest(1)) == [Visit(1, 2), Visit(1, 0)]


def test_who_still_has_time_when_that_of_the_batch_is_over_waits_on(server_url: str) -> None:
    """A batch waits for as long as its first caller does. Another one is left alone in it, and cannot have its lock."""
    texts: list[str] = []
    holds = contextlib.ExitStack()

    def trace(sql: str, row: object) -> None:
        texts.append(sql)
        if attempts() == 1 and "roost_visits_head" in sql:  # without the late one
            holds.enter_context(held(server_url, HEAD))

    def attempts() -> int:
        alone = texts[texts.index("ROLLBACK") :] if "ROLLBACK" in texts else []
        return len([sql for sql in alone if "roost_visits_head" in sql])

    with holds, roost.Store(server_url, timeout=2 * PATIENCE, trace=trace) as store:
        store.create(visits, baskets, view=False)
        store.run(visits.push(Visit(1, 0)))
        twice = [baskets.add(Egg(1, 1)), baskets.add(Egg(1, 1))]
        late, patient = Atom(twice), Atom([visits.push(Visit(1, 2))])
        now = time.monotonic()
        late.deadline, patient.deadline = now + 0.5, now + PATIENCE
        late.slow_path = patient.slow_path = 0
        texts.clear()
        waiting = threading.Thread(target=store._core.submit_slow, args=([late, patient],))
        waiting.start()
        until(lambda: attempts() > 1 or not waiting.is_alive(), "the next attempt")
        holds.close()
        waiting.join(PATIENCE)
        assert patient.answer == (2,)
        with pytest.raises(roost.Error):
            _ = late.answer


def test_who_waits_for_locks_is_not_refused_for_conflicts_while_there_is_time(server_url: str) -> None:
    left = 0

    def trace(sql: str, row: object) -> None:
        nonlocal left
        if "visits_push" in sql and left:
            left -= 1
            raise roost.Conflict("others were in the way")

    with roost.Store(server_url, timeout=2 * PATIENCE, trace=trace) as store:
        store.create(visits, view=False)
        left = 3 * batches.MAX_CONFLICTS
        store.run_all(visits.push(Visit(1, 1)), visits.push(Visit(1, 2)))
        assert left == 0
        assert store.run(visits.latest(1)) == [Visit(1, 2), Visit(1, 1)]


def test_f84_a_lock_is_waited_for_no_longer_than_the_timeout(server_url: str) -> None:
    with roost.Store(server_url) as store:
        store.create(visits, view=False)
        store.run(visits.push(Visit(1, 0)))
    # A whole second, as MySQL waits in those, and a busy machine may take the rest of what an answer is granted.
    with roost.Store(server_url, timeout=1, lock_wait=10 * PATIENCE) as store, held(server_url, HEAD):
        waiting = Call(lambda: store.run(visits.push(Visit(1, 1))))
        assert isinstance(waiting.ended().error, roost.Busy)


def test_f84_a_key_that_was_blocked_goes_the_usual_way_again(server_url: str) -> None:
    with roost.Store(server_url, timeout=PATIENCE) as store:
        store.create(visits, view=False)
        store.run(visits.push(Visit(1, 0)))
        with held(server_url, HEAD):
            waiting = Call(lambda: store.run(visits.push(Visit(1, 1))))
            until(lambda: any(queue.led for queue in store._core._slow_queues), "it waits on the slow path")
        assert waiting.answer() == 2
        atom = Atom([visits.push(Visit(1, 2))])
        store._core.submit([atom])
        assert atom.slow_path is None
        assert atom.answer == (3,)


def behind_one(
    store: roost.Store, committing: threading.Event, go_on: threading.Event, calls: list[Callable[[], Any]]
) -> None:
    """Run calls in threads of their own, all of which come while one batch is at its COMMIT."""
    threads = [threading.Thread(target=call) for call in calls]
    threads[0].start()
    assert committing.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(store._core.writers._waiting) == len(threads) - 1, "the others wait")
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_f84_a_batch_of_several_atoms_is_bounded_in_bytes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoms, "MAX_BYTES", 20_000)
    committing, go_on = threading.Event(), threading.Event()

    def trace(sql: str, row: object) -> None:
        if sql == "COMMIT" and armed and not committing.is_set():
            committing.set()
            assert go_on.wait(PATIENCE)

    armed = False
    with roost.Store(url, trace=trace, timeout=PATIENCE) as store:
        store.create(likes, view=False)
        armed = True
        before = store.stats().batches
        adds = [[likes.add(key, f"{n}{'x' * 200}") for n in range(70)] for key in range(10)]
        behind_one(store, committing, go_on, [lambda ops=ops: store.run_all(*ops) for ops in adds])  # type: ignore[misc]
        assert store.run_all(*[likes.size(key) for key in range(10)]) == (70,) * 10
        assert store.stats().batches - before >= 1 + 9 // 3, (
            "70 of 200 bytes each, of which 64 are not counted: three of them are a batch"
        )


def test_f84_close_waits_for_a_check(url: str) -> None:
    checking, closed = threading.Event(), threading.Event()
    found: list[Any] = []

    def trace(sql: str, row: object) -> None:
        if threading.current_thread().name == "checker" and not checking.is_set():
            checking.set()
            found.append(closed.wait(1))  # as long as it is not closed

    store = roost.Store(url, trace=trace)
    store.create(likes, view=False)
    store.run(likes.add(1, "a"))
    checker = threading.Thread(target=lambda: found.append(store.check()), name="checker")

    def close() -> None:
        store.close()
        closed.set()

    checker.start()
    assert checking.wait(PATIENCE)
    closer = threading.Thread(target=close)
    closer.start()
    for thread in (checker, closer):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert found == [False, []]


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_is_given_up_after_so_many_conflicts_and_not_before(url: str, more: int) -> None:
    left = 0

    def trace(sql: str, row: object) -> None:
        nonlocal left
        if sql.startswith("INSERT") and left:
            left -= 1
            raise roost.Conflict("others were in the way")

    with roost.Store(url, trace=trace) as store:
        store.create(pageviews, view=False)
        store.run(pageviews.add("/other"))
        twice = [pageviews.add("/home"), pageviews.add("/home")]  # one by itself would begin without a batch
        left = batches.MAX_CONFLICTS + more
        if more:
            with pytest.raises(roost.Busy, match="others were in the way, 20 times and more"):
                store.run_all(*twice)
        else:
            store.run_all(*twice)
        assert left == 0
        assert store.run(pageviews.totals(["/home", "/other"])) == {"/home": 2 * (1 - more), "/other": 1}


def test_who_is_answered_does_not_wait_for_a_later_call_beyond_its_own_time() -> None:
    """Its thread is woken by the next leader, just before that waits for COMMIT; but it may have to connect before."""
    returned = threading.Event()
    later: list[threading.Thread] = []

    def work(deadline: float, take: Callable[[], list[Atom]], wake: Callable[[], None]) -> None:
        if later:
            taken = take()
            until(returned.is_set, "the end of a call that was answered long ago")
        else:
            until(lambda: len(take()) == 2, "the second call")
            taken = take()
            later.append(threading.Thread(target=submit, args=(PATIENCE,)))
            later[0].start()
            until(lambda: bool(queue._waiting), "the third call")
        for atom in taken:
            atom.done = True

    def submit(seconds: float) -> None:
        queue.submit([Atom([pageviews.add("/")])], time.monotonic() + seconds)

    def submit_briefly() -> None:
        submit(0.5)
        returned.set()

    queue = Queue(work)
    threads = [threading.Thread(target=submit, args=(PATIENCE,)), threading.Thread(target=submit_briefly)]
    threads[0].start()
    until(lambda: queue.led, "the first call")
    threads[1].start()
    for thread in threads:
        thread.join()
    later[0].join()
    assert not queue.led


def test_what_is_missing_is_named_to_who_writes_to_several_as_well() -> None:
    """PostgreSQL's transaction has failed when it is noticed: the second structure was told that, not the cause."""
    with servers.database("postgresql") as url, roost.Store(url) as store:
        store.create(pageviews, visits)
        write = pageviews.add("/"), visits.push(Visit(1, 1))
        store.run_all(*write)
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute("DROP SCHEMA public CASCADE")
            raw.execute("CREATE SCHEMA public")
        for _ in range(2 * USES):
            with pytest.raises(roost.Missing, match=r"store\.create"):
                store.run_all(*write)
        store.create(pageviews, visits)
        assert store.run_all(*write) == (None, 1)
