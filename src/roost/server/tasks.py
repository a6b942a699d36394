"""Tasks: blocking functions, of which several run concurrently in the event loop's thread.

Each task is a greenlet. Where its connection would wait for the database's socket, the event loop goes on, and resumes
the task when the socket is ready; so drivers and plans are the same as in a store. Rejected: a thread per connection.
The loop and the threads then contend for the interpreter: with 64 clients that send one request at a time, this cost a
fifth of the worker's processor time, and 18 futex calls per turn.
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
Result = Any  # the function's return value, or the exception that it raised

TICK = 0.1  # seconds between checks for waits that have timed out


class Task(greenlet):
    """A greenlet that runs one function after another, since a new greenlet has to map memory for its frames."""

    done: Callable[[Result], None]
    ended = False

    def run(self, work: Callable[[], Any]) -> None:
        """Run functions for ever: each `switch` passes the next one, and returns the last one's result."""
        while True:
            result = _caught(work)
            self.ended = True
            assert self.parent is not None
            work = self.parent.switch(result)


class Watch:
    """The socket of one connection.

    It is a duplicate of the driver's: the driver may close its own at any time, and the next connection may then get
    the same descriptor number.
    """

    def __init__(self, tasks: Tasks, fd: int) -> None:
        self._tasks = tasks
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, os.dup(fd))  # the family does not matter
        self.watched = 0  # the events that the selector reports
        self.task: Task | None = None  # the task that waits
        self.until_ = 0.0  # the time at which its wait ends, by the monotonic clock

    def waits(self) -> bool:
        """Whether the caller is a task, which has to wait by `until`."""
        return type(getcurrent()) is Task

    def until(self, events: int, seconds: float) -> int:
        """Wait for the socket; return the events it is ready for, or 0 after that many seconds."""
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
            if self.watched & WRITE:  # a socket is nearly always writable, so the selector would report it all the time
                self._register(READ)
        return ready

    def _register(self, events: int) -> None:
        # Make the selector report these events only. It reports a socket error as all of them.
        selector = self._tasks.selector
        if not self.watched:
            selector.register(self._socket, events, self)
        elif events:
            selector.modify(self._socket, events, self)
        else:
            selector.unregister(self._socket)
        self.watched = events

    def ready(self, events: int) -> None:
        if self.task is not None:
            self._tasks.resume(self.task, events)
        elif self.watched:  # the server has sent something unrequested, or has closed the connection
            self._register(0)

    def received(self) -> int:
        """Return the number of bytes that wait in the socket; 0 if the system cannot tell."""
        return bytes_received(self._socket)

    def close(self) -> None:
        """Stop watching, and close the duplicate."""
        if self.watched:
            self._register(0)
        self._tasks.watches.discard(self)
        self._socket.close()


class Tasks(Waits):
    """The tasks of one event loop, and the way their connections wait.

    A separate selector watches the connections, and the loop watches the selector. Rejected: the loop's `add_reader`
    for each connection. uvloop calls the reader of a reset socket only once; a driver that reads a second time would
    wait for its whole timeout.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.main = getcurrent()
        self.watches: set[Watch] = set()  # those on which a task waits, or has waited since the last tick
        self.selector = selectors.DefaultSelector()
        self.loop.add_reader(self.selector.fileno(), self._dispatch)
        self._ticks = False
        self._idle: list[Task] = []

    def close(self) -> None:
        """Close the selector; call it when all tasks have ended."""
        self.loop.remove_reader(self.selector.fileno())
        self.selector.close()

    def start(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a function until it waits; `done` gets its result or exception. Call it from the loop only."""
        task = self._idle.pop() if self._idle else Task(parent=self.main)
        task.done, task.ended = done, False
        self.resume(task, work)

    def resume(self, task: Task, value: Any) -> None:
        """Continue a task until it waits again or ends."""
        result = task.switch(value)
        if task.ended:
            self._idle.append(task)
            task.done(result)

    def _dispatch(self) -> None:
        for key, events in self.selector.select(0):
            key.data.ready(events)  # does nothing for a watch closed meanwhile: it has no task and is not watched

    # --- for the connections of tasks -----------------------------------------------------------------------------

    def watch(self, fd: int) -> Watch:
        return Watch(self, fd)

    def see(self, watch: Watch) -> None:
        """Make sure that a wait ends at its timeout."""
        # One timer for all waits: a timer per wait would be set and cancelled for every statement.
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
        task = getcurrent()
        if type(task) is not Task:
            super().sleep(seconds)
            return
        self.loop.call_later(seconds, self.resume, task, None)
        self.main.switch()

    def call(self, work: Callable[[], T]) -> T:
        """Run a function that blocks on something other than a watched socket, in another thread."""
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
    except BaseException as error:  # returned, since raising it would end the event loop's callback: the caller decides
        return error
