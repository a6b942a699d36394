"""Forked processes that talk to the test that made them, and never outlive it."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

PATIENCE = 180.0  # seconds after which something that should have happened is taken for a hang
CALL = 40.0  # the same of one call: its timeout, what is granted beyond it, a look-up, a slow machine
PIPE_BYTES = 2**20  # so that a child need not wait for a parent that is busy


def started(*threads: threading.Thread) -> list[threading.Thread]:
    """Start threads, and return them."""
    for thread in threads:
        thread.start()
    return [*threads]


def run_threads(*threads: threading.Thread) -> None:
    """Let threads run at the same time, and return when all have ended."""
    for thread in started(*threads):
        thread.join()


class Call(threading.Thread):
    """A call in a thread of its own, which has to end."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """What the thread does."""
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error

    def ended(self) -> Call:
        """Return when it has ended."""
        self.join(CALL)
        assert not self.is_alive(), "it does not end"
        return self

    def answer(self) -> Any:
        """Return what it returned, or raise what it raised."""
        self.ended()
        if self.error is not None:
            raise self.error
        return self.result


class Halt:
    """Has a thread stand still before a statement, once, until it may go on.

    before: a pattern that is found in the statement. thread: its name. seconds: after which it goes on, so that what
    waits for the end of the statement can, too.
    """

    def __init__(self, before: str, thread: str = "other", seconds: float = PATIENCE) -> None:
        self._before, self._thread, self._seconds = before, thread, seconds
        self._reached, self._released = threading.Event(), threading.Event()

    def trace(self, sql: str, row: object) -> None:
        """Look at a statement: for a store's `trace`."""
        if (
            threading.current_thread().name == self._thread
            and re.search(self._before, sql)
            and not self._reached.is_set()
        ):
            self._reached.set()
            self._released.wait(self._seconds)

    def reached(self) -> None:
        """Return when it stands still."""
        assert self._reached.wait(PATIENCE)

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    def again(self) -> None:
        """Have it stand still the next time, too."""
        self._reached.clear()
        self._released.clear()


class Gone(Exception):
    """The other side has ended."""


class Line:
    """One end of a line between two processes: each says and hears short texts."""

    def __init__(self, hears: int, says: int) -> None:
        self._hears, self._says = hears, says
        self._heard = b""
        self._poll = select.poll()  # not select(), which knows no file beyond the 1,024th
        self._poll.register(hears, select.POLLIN)

    def say(self, text: object) -> None:
        """Send a text, whole: also from several threads, and also when the next moment is the last."""
        os.write(self._says, f"{text}\n".encode())

    def hear(self, patience: float = PATIENCE) -> str:
        """Return the next text; `Gone` when there will be none, AssertionError when there is none for too long."""
        deadline = time.monotonic() + patience
        while b"\n" not in self._heard:
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise AssertionError(f"nothing was heard for {patience} seconds")
            more = os.read(self._hears, 65536)
            if not more:
                raise Gone
            self._heard += more
        text, _, self._heard = self._heard.partition(b"\n")
        return text.decode()

    def overhear(self, seconds: float) -> list[str]:
        """Return all that is said in this time; for a moment that is to be random."""
        moment = time.monotonic() + seconds
        texts: list[str] = []
        with contextlib.suppress(AssertionError, Gone):
            while time.monotonic() < moment:
                texts.append(self.hear(max(0.0, moment - time.monotonic())))
        return texts

    def rest(self) -> list[str]:
        """Return all that is said until the other side ends."""
        texts: list[str] = []
        with contextlib.suppress(Gone):
            while True:
                texts.append(self.hear())
        return texts

    def close(self) -> None:
        """Close both directions."""
        for fd in (self._hears, self._says):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._hears = self._says = -1


