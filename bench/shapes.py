"""The structures that are measured, and the same work by hand with sqlite3."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import roost


@dataclass(frozen=True, slots=True)
class Visit:
    uid: int
    visitor: int


def structures(
    keep: int = 5, capped_keep: int = 12
) -> tuple[
    roost.Counter[int],
    roost.Ring[Visit, int],
    roost.Capped[Visit, int],
    roost.Set[int, int],
]:
    return (
        roost.Counter("pageviews", key=int),
        roost.Ring("visits", Visit, per="uid", keep=keep),
        roost.Capped("visitors", Visit, per="uid", keep=capped_keep, unique="visitor"),
        roost.Set("likes", key=int, member=int),
    )


class ByHand:
    """What a careful programmer would write with sqlite3 for the same four structures: as few statements as will do."""

    def __init__(self, path: str, synchronous: str) -> None:
        self.path = path
        self.connection = connect(path, synchronous)
        self.connection.executescript("""
            CREATE TABLE pageviews (key INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT;
            CREATE TABLE visits_head (uid INTEGER PRIMARY KEY, sequence INTEGER NOT NULL) STRICT;
            CREATE TABLE visits (uid INTEGER NOT NULL, slot INTEGER NOT NULL, sequence INTEGER NOT NULL,
                visitor INTEGER NOT NULL, PRIMARY KEY (uid, slot)) STRICT, WITHOUT ROWID;
            CREATE TABLE visitors_head (uid INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;
            CREATE TABLE visitors (uid INTEGER NOT NULL, visitor INTEGER NOT NULL, sequence INTEGER NOT NULL,
                PRIMARY KEY (uid, visitor)) STRICT, WITHOUT ROWID;
            CREATE INDEX visitors_newest ON visitors (uid, sequence);
            CREATE TABLE likes_head (key INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT;
            CREATE TABLE likes (key INTEGER NOT NULL, member INTEGER NOT NULL,
                PRIMARY KEY (key, member)) STRICT, WITHOUT ROWID;
        """)
        self.cursor = self.connection.cursor()

    def close(self) -> None:
        self.connection.close()

    def add(self, key: int, n: int) -> None:
        execute = self.cursor.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO pageviews VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET n = n + excluded.n", (key, n))
        execute("COMMIT")

    def total(self, key: int) -> int:
        row = self.cursor.execute("SELECT n FROM pageviews WHERE key = ?", (key,)).fetchone()
        return row[0] if row else 0

    def push(self, uid: int, visitor: int, keep: int = 5) -> int:
        execute = self.cursor.execute
        execute("BEGIN IMMEDIATE")
        ((sequence,),) = execute(
            "INSERT INTO visits_head VALUES (?, 1) ON CONFLICT (uid) DO UPDATE SET sequence = sequence + 1"
            " RETURNING sequence",
            (uid,),
        ).fetchall()
        execute(
            "INSERT INTO visits VALUES (?, ?, ?, ?) ON CONFLICT (uid, slot) DO UPDATE SET sequence = excluded.sequence,"
            " visitor = excluded.visitor",
            (uid, sequence % keep, sequence, visitor),
        )
        execute("COMMIT")
        return int(sequence)

    def latest(self, uid: int) -> list[Visit]:
        rows = self.cursor.execute("SELECT uid, visitor FROM visits WHERE uid = ? ORDER BY sequence DESC", (uid,))
        return [Visit(*row) for row in rows.fetchall()]

    def add_visitor(self, uid: int, visitor: int, keep: int = 12) -> None:
        execute = self.cursor.execute
        execute("BEGIN IMMEDIATE")
        ((sequence, n),) = execute(
            "INSERT INTO visitors_head VALUES (?, 1, 1) ON CONFLICT (uid) DO UPDATE SET sequence = sequence + 1,"
            " n = n + 1 RETURNING sequence, n",
            (uid,),
        ).fetchall()
        execute("INSERT INTO visitors VALUES (?, ?, ?)", (uid, visitor, sequence))
        if n > keep:
            execute(
                "DELETE FROM visitors WHERE uid = ?1 AND visitor IN"
                " (SELECT visitor FROM visitors WHERE uid = ?1 ORDER BY sequence LIMIT ?2)",
                (uid, n - keep),
            )
            execute("UPDATE visitors_head SET n = ? WHERE uid = ?", (keep, uid))
        execute("COMMIT")

    def like(self, key: int, member: int) -> int:
        execute = self.cursor.execute
        execute("BEGIN IMMEDIATE")
        new = execute("INSERT INTO likes VALUES (?, ?) ON CONFLICT DO NOTHING", (key, member)).rowcount
        if new:
            execute("INSERT INTO likes_head VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1", (key,))
        execute("COMMIT")
        return new


def connect(path: str, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection
