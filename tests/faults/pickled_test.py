"""Errors, operations, structures and results survive pickling, also between processes with other hash seeds."""

from __future__ import annotations

import copy
import enum
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pytest

import roost
import roost.errors
from tests.campaigns.culprit import CULPRITS, prepare
from tests.campaigns.ledger import Event, counts, events, recent, tags

ERRORS = [getattr(roost.errors, name) for name in roost.errors.__all__]


class Colour(enum.Enum):
    """A type of column."""

    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    """A composite key."""

    site: int
    path: str


@dataclass(frozen=True, slots=True)
class Everything:
    """A row with a column of each type."""

    site: int
    path: str
    colour: Colour
    price: Annotated[Decimal, roost.decimal(12, 2)]
    seen: datetime
    day: date
    id: UUID
    blob: bytes = b""
    share: float = 0.5
    open: bool = True
    note: str | None = None


@dataclass
class Loose:
    """A row that can be changed, with a factory."""

    site: int
    text: str = field(default_factory=str)


places = roost.Counter("places", key=Place, slots=3)
colours = roost.Set("colours", key=Colour, member=roost.binary(16))
everything = roost.Capped("everything", Everything, per=Place, keep=5, unique=("id", "colour"), on_full="reject")
loose = roost.Ring("loose", Loose, per="site", keep=3)
STRUCTURES: list[Any] = [counts, events, recent, tags, places, colours, everything, loose]

PLACE = Place(1, "/höme")
ROW = Everything(
    1,
    "/höme",
    Colour.BLUE,
    Decimal("-12.50"),
    datetime(2008, 1, 1, 22, 3, 23, tzinfo=UTC),
    date(2008, 1, 1),
    UUID("12345678123456781234567812345678"),
    note="\x00'",
)
OPERATIONS: list[roost.Operation[Any]] = [
    places.add(PLACE, -(2**63)),
    places.total(PLACE),
    places.totals([PLACE, Place(2, "")]),
    places.top(3),
    places.keys(after=PLACE, n=7),
    places.clear(PLACE),
    places.forget(PLACE),
    colours.add(Colour.RED, b"\x00", b"\xff"),
    colours.remove(Colour.RED, b"\x00"),
    colours.members(Colour.RED),
    colours.contains(Colour.RED, b"\xff"),
    colours.size(Colour.BLUE),
    everything.add(ROW),
    everything.remove(PLACE, (ROW.id, ROW.colour)),
    everything.get(PLACE, (ROW.id, ROW.colour)),
    everything.latest(PLACE, 2),
    everything.entries(PLACE, after=3, n=2),
    everything.count(PLACE),
    loose.push(Loose(1, "x")),
    loose.latest(1),
    recent.add(Event(1, 1)),
    events.push(Event(1, 1)),
]


