"""Files that cannot be what they should be: a clear error, nothing half done, and the same store works afterwards."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import roost
from roost.databases.sqlite.engine import _forbidden, forbid
from tests.campaigns.ledger import STRUCTURES, Event, counts, events, recent
from tests.campaigns.processes import Child, Line
from tests.conftest import MakeStore

NOBODY = 65534


@pytest.fixture
def path(make_store: MakeStore, tmp_path: Path) -> Path:
    """A database with something in it, in one file, and nobody connected."""
    store = make_store(*STRUCTURES)
    store.run_all(*[counts.add(n, n) for n in range(500)], *[recent.add(Event(n, n)) for n in range(500)])
    store.close()
    return tmp_path / "test.db"


def _works(store: roost.Store, before: int = 0) -> None:
    assert store.run_all(counts.add(1000), counts.total(1000)) == (None, before + 1)
    assert store.run(counts.total(1000)) == before + 1
    assert store.check() == []


def _refused(store: roost.Store, match: str) -> None:
    """Whatever is asked of it, its file cannot be opened."""
    for call in (
        lambda: store.create(*STRUCTURES),
        lambda: store.run(counts.add(1)),
        lambda: store.run(counts.total(1)),
        store.check,
    ):
        with pytest.raises(roost.CannotOpen, match=match):
            call()


def test_a_missing_directory(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(url=f"sqlite:///{tmp_path}/missing/test.db")
    with pytest.raises(roost.CannotOpen, match=rf"there is no directory {tmp_path}/missing") as caught:
        store.create(*STRUCTURES)
    assert caught.value.retry
    for call in (lambda: store.run(counts.add(1)), lambda: store.run(counts.total(1)), store.check):
        with pytest.raises(roost.Error, match=r"missing/test\.db"):
            call()
    assert os.listdir(tmp_path) == []
    (tmp_path / "missing").mkdir()
    store.create(*STRUCTURES)
    _works(store)


def test_a_missing_file_is_made_by_create_alone(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    alter = roost.Counter("counts", key=int, slots=3)
    for call in (
        lambda: store.run(counts.add(1)),
        lambda: store.run(counts.total(1)),
        lambda: store.alter(alter),
        store.check,
        store.structures,
    ):
        with pytest.raises(roost.Missing, match=r"there is no database .*test\.db; store\.create\(\.\.\.\) makes it"):
            call()
        assert os.listdir(tmp_path) == []
    store.create(*STRUCTURES)
    _works(store)


def test_a_directory_in_place_of_the_file(make_store: MakeStore, tmp_path: Path) -> None:
    (tmp_path / "test.db").mkdir()
    store = make_store()
    _refused(store, r"test\.db: it is a directory")
    assert os.listdir(tmp_path / "test.db") == []
    (tmp_path / "test.db").rmdir()
    store.create(*STRUCTURES)
    _works(store)


@pytest.mark.parametrize(
    "content", [b"shopping list\n", b"eggs\n" * 2000, os.urandom(8192)], ids=["short", "long", "noise"]
)
def test_a_file_that_is_no_database_is_left_alone(make_store: MakeStore, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "test.db"
    path.write_bytes(content)
    store = make_store()
    _refused(store, r"test\.db: file is not a database \(.* no SQLite database\)")
    assert path.read_bytes() == content
    assert set(os.listdir(tmp_path)) <= {"test.db", "test.db-lock"}
    path.unlink()
    store.create(*STRUCTURES)
    _works(store)


def test_an_empty_file_is_an_empty_database(make_store: MakeStore, tmp_path: Path) -> None:
    (tmp_path / "test.db").touch()
    store = make_store()
    for operation in (counts.add(1), counts.total(1)):
        with pytest.raises(roost.Missing, match=r"store\.create\("):
            store.run(operation)
    assert store.check() == []
    store.create(*STRUCTURES)
    _works(store)


def test_a_database_without_structures(make_store: MakeStore, tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "test.db")
    raw.execute("CREATE TABLE theirs (n)")
    raw.close()
    store = make_store()
    for operation in (counts.add(1), counts.total(1)):
        with pytest.raises(roost.Missing, match=r"store\.create\("):
            store.run(operation)
    store.create(*STRUCTURES)
    _works(store)


def test_a_truncated_file(make_store: MakeStore, path: Path) -> None:
    whole = path.read_bytes()
    store = make_store()
    _works(store)
    store.close()
    with open(path, "r+b") as file:
        file.truncate(len(whole) // 3 // 4096 * 4096)
    cut = path.read_bytes()
    store = make_store()
    for call in (
        lambda: store.run(recent.latest(499)),
        lambda: store.run_all(*[recent.add(Event(n, -n)) for n in range(500)]),
        lambda: store.run(counts.top(3)),
    ):
        with pytest.raises(roost.DatabaseError, match=r"test\.db.*(damaged|malformed)"):
            call()
    store.close()
    assert path.read_bytes() == cut
    path.write_bytes(whole)
    store = make_store()
    _works(store)


def test_a_store_that_is_open_while_the_file_is_repaired(make_store: MakeStore, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    store = make_store()
    for operation in (counts.add(1), counts.total(1), recent.add(Event(1, -1)), recent.latest(1)):
        with pytest.raises(
            roost.CannotOpen, match=r"test\.db.*\(the file is damaged, encrypted, or no SQLite database\)"
        ):
            store.run(operation)
    path.write_bytes(whole)
    _works(store)


def test_read_only_by_its_address(make_store: MakeStore, path: Path, tmp_path: Path) -> None:
    os.unlink(f"{path}-lock")
    store = make_store(url=f"sqlite:///{path}?mode=ro")
    assert store.run(counts.total(3)) == 3
    for call in (
        lambda: store.run(counts.add(3)),
        lambda: store.run_all(counts.add(3), recent.add(Event(3, 4))),
        lambda: store.create(roost.Counter("later")),
        lambda: store.alter(roost.Counter("counts", key=int, slots=2)),
    ):
        with pytest.raises(roost.ReadOnly, match="readonly"):
            call()
    assert store.run(counts.total(3)) == 3
    assert not os.path.exists(f"{path}-lock")
    missing = make_store(url=f"sqlite:///{tmp_path}/missing.db?mode=ro")
    with pytest.raises(roost.Missing):
        missing.run(counts.total(3))
    with pytest.raises(roost.Error):
        missing.create(counts)
    assert not os.path.exists(tmp_path / "missing.db")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can reach: pytest's own belongs to one."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def _as_nobody(work: Callable[[Line], None]) -> Child:
    """Do something in a process to which permissions apply."""

    def drop(line: Line) -> None:
        os.umask(0)
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work(line)

    return Child(drop)


def _made(public: Path) -> Path:
    path = public / "test.db"
    with roost.Store(f"sqlite:///{path}") as store:
        store.create(*STRUCTURES)
        store.run(counts.add(3, 3))
    path.chmod(0o666)
    Path(f"{path}-lock").chmod(0o666)
    return path


def test_a_file_that_may_only_be_read(public: Path) -> None:
    path = _made(public)
    path.chmod(0o444)

    def work(line: Line) -> None:
        store = roost.Store(f"sqlite:///{path}")
        for call in (
            lambda: store.run(counts.add(3)),
            lambda: store.run_all(counts.add(3), events.push(Event(1, 1))),
            lambda: store.create(roost.Counter("later")),
        ):
            with pytest.raises(roost.ReadOnly, match=r"test\.db.*readonly"):
                call()
        line.say("refused")
        line.hear()
        assert store.run_all(counts.add(3), counts.total(3), events.push(Event(1, 1))) == (None, 4, 1)
        assert store.run(counts.total(3)) == 4
        store.close()

    with _as_nobody(work) as child:
        assert child.hear() == "refused"
        for file in public.iterdir():  # SQLite has given its own files the permissions of the database
            file.chmod(0o666)
        child.say("go on")
        assert child.wait() == 0
    with roost.Store(f"sqlite:///{path}") as store:
        assert store.run_all(counts.total(3), events.latest(1)) == (4, [Event(1, 1)])


def test_a_file_that_may_not_even_be_read(public: Path) -> None:
    path = _made(public)
    path.chmod(0)

    def work(line: Line) -> None:
        store = roost.Store(f"sqlite:///{path}")
        _refused(store, r"test\.db")
        line.say("refused")
        line.hear()
        assert store.run_all(counts.add(3), counts.total(3)) == (None, 4)
        store.close()

    with _as_nobody(work) as child:
        assert child.hear() == "refused"
        path.chmod(0o666)
        child.say("go on")
        assert child.wait() == 0


def test_a_directory_that_may_not_be_written(public: Path) -> None:
    path = _made(public)
    Path(f"{path}-lock").unlink()
    public.chmod(0o555)

    def work(line: Line) -> None:
        store = roost.Store(f"sqlite:///{path}")
        missing = roost.Store(f"sqlite:///{public}/missing.db")
        with pytest.raises(roost.ReadOnly, match=r"test\.db-lock cannot be made: Permission denied"):
            store.run(counts.add(3))
        with pytest.raises(roost.ReadOnly, match=r"missing\.db-lock cannot be made: Permission denied"):
            missing.create(counts)
        line.say("refused")
        line.hear()
        assert store.run_all(counts.add(3), counts.total(3)) == (None, 4)
        missing.create(counts)
        store.close()
        missing.close()

    with _as_nobody(work) as child:
        assert child.hear() == "refused"
        public.chmod(0o777)
        child.say("go on")
        assert child.wait() == 0


def test_two_users_of_one_file(public: Path) -> None:
    # The web server and the nightly job: whoever may write the database may wait in its queue.
    path = public / "test.db"
    before = os.umask(0o022)
    try:
        with roost.Store(f"sqlite:///{path}") as store:
            store.create(*STRUCTURES)
        path.chmod(0o666)
        with roost.Store(f"sqlite:///{path}") as store:
            store.run(counts.add(3))

            def work(line: Line) -> None:
                with roost.Store(f"sqlite:///{path}") as own:
                    assert own.run_all(counts.add(3), counts.total(3)) == (None, 2)

            if os.getuid() != 0:
                pytest.skip("not run: it takes root to be two users")
        with _as_nobody(work) as child:
            assert child.wait() == 0
    finally:
        os.umask(before)


def test_new_files_are_not_taken_for_a_forbidden_one_that_is_gone(tmp_path: Path) -> None:
    for _ in range(2):
        with roost.Store(f"sqlite:///{tmp_path}/old") as store:
            store.create(counts)
        forbid(f"{tmp_path}/old")
        with roost.Store(f"sqlite:///{tmp_path}/old") as store, pytest.raises(roost.CannotOpen, match="forked"):
            store.run(counts.add(1))
        for each in tmp_path.iterdir():
            each.unlink()
        for n in range(10):  # many file systems give the number of the one that is gone to one of the next
            (tmp_path / f"{n}").touch()
            with roost.Store(f"sqlite:///{tmp_path}/{n}") as store:
                store.create(counts)
    held = [os.readlink(f"/proc/self/fd/{n}") for n in _forbidden.values()]
    assert [each for each in held if each.startswith(f"{tmp_path}/")] == [f"{tmp_path}/old (deleted)"]
