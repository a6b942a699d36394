"""The recordings of the original, played to Roost on SQLite: equal, or different by a rule on the list, exactly so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.handlersocket import transcripts
from tests.handlersocket.conftest import Served, served
from tests.handlersocket.differences import DIFFERENCES, RULES, expected
from tests.handlersocket.transcripts import PLACE, Lite, Transcript

RECORDED = {each.name: each for each in transcripts.recorded()}
HERE: dict[str, Transcript | None] = {**RECORDED} or {"": None}


@pytest.fixture(params=HERE)
def transcript(request: pytest.FixtureRequest) -> Transcript:
    found = HERE[request.param]
    if found is None:
        pytest.skip(f"NOT RUN: the recordings are not there: {'/'.join(PLACE.parts[-3:])} is missing")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all recordings: it goes on while their tables come and go."""
    with served(tmp_path_factory.mktemp("recordings") / "hst.db") as found:
        yield found


def compared(transcript: Transcript, server: Served, rowid: bool, piece: int) -> list[str]:
    """Play a recording, and return what is neither equal nor on the list, or on the list and equal."""
    told = []
    with contextlib.closing(Lite(server.file, rowid)) as lite:
        lite.set_up(transcript.setup)
        for step, answer in transcripts.play(transcript, server, lite.ask, lite.request, piece):
            rule, wanted = expected(transcript.name, step.number, step.response)
            if answer != wanted or (rule and wanted == step.response):
                told.append(
                    f"step {step.number} {step.port} {step.request[:300]!r} {rule}\n"
                    f"  original {step.response[:300]!r}\n  wanted   {wanted[:300]!r}\n  got      {answer[:300]!r}"
                )
    return told


@pytest.mark.parametrize(("rowid", "piece"), [(False, 0), (True, 1)], ids=["as-innodb", "by-rowid-byte-by-byte"])
def test_recordings_are_answered_as_by_the_original(
    transcript: Transcript, rowid: bool, piece: int, server: Served
) -> None:
    told = compared(transcript, server, rowid, piece)
    assert not told, "\n".join([f"{len(told)} of {len(transcript.steps)} steps:", *told])


@pytest.mark.skipif(not RECORDED, reason="NOT RUN: the recordings are not there")
def test_the_list_names_steps_that_there_are_and_rules_that_there_are() -> None:
    for name, entries in DIFFERENCES.items():
        steps = [step for _, _, numbers in entries for step in numbers]
        assert len(steps) == len(set(steps)), name
        assert set(steps) <= {step.number for step in RECORDED[name].steps}, name
        assert {rule for rule, _, _ in entries} <= set(RULES), name
