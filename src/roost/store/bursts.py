"""Caps tables of the application's own while it goes on writing: short transactions, and a pause behind each.

SQLite has one lock for all writers, and how long a writer of the application waits is bounded by arithmetic, not by
luck. SQLite's busy handler, which waits for it, tries again after 1, 2, 5, 10, 15, 20, 25, 25 and 25 ms (sqlite3.c,
sqliteDefaultBusyCallback). A pause of 30 ms is longer than any of these, so each waiter finds the lock free in the
first pause that it meets: after the burst under way and 25 ms more. With bursts of 25 ms that is 50 ms, and with one of
twice that 75 ms.

On servers a burst locks the rows that go, which nobody writes any more, and waits for nobody. There a pause only leaves
the machine to others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from roost.capping.age import Age
from roost.capping.cap import Cap
from roost.capping.installation import Adoption, Inspection
from roost.capping.mariadb import MariaDBAdoption
from roost.capping.plan import adoption_for
from roost.databases.engine import Connection, commit, drive
from roost.dialects import Control
from roost.errors import Busy, Conflict, Invalid
from roost.store.core import Core
from roost.store.store import Store

T = TypeVar("T")

SAY = "say --per COLUMN and --keep N, or --older-than TIME and --by COLUMN"

BURST = 0.025  # seconds for which locks are held
PAUSE = 0.030  # seconds for which they are free, at least
KEYS = 1000  # listed at once
SMALL, NARROW = 50_000, 8 * 2**20  # rows, and bytes of them, over which an index is made within a burst or two
LEFT = 100  # rows that are over of which a pass need not be followed by another: the next writes take them
EVERY = 1.0  # seconds between two passes where triggers cannot keep a table short


def inspect(store: Store, table: str, per: Sequence[str], keep: int | None, newest_by: str | None) -> Inspection:
    """Return what capping a table would mean; changes nothing. Without `per` or `keep` they are what they were.

    `Missing` when there is no such table, `Invalid` with the reason when it cannot be capped.
    """
    core, adoption = store._core, _adoption(store)
    old: Cap | None = capped(store, table)
    if not per or keep is None:
        if old is None:
            raise Invalid(f"{table} is not capped yet: {SAY}")
        if isinstance(old, Age):
            raise Invalid(f"{table} is capped by --older-than; `roost uncap {table}` first")
        per, newest_by = (per, newest_by) if per else (old.per, newest_by or old.newest_by)
        keep = old.keep if keep is None else keep
    elif newest_by is None and old is not None and old.per == tuple(per):
        newest_by = old.newest_by
    found: Inspection = core.snapshot(partial(adoption.look, table, per, keep, newest_by))
    return found


def inspect_age(
    store: Store,
    table: str,
    by: str | None = None,
    older_than: int | None = None,
    epoch: str | None = None,
    offset: int | None = None,
) -> Inspection:
    """Return what capping a table by age would mean; changes nothing. What is None is what it was.

    older_than: in seconds. by: the column that tells the time. epoch: the unit of its numbers, s or ms. offset: how
        many minutes a time without a zone is ahead of UTC.

    Raises as `inspect` does.
    """
    core, adoption = store._core, _adoption(store)
    old = capped(store, table)
    if isinstance(old, Age):
        if by is None or by == old.by:
            epoch, offset = epoch or old.epoch, old.offset if offset is None else offset
        by, older_than = by or old.by, older_than or old.older_than
    if by is None or older_than is None:
        raise Invalid(f"{table} is not capped by age yet: say --older-than TIME and --by COLUMN")
    found: Inspection = core.snapshot(partial(adoption.look_at_age, table, by, older_than, epoch, offset or 0))
    return found


def capped(store: Store, table: str) -> Cap | None:
    """Return how a table is capped; None when it is not."""
    found: Cap | None = store._core.snapshot(partial(_adoption(store).capped, table))
    return found


def cap(store: Store, found: Inspection) -> Generator[int, None, Cap]:
    """Cap a table as it was found: first what keeps it short is made, then what is too many goes.

    Yields after every burst how many rows it has deleted. It may be left at any moment, and done again at any time:
    what is done is done. An index that is missing is made first; see `SMALL`.
    """
    core, adoption = store._core, _adoption(store)
    manners = _manners(core)
    make_index = not found.index
    try:
        core.with_writer(manners.come)
        core.with_writer(lambda connection: drive(adoption.before(found.cap, make_index), connection))
        made: Cap = _patiently(
            core, lambda: core.exclusive(adoption.install(core.known.catalog, found.cap, found.old, make_index))
        )
        yield from _sweep(core, adoption, made)
        yield from work_off(store, made)
    finally:
        core.with_writer(manners.leave)
    return made


def _sweep(core: Core, adoption: Adoption, made: Cap) -> Generator[int, None, None]:
    # Again until nothing is left: rows that somebody holds are passed over, and on servers writers go on meanwhile.
    deadline = time.monotonic() + core.timeout
    while True:
        deleted, after = 0, None
        while keys := core.snapshot(partial(adoption.full_keys, made, after, KEYS)):
            after = keys[-1]
            for gone in _bursts(core, deque(keys), lambda waiting, is_over: adoption.burst(made, waiting, is_over)):
                deleted += gone
                yield gone
        if after is None or not adoption.by_itself:  # where passes follow, what is left has a note
            return
        if isinstance(made, Age) and deleted < LEFT:  # some go on becoming too old
            return
        if deleted:
            deadline = time.monotonic() + core.timeout
        elif time.monotonic() > deadline:
            raise Busy(f"{made.table}: excess rows are locked by other transactions")


def work_off(store: Store, made: Cap) -> Generator[int, None, None]:
    """Trim the keys that have grown since the last pass, where triggers cannot. Yields as `cap` does."""
    core, adoption = store._core, _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        return
    if isinstance(made, Age):
        yield from _sweep(core, adoption, made)
        return
    after = 0
    while True:
        noted, after = core.snapshot(partial(adoption.noted, made, after, KEYS))
        if not noted:
            return
        yield from _bursts(core, noted, lambda waiting, is_over: adoption.work_off(made, waiting, is_over))


def claim(store: Store, made: Cap) -> None:
    """Make the passes from now on, as long as the store is open; `Invalid` when somebody does or nobody need to."""
    core, adoption = store._core, _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        raise Invalid(f"{made.table}: triggers keep it short, so there is nothing to watch")
    had: list[bool] = []
    core.with_writer(lambda connection: had.append(drive(adoption.claim(made, 5), connection)))
    if had != [True]:
        raise Invalid(f"{made.table}: another `roost cap {made.table} --watch` trims it")


def keeper(store: Store, made: Cap) -> str:
    """Return what keeps a capped table short from now on: triggers, event, or "" for nobody."""
    adoption = _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        return "triggers"
    return "event" if store._core.snapshot(partial(adoption.has_event, made)) else ""


def uncap(store: Store, table: str) -> Cap:
    """Remove what keeps a table short, the index if Roost made one, and the entry of the catalog; the rows stay."""
    core, adoption = store._core, _adoption(store)
    released: Cap = _patiently(core, lambda: core.exclusive(adoption.release(table)))
    return released


def _adoption(store: Store) -> Adoption:
    return adoption_for(store._core.engine.dialect)


def _patiently(core: Core, work: Callable[[], T]) -> T:
    # To change a table waits for all who write it, and others wait behind: so not long, and again and again.
    deadline = time.monotonic() + core.timeout
    while True:
        try:
            return work()
        except (Busy, Conflict):
            if core.engine.file is not None or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


def _bursts(core: Core, waiting: deque[Any], work: Callable[[deque[Any], Callable[[], bool]], Any]) -> Any:
    working, manners = BURST / 4, _manners(core)
    while waiting:
        step = _Burst(work, waiting, working, manners)
        _patiently(core, lambda step=step: core.with_writer(step.run))  # type: ignore[misc]
        yield step.deleted
        working = min(max(working * BURST / step.held, working / 2), working * 1.25, BURST)
        time.sleep(manners.pause(step.held))


class _Burst:
    """One short transaction."""

    def __init__(
        self,
        work: Callable[[deque[Any], Callable[[], bool]], Any],
        waiting: deque[Any],
        seconds: float,
        manners: _Manners,
    ) -> None:
        self._work = work
        self._waiting = waiting
        self._seconds = seconds
        self._manners = manners
        self.deleted = 0
        self.held = 0.0

    def run(self, connection: Connection) -> None:
        """Delete."""
        self._manners.come(connection)  # it may be another one than before
        connection.execute(Control.BEGIN_ALONE)
        began = time.monotonic()
        waiting = deque(self._waiting)  # what is undone is still to be done
        try:
            self.deleted = drive(self._work(waiting, lambda: time.monotonic() - began > self._seconds), connection)
            commit(connection)
        finally:
            connection.settle()
        while len(self._waiting) > len(waiting):
            self._waiting.popleft()
        self.held = time.monotonic() - began
        self._manners.done(connection)


class _Manners:
    """What a connection does for others while it trims; servers need nothing."""

    def come(self, connection: Connection) -> None:
        """Before the first burst, and each."""

    def done(self, connection: Connection) -> None:
        """After each."""

    def leave(self, connection: Connection) -> None:
        """After the last."""

    def pause(self, held: float) -> float:
        """Return the seconds to rest after a burst that took so long."""
        return min(PAUSE, held / 2)


class _FileManners(_Manners):
    """No burst waits for the disk with the lock in its hand."""

    def __init__(self, durability: str) -> None:
        self._durability = durability

    def come(self, connection: Connection) -> None:
        """What a power cut undoes of the trimming is done again."""
        connection.raw.execute("PRAGMA foreign_keys = ON")  # what they say of a row that goes holds for these rows too
        connection.raw.execute("PRAGMA synchronous = NORMAL")
        connection.raw.execute("PRAGMA wal_autocheckpoint = 0")

    def done(self, connection: Connection) -> None:
        """Move the log into the file, without the lock: the application's next COMMIT would have to."""
        connection.raw.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def leave(self, connection: Connection) -> None:
        """Be as other connections of Roost again."""
        connection.raw.execute("PRAGMA foreign_keys = OFF")
        connection.raw.execute(f"PRAGMA synchronous = {self._durability}")
        connection.raw.execute("PRAGMA wal_autocheckpoint = 1000")

    def pause(self, held: float) -> float:
        """Leave the lock free for long enough that everybody who waits comes by."""
        return max(PAUSE, held)


def _manners(core: Core) -> _Manners:
    engine = core.engine
    return _FileManners(engine.durability or "FULL") if engine.dialect.name == "sqlite" else _Manners()
