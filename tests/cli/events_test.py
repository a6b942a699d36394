"""A stream of events, imported into one structure of each kind, against plain Python models; every key is compared."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import pytest

import roost
from tests.cli.conftest import Shell
from tests.lengths import length

OWN = Path(__file__).parents[1] / "data/changes.csv"
REAL = Path(__file__).parents[3] / "shared/data/events.csv.gz"

KEEP_FILES, KEEP_PEOPLE = 5, 12


def own() -> Path:
    return OWN


def real() -> Path:
    if not REAL.exists():
        pytest.skip(f"the real events are not there: {'/'.join(REAL.parts[-3:])} is missing beside the repository")
    return REAL


def cut(path: Path, folder: Path) -> Path:
    """In the short form of the tests, leave the first of many events."""
    most = length(10_000, 10_000_000)
    if path != REAL:
        return path
    with gzip.open(path) as lines:
        found = folder / path.name
        found.write_bytes(gzip.compress(b"".join(itertools.islice(lines, most + 1))))
    return found


def events(path: Path) -> csv.DictReader[str]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return csv.DictReader(io.StringIO(text, newline=""))


class Models:
    """The four structures as anybody would write them in memory."""

    def __init__(self, path: Path) -> None:
        self.changes: Counter[str] = Counter()
        self.files: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=KEEP_FILES))
        self.pushes: Counter[int] = Counter()
        self.people: dict[str, OrderedDict[int, None]] = defaultdict(OrderedDict)
        self.knows: dict[int, set[str]] = defaultdict(set)
        self.events = 0
        for event in events(path):
            self._take(int(event["who"]), event["what"])

    def _take(self, who: int, what: str) -> None:
        self.events += 1
        self.changes[what] += 1
        self.files[who].append(what)
        self.pushes[who] += 1
        people = self.people[what]
        people[who] = None
        people.move_to_end(who)
        if len(people) > KEEP_PEOPLE:
            people.popitem(last=False)
        self.knows[who].add(what)


IMPORTS = {
    "changes": ("--map", "key=what"),
    "files": ("--map", "moment=at"),
    "people": (),
    "knows": ("--map", "key=who", "--map", "member=what"),
}


def import_all(shell: Shell, path: Path, on_error: str) -> None:
    shell("create", "counter", "changes", "--key", "text(255)")
    shell(
        *("create", "ring", "files", "--per", "who:int", "--keep", str(KEEP_FILES)),
        *("--column", "what:text(255)", "--column", "moment:datetime"),
    )
    shell(
        *("create", "capped", "people", "--per", "what:text(255)", "--keep", str(KEEP_PEOPLE)),
        *("--unique", "who:int", "--on-duplicate", "refresh"),
    )
    shell("create", "set", "knows", "--key", "int", "--member", "text(255)")
    for name, maps in IMPORTS.items():
        shell("import", name, str(path), *maps, "--on-error", on_error)
        assert shell.error == ""


def all_keys(store: roost.Store, structure: Any) -> list[Any]:
    found: list[Any] = []
    while page := store.run(structure.keys(found[-1] if found else None, 1000)):
        found += page
    return found


@pytest.mark.parametrize(("source", "on_error"), [(own, "stop"), (own, "skip"), (real, "skip")])
def test_every_key_holds_what_the_model_holds(
    shell: Shell, source: Any, on_error: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = cut(source(), tmp_path_factory.mktemp("events"))
    models = Models(path)
    import_all(shell, path, on_error)
    with roost.Store("sqlite:///roost.db") as store:
        stored: dict[str, Any] = {each.name: each for each in store.structures()}
        changes, files, people, knows = (stored[name] for name in IMPORTS)

        keys = all_keys(store, changes)
        assert store.run(changes.totals(keys)) == models.changes
        assert sum(models.changes.values()) == models.events

        keys = all_keys(store, files)
        assert set(keys) == set(models.files)
        for who, entries in zip(keys, store.run_all(*[files.entries(who) for who in keys]), strict=True):
            last = models.pushes[who]
            assert [entry.row.what for entry in entries] == list(models.files[who])
            assert [entry.sequence for entry in entries] == list(range(last - len(entries) + 1, last + 1))

        keys = all_keys(store, people)
        assert set(keys) == set(models.people)
        for what, rows in zip(keys, store.run_all(*[people.latest(what) for what in keys]), strict=True):
            assert [row.who for row in rows] == list(reversed(models.people[what]))

        keys = all_keys(store, knows)
        assert set(keys) == set(models.knows)
        for who, members in zip(keys, store.run_all(*[knows.members(who) for who in keys]), strict=True):
            assert members == models.knows[who]
        assert store.run_all(*[knows.size(who) for who in keys]) == tuple(len(models.knows[who]) for who in keys)
    assert shell("check") == "every promise is kept\n"


def test_the_stream_tries_what_it_is_to_try() -> None:
    models = Models(OWN)
    found = list(events(OWN))
    assert len({event["at"] for event in found}) < len(found) / 2  # many in the same second
    assert max(models.pushes.values()) > 5 * KEEP_FILES
    different = defaultdict(set)
    for event in found:
        different[event["what"]].add(event["who"])
    assert any(len(people) > KEEP_PEOPLE for people in different.values())


def test_what_the_commands_show_is_what_the_model_holds(shell: Shell) -> None:
    models = Models(OWN)
    import_all(shell, OWN, "stop")
    for what, total in models.changes.items():
        assert shell.json("show", "changes", what) == {"structure": "changes", "key": what, "total": total}
    for what, people in models.people.items():
        shown = shell.json("show", "people", what)["entries"]
        assert [entry["row"]["who"] for entry in shown] == list(reversed(people))
    for who, known in models.knows.items():
        assert shell.json("show", "knows", "--", str(who))["members"] == sorted(known)
