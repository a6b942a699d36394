"""The processes of the load generator: start them at the same time, and add up their reports."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

from bench.load.generator import Process, ask, connect, opening
from bench.load.load import Load, Report
from bench.load.workloads import value, workload_of
from roost.client.requests import Index
from roost.client.sockets import HandlerSocket
from roost.errors import CannotOpen, Error, Invalid, Refused


def drive(load: Load, processes: int = 1) -> Report:
    """Run a load with several processes, and return their common report.

    `insert` adds rows whose ids start at the clock's milliseconds, so they are new. `fill` inserts the rows 1 to N
    and then ends; its report does not include the first few. `increment` inserts hot rows that are missing.

    Raises: CannotOpen, Refused, Invalid.
    """
    if not 1 <= processes <= load.connections:
        raise Invalid(f"{processes} processes cannot share {load.connections} connections")
    if load.work == "insert":
        load = replace(load, first=time.time_ns() // 1_000_000 * 1_000_000)
    if load.work == "fill":
        # The processes send whole chunks; the remaining rows are inserted in advance, together with row 1.
        load = replace(load, first=2 + (load.rows - 1) % (load.pipeline * processes))
    answer = _probe(load) if load.work in ("insert", "fill") else b""
    before = _total(load) if load.work == "increment" else None
    report = Report()
    with _started(load, processes, answer) as pipes:
        for pipe in pipes:
            _received(pipe)  # an empty report: the process is ready
        for pipe in pipes:
            pipe.send(None)
        for pipe in pipes:
            report.add(_received(pipe))
    if before is not None:
        report.counted = _total(load) - before
    return report


@contextmanager
def _started(load: Load, processes: int, answer: bytes) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    children = []
    try:
        for place in range(processes):
            ours, theirs = context.Pipe()
            child = context.Process(target=_child, args=(theirs, load, place, processes, answer), daemon=True)
            child.start()
            theirs.close()
            pipes.append(ours)
            children.append(child)
        yield pipes
    except BaseException:
        for child in children:
            child.kill()
        raise
    finally:
        for child in children:
            child.join()
        for pipe in pipes:
            pipe.close()


def _child(pipe: Connection, load: Load, place: int, processes: int, answer: bytes) -> None:
    try:
        process = Process(load, place, processes, answer)
        pipe.send(Report())
        pipe.recv()
        pipe.send(process.run())
        process.close()
    except Error as error:
        pipe.send(error)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # the parent process is gone, or reports the interrupt itself


def _received(pipe: Connection) -> Report:
    try:
        received = pipe.recv()
    except EOFError:
        raise CannotOpen("a process of the load generator ended unexpectedly") from None
    if isinstance(received, Error):
        raise received
    assert isinstance(received, Report)
    return received


def _probe(load: Load) -> bytes:
    """Insert the rows before the first row of the load, and return the server's answer to an insert."""
    rows = [load.first - 1] if load.work == "insert" else range(1, load.first)
    with connect(load.address, *opening(load, workload_of(replace(load, pipeline=1), 0, 1))) as connection:
        answers = set(ask(connection, *[b"0\t+\t2\t%d\t%s\n" % (row, value(row)) for row in rows]))
    if b"1\t1\t121" in answers and load.work == "fill":
        raise Refused(f"there are rows in {load.table} already; fill wants an empty table", 1, "121")
    (answer, *others) = answers
    if others or not answer.startswith(b"0\t1"):
        raise Refused(f"inserting into {load.table} is answered {answer.decode(errors='replace')!r}")
    return answer + b"\n"


def _total(load: Load) -> int:
    """Return the sum of the hot rows; insert missing ones."""
    total = 0
    counts = Index(load.database, load.table, "PRIMARY", ["id", "n"])
    with HandlerSocket(load.address, secret=load.secret) as server:
        for row in range(1, load.hot + 1):
            found = server.run(counts.find("=", row))
            if found:
                total += int(found[0][1] or 0)
            else:
                server.run(counts.insert((row, 0)))
    return total
