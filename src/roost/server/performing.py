"""Structures over the wire: the operations of many requests run through the library's plans together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import inf
from typing import Any

from roost.batching.batch import retried
from roost.batching.known import Known
from roost.databases.engine import drive
from roost.databases.sqlite.apsw import ApswConnection
from roost.dialects import SQLITE, Control
from roost.errors import Error, Mismatch
from roost.protocols.requests import Find, Insert, Refused
from roost.server.guard import Guard, Undone
from roost.server.room import Room
from roost.server.structures import Wanted
from roost.server.tables import Handle
from roost.store.core import utc_now
from roost.structures.operation import Operation
from roost.structures.plan import Context, Plan

LOT = 64  # requests, after which it is looked whether there is still room

Asked = tuple[Handle, Find | Insert]


class Performer:
    """Performs requests of structures on one connection, within the transaction of a turn."""

    def __init__(self, connection: ApswConnection, guard: Guard) -> None:
        self._connection = connection
        self._guard = guard
        self._known = Known(SQLITE, exact=True)  # a handle is made anew when what is stored has changed
        self._context = Context(utc_now, 0)
        self._seconds = inf

    def perform(self, requests: Sequence[Asked], room: Room, seconds: float) -> list[str]:
        """Answer requests, in their order, as far as there is room.

        seconds: that one statement may take; inf: any.

        Raises: Undone.
        """
        told: list[str] = []
        while len(told) < len(requests) and room.open:
            some = requests[len(told) : len(told) + LOT]
            self._seconds = seconds
            answers = self._perform(some)
            told += answers
            room.take(sum(map(len, answers)))
        return told

    def _perform(self, requests: Sequence[Asked]) -> list[str]:
        told = [""] * len(requests)
        waiting: list[tuple[int, Wanted]] = []
        for place, (handle, asked) in enumerate(requests):
            structure = handle.structure
            assert structure is not None
            try:
                wanted = structure.ask(asked)
            except Error as error:
                told[place] = self._guard.refusal(error)
                continue
            except Refused as refused:
                told[place] = self._guard.wrong(refused.word)
                continue
            if isinstance(wanted, Wanted):
                waiting.append((place, wanted))
                continue
            self._together(requests, waiting, told)
            waiting = []
            told[place] = self._guard.answered(lambda steps=wanted.steps: self._step_by_step(steps))  # type: ignore[misc]
        self._together(requests, waiting, told)
        return told

    def _together(self, requests: Sequence[Asked], waiting: list[tuple[int, Wanted]], told: list[str]) -> None:
        # Alone where that fails.
        operations = [operation for _, wanted in waiting for operation in wanted.operations]
        results: list[Any] | None = None
        try:
            results = self._performed(operations) if operations else []
        except Error as error:
            if not self._connection.in_transaction:
                raise Undone from error
        begin = 0
        for place, wanted in waiting:
            end = begin + len(wanted.operations)
            part = None if results is None else results[begin:end]
            told[place] = self._guard.answered(lambda a=requests[place], w=wanted, p=part: self._told(a, w, p))  # type: ignore[misc]
            begin = end

    def _told(self, request: Asked, wanted: Wanted, results: list[Any] | None) -> str:
        found = self._performed(wanted.operations) if results is None else results
        if any([isinstance(result, Mismatch) for result in found]):
            handle, asked = request
            structure = handle.again()
            if structure is None:
                return self._guard.answer(1, "open_table")
            once_more = structure.ask(asked)
            assert isinstance(once_more, Wanted)
            wanted, found = once_more, self._performed(once_more.operations)
        for result in found:
            if isinstance(result, Error):
                raise result
        return wanted.tell(found)

    def _step_by_step(self, steps: Generator[Operation[Any], Any, str]) -> str:
        # All of it or nothing.
        connection = self._connection
        connection.fetch("SAVEPOINT request")
        try:
            operation = next(steps)
            while True:
                (result,) = self._performed([operation])
                if isinstance(result, Error):
                    raise result
                operation = steps.send(result)
        except StopIteration as stop:
            connection.fetch("RELEASE request")
            told: str = stop.value
            return told
        except BaseException:
            if connection.in_transaction:
                connection.fetch("ROLLBACK TO request")
                connection.fetch("RELEASE request")
            raise

    def _performed(self, operations: list[Operation[Any]]) -> list[Any]:
        self._connection.allow(self._seconds)
        return drive(_savepoint(operations, self._known, self._context), self._connection)


def _savepoint(operations: list[Operation[Any]], known: Known, context: Context) -> Plan:
    # Operations of structures, each with its own outcome; what a statement refuses undoes all of them.
    yield Control.SAVEPOINT
    try:
        results = yield from retried(operations, known, context)
    except Error:
        yield Control.BACK
        yield Control.RELEASE
        raise
    yield Control.RELEASE
    return results
