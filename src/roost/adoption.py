"""Caps tables of the application's own while it goes on writing: short transactions, and a pause behind each.

How long a writer of the application waits is bounded by arithmetic, not by luck. SQLite's busy handler, which waits for
it, tries again after 1, 2, 5, 10, 15, 20, 25, 25 and 25 ms (sqlite3.c, sqliteDefaultBusyCallback). A pause of 30 ms is
longer than any of these, so each waiter finds the lock free in the first pause that it meets: after the burst under way
and 25 ms more. With bursts of 25 ms that is 50 ms, and with one of twice that 75 ms.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence

from roost.core import Core
from roost.dialects import Control
from roost.engines.engine import Connection, drive
from roost.errors import Invalid
from roost.plans.adopted import Cap
from roost.plans.adoption import Found, Row, burst, capped, full_keys, install, look, release
from roost.store import Store

BURST = 0.025  # seconds for which the lock is held
PAUSE = 0.030  # seconds for which it is free, at least
KEYS = 1000  # listed at once
SMALL, NARROW = 50_000, 8 * 2**20  # rows, and bytes of them, over which an index is made within a burst or two


def inspect(store: Store, table: str, per: Sequence[str], keep: int | None, newest_by: str | None) -> Found:
    """Return what capping a table would mean; changes nothing. Without `per` or `keep` they are what they were.

    `Missing` when there is no such table, `Invalid` with the reason when it cannot be capped.
    """
    core = _core(store)
    if not per or keep is None:
        old = core.snapshot(capped(table))
        if old is None:
            raise Invalid(f"{table} is not capped yet: say --per COLUMN and --keep N")
        per, newest_by = (per, newest_by) if per else (old.per, newest_by or old.newest_by)
        keep = old.keep if keep is None else keep
    elif newest_by is None and (old := core.snapshot(capped(table))) is not None and old.per == tuple(per):
        newest_by = old.newest_by
    return core.snapshot(look(table, per, keep, newest_by))


def cap(store: Store, found: Found) -> Generator[int, None, None]:
    """Cap a table as it was found: from the first step on new rows push out old ones, then what is too many goes.

    Yields after every burst how many rows it has deleted. It may be left at any moment, and done again at any time:
    what is done is done. An index that is missing is made first, under the lock; see `SMALL`.
    """
    core = _core(store)

    def unprepare(connection: Connection) -> None:
        connection.raw.execute("PRAGMA foreign_keys = OFF")
        connection.raw.execute(f"PRAGMA synchronous = {getattr(core.engine, 'synchronous', 'FULL')}")
        connection.raw.execute("PRAGMA wal_autocheckpoint = 1000")

    try:
        core.alone(_prepare)
        made = core.exclusive(install(core.known.catalog, found.cap, found.old, make_index=not found.index))
        working, after = BURST / 4, None
        while keys := core.snapshot(full_keys(made, after, KEYS)):
            after = keys[-1]
            waiting = deque(keys)
            while waiting:
                step = _Burst(made, waiting, working)
                core.alone(step.run)
                yield step.deleted
                working = min(max(working * BURST / step.held, working / 2), working * 1.25, BURST)
                time.sleep(max(PAUSE, step.held))
    finally:
        core.alone(unprepare)


def uncap(store: Store, table: str) -> Cap:
    """Remove the triggers, the index if Roost made one, and the entry of the catalog; the rows stay."""
    core = _core(store)
    return core.exclusive(release(table))


def _core(store: Store) -> Core:
    core = store._core
    if core.engine.dialect.name != "sqlite":
        raise Invalid(f"{store.url}: only tables of SQLite can be capped yet")
    return core


class _Burst:
    """One short transaction."""

    def __init__(self, cap: Cap, keys: deque[Row], seconds: float) -> None:
        self._cap = cap
        self._keys = keys
        self._seconds = seconds
        self.deleted = 0
        self.held = 0.0

    def run(self, connection: Connection) -> None:
        """Delete; then, without the lock, move the log into the file: the application's next COMMIT would have to."""
        _prepare(connection)  # it may be another one than before
        connection.execute(Control.BEGIN)
        began = time.monotonic()
        try:
            work = burst(self._cap, self._keys, lambda: time.monotonic() - began > self._seconds)
            self.deleted = drive(work, connection)
            connection.execute(Control.COMMIT)
        finally:
            connection.settle()
        self.held = time.monotonic() - began
        connection.raw.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _prepare(connection: Connection) -> None:
    raw = connection.raw
    raw.execute("PRAGMA foreign_keys = ON")  # what they say of a row that goes holds for these rows too
    # No burst waits for the disk with the lock in its hand: what a power cut undoes of the trimming is done again.
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute("PRAGMA wal_autocheckpoint = 0")
