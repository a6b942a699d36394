"""Who commits is interrupted around COMMIT: others, whose atoms are committed too, are answered what is true."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import roost
from roost.dialects import Control
from roost.errors import ConnectionLost
from tests import servers
from tests.campaigns.processes import Halt, until
from tests.suite.shapes import pageviews


class SoftTimeLimit(Exception):
    """What a handler of signals raises, as task queues do."""


def commits_anothers(url: str, monkeypatch: pytest.MonkeyPatch, after: type[BaseException], **methods: Any) -> Any:
    """Let the main thread commit its own atom and that of another thread, and raise something after COMMIT.

    Returns what the two were told. `methods` replace the connection's, each given the true one.
    """
    halt, found = Halt("^COMMIT", thread="holder"), dict[str, Any]()

    def add(name: str) -> None:
        try:
            found[name] = store.run(pageviews.add(name))
        except BaseException as error:
            found[name] = error

    with roost.Store(url, random=random.Random(1), trace=halt.trace) as store:
        store.create(pageviews, view=False)
        holder = threading.Thread(target=add, args=("holder",), name="holder")
        other = threading.Thread(target=add, args=("other",))
        waiting = store._core.writers._waiting

        def arrange() -> None:
            until(lambda: len(waiting) == 1, "the main thread waits")
            other.start()
            until(lambda: len(waiting) == 2, "the other one waits behind it")
            halt.release()

        holder.start()
        halt.reached()
        kind: Any = type(store._core._writer.connection)
        execute, main = kind.execute, threading.current_thread()

        def interrupted(self: Any, wanted: Any) -> Any:
            answer = execute(self, wanted)
            if wanted is Control.COMMIT and threading.current_thread() is main:
                monkeypatch.setattr(kind, "execute", execute)
                raise after("after COMMIT")
            return answer

        monkeypatch.setattr(kind, "execute", interrupted)
        for name, made in methods.items():
            monkeypatch.setattr(kind, name, made(getattr(kind, name)))
        helper = threading.Thread(target=arrange)
        helper.start()
        add("main")
        for thread in (helper, holder, other):
            thread.join(60)
            assert not thread.is_alive()
        assert store.run(pageviews.totals(["holder", "main", "other"])) == {"holder": 1, "main": 1, "other": 1}
        assert store.run(pageviews.add("main")) is None  # it goes on
    assert found["holder"] is None
    return found["main"], found["other"]


def interrupted_once(real: Callable[..., Any]) -> Callable[..., Any]:
    left = [1]

    def method(*args: Any) -> Any:
        if left:
            left.pop()
            raise KeyboardInterrupt("while it is looked up")
        return real(*args)

    return method


@pytest.mark.parametrize("after", [KeyboardInterrupt, SoftTimeLimit])
@pytest.mark.parametrize("database", ["sqlite", *servers.SERVERS])
def test_after_it(any_url: str, monkeypatch: pytest.MonkeyPatch, after: type[BaseException]) -> None:
    main, other = commits_anothers(any_url, monkeypatch, after)
    assert type(main) is after
    assert other is None


def test_while_its_outcome_is_looked_up(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main, other = commits_anothers(server_url, monkeypatch, ConnectionLost, look_up=interrupted_once)
    assert type(main) is KeyboardInterrupt
    assert other is None


def test_after_it_and_while_its_outcome_is_looked_up(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main, other = commits_anothers(server_url, monkeypatch, KeyboardInterrupt, look_up=interrupted_once)
    assert type(main) is KeyboardInterrupt
    assert type(other) is roost.OutcomeUnknown
