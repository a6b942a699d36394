"""The processes of the load generator: made, started at once, and their reports put together."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

from roost.client.load.generator import Process, ask, connect, opening
from roost.client.load.plan import Plan, Report
from roost.client.load.works import value, work_of
from roost.errors import CannotOpen, Error, Invalid, Refused


def drive(plan: Plan, processes: int = 1) -> Report:
    """Run a plan with so many processes, and return what all of them saw.

    `insert` adds rows whose ids are made from the time, so they are new. `fill` inserts the rows 1 to N and ends when
    they are there; its report lacks the first few. `increment` inserts the hot rows where they are missing.

    Raises: CannotOpen, Refused, Invalid.
    """
    if not 1 <= processes <= plan.connections:
        raise Invalid(f"{processes} processes cannot share {plan.connections} connections")
    if plan.work == "insert":
        plan = replace(plan, first=time.time_ns() // 1_000_000 * 1_000_000)
    if plan.work == "fill":
        # What is left over when all processes send whole chunks is inserted beforehand, with the first row.
        plan = replace(plan, first=2 + (plan.rows - 1) % (plan.pipeline * processes))
    answer = _probe(plan) if plan.work in ("insert", "fill") else b""
    before = _total(plan) if plan.work == "increment" else None
    report = Report()
    with _started(plan, processes, answer) as pipes:
        for pipe in pipes:
            _told(pipe)  # it is ready
        for pipe in pipes:
            pipe.send(None)
        for pipe in pipes:
            report.add(_told(pipe))
    if before is not None:
        report.counted = _total(plan) - before
    return report


@contextmanager
def _started(plan: Plan, processes: int, answer: bytes) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    children = []
    try:
        for place in range(processes):
            ours, theirs = context.Pipe()
            child = context.Process(target=_child, args=(theirs, plan, place, processes, answer), daemon=True)
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


def _child(pipe: Connection, plan: Plan, place: int, processes: int, answer: bytes) -> None:
    try:
        process = Process(plan, place, processes, answer)
        pipe.send(Report())
        pipe.recv()
        pipe.send(process.run())
        process.close()
    except Error as error:
        pipe.send(error)
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # whoever started it is gone, or says so itself


def _told(pipe: Connection) -> Report:
    try:
        told = pipe.recv()
    except EOFError:
        raise CannotOpen("a process of the load generator ended without a word") from None
    if isinstance(told, Error):
        raise told
    assert isinstance(told, Report)
    return told


def _probe(plan: Plan) -> bytes:
    """Insert what comes before the first row of the plan, and return what the server answers to an insert."""
    rows = [plan.first - 1] if plan.work == "insert" else range(1, plan.first)
    with connect(plan.address, *opening(plan, work_of(replace(plan, pipeline=1), 0, 1))) as connection:
        answers = set(ask(connection, *[b"0\t+\t2\t%d\t%s\n" % (row, value(row)) for row in rows]))
    if b"1\t1\t121" in answers and plan.work == "fill":
        raise Refused(f"there are rows in {plan.table} already; fill wants an empty table", 1, "121")
    (answer, *others) = answers
    if others or not answer.startswith(b"0\t1"):
        raise Refused(f"inserting into {plan.table} is answered {answer.decode(errors='replace')!r}")
    return answer + b"\n"


def _total(plan: Plan) -> int:
    """Return the sum of the hot rows, which are inserted where they are missing."""
    found = 0
    secret = opening(plan, work_of(replace(plan, pipeline=1), 0, 1))[:-1]
    index = f"P\t0\t{plan.database}\t{plan.table}\tPRIMARY\tid,n\n".encode()
    with connect(plan.address, *secret, index) as connection:
        for row in range(1, plan.hot + 1):
            (answer,) = ask(connection, b"0\t=\t1\t%d\n" % row)
            if answer == b"0\t2":
                (inserted,) = ask(connection, b"0\t+\t2\t%d\t0\n" % row)
                if not inserted.startswith(b"0\t1"):
                    raise Refused(f"inserting into {plan.table} is answered {inserted.decode(errors='replace')!r}")
                continue
            words = answer.split(b"\t")
            if len(words) != 4 or words[0] != b"0":
                raise Refused(f"{plan.table}: {answer.decode(errors='replace')!r} in place of a row with id and n")
            found += int(words[3])
    return found
