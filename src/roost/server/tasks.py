"""Tasks: functions that block, run several at a time in the event loop's thread.

Each is a greenlet. Where its connection would wait for the database's socket, the loop goes on, and resumes it when the
socket is ready; so drivers and plans are the same as in a store. Rejected: a thread for each connection. The loop and
the threads then contend for the interpreter: with 64 clients that ask for one thing at a time, it cost a fifth of the
worker's processor time, and 18 futex calls a turn.
"""

from __future__ import annotations

import asyncio
import os
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
        self._reads = False  # the loop calls `_readable`
        self.task: Task | None = None  # that waits
        self.until_ = 0.0  # by the monotonic clock

    def waits(self) -> bool:
        """Whether the caller is a task, and has to wait by `until`."""
        return type(getcurrent()) is Task

    def until(self, events: int, seconds: float) -> int:
        """Wait; return what the socket is ready for, 0 after so many seconds without anything."""
        task, tasks = getcurrent(), self._tasks
        assert type(task) is Task
        loop = tasks.loop
        if events & READ and not self._reads:
            self._reads = True
            loop.add_reader(self._socket.fileno(), self._readable)
        if events & WRITE:
            loop.add_writer(self._socket.fileno(), self._ready, WRITE)
        self.task, self.until_ = task, time.monotonic() + seconds
        tasks.see(self)
        try:
            ready: int = tasks.main.switch()
        finally:
            self.task = None
            if events & WRITE:
                loop.remove_writer(self._socket.fileno())
        return ready

    def _readable(self) -> None:
        if self.task is None:  # the server has said something by itself, or has closed the connection
            self._reads = False
            self._tasks.loop.remove_reader(self._socket.fileno())
        else:
            self._ready(READ)

    def _ready(self, events: int) -> None:
        if self.task is not None:
            self._tasks.resume(self.task, events)

    def received(self) -> int:
        """Return how many bytes have arrived by now; 0 where the system does not know."""
        return bytes_received(self._socket)

    def close(self) -> None:
        """Watch no longer."""
        if self._reads:
            self._reads = False
            self._tasks.loop.remove_reader(self._socket.fileno())
        self._tasks.watches.discard(self)
        self._socket.close()


class Tasks(Waits):
    """The tasks of one event loop, and how their connections wait."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.main = getcurrent()
        self.watches: set[Watch] = set()  # that tasks wait for, or have waited for of late
        self._ticks = False
        self._idle: list[Task] = []

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
