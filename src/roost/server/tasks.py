"""Tasks: functions that block, run several at a time in the event loop's thread.

Each is a greenlet. Where its connection would wait for the database's socket, the loop goes on, and resumes it when the
socket is ready; so drivers and plans are the same as in a store. Rejected: a thread for each connection. The loop and
the threads then contend for the interpreter: with 64 clients that ask for one thing at a time, it cost a fifth of the
worker's processor time, and 18 futex calls a turn.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from roost.databases.waits import READ, WRITE, Waits, bytes_received

T = TypeVar("T")
Result = Any  # what the function has returned, or the exception that it has raised

TICK = 0.1  # seconds: with what precision it is seen that a wait has lasted for too long


class Task(greenlet):
    """One function after the other: a greenlet that is new has to map memory for its frames."""

    done: Callable[[Result], None]
    ended = False

    def run(self, work: Callable[[], Any]) -> None:
        """Run what it is given, for ever."""
        while True:
            result = _caught(work)
            self.ended = True
            assert self.parent is not None
            work = self.parent.switch(result)


class Watch:
    """The socket of one connection.

    It is a duplicate: a driver closes its own when it likes, and whoever connects next may get its number.
    """

    def __init__(self, tasks: Tasks, fd: int) -> None:
        self._tasks = tasks
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, os.dup(fd))  # whatever its family
        self.watched = 0  # the events that the selector reports
        self.task: Task | None = None  # that waits
        self.until_ = 0.0  # by the monotonic clock

    def waits(self) -> bool:
        """Whether the caller is a task, and has to wait by `until`."""
        return type(getcurrent()) is Task

    def until(self, events: int, seconds: float) -> int:
        """Wait; return what the socket is ready for, 0 after so many seconds without anything."""
        task, tasks = getcurrent(), self._tasks
        assert type(task) is Task
        if events != self.watched:
            self._register(events)
        self.task, self.until_ = task, time.monotonic() + seconds
        tasks.see(self)
        try:
            ready: int = tasks.main.switch()
        finally:
            self.task = None
            if self.watched & WRITE:  # it is ready nearly always
                self._register(READ)
        return ready

    def _register(self, events: int) -> None:
        # Has the selector report these events, and no others. It reports an error of the socket as all of them.
        selector = self._tasks.selector
        if not self.watched:
            selector.register(self._socket, events, self)
        elif events:
            selector.modify(self._socket, events, self)
        else:
            selector.unregister(self._socket)
        self.watched = events

    def ready(self, events: int) -> None:
        """Resume the task that waits."""
        if self.task is not None:
            self._tasks.resume(self.task, events)
        elif self.watched:  # the server has sent something unasked, or has closed the connection
            self._register(0)

    def received(self) -> int:
        """Return how many bytes have arrived by now; 0 where the system does not know."""
        return bytes_received(self._socket)

    def close(self) -> None:
        """Watch no longer."""
        if self.watched:
            self._register(0)
        self._tasks.watches.discard(self)
        self._socket.close()


class Tasks(Waits):
    """The tasks of one event loop, and how their connections wait.

    A selector of their own watches the connections, and the loop watches the selector. Rejected: the loop's
    `add_reader` for each connection. uvloop calls the reader of a socket that was reset once, and never again; a driver
    that reads a second time would wait for its whole timeout.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.main = getcurrent()
        self.watches: set[Watch] = set()  # that tasks wait for, or have waited for of late
        self.selector = selectors.DefaultSelector()
        self.loop.add_reader(self.selector.fileno(), self._dispatch)
        self._ticks = False
        self._idle: list[Task] = []

    def close(self) -> None:
        """Watch nothing any more, when all tasks are over."""
        self.loop.remove_reader(self.selector.fileno())
        self.selector.close()

    def start(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a function until it waits; call `done` with its result, or what it has raised. From the loop alone."""
        task = self._idle.pop() if self._idle else Task(parent=self.main)
        task.done, task.ended = done, False
        self.resume(task, work)

    def resume(self, task: Task, value: Any) -> None:
        """Let a task go on until it waits."""
        result = task.switch(value)
        if task.ended:
            self._idle.append(task)
            task.done(result)

    def _dispatch(self) -> None:
        for key, events in self.selector.select(0):
            key.data.ready(events)  # one that was closed meanwhile has no task and is not watched

    # --- for the connections of tasks -----------------------------------------------------------------------------

    def watch(self, fd: int) -> Watch:
        """Return what tasks wait for a socket by."""
        return Watch(self, fd)

    def see(self, watch: Watch) -> None:
        """See that a wait does not last for too long."""
        # One timer for all of them: one for each wait would be set and cancelled with each statement.
        self.watches.add(watch)
        if not self._ticks:
            self._ticks = True
            self.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        self.watches = {each for each in self.watches if each.task is not None}
        for watch in [each for each in self.watches if each.until_ <= now]:
            if watch.task is not None and watch.until_ <= now:
                self.resume(watch.task, 0)
        self._ticks = bool(self.watches)
        if self._ticks:
            self.loop.call_later(TICK, self._tick)

    def sleep(self, seconds: float) -> None:
        """Wait for a moment."""
        task = getcurrent()
        if type(task) is not Task:
            super().sleep(seconds)
            return
        self.loop.call_later(seconds, self.resume, task, None)
        self.main.switch()

    def call(self, work: Callable[[], T]) -> T:
        """Do what blocks in a way of its own, in another thread."""
        task = getcurrent()
        if type(task) is not Task:
            return work()
        future = self.loop.run_in_executor(None, _caught, work)
        future.add_done_callback(lambda future: self.resume(task, future.result()))
        result = self.main.switch()
        if isinstance(result, BaseException):
            raise result
        answer: T = result
        return answer


def _caught(work: Callable[[], Any]) -> Result:
    try:
        return work()
    except BaseException as error:  # it would be raised in the loop, or in a future: its caller decides
        return error
