"""Statements on connections to PostgreSQL, apart from the plans' own."""

from __future__ import annotations

from functools import lru_cache

# READ COMMITTED whatever the database's default: what a write depends on is read by locking reads.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;\nSET LOCAL lock_timeout = {wait}{local}"
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # one snapshot
READ_SETTINGS = "SET {scope}lock_timeout = {wait}{local}"
NAMED = "/* roost {name} */ "  # the beginning of every text of a batch that writes, by which its session is found

# Writes the number that identifies a batch; in the same round trip as BEGIN. A number that is not larger than the last
# one is refused: a text that reaches the server after its outcome was looked up must not be executed.
NOTE = """\
INSERT INTO roost_writers AS w (writer, batch, at) VALUES (%s, %s, now())
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch < excluded.batch THEN excluded.batch END, at = excluded.at"""
# One operation by itself: what commits is the transaction of its text.
ALONE = """\
WITH {work}
INSERT INTO roost_writers AS w (writer, batch, at) SELECT %s::uuid, %s::bigint + {answer}, now(){source}
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch < excluded.batch THEN excluded.batch END, at = excluded.at
  RETURNING batch"""


@lru_cache
def alone(work: str, answer: str, source: str) -> str:
    """Return `ALONE` for one operation's work."""
    return ALONE.format(work=work, answer=answer, source=source and f" {source}")


FORGET = "DELETE FROM roost_writers WHERE writer = '{writer}'"
FORGET_OLD = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
DELETE FROM roost_writers WHERE writer IN (
  SELECT writer FROM roost_writers WHERE at < now() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)"""
# Waits for a transaction that has not ended: it holds the row, which may be uncommitted and not yet visible. If the
# batch was not committed, takes the last number before the next batch's, so that a late text is refused (`NOTE`).
LAST_BATCH = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = {wait};
INSERT INTO roost_writers AS w (writer, batch, at) VALUES ('{writer}', {last}, now())
  ON CONFLICT (writer) DO UPDATE
    SET batch = CASE WHEN w.batch BETWEEN {batch} AND {last} THEN w.batch ELSE {last} END, at = excluded.at
  RETURNING w.batch"""
END = """\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE starts_with(query, %s) AND state <> 'idle' AND pid <> pg_backend_pid()"""
# The position that a standby must have replayed, and its timeline: a standby that was not rewound after a failover may
# be ahead of the new primary, with transactions that were lost. It is where the next record goes: with
# synchronous_commit = off a COMMIT is answered before its record is flushed.
POSITION = """\
SELECT CASE WHEN NOT pg_is_in_recovery()
  THEN pg_current_wal_insert_lsn()::text || ' ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END"""
# The last of the timelines is what the standby receives at the moment, for an account that may see it (pg_monitor).
REPLAYED = """\
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn,
    {timeline} IN (c.timeline_id, r.min_recovery_end_timeline)
    OR EXISTS (SELECT 1 FROM pg_stat_wal_receiver w WHERE w.received_tli = {timeline})
  FROM pg_control_checkpoint() c, pg_control_recovery() r"""
