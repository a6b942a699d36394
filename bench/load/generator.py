"""One process of the load generator: one loop over epoll, with as little work per chunk as Python allows.

It shares its machine with the server that it measures, so its own processor time is measured and reported. Requests and
expected answers are bytes made in advance; a chunk costs one `write` and, usually, one `read` and one `==`.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import time
from collections import Counter

from bench.load.load import TOP, Load, Report
from bench.load.workloads import Workload, is_as_good, workload_of
from roost.databases.addresses import Address
from roost.errors import CannotOpen, Refused
from roost.protocols.handlersocket import escape

PATIENCE = 10.0  # seconds for an answer while connecting, and for the last answers


def raise_files(number: int) -> None:
    """Raise this process's limit of open files to `number`. Raises: CannotOpen."""
    if not hasattr(select, "epoll"):
        raise CannotOpen("the load generator waits for thousands of connections by epoll, which only Linux has")
    import resource  # not available on Windows, like epoll

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if number > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, max(number, hard)))
        except (ValueError, OSError):
            raise CannotOpen(f"{number} files would have to be open, {hard} may be: see `ulimit -Hn`") from None


def connect(address: str, *lines: bytes) -> socket.socket:
    """Connect and send lines, each of which the server must answer with `0 1`. Raises: CannotOpen, Refused."""
    try:
        made = Address.parse(address).connect(PATIENCE)
        for answer in ask(made, *lines):
            if answer != b"0\t1":
                made.close()
                raise Refused(f"{address} answered {answer.decode(errors='replace')!r} to being opened")
    except OSError as error:
        raise CannotOpen(f"{address}: {error}") from error
    made.settimeout(None)  # a chunk is written only when nothing is unanswered, so it never blocks
    return made


def ask(connection: socket.socket, *lines: bytes) -> list[bytes]:
    """Send lines and return the answers, without their ends. Raises: OSError."""
    connection.sendall(b"".join(lines))
    received = bytearray()
    while received.count(b"\n") < len(lines):
        got = connection.recv(2**16)
        if not got:
            raise ConnectionResetError("the connection was closed")
        received += got
    return bytes(received).split(b"\n")[: len(lines)]


def opening(load: Load, work: Workload) -> list[bytes]:
    """Return the first lines of a connection: the secret, if there is one, and the opening of the index."""
    secret = [b"A\t1\t%s\n" % escape(load.secret.encode())] if load.secret else []
    return [*secret, work.opening(load)]


class Process:
    """The connections of one process, and the answers to them."""

    def __init__(self, load: Load, place: int, processes: int, answer: bytes) -> None:
        def share(number: int) -> int:
            return number // processes + (place < number % processes)

        self._load = load
        self._workload = workload_of(load, place, processes, answer)
        self._report = Report()
        self._pace = load.pace / processes
        lines = opening(load, self._workload)
        active, idle = share(load.connections), share(load.idle)
        raise_files(active + idle + 100)
        self._idle = [connect(load.address, *lines) for _ in range(idle)]
        self._open = {each.fileno(): each for each in (connect(load.address, *lines) for _ in range(active))}

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._idle, *self._open.values()]:
            each.close()

    def run(self) -> Report:
        """Send requests and check answers for the seconds of the load; report the time after the warm-up."""
        load, report = self._load, self._report
        gc.disable()  # the loop makes no reference cycles
        began = time.perf_counter()
        measured = began + load.warmup
        hist: dict[int, int] = {}
        loop = _Loop(load, self._workload, self._open, report)
        loop.start()
        loop.until(measured, self._pace)
        loop.hist = hist
        before, chunks, real = os.times(), loop.requests, time.perf_counter()
        loop.until(measured + load.seconds, self._pace)
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
    """Sends chunks and checks their answers, by the numbers of the sockets."""

    def __init__(self, load: Load, work: Workload, open_: dict[int, socket.socket], report: Report) -> None:
        self._load, self._open, self._report = load, open_, report
        self._next = work.chunks.__next__
        size = max(open_, default=0) + 1
        self._expected = [b""] * size
        self._sent = [0] * size
        self._received = [b""] * size  # the beginning of an answer
        self._waiting: set[int] = set()  # the connections that are free to send, if there is a pace
        self._poll = select.epoll()
        for each in open_:
            self._poll.register(each, select.EPOLLIN)
        self.hist: dict[int, int] = {}
        self.requests = 0
        self._over = False

    def start(self) -> None:
        """Send a chunk on every connection, unless there is a pace."""
        if self._load.pace:
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
        """Send the next chunk of each connection as soon as its last one is answered, until `end`."""
        if pace:
            self._paced(end, pace)
            return
        poll, read, write, clock = self._poll.poll, os.read, os.write, time.perf_counter_ns
        expected, sent, received, hist, following = self._expected, self._sent, self._received, self.hist, self._next
        depth, size = self._load.pipeline, 2**18 if self._load.pipeline > 1 else 2**14
        requests, stop = 0, int(end * 1e9)
        now = clock()
        each = -1
        while now < stop and self._open and not self._over:
            for each, _ in poll(0.05):
                try:
                    got = read(each, size)
                    if got != expected[each] or received[each]:
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
        """Send `pace` requests per second; if no connection is free, a chunk waits, and its time counts from then."""
        depth = self._load.pipeline
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
                if got != self._expected[each] or self._received[each]:
                    if not self._complete(each, got):
                        continue
                else:
                    self.requests += self._load.pipeline
            except OSError as error:
                self._lose(each, str(error))
                continue
            self._expected[each] = b""
            micros = (time.perf_counter_ns() - self._sent[each]) // 1000
            self.hist[micros] = self.hist.get(micros, 0) + 1
            self._waiting.add(each)

    def drain(self, end: float) -> None:
        """Receive the outstanding answers, and send nothing more."""
        self.hist = {}
        while any(self._expected[each] for each in self._open) and time.perf_counter() < end:
            self._receive(0.05)
        for each in self._open:
            if self._expected[each]:
                self._report.errors["no answer"] += self._load.pipeline

    def _complete(self, each: int, got: bytes) -> bool:
        """Handle a partial or a wrong answer; return whether all answers to the chunk have been received."""
        if not got:
            self._lose(each, "closed")
            return False
        expected = self._expected[each]
        received = self._received[each] + got
        if received != expected and (expected.startswith(received) or received.count(b"\n") < expected.count(b"\n")):
            self._received[each] = received
            return False
        self._received[each] = b""
        if received == expected:
            self.requests += expected.count(b"\n")
        else:
            self._judge(expected, received)
        return True

    def _judge(self, expected: bytes, received: bytes) -> None:
        errors, report = self._report.errors, self._report
        wanted, answers = expected.split(b"\n")[:-1], received.split(b"\n")[:-1]
        for wish, answer in zip(wanted, answers, strict=False):
            if answer == wish or is_as_good(wish, answer):
                self.requests += 1
                continue
            words = answer.split(b"\t")
            known = len(words) == 3 and words[0] != b"0"
            errors[" ".join(word.decode(errors="replace") for word in words) if known else "wrong answer"] += 1
            report.example = report.example or f"{answer[:200]!r} in place of {wish[:200]!r}"
        if len(answers) > len(wanted) or not received.endswith(b"\n"):
            errors["answer without a request"] += 1

    def _lose(self, each: int, why: str) -> None:
        self._report.lost += 1
        self._report.errors[f"connection: {why}"] += 1
        self._expected[each] = self._received[each] = b""
        self._poll.unregister(each)
        self._waiting.discard(each)
        self._open.pop(each).close()


def _top(hist: dict[int, int]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for micros, number in hist.items():
        counted[min(micros, TOP)] += number
    return counted
