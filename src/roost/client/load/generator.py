"""One process of the load generator: one loop over epoll, as little work per chunk as Python allows.

It shares its machine with the server that it measures, so what it costs is counted and reported: what is sent and what
must come back are bytes that were made beforehand, a chunk is one `write` and, as a rule, one `read` and one `==`.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import time
from collections import Counter

from roost.client.load.plan import TOP, Plan, Report
from roost.client.load.works import Work, is_as_good, work_of
from roost.client.settings import Address
from roost.errors import CannotOpen, Refused
from roost.protocols.handlersocket import escape

PATIENCE = 10.0  # seconds for an answer while connecting, and for the last answers


def raise_files(number: int) -> None:
    """Allow this process so many open files, as far as it may. Raises: CannotOpen."""
    if not hasattr(select, "epoll"):
        raise CannotOpen("connections are opened by the thousand and waited for by epoll, which Linux alone has")
    import resource  # as little of Windows as epoll

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if number > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, max(number, hard)))
        except (ValueError, OSError):
            raise CannotOpen(f"{number} files would have to be open, {hard} may be: see `ulimit -Hn`") from None


def connect(address: str, *lines: bytes) -> socket.socket:
    """Connect and send lines, each of which must be answered `0 1`. Raises: CannotOpen, Refused."""
    where = Address.of(address)
    try:
        if where.path is not None:
            made = socket.socket(socket.AF_UNIX)
            made.connect(where.path)
        else:
            made = socket.create_connection((where.host, where.port), PATIENCE)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.settimeout(PATIENCE)
        for answer in ask(made, *lines):
            if answer != b"0\t1":
                made.close()
                raise Refused(f"{address} answered {answer.decode(errors='replace')!r} to being opened")
    except OSError as error:
        raise CannotOpen(f"{address}: {error}") from error
    made.settimeout(None)  # what is written when nothing is on its way never waits
    return made


def ask(connection: socket.socket, *lines: bytes) -> list[bytes]:
    """Send lines and return the answers, without their ends. Raises: OSError."""
    connection.sendall(b"".join(lines))
    came = bytearray()
    while came.count(b"\n") < len(lines):
        got = connection.recv(2**16)
        if not got:
            raise ConnectionResetError("the connection was closed")
        came += got
    return bytes(came).split(b"\n")[: len(lines)]


def opening(plan: Plan, work: Work) -> list[bytes]:
    """Return the lines with which a connection begins."""
    secret = [b"A\t1\t%s\n" % escape(plan.secret.encode())] if plan.secret else []
    return [*secret, work.opening(plan)]


class Process:
    """The connections of one process, and what they were answered."""

    def __init__(self, plan: Plan, place: int, processes: int, answer: bytes) -> None:
        def share(number: int) -> int:
            return number // processes + (place < number % processes)

        self._plan = plan
        self._work = work_of(plan, place, processes, answer)
        self._report = Report()
        self._pace = plan.pace / processes
        lines = opening(plan, self._work)
        active, idle = share(plan.connections), share(plan.idle)
        raise_files(active + idle + 100)
        self._idle = [connect(plan.address, *lines) for _ in range(idle)]
        self._open = {each.fileno(): each for each in (connect(plan.address, *lines) for _ in range(active))}

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._idle, *self._open.values()]:
            each.close()

    def run(self) -> Report:
        """Send and check for as long as is planned, and report what was answered after the warm-up."""
        plan, report = self._plan, self._report
        gc.disable()  # nothing here makes cycles
        began = time.perf_counter()
        measured = began + plan.warmup
        hist: dict[int, int] = {}
        loop = _Loop(plan, self._work, self._open, report)
        loop.start()
        loop.until(measured, self._pace)
        loop.hist = hist
        before, chunks, real = os.times(), loop.requests, time.perf_counter()
        loop.until(measured + plan.seconds, self._pace)
        after, report.seconds = os.times(), time.perf_counter() - real
        report.requests = loop.requests - chunks
        loop.drain(time.perf_counter() + PATIENCE)
        report.user, report.system = after.user - before.user, after.system - before.system
        report.busiest = (report.user + report.system) / report.seconds
        report.answered = loop.requests
        report.latencies = _top(hist)
        gc.enable()
        return report


class _Loop:
    """What is on its way, by the numbers of the sockets."""

    def __init__(self, plan: Plan, work: Work, open_: dict[int, socket.socket], report: Report) -> None:
        self._plan, self._open, self._report = plan, open_, report
        self._next = work.chunks.__next__
        size = max(open_, default=0) + 1
        self._expected = [b""] * size
        self._sent = [0] * size
        self._came = [b""] * size  # the beginning of an answer
        self._waiting: set[int] = set()  # who may send, where there is a pace
        self._poll = select.epoll()
        for each in open_:
            self._poll.register(each, select.EPOLLIN)
        self.hist: dict[int, int] = {}
        self.requests = 0
        self._over = False

    def start(self) -> None:
        """Send a chunk on every connection, unless there is a pace."""
        if self._plan.pace:
            self._waiting = set(self._open)
            return
        for each in list(self._open):
            self._send(each)

    def _send(self, each: int) -> None:
        try:
            ask, self._expected[each] = self._next()
        except StopIteration:
            self._over, self._expected[each] = True, b""
            return
        self._sent[each] = time.perf_counter_ns()
        try:
            os.write(each, ask)
        except OSError as error:
            self._lose(each, str(error))

    def until(self, end: float, pace: float) -> None:
        """Answer every chunk with the next one, until then."""
        if pace:
            self._paced(end, pace)
            return
        poll, read, write, clock = self._poll.poll, os.read, os.write, time.perf_counter_ns
        expected, sent, came, hist, following = self._expected, self._sent, self._came, self.hist, self._next
        depth, size = self._plan.pipeline, 2**18 if self._plan.pipeline > 1 else 2**14
        requests, stop = 0, int(end * 1e9)
        now = clock()
        each = -1
        while now < stop and self._open and not self._over:
            for each, _ in poll(0.05):
                try:
                    got = read(each, size)
                    if got != expected[each] or came[each]:
                        if not self._complete(each, got):
                            continue
                    else:
                        requests += depth
                    now = clock()
                    micros = (now - sent[each]) // 1000
                    hist[micros] = hist.get(micros, 0) + 1
                    ask, expected[each] = following()
                    sent[each] = now
                    write(each, ask)
                except OSError as error:
                    self._lose(each, str(error))
                except StopIteration:
                    self._over, expected[each] = True, b""
            now = clock()
        self.requests += requests

    def _paced(self, end: float, pace: float) -> None:
        """Send as many requests per second; a chunk that no connection is free for waits, and is counted as sent."""
        depth = self._plan.pipeline
        step = int(1e9 * depth / pace)
        due, stop = time.perf_counter_ns(), int(end * 1e9)
        while (now := time.perf_counter_ns()) < stop and self._open and not self._over:
            while due <= now and self._waiting:
                each = self._waiting.pop()
                self._send(each)
                self._sent[each] = due
                due += step
            left = (due - time.perf_counter_ns()) / 1e9
            self._receive(min(max(left, 0), 0.05) if self._waiting else 0.05)

    def _receive(self, seconds: float) -> None:
        for each, _ in self._poll.poll(seconds):
            try:
                got = os.read(each, 2**18)
                if got != self._expected[each] or self._came[each]:
                    if not self._complete(each, got):
                        continue
                else:
                    self.requests += self._plan.pipeline
            except OSError as error:
                self._lose(each, str(error))
                continue
            self._expected[each] = b""
            micros = (time.perf_counter_ns() - self._sent[each]) // 1000
            self.hist[micros] = self.hist.get(micros, 0) + 1
            self._waiting.add(each)

    def drain(self, end: float) -> None:
        """Take the answers that are still to come, and send nothing more."""
        self.hist = {}
        while any(self._expected[each] for each in self._open) and time.perf_counter() < end:
            self._receive(0.05)
        for each in self._open:
            if self._expected[each]:
                self._report.errors["no answer"] += self._plan.pipeline

    def _complete(self, each: int, got: bytes) -> bool:
        """Take what was not the whole answer at once, or not the right one; whether all answers are there now."""
        if not got:
            self._lose(each, "closed")
            return False
        expected = self._expected[each]
        came = self._came[each] + got
        if came != expected and (expected.startswith(came) or came.count(b"\n") < expected.count(b"\n")):
            self._came[each] = came
            return False
        self._came[each] = b""
        if came == expected:
            self.requests += expected.count(b"\n")
        else:
            self._judge(expected, came)
        return True

    def _judge(self, expected: bytes, came: bytes) -> None:
        errors, report = self._report.errors, self._report
        wanted, answers = expected.split(b"\n")[:-1], came.split(b"\n")[:-1]
        for wish, answer in zip(wanted, answers, strict=False):
            if answer == wish or is_as_good(wish, answer):
                self.requests += 1
                continue
            words = answer.split(b"\t")
            known = len(words) == 3 and words[0] != b"0"
            errors[" ".join(word.decode(errors="replace") for word in words) if known else "wrong answer"] += 1
            report.example = report.example or f"{answer[:200]!r} in place of {wish[:200]!r}"
        if len(answers) > len(wanted) or not came.endswith(b"\n"):
            errors["answer that nobody asked for"] += 1

    def _lose(self, each: int, why: str) -> None:
        self._report.lost += 1
        self._report.errors[f"connection: {why}"] += 1
        self._expected[each] = self._came[each] = b""
        self._poll.unregister(each)
        self._waiting.discard(each)
        self._open.pop(each).close()


def _top(hist: dict[int, int]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for micros, number in hist.items():
        counted[min(micros, TOP)] += number
    return counted
