"""A cap by age in PostgreSQL's SQL: what `postgresql.py` installs to delete rows that are too old.

    AFTER INSERT OR UPDATE OF at, for each row, at COMMIT:  SELECT roostcap_visits_trim(10)
      DELETE FROM visits d USING (… WHERE at < now() - … ORDER BY at LIMIT 10 FOR UPDATE SKIP LOCKED …) …;

A transaction deletes ten rows for the first row that it has written, twenty for the sixth, and so on, doubling each
time, until no row is too old. After that a deferred trigger only reads a setting of the transaction for each row. The
index entries of rows that the transaction itself has deleted, which each search passes again, are as many as its rows.
This happens at COMMIT, so that the deleted rows are locked only for that time, and nobody else waits for them. For the
rights with which it runs, see `postgresql_sql.py`.
"""

from __future__ import annotations

from roost.capping.age import PER_SECOND, Age
from roost.capping.postgresql_sql import CUT, PATH, PATIENCE, SHORT, SPARE, TRIES, PostgreSQLWords

NONE_LEFT = 2_000_000_000
MOST = 1_000_000  # rows that are deleted at once
TIMED = 21  # pg_trigger.tgtype: for each row, after INSERT or UPDATE
TYPES = {"zoned": "timestamptz", "plain": "timestamp", "date": "date"}


class PostgreSQLAgeWords(PostgreSQLWords):
    """A cap by age: its SQL for PostgreSQL."""

    cap: Age
    takes = "bigint"

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions: the one that COMMIT calls, and the one that deletes."""
        return f"roostcap_{self.cap.table}_age", f"roostcap_{self.cap.table}_trim"

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The column of the index that Roost makes if none finds the rows that are too old."""
        return (self.cap.by,)

    def over(self, row: str) -> str:
        """Return the condition that a row is too old, by the beginning of the transaction."""
        cap, by = self.cap, f"{row}.{self.dialect.quoted(self.cap.by)}"
        if cap.time in PER_SECOND:
            now = f"floor(extract(epoch FROM now()) * {PER_SECOND[cap.time]})::bigint - {cap.units}"
            return f"{by} > {cap.first} AND {by} < {now}"
        now = "now()" if cap.time == "zoned" else "(now() AT TIME ZONE 'UTC')"
        now = f"{now} - '{cap.seconds} seconds'::interval"
        type_ = TYPES[cap.time]
        return f"{by} > {cap.first}::{type_} AND {by} < {f'({now})::date' if type_ == 'date' else now}"

    def shown(self, expression: str) -> str:
        """Return a time in a form that a driver can read: Python does not support all of them."""
        return f"{expression}::text"

    @property
    def cut(self) -> str:
        """The statement that deletes some of the rows that are too old."""
        return f"SELECT {self.named(self.functions[1])}({CUT})"

    def _victims(self, limit: str) -> str:
        return (
            f"SELECT {self.columns(self.cap.id, 'v.')} FROM {self.only} v\n"
            f"    WHERE {self.over('v')} ORDER BY v.{self.dialect.quoted(self.cap.by)} LIMIT {limit}\n"
            "    FOR UPDATE SKIP LOCKED"
        )

    @property
    def bodies(self) -> dict[str, str]:
        """The bodies of the functions, by name."""
        commit, trim = self.functions
        return {commit: self._committing, trim: self._trimming}

    @property
    def _committing(self) -> str:
        return f"""<<roostcap>>
DECLARE
  setting text := 'roostcap.a' || TG_RELID;
  free integer := coalesce(nullif(current_setting('roostcap.a' || TG_RELID, true), ''), '0')::integer;
  lot integer;
BEGIN
  {self._only_here}
  IF free = {NONE_LEFT} THEN RETURN NULL; END IF;
  IF free = 0 THEN  -- two rows go for each that comes, or more
    lot := coalesce(nullif(current_setting('roostcap.l' || TG_RELID, true), ''), '{SPARE}')::integer;
    free := CASE WHEN {self.named(self.functions[1])}(lot) < lot THEN {NONE_LEFT + 1} ELSE lot / 2 END;
    PERFORM set_config('roostcap.l' || TG_RELID, least(lot * 2, {MOST})::text, true);
  END IF;
  PERFORM set_config(setting, (free - 1)::text, true);
  RETURN NULL;
END"""

    @property
    def _trimming(self) -> str:
        # First all at once; if another session holds dependent rows, one by one, and the rest is left for later.
        # snapshot that is too old for it fails at once, and then nothing is done.
        table = self.only
        same = self._same_id("d", "g")
        alone = self._same_id("d", "roostcap.each")
        return f"""<<roostcap>>
DECLARE
  each record;
  gone bigint := 0;
  deleted bigint := 0;
  failed integer := 0;
{self._where_owned}
    WITH g AS MATERIALIZED ({self._victims("$1")})
      DELETE FROM {table} d USING g WHERE {same};
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
  END IF;
  BEGIN
    WITH g AS MATERIALIZED ({self._victims("$1")})
      DELETE FROM {table} d USING g WHERE {same};
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
  EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    PERFORM set_config('lock_timeout', '{SHORT}', true);
  END;
  BEGIN
    FOR each IN {self._victims("$1")} LOOP
      BEGIN
        DELETE FROM {table} d WHERE {alone};
        deleted := deleted + 1;
      EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
        failed := failed + 1;
        EXIT WHEN failed > {TRIES};
      END;
    END LOOP;
  EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    RETURN 0;
  END;
  RETURN deleted;
END"""

    def settings(self, function: str) -> tuple[bool, str]:
        """Return whether a function runs as its owner, and the settings while it runs, as the server returns them.

        A plan that was made when the table was small is kept until the session ends: other plans than the one by the
                index are disabled.
        """
        plans = "enable_indexscan=on;enable_seqscan=off;enable_sort=off;enable_bitmapscan=off"
        limits = f";lock_timeout={PATIENCE};{plans}"
        return True, f"search_path={PATH}{limits if function == self.functions[1] else ''}"

    @property
    def triggers(self) -> dict[str, tuple[int, str, str]]:
        """The triggers by name: their type, their function, and the statement that creates them."""
        name, quoted = self.functions[0], self.dialect.quoted
        return {
            name: (
                TIMED,
                name,
                f"CREATE CONSTRAINT TRIGGER {quoted(name)} AFTER INSERT OR UPDATE OF {quoted(self.cap.by)}\n"
                f"  ON {self.named(self.cap.table)} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW\n"
                f"  EXECUTE FUNCTION {self.named(name)}()",
            )
        }
