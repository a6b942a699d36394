"""Steps that the programs of several structures share: locking a key's head, the moment, and the age of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roost.structures.steps import INT, Count, Do, Let, Refuse, Step
from roost.structures.words.words import Words

SECOND = 1_000_000  # in the unit of moments


def make_head(w: Words, columns: Sequence[str]) -> Iterator[Step]:
    """Lock the head of the key; make it, with 0 in these columns, if it is not there.

    Nothing is done to rows whose head is not locked: so this comes first. At REPEATABLE READ, PostgreSQL fails when the
    head was deleted since the snapshot; an upsert alone would make a second one beside rows that are gone.
    """
    values = {**w.values(w.key), **dict.fromkeys(columns, "0")}
    key = [*w.values(w.key)]
    if w.dialect.name == "postgresql":
        yield Do(f"PERFORM 1 FROM {w.head} WHERE {w.mine()} FOR UPDATE")
        yield Do(w.put(w.head, values, key), when="NOT FOUND")
    else:
        yield Do(w.put(w.head, values, key))


def take_head(w: Words, otherwise: str) -> Iterator[Step]:
    """Lock the head of the key; where there is none, end with a result: the key has no rows."""
    if w.dialect.name == "postgresql":
        yield Do(f"PERFORM 1 FROM {w.head} WHERE {w.mine()} FOR UPDATE")
        yield Refuse("NOT FOUND", otherwise)
    elif w.dialect.family == "mariadb":
        yield Let("found", INT, f"SELECT count(*) FROM {w.head} WHERE {w.mine()}{w.dialect.for_update}")
        yield Refuse(f"{w['found']} = 0", otherwise)


def moment(w: Words) -> Iterator[Step]:
    """Remember the structure's time as `now`: it never goes back, even if the clock does (`clock.py`).

    It is stored at most once per second, by a caller that finds its row unlocked.
    """
    clock = f"roost_{w.name}_clock"
    if w.dialect.name == "sqlite":
        yield Let("now", INT, f"(SELECT max({w.now} + coalesce(max(ahead), 0), coalesce(max(latest), 0)) FROM {clock})")
        kept = "max(coalesce((SELECT ahead FROM {0}), 0), coalesce((SELECT latest FROM {0}), 0) - {1})"
        yield Do(
            f"INSERT INTO {clock} (id, latest, ahead) SELECT 0, {w['now']}, {kept.format(clock, w.now)}\n"
            f"    WHERE NOT EXISTS (SELECT 1 FROM {clock} WHERE latest > {w['now']} - {SECOND}\n"
            f"      AND latest < {w.now} + ahead + {SECOND})\n"
            "    ON CONFLICT (id) DO UPDATE SET latest = excluded.latest, ahead = excluded.ahead"
        )
        return
    yield Let("clock", INT, w.now)
    yield Let("now", INT, f"SELECT greatest({w['clock']} + max(ahead), max(latest)) FROM {clock}")
    due = f"(latest <= {w['now']} - {SECOND} OR latest >= {w['clock']} + ahead + {SECOND})"
    free = f"SELECT id FROM {clock} WHERE id = 0 AND {due} FOR UPDATE SKIP LOCKED"
    committed = w.dialect.read_committed
    change = f"SET ahead = greatest(ahead, latest - {w['clock']}), latest = {w['now']}"
    if w.dialect.name == "postgresql":
        yield Do(f"UPDATE {clock} {change} WHERE id = ({free})", when=committed)
    else:
        yield Let("due", INT, f"SELECT count(*) FROM {clock} WHERE id = 0 AND {due}")
        yield Let(
            "free", INT, f"SELECT id FROM {clock} WHERE id = 0 AND {w['due']} AND {committed} FOR UPDATE SKIP LOCKED"
        )
        yield Do(f"UPDATE {clock} {change} WHERE id = {w['free']}", when=f"{w['free']} IS NOT NULL")


def expire(w: Words, counted: str = "n") -> Iterator[Step]:
    """Delete the key's own rows that have expired by `now`, and take them from the head's count.

    counted: the column of the head that counts rows; "" if none does.
    """
    over = f"{w.mine()} AND until <= {w['now']}"
    if w.dialect.name == "sqlite":
        if counted:
            gone = f"(SELECT count(*) FROM {w.rows} WHERE {over})"
            yield Do(f"UPDATE {w.head} SET {counted} = {counted} - {gone} WHERE {w.mine()}")
        yield Do(f"DELETE FROM {w.rows} WHERE {over}")
        return
    yield Do(f"DELETE FROM {w.rows} WHERE {over}")
    if counted:
        yield Count("expired")
        yield Do(
            f"UPDATE {w.head} SET {counted} = {counted} - {w['expired']} WHERE {w.mine()}", when=f"{w['expired']} > 0"
        )