@pytest.mark.parametrize("error", ERRORS)
def test_every_class_of_error(error: type[roost.Error]) -> None:
    made = error("pageviews: what happened")
    made.add_note("in passing")
    pickled = [pickle.loads(pickle.dumps(made, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in (*pickled, copy.copy(made), copy.deepcopy(made)):
        assert type(twin) is error
        assert twin.args == made.args
        assert str(twin) == "pageviews: what happened"
        assert twin.retry is error.retry
        assert twin.__notes__ == ["in passing"]


def test_errors_as_they_are_raised(url: str) -> None:
    prepare(url)
    raised: list[roost.Error] = []
    with roost.Store(url) as store:
        for _, operation in CULPRITS.values():
            with pytest.raises(roost.Error) as caught:
                store.run(operation(77))
            raised.append(caught.value)
        for call in (lambda: store.run(places.total(PLACE)), lambda: roost.Counter("Bad")):
            with pytest.raises(roost.Error) as caught:
                call()
            raised.append(caught.value)
    with pytest.raises(roost.Error) as caught:
        store.run(operation(77))
    raised.append(caught.value)
    with pytest.raises(roost.Error) as caught:
        roost.Store("sqlite:////missing/test.db").create(counts)
    raised.append(caught.value)
    assert {type(error) for error in raised} == {
        roost.Duplicate,
        roost.Full,
        roost.Overflow,
        roost.StatementFailed,
        roost.Missing,
        roost.Invalid,
        roost.Closed,
        roost.CannotOpen,
    }
    for error in raised:
        twin = pickle.loads(pickle.dumps(error))
        assert (type(twin), twin.args, str(twin)) == (type(error), error.args, str(error))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.structure.name}.{each.verb}")
def test_operations(operation: roost.Operation[Any]) -> None:
    pickled = [pickle.loads(pickle.dumps(operation, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (*pickled, copy.copy(operation), copy.deepcopy(operation)):
        assert other == operation
        assert hash(other) == hash(operation)
        assert repr(other) == repr(operation)
        assert other.writes is operation.writes
        assert {operation: 1}[other] == 1


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda each: each.name)
def test_structures(structure: Any, url: str) -> None:
    twin = pickle.loads(pickle.dumps(structure))
    for other in (twin, copy.copy(structure), copy.deepcopy(structure)):
        assert other == structure
        assert hash(other) == hash(structure)
        assert other.definition == structure.definition
        with roost.Store(url) as store:
            store.create(other)
            assert store.check(structure) == []


def test_structures_as_the_catalog_has_them(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
        found = store.structures()
        assert len(found) == len(STRUCTURES)
        for structure in found:
            twin = pickle.loads(pickle.dumps(structure))
            assert twin == structure
            operation = twin.keys()
            assert pickle.loads(pickle.dumps(operation)) == operation
            assert store.run(operation) == []


def test_what_a_twin_does_is_what_the_operation_does(url: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
        for operation in (everything.add(ROW), colours.add(Colour.RED, b"\x00"), places.add(PLACE, 5)):
            store.run(pickle.loads(pickle.dumps(operation)))
        answers = store.run_all(
            *pickle.loads(pickle.dumps([everything.latest(PLACE), colours.members(Colour.RED), places.total(PLACE)]))
        )
        assert answers == ([ROW], {b"\x00"}, 5)
        assert pickle.loads(pickle.dumps(answers)) == answers
        entries = store.run(everything.entries(PLACE))
        assert pickle.loads(pickle.dumps(entries)) == entries
        stats = store.stats()
        assert pickle.loads(pickle.dumps(stats)) == stats
    violation = roost.Violation("places", "slot", PLACE, "slot 7 of 3")
    assert pickle.loads(pickle.dumps(violation)) == violation


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_between_processes_with_other_hash_seeds(url: str, seed: str) -> None:
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    errors = [error("what happened") for error in ERRORS]
    program = f"""
import pickle, sys
import roost
from tests.faults import pickled_test as here

structures, operations, errors = pickle.load(sys.stdin.buffer)
assert structures == here.STRUCTURES
assert [hash(each) for each in structures] == [hash(each) for each in here.STRUCTURES]
assert operations == here.OPERATIONS
assert [hash(each) for each in operations] == [hash(each) for each in here.OPERATIONS]
assert set(operations) == set(here.OPERATIONS)
assert [type(each) for each in errors] == here.ERRORS
with roost.Store({url!r}) as store:
    store.create(*structures)
    store.run_all(operations[12], operations[18])
    answers = store.run_all(operations[15], operations[19])
sys.stdout.buffer.write(pickle.dumps((structures, operations, answers, errors)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((STRUCTURES, OPERATIONS, errors)),
        env=environment,
        capture_output=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    structures, operations, answers, back = pickle.loads(ended.stdout)
    assert structures == STRUCTURES
    assert {each: each.definition for each in structures} == {each: each.definition for each in STRUCTURES}
    assert set(operations) == set(OPERATIONS)
    assert answers == ([ROW], [Loose(1, "x")])
    assert [(type(error), error.args) for error in back] == [(type(error), error.args) for error in errors]
