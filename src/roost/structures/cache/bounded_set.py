"""A single `set` of a cache with `max_items`, in one round trip on a server.

It takes the locks in the usual order: the head, the key's row, the evicted row. In unexpected cases it does nothing,
and a batch does the work: more than one value has to be evicted, another session holds a row, or PostgreSQL's snapshot
was taken before the head's lock and does not show the current rows.
"""

from __future__ import annotations

from collections.abc import Mapping

# On PostgreSQL `o` and `k` are read under their locks. The upsert changes a row only if `k` has seen it. The deleted
# rows are counted, so a row that was deleted or used in the meantime shows in the resulting number.
SET = {
    "mariadb": """\
SELECT h.sequence + 1, h.n + 1, h.bytes + %s INTO `the sequence`, `the count`, `the bytes`
  FROM {head} h WHERE h.id = 0 FOR UPDATE;
SELECT `the count` - COUNT(r.size), `the bytes` - COALESCE(SUM(r.size), 0) INTO `the count`, `the bytes`
  FROM {rows} r WHERE {r_equal} FOR UPDATE;
INSERT INTO {rows} ({columns})
    VALUES ({key_holes}, %s, COALESCE({now} + %s, {never}), {one_token}, %s, `the sequence`, %s)
  ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until),
    token = GREATEST(VALUES(token), token + 1), flags = VALUES(flags), used = VALUES(used), size = VALUES(size);
IF `the count` > {max_items} THEN
  SELECT r.until, r.used INTO `the moment`, `the oldest` FROM {rows} r
    WHERE r.size IS NOT NULL ORDER BY r.until LIMIT 1;
  IF `the moment` > {now} THEN SELECT MIN(r.used) INTO `the oldest` FROM {rows} r; END IF;
  SELECT SUM(r.size) INTO `the size` FROM {rows} r WHERE r.used = `the oldest` FOR UPDATE;
  DELETE FROM {rows} WHERE used = `the oldest` AND used < `the sequence`;
  IF ROW_COUNT() <> 1 OR `the count` > {max_items} + 1 THEN SET `the sequence` = NULL; END IF;
  SET `the count` = {max_items}, `the bytes` = `the bytes` - `the size`;
END IF;
UPDATE {head} SET n = `the count`, bytes = `the bytes`, sequence = `the sequence` WHERE id = 0""",
    "postgresql": """\
o AS (SELECT h.n + 1 AS n, h.bytes + %s AS bytes, h.sequence + 1 AS sequence
  FROM {head} h WHERE h.id = 0 FOR UPDATE OF h),
k AS (SELECT r.size FROM o CROSS JOIN {rows} r WHERE {r_equal} FOR UPDATE OF r),
a AS (INSERT INTO {rows} AS r ({columns})
    SELECT {key_holes}, %s, coalesce({now} + %s::bigint, {never}), {one_token}, %s, o.sequence, %s
    FROM o LEFT JOIN k ON true
  ON CONFLICT ({key}) DO UPDATE
    SET value = excluded.value, until = excluded.until, token = greatest(excluded.token, r.token + 1),
      flags = excluded.flags, used = excluded.used, size = excluded.size
    WHERE EXISTS (SELECT FROM k)
  RETURNING 1),
s AS (DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM o CROSS JOIN {rows} r
    WHERE r.until <= {now} AND r.until < {never} AND NOT ({r_equal})
    ORDER BY r.until LIMIT {sweep} FOR UPDATE OF r SKIP LOCKED)) RETURNING size),
e AS (DELETE FROM {rows} r USING (SELECT {v_key}, v.used FROM {rows} v
    WHERE v.size IS NOT NULL AND v.until > {now} AND NOT ({v_equal}) ORDER BY v.used
    LIMIT (SELECT greatest(0, o.n - (SELECT count(k.size) FROM k) - (SELECT count(s.size) FROM s) - {max_items})
      FROM o)) v
  WHERE {same_key} AND r.used = v.used RETURNING r.size),
g AS (SELECT o.n - count(x.size) AS n, o.bytes - coalesce(sum(x.size), 0) AS bytes, o.sequence
  FROM o LEFT JOIN (SELECT size FROM k UNION ALL SELECT size FROM s UNION ALL SELECT size FROM e) x ON true
  GROUP BY o.n, o.bytes, o.sequence),
h AS (UPDATE {head} h SET n = g.n, bytes = g.bytes, sequence = g.sequence FROM g WHERE h.id = 0)""",
}
ANSWER = {
    "mariadb": "0 * `the sequence`",
    "postgresql": "CASE WHEN g.n <= {max_items} AND EXISTS (SELECT FROM a) THEN 0 END",
}
SOURCE = {"mariadb": "", "postgresql": "FROM g"}


class BoundedSet:
    """The texts of a single `set`, in one dialect's words."""

    def __init__(self, dialect: str, words: Mapping[str, str]) -> None:
        self.text = SET[dialect].format(**words)
        self.answer = ANSWER[dialect].format(**words)
        self.source = SOURCE[dialect]
