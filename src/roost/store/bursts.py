"""Cap the application's own tables while it goes on writing: in short transactions, with a pause after each.

SQLite has one lock for all writers, so the time that a writer of the application waits must be bounded. SQLite's busy
handler, which waits for the lock, tries again after 1, 2, 5, 10, 15, 20, 25, 25 and 25 ms (sqlite3.c,
sqliteDefaultBusyCallback). A pause of 30 ms is longer than any of these intervals, so each waiter finds the lock free
in the first pause that it meets: at the latest, the rest of the current burst and 25 ms later. With bursts of 25 ms
that is 50 ms; if a burst takes twice as long, it is 75 ms.

On servers a burst locks only the rows that it deletes, which the application does not write any more, and waits for no
lock. There a pause only leaves processor time to others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from roost.capping.adoption import Adoption, Inspection, Waiting
from roost.capping.cap import EPOCHS
from roost.capping.mariadb import MariaDBAdoption
from roost.capping.plan import adoption_for
from roost.databases.engine import Connection, commit, drive
from roost.dialects import MARIADB, Control
from roost.errors import Busy, Conflict, Invalid
from roost.store.core import Core
from roost.store.store import Store
from roost.structures.adopted import Cap

T = TypeVar("T")

SAY = "use --per COLUMN and --keep N, or --older-than TIME and --by COLUMN"

BURST = 0.025  # seconds for which a burst holds its locks
PAUSE = 0.030  # seconds for which they are free between bursts, at least
KEYS = 1000  # keys listed at once
SMALL, NARROW = 50_000, 8 * 2**20  # rows and bytes of a table on which an index is made in the time of a burst or two
LEFT = 100  # after a pass that deleted fewer rows no other pass follows: the next writes delete the rest
# Settings of SQLite by which the table's foreign keys apply to the deleted rows too, and no burst waits for the disk
# while it holds the lock: a burst that a power cut undoes is repeated by a later pass.
SPARING = ("foreign_keys = ON", "synchronous = NORMAL", "wal_autocheckpoint = 0")
EVERY = 1.0  # seconds between two passes, if triggers cannot keep the table short


def inspect(
    store: Store,
    table: str,
    per: Sequence[str] | None = None,
    keep: int | None = None,
    newest_by: str | None = None,
    *,
    by: str | None = None,
    older_than: int | None = None,
    epoch: str | None = None,
    offset: int | None = None,
    definer: str = "",
) -> Inspection:
    """Return what capping a table would do; change nothing. What is not given is as it is now.

    per, keep, newest_by: the rule by number.

    older_than: the rule by age, in seconds. by: the column with the time. epoch: the unit of its numbers, s or ms.
    offset: the minutes by which a time without a zone is ahead of UTC.

    definer: MariaDB's account with whose rights triggers and event run; by default the one that they have, or the
        store's own.

    `Missing` if there is no such table, `Invalid` with the reason if it cannot be capped.
    """
    adoption = _adoption(store)
    old = capped(store, table)
    by_number = bool(per) or {keep, newest_by} != {None}
    by_age = {by, older_than, epoch, offset} != {None}
    if old is not None and (by_age if not old.older_than else by_number):
        raise Invalid(
            f"{table} is capped by {'--older-than' if old.older_than else '--keep'} already, and a table is kept short "
            f"by one rule alone; `roost uncap {table}` first"
        )
    if old is not None and old.older_than:
        if by in (None, old.by):
            by, offset = old.by, old.offset if offset is None else offset
            epoch = epoch or {time: epoch for epoch, time in EPOCHS.items()}.get(old.time)
        older_than = older_than or old.older_than
    elif old is not None:
        if not per or tuple(per) == old.per:
            newest_by = newest_by or old.by
        per, keep = per or old.per, keep or old.keep
    if older_than and by is not None:
        asked = Cap(table, (), by, older_than=older_than, offset=offset or 0, definer=definer)
    elif per and keep:
        asked = Cap(table, (), newest_by, tuple(per), keep, definer=definer)
    else:
        raise Invalid(f"{table} is not capped yet: {SAY}")
    return store._core.snapshot(partial(adoption.look, asked, epoch))


def capped(store: Store, table: str) -> Cap | None:
    """Return how a table is capped; None if it is not."""
    return store._core.snapshot(partial(_adoption(store).capped, table))


def cap(store: Store, found: Inspection) -> Generator[int, None, Cap]:
    """Cap a table after `inspect`: first install what keeps it short, then delete the excess rows.

    Yield the number of deleted rows after every burst. The generator may be closed at any moment and run again at any
    time: finished bursts stay committed. A missing index is made first; see `SMALL`.
    """
    core, adoption = store._core, _adoption(store)
    make_index = not found.index
    usual = ("foreign_keys = OFF", f"synchronous = {core.engine.durability or 'FULL'}", "wal_autocheckpoint = 1000")
    try:
        core.with_writer(lambda connection: _pragmas(core, connection, *SPARING))
        core.with_writer(lambda connection: drive(adoption.before(found.cap, make_index), connection))
        made: Cap = _patiently(
            core, lambda: core.exclusive(adoption.install(core.known.catalog, found.cap, found.old, make_index))
        )
        yield from _sweep(core, adoption, made)
        yield from work_off(store, made)
    finally:
        core.with_writer(lambda connection: _pragmas(core, connection, *usual))
    return made


def _sweep(core: Core, adoption: Adoption[Any], made: Cap) -> Generator[int, None, None]:
    # Repeat until nothing is left: locked rows are skipped, and on servers other sessions go on writing meanwhile.
    deadline = time.monotonic() + core.timeout
    while True:
        deleted, after = 0, None
        while waiting := core.snapshot(partial(adoption.waiting, made, after, KEYS)):
            after = waiting[-1][0]
            for gone in _bursts(core, adoption, made, waiting):
                deleted += gone
                yield gone
        if after is None or not adoption.by_itself:  # if regular passes follow, the remaining keys are noted for them
            return
        if made.older_than and deleted < LEFT:  # rows go on becoming too old, so there may always be a few
            return
        if deleted:
            deadline = time.monotonic() + core.timeout
        elif time.monotonic() > deadline:
            raise Busy(f"{made.table}: excess rows are locked by other transactions")


def work_off(store: Store, made: Cap) -> Generator[int, None, None]:
    """Trim the keys that have grown since the last pass, if triggers cannot. Yields as `cap` does."""
    core, adoption = store._core, _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        return
    if made.older_than:
        yield from _sweep(core, adoption, made)
        return
    after, last = 0, None
    while last is None or after < last:
        noted, newest = core.snapshot(partial(adoption.noted, made, after, KEYS))
        last = newest if last is None else last  # beside steady writers there are always more
        after = max((number for _, numbers in noted for number in numbers), default=last)
        yield from _bursts(core, adoption, made, noted)


def claim(store: Store, made: Cap) -> None:
    """Claim the passes of a table while the store is open; `Invalid` if another process does them or none is needed."""
    core, adoption = store._core, _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        raise Invalid(f"{made.table}: triggers keep it short, so there is nothing to watch")
    if not core.with_writer(lambda connection: drive(adoption.claim(made, 5), connection)):
        raise Invalid(f"{made.table}: another `roost cap {made.table} --watch` trims it")


def keeper(store: Store, made: Cap) -> str:
    """Return what keeps a capped table short from now on: "triggers", "event", or "" for nothing."""
    adoption = _adoption(store)
    if not isinstance(adoption, MariaDBAdoption):
        return "triggers"
    return "event" if store._core.snapshot(partial(adoption.has_event, made)) else ""


def uncap(store: Store, table: str) -> Cap:
    """Remove what keeps a table short, the index if Roost made it, and the catalog entry; the rows stay."""
    core, adoption = store._core, _adoption(store)
    return _patiently(core, lambda: core.exclusive(adoption.release(table)))


def _adoption(store: Store) -> Adoption[Any]:
    if store._core.engine.dialect is MARIADB:  # or MySQL: told by the first connection
        store._core.with_writer(lambda connection: None)
    return adoption_for(store._core.engine.dialect)


def _patiently(core: Core, work: Callable[[], T]) -> T:
    # Changing a table waits for all its writers, and others queue behind it. So each attempt waits only briefly, and is
    # repeated.
    deadline = time.monotonic() + core.timeout
    while True:
        try:
            return work()
        except (Busy, Conflict):
            if core.engine.file is not None or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


def _bursts(core: Core, adoption: Adoption[Any], made: Cap, waiting: deque[Waiting]) -> Generator[int, None, None]:
    working = BURST / 4
    while waiting:
        run = partial(_burst, core, adoption, made, waiting, working)
        deleted, held = _patiently(core, partial(core.with_writer, run))
        yield deleted
        working = min(max(working * BURST / held, working / 2), working * 1.25, BURST)
        # On SQLite the lock is free for so long that every waiting session tries to take it.
        time.sleep(max(PAUSE, held) if core.engine.dialect.name == "sqlite" else min(PAUSE, held / 2))


def _burst(
    core: Core, adoption: Adoption[Any], made: Cap, waiting: deque[Waiting], seconds: float, connection: Connection
) -> tuple[int, float]:
    # One short transaction; returns the number of deleted rows, and for how long it held its locks.
    _pragmas(core, connection, *SPARING)  # the connection may be a new one
    connection.execute(Control.BEGIN_ALONE)
    began = time.monotonic()
    left = deque(waiting)  # a copy, since a rolled-back burst has done nothing
    try:
        deleted = drive(adoption.burst(made, left, lambda: time.monotonic() - began > seconds), connection)
        commit(connection)
    finally:
        connection.settle()
    while len(waiting) > len(left):
        waiting.popleft()
    held = time.monotonic() - began
    _pragmas(core, connection, "wal_checkpoint(PASSIVE)")  # without the lock, before the application's next COMMIT does
    return deleted, held


def _pragmas(core: Core, connection: Connection, *settings: str) -> None:
    # Servers need none.
    for each in settings if core.engine.dialect.name == "sqlite" else ():
        connection.raw.execute(f"PRAGMA {each}")
