"""A cap's SQL for MariaDB: the table of notes, the triggers that write it, and the event; `mariadb.py` installs them.

A note is a row with a key that has a new row. A cap by age needs neither notes nor triggers: a pass finds the rows that
are too old by the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

from roost.capping.cap import Words
from roost.dialects.dialect import Gather, Row, Statement, Template

# MariaDB's and MySQL's way to delete many rows by key: the first SELECT gives the list the columns' types and
# collations, and the order of the join prevents a scan of the table. On MariaDB, IN over rows scans, locks every row
# that it reads, and deadlocks. The index is named because a table with a few rows would be scanned, whatever is joined.
CUT_JOINED = """\
DELETE r FROM (SELECT {pairs} FROM {rows} WHERE 0 UNION ALL VALUES {{rows}}) q
  STRAIGHT_JOIN {rows} r FORCE INDEX (PRIMARY) ON {same_pair}"""


CUT = 500  # rows that one statement of a burst deletes at most: a few milliseconds
# Columns of the notes, and the number of a note among those of its key: no column of a key has these names.
NUMBER, AT, NTH = "roostcap_n", "roostcap_at", "roostcap_nth"
# For locks on rows of other tables that are deleted too. Not set for the session: with 0, SKIP LOCKED does not skip,
# but fails with error 1180.
AT_ONCE = "innodb_lock_wait_timeout = 0"
# A TIMESTAMP is read and passed back in the session's zone, in which one hour of a night in autumn occurs twice.
IN_UTC = "time_zone = '+00:00'"
# Of an event: others get the locks now and then.
PAUSE = """\
        IF SYSDATE(6) > roostcap_began + INTERVAL 25000 MICROSECOND THEN
          COMMIT;
          DO SLEEP(0.01);
          START TRANSACTION;
          SET roostcap_began = SYSDATE(6);
        END IF;"""


class MariaDBWords(Words):
    """A cap's SQL for MariaDB."""

    def reading(self, sql: str, in_utc: bool) -> str:
        """Return a query, in UTC if that is wanted."""
        return f"SET STATEMENT {IN_UTC} FOR {sql}" if in_utc else sql

    def deleting(self, sql: str, in_utc: bool) -> str:
        """Return a DELETE that waits for no lock; in UTC if what it is given was read so."""
        # One SET STATEMENT for both: if they are nested, MariaDB loses the zone that the outer one has set.
        return f"SET STATEMENT {AT_ONCE}{f', {IN_UTC}' if in_utc else ''} FOR {sql}"

    @property
    def grown(self) -> str:
        """The table of notes; "" if there is none."""
        return "" if self.cap.older_than else f"roostcap_{self.cap.table}_grown"

    @property
    def tables(self) -> list[str]:
        return [self.cap.table, *([self.grown] if self.grown else [])]

    @property
    def notes(self) -> str:
        return self.dialect.quoted(self.grown)

    @property
    def notes_sql(self) -> str:
        """The statement that creates the table of notes, with the types of the key's columns."""
        return (
            f"CREATE TABLE {self.notes} ({NUMBER} BIGINT UNSIGNED NOT NULL DEFAULT 0 PRIMARY KEY,\n"
            f"  {AT} TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB\n"
            f"  SELECT {self.key} FROM {self.table} WHERE 0"
        )

    @property
    def drop_index_sql(self) -> str:
        return f"ALTER TABLE IF EXISTS {self.table} DROP INDEX IF EXISTS {self.dialect.quoted(self.cap.index_name)}"

    @property
    def make_index_sql(self) -> str:
        return self.index_sql.replace("CREATE", "CREATE OR REPLACE", 1) + " ALGORITHM=INPLACE LOCK=NONE"

    @property
    def lock(self) -> str:
        # Any account may hold any name, so it is made of what only this database's accounts can read: a secret.
        secret = "SELECT EVENT_COMMENT FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME"
        of_event = f"COALESCE(({secret} = {self.dialect.literal(self.cap.index_name)}), '')"
        named = f"CONCAT(DATABASE(), '.', {self.dialect.literal(self.cap.table)}, {of_event})"
        return f"CONCAT('roostcap ', LEFT(SHA2({named}, 256), 32))"

    @property
    def _scheduled(self) -> str:
        return f"{self.dialect.quoted(self.cap.index_name)} ON SCHEDULE EVERY 1 SECOND COMMENT '{token_hex(16)}' DO"

    @property
    def bodies(self) -> dict[str, str]:
        """The bodies of the triggers, by name; a cap by age has none."""
        if self.cap.older_than:
            return {}
        per = [self.dialect.quoted(name) for name in self.cap.per]
        has_key = " AND ".join(f"NEW.{name} IS NOT NULL" for name in per)
        same = " AND ".join(f"NEW.{name} <=> OLD.{name}" for name in per)
        # If a column was widened since, the application's INSERT must not fail; `check` reports it.
        note = self.lenient(
            f"INSERT IGNORE INTO {self.notes} ({NUMBER}, {', '.join(per)})\n"
            f"    VALUES (UUID_SHORT(), {', '.join([f'NEW.{name}' for name in per])})"
        )
        return {
            f"roostcap_{self.cap.table}_insert": f"IF {has_key} THEN\n  {note}; END IF",
            f"roostcap_{self.cap.table}_update": f"IF {has_key} AND NOT ({same}) THEN\n  {note}; END IF",
        }

    def lenient(self, insert: str) -> str:
        return insert

    @property
    def triggers(self) -> dict[str, str]:
        return {
            name: (
                f"CREATE OR REPLACE{self._definer} TRIGGER {self.dialect.quoted(name)}"
                f" AFTER {name.rpartition('_')[2].upper()} ON {self.table} FOR EACH ROW\n  {body}"
            )
            for name, body in self.bodies.items()
        }

    @property
    def _definer(self) -> str:
        user, _, host = self.cap.definer.rpartition("@")
        return f" DEFINER = {self.dialect.quoted(user)}@{self.dialect.quoted(host)}" if host else ""

    def limit(self, by: str) -> str:
        if self.unit:
            return f"UNIX_TIMESTAMP() * {self.unit} - {self.cap.older_than * self.unit}"
        if self.cap.time == "zoned":
            # The index is searched in the session's zone, in which one hour of a night in autumn occurs twice.
            now = f"UNIX_TIMESTAMP() - {self.seconds}"
            return f"FROM_UNIXTIME({now}) AND UNIX_TIMESTAMP({by}) < {now}"
        now = f"UTC_TIMESTAMP(6) - INTERVAL {self.seconds} SECOND"
        return f"DATE({now})" if self.cap.time == "date" else now

    def _excess(self, columns: str, key: str, limit: int, past: str) -> str:
        order = ", ".join(f"i.{self.dialect.quoted(name)} DESC" for name in self.cap.order)
        return (
            f"SELECT {columns} FROM {self.table} i WHERE {self._equal('i', key)}\n"
            f"    ORDER BY {order} LIMIT {limit} OFFSET {past}"
        )

    def _equal(self, row: str, key: str) -> str:
        quoted = self.dialect.quoted
        return " AND ".join(
            f"{row}.{quoted(name)} = {key if key == '%s' else key + quoted(name)}" for name in self.cap.per
        )

    def victims(self, past: int | str, key: str = "%s") -> str:
        """Return the query that locks excess rows, by age oldest first, skipping rows that another session holds.

        Each row of a key is checked again under its lock: it may have been changed since it was selected.

        past: how many rows are passed over: the newest `keep` of the key, and those that may not be deleted.
        """
        quoted, cap = self.dialect.quoted, self.cap
        if cap.older_than:
            return (
                f"SELECT {self.columns(cap.id, 'i.')} FROM {self.table} i WHERE {self.over('i')}\n"
                f"  ORDER BY i.{self.by} LIMIT {CUT} OFFSET {past} FOR UPDATE SKIP LOCKED"
            )
        same = [f"r.{quoted(name)} = o.{quoted(name)}" for name in cap.id]
        same += [f"r.{quoted(name)} <=> o.{quoted(name)}" for name in cap.order if name not in cap.id]
        excess = self._excess(self.columns(cap.order, "i."), key, CUT, str(past))
        return (
            f"SELECT {self.columns(cap.id, 'r.')} FROM ({excess}) o\n"
            f"  STRAIGHT_JOIN {self.table} r ON {' AND '.join(same)} AND {self._equal('r', key)}\n"
            "  FOR UPDATE SKIP LOCKED"
        )

    def is_long(self, past: int | str, key: str = "%s") -> str:
        """Return the condition that a key still has too many rows; past: as for `victims`."""
        return f"EXISTS ({self._excess('1', key, 1, str(past))})"

    def delete_all(self, rows: Sequence[Row], in_utc: bool) -> Statement:
        """Return the statement that deletes rows by the columns that identify them.

        in_utc: the rows were read in UTC.
        """
        if not all(type(value) is int for value in rows[0]):  # texts in a list would have another character set
            return Statement(Template(self.deleting(self._delete_by("%s"), in_utc)), rows)
        return Statement(Template(self.deleting(self.by_key(self.table, self.cap.id), in_utc), Gather.VALUES), rows)

    def by_key(self, table: str, key: Sequence[str]) -> str:
        """Return the DELETE of many rows of a table by its primary key, of whole numbers."""
        same = " AND ".join(f"r.{name} = q.{name}" for name in map(self.dialect.quoted, key))
        return CUT_JOINED.format(pairs=self.columns(key), rows=table, same_pair=same)

    def _delete_by(self, hole: str = "") -> str:
        # By parameters, or in the event by the values of `roostcap_gone`.
        same = " AND ".join(
            f"{self.column(name)} = {hole or f'roostcap_gone.{self.dialect.quoted(name)}'}" for name in self.cap.id
        )
        return f"DELETE FROM {self.table} WHERE {same}"

    @property
    def may(self) -> str:
        """The condition for a pass: the server takes writes, and the tables are tables."""
        names = ", ".join(map(self.dialect.literal, self.tables))
        return (
            f"CONCAT(@@read_only) IN ('0', 'OFF') AND {len(self.tables)} = (\n"
            "    SELECT COUNT(*) FROM information_schema.TABLES\n"
            f"      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names}) AND TABLE_TYPE = 'BASE TABLE')"
        )

    @property
    def noted(self) -> str:
        """The query for the notes of a pass, each with its number among those of its key."""
        per = self.columns(self.cap.per, "q.")
        return (
            f"SELECT q.{NUMBER}, {per}, ROW_NUMBER() OVER (PARTITION BY {per} ORDER BY q.{NUMBER}) AS {NTH}\n"
            f"        FROM (SELECT * FROM {self.notes} ORDER BY {NUMBER} LIMIT 100000) q ORDER BY {NTH}, q.{NUMBER}"
        )

    @property
    def event(self) -> str:
        """The statement that creates the server event, which makes a pass.

        It works on a server that takes writes, on tables (a view of that name would run its maker's code), and if no
        other session makes a pass. By number, a key is trimmed for the first of its notes; the others go, whether it
        could be trimmed or not. A row that may not be deleted, by the application's trigger or a foreign key, is passed
        over.
        """
        # A variable hides an unqualified column of the same name, and a row variable hides a table: the application's
        # names do not begin like these.
        key = "" if self.cap.older_than else "roostcap_key."
        begin, end, due = "", "", "TRUE"
        if key:
            due = f"roostcap_key.{NTH} = 1"
            begin = f"""
    FOR roostcap_key IN (
      {self.noted}
    ) DO"""
            end = f"""
      IF NOT {due}
        OR NOT roostcap_held AND NOT {self.is_long("roostcap_past", key)} THEN
        DELETE FROM {self.notes} WHERE {self.notes}.{NUMBER} = roostcap_key.{NUMBER};
      END IF;
    END FOR;"""
        return f"""\
CREATE OR REPLACE{self._definer} EVENT {self._scheduled}
BEGIN
  DECLARE roostcap_began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE roostcap_cut INT DEFAULT 0;
  DECLARE roostcap_past INT DEFAULT 0;
  DECLARE roostcap_held BOOLEAN DEFAULT FALSE;
  DECLARE roostcap_lock VARCHAR(64) DEFAULT {self.lock};
  DECLARE roostcap_may BOOLEAN DEFAULT {self.may};
  DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
  IF roostcap_may AND GET_LOCK(roostcap_lock, 0) <=> 1 THEN
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;{begin}
      SET roostcap_held = FALSE;
      SET roostcap_past = {self.cap.keep};
      REPEAT
        SET roostcap_cut = 0;
        IF {due} THEN
          FOR roostcap_gone IN ({self.victims("roostcap_past", key)}) DO
            BEGIN
              DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET roostcap_past = roostcap_past + 1;
              DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
              {self.deleting(self._delete_by(), False)};
            END;
            SET roostcap_cut = roostcap_cut + 1;
          END FOR;
        END IF;
{PAUSE}
      UNTIL roostcap_cut < {CUT} OR roostcap_held END REPEAT;{end}
    COMMIT;
    DO RELEASE_LOCK(roostcap_lock);
  END IF;
END"""