class Child:
    """A forked process that does `work` with its end of a line; killed when its `with` ends, with all that it forked.

    A child that hangs says where, on stderr, and ends.
    """

    def __init__(self, work: Callable[[Line], None], patience: float = PATIENCE) -> None:
        child_hears, says = os.pipe()
        hears, child_says = os.pipe()
        for fd in (says, child_says):
            with contextlib.suppress(AttributeError, OSError):  # only Linux can; elsewhere the child waits a little
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._leads = not _in_child  # its own process group: what it forks ends with it
        self.pid = fork()
        if self.pid == 0:
            os.close(hears)
            os.close(says)
            _live(work, Line(child_hears, child_says), patience, self._leads)
        if self._leads:
            with contextlib.suppress(OSError):  # it has ended already
                os.setpgid(self.pid, self.pid)
        os.close(child_hears)
        os.close(child_says)
        self.line = Line(hears, says)
        self.say, self.rest = self.line.say, self.line.rest
        self.status: int | None = None

    def hear(self, patience: float = PATIENCE) -> str:
        """Return the next text; one that is silent for too long has to say where its threads are, and ends."""
        try:
            return self.line.hear(patience)
        except AssertionError as silence:
            self.kill(signal.SIGABRT)
            raise AssertionError(f"{silence}; stderr has the stacks of process {self.pid}") from None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        if self.status is None:
            os.kill(self.pid, number)

    def stopped(self) -> None:
        """Return when the process stands still, by SIGSTOP."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"ended instead: {status}"

    def wait(self, patience: float = PATIENCE) -> int:
        """Return the exit code, or the negative number of the signal that ended it."""
        deadline = time.monotonic() + patience
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"process {self.pid} did not end within {patience} seconds")
            else:
                time.sleep(0.001)
        return self.status

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        if self._leads:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self.line.close()


def fork() -> int:
    """Fork; that other threads are running is what is being tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
        return os.fork()


_in_child = False


def _live(work: Callable[[Line], None], line: Line, patience: float, leads: bool) -> None:
    global _in_child
    _in_child = True
    code = 1
    try:
        if leads:
            os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.enable(file=2)
        gc.freeze()
        gc.callbacks.clear()  # an interrupt would be lost in a callback of the garbage collector; hypothesis has one
        watchdog = threading.Timer(patience, _give_up)  # not faulthandler's own, which deadlocks in a grandchild
        watchdog.daemon = True
        watchdog.start()
        work(line)
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _give_up() -> None:
    faulthandler.dump_traceback(file=2)
    os._exit(1)


class Start:
    """A starting line: processes that are forked while it stands wait at it, and run off together."""

    def __init__(self) -> None:
        self._reads, self._writes = os.pipe()

    def wait(self) -> None:
        """In a child: return when the starter has gone."""
        with contextlib.suppress(OSError):
            os.close(self._writes)
        os.read(self._reads, 1)

    def go(self) -> None:
        """In the parent: let all run."""
        os.close(self._writes)
        os.close(self._reads)


@contextlib.contextmanager
def children(n: int, work: Callable[[Line, int], None], patience: float = PATIENCE) -> Iterator[list[Child]]:
    """Fork several processes, each with its number."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Child(lambda line, i=i: work(line, i), patience)) for i in range(n)]  # type: ignore[misc]


def at_once(n: int, work: Callable[[int], object]) -> list[Any]:
    """Do something in several processes, each with its number, and return what each returned, by way of JSON."""

    def told(line: Line, number: int) -> None:
        line.say(json.dumps(work(number)))

    with children(n, told) as made:
        return [json.loads(child.hear()) for child in made]


def program(text: str, *options: str) -> None:
    """Run a program of Python's that has the tests' modules: it ends well, and says nothing of errors."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, *options, "-c", text], env=environment, capture_output=True, text=True, timeout=600
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def until(condition: Callable[[], object], what: str | Callable[[], str], patience: float = PATIENCE) -> None:
    """Return when the condition holds; it is asked again and again, for want of an event.

    what: is missing in the meantime; or what says so, in the end.
    """
    deadline = time.monotonic() + patience
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()}: not within {patience} seconds")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.02)  # on a busy machine the asking takes time from what is waited for
