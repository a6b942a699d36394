"""A cap's SQL for MariaDB: the table of notes, the triggers that write it, and the event; `mariadb.py` installs them.

A note is a row with a key that has a new row. A cap by age needs neither notes nor triggers: a pass finds the rows that
are too old by the index.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.capping.age import PER_SECOND, Age
from roost.capping.cap import CapWords
from roost.dialects.dialect import Gather, Row, Statement, Template
from roost.structures.plan import CUT_JOINED

CUT = 500  # rows that one statement of a burst deletes at most: a few milliseconds
# Columns of the notes, and the number of a note among those of its key: no column of a key has these names.
NUMBER, AT, NTH = "roostcap_n", "roostcap_at", "roostcap_nth"
# For locks on rows of other tables that are deleted too. Not set for the session: with 0, SKIP LOCKED does not skip,
# but fails with error 1180.
AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "
# A TIMESTAMP is read and passed back in the session's zone, in which one hour of a night in autumn occurs twice.
IN_UTC = "SET STATEMENT time_zone = '+00:00' FOR "
# One SET STATEMENT for both: if they are nested, MariaDB loses the zone that the outer one has set.
IN_UTC_AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout = 0, time_zone = '+00:00' FOR "


class MariaDBWords(CapWords):
    """A cap's SQL for MariaDB."""

    @property
    def grown(self) -> str:
        """The table of notes."""
        return f"roostcap_{self.cap.table}_grown"

    @property
    def notes(self) -> str:
        """The table of notes, quoted."""
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
    def lock(self) -> str:
        """The expression for the name of the lock that a pass holds."""
        return f"CONCAT('roostcap ', MD5(CONCAT(DATABASE(), '.', {self.dialect.literal(self.cap.table)})))"

    @property
    def bodies(self) -> dict[str, str]:
        """The bodies of the triggers, by name."""
        has_key = " AND ".join(f"NEW.{self.dialect.quoted(name)} IS NOT NULL" for name in self.cap.per)
        same = " AND ".join(f"NEW.{each} <=> OLD.{each}" for each in map(self.dialect.quoted, self.cap.per))
        # IGNORE: if a column was widened since, the application's INSERT must not fail; `check` reports it.
        note = (
            f"INSERT IGNORE INTO {self.notes} ({NUMBER}, {self.columns(self.cap.per)})\n"
            f"    VALUES (UUID_SHORT(), {self.columns(self.cap.per, 'NEW.')})"
        )
        insert, update = (f"roostcap_{self.cap.table}_{event}" for event in ("insert", "update"))
        return {
            insert: f"IF {has_key} THEN\n  {note}; END IF",
            update: f"IF {has_key} AND NOT ({same}) THEN\n  {note}; END IF",
        }

    @property
    def triggers(self) -> dict[str, str]:
        """The statements that create the triggers which write the notes, by name."""
        create = f"CREATE OR REPLACE{self._definer} TRIGGER"
        return {
            name: f"{create} {self.dialect.quoted(name)} AFTER {event} ON {self.table} FOR EACH ROW\n  {body}"
            for (name, body), event in zip(self.bodies.items(), ("INSERT", "UPDATE"), strict=True)
        }

    @property
    def _definer(self) -> str:
        user, _, host = self.cap.definer.rpartition("@")
        return f" DEFINER = {self.dialect.quoted(user)}@{self.dialect.quoted(host)}" if host else ""

    def _excess(self, columns: str, key: str, limit: int, past: str) -> str:
        order = ", ".join(f"i.{self.dialect.quoted(name)} DESC" for name in self.cap.order)
        return (
            f"SELECT {columns} FROM {self.table} i WHERE {self._equal('i', key)}\n"
            f"    ORDER BY {order} LIMIT {limit} OFFSET {past or self.cap.keep}"
        )

    def _equal(self, row: str, key: str) -> str:
        quoted = self.dialect.quoted
        return " AND ".join(
            f"{row}.{quoted(name)} = {key if key == '%s' else key + quoted(name)}" for name in self.cap.per
        )

    def victims(self, key: str = "%s", past: str = "") -> str:
        """Return the query that locks a key's excess rows, skipping rows that another session holds.

        Each row is checked again under its lock: it may have been changed since it was selected.

        past: how many of the newest rows are passed over: by default `keep`, or with those that may not be deleted.
        """
        quoted, cap = self.dialect.quoted, self.cap
        same = " AND ".join(f"r.{quoted(name)} <=> o.{quoted(name)}" for name in cap.order if name not in cap.id)
        same_id = " AND ".join(f"r.{quoted(name)} = o.{quoted(name)}" for name in cap.id)
        excess = self._excess(self.columns(cap.order, "i."), key, CUT, past)
        return (
            f"SELECT {self.columns(cap.id, 'r.')} FROM ({excess}) o\n"
            f"  STRAIGHT_JOIN {self.table} r ON {same_id}{f' AND {same}' if same else ''} AND {self._equal('r', key)}\n"
            "  FOR UPDATE SKIP LOCKED"
        )

    def is_long(self, key: str = "%s", past: str = "") -> str:
        """Return the condition that a key still has too many rows; past: as for `victims`."""
        return f"EXISTS ({self._excess('1', key, 1, past)})"

    def delete_all(self, rows: Sequence[Row], in_utc: bool) -> Statement:
        """Return the statement that deletes rows by the columns that identify them.

        in_utc: the rows were read in UTC.
        """
        quoted, at_once = self.dialect.quoted, IN_UTC_AT_ONCE if in_utc else AT_ONCE
        if not all(type(value) is int for value in rows[0]):  # texts in a list would have another character set
            return Statement(Template(at_once + self.delete_by(self.dialect.placeholder)), rows)
        same = " AND ".join(f"r.{quoted(name)} = q.{quoted(name)}" for name in self.cap.id)
        joined = CUT_JOINED.format(pairs=self.columns(self.cap.id), rows=self.table, same_pair=same)
        return Statement(Template(at_once + joined, Gather.VALUES), rows)

    def delete_by(self, hole: str = "") -> str:
        """Return the statement that deletes a row by parameters, or in the event by the values of `roostcap_gone`."""
        same = " AND ".join(
            f"{self.column(name)} = {hole or f'roostcap_gone.{self.dialect.quoted(name)}'}" for name in self.cap.id
        )
        return f"DELETE FROM {self.table} WHERE {same}"

    def _pass(self, begins: str, work: str, *tables: str) -> str:
        # The event: it works on a server that takes writes, on tables (a view of that name would run its maker's code),
        # and if no other session makes a pass.
        names = ", ".join(map(self.dialect.literal, tables))
        return f"""\
CREATE OR REPLACE{self._definer} EVENT {self.dialect.quoted(self.cap.index_name)} ON SCHEDULE EVERY 1 SECOND DO
BEGIN
{begins}  DECLARE roostcap_cut INT DEFAULT 0;
  DECLARE roostcap_past INT DEFAULT {self.cap.keep};
  DECLARE roostcap_held BOOLEAN DEFAULT FALSE;
  DECLARE roostcap_may BOOLEAN DEFAULT CONCAT(@@read_only) IN ('0', 'OFF') AND {len(tables)} = (
    SELECT COUNT(*) FROM information_schema.TABLES
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names}) AND TABLE_TYPE = 'BASE TABLE');
  DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
  IF roostcap_may AND GET_LOCK({self.lock}, 0) <=> 1 THEN
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
{work}
    DO RELEASE_LOCK({self.lock});
  END IF;
END"""

    def _delete_each(self, key: str, indent: str) -> str:
        # A row that may not be deleted, by the application's trigger or a foreign key, is passed over.
        return f"""\
FOR roostcap_gone IN ({self.victims(key, "roostcap_past")}) DO
  BEGIN
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET roostcap_past = roostcap_past + 1;
    DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
    {AT_ONCE}{self.delete_by()};
  END;
  SET roostcap_cut = roostcap_cut + 1;
END FOR;""".replace("\n", f"\n{indent}")

    @property
    def event(self) -> str:
        """The statement that creates the server event, which makes a pass.

        A key is trimmed for the first of its notes; the others go, whether it could be trimmed or not.
        """
        # A variable hides an unqualified column of the same name, and a row variable hides a table: the application's
        # names do not begin like these.
        per = self.columns(self.cap.per, "q.")
        begins = "  DECLARE roostcap_began DATETIME(6) DEFAULT SYSDATE(6);\n"
        work = f"""\
    START TRANSACTION;
    FOR roostcap_key IN (
      SELECT q.{NUMBER}, {per}, ROW_NUMBER() OVER (PARTITION BY {per} ORDER BY q.{NUMBER}) AS {NTH}
        FROM (SELECT * FROM {self.notes} ORDER BY {NUMBER} LIMIT 100000) q ORDER BY {NTH}, q.{NUMBER}
    ) DO
      SET roostcap_held = FALSE;
      SET roostcap_past = {self.cap.keep};
      REPEAT
        SET roostcap_cut = 0;
        IF roostcap_key.{NTH} = 1 THEN
          {self._delete_each("roostcap_key.", " " * 10)}
        END IF;
        IF SYSDATE(6) > roostcap_began + INTERVAL 25000 MICROSECOND THEN
          COMMIT;
          DO SLEEP(0.01);
          START TRANSACTION;
          SET roostcap_began = SYSDATE(6);
        END IF;
      UNTIL roostcap_cut < {CUT} OR roostcap_held END REPEAT;
      IF roostcap_key.{NTH} > 1
        OR NOT roostcap_held AND NOT {self.is_long("roostcap_key.", "roostcap_past")} THEN
        DELETE FROM {self.notes} WHERE {self.notes}.{NUMBER} = roostcap_key.{NUMBER};
      END IF;
    END FOR;
    COMMIT;"""
        return self._pass(begins, work, self.cap.table, self.grown)


class MariaDBAgeWords(MariaDBWords):
    """A cap by age: its SQL for MariaDB."""

    cap: Age

    @property
    def bodies(self) -> dict[str, str]:
        """Empty: there are no triggers."""
        return {}

    @property
    def triggers(self) -> dict[str, str]:
        """Empty, as `bodies`."""
        return {}

    def over(self, row: str) -> str:
        """Return the condition that a row is too old."""
        cap, by = self.cap, f"{row}.{self.dialect.quoted(self.cap.by)}"
        since = f"{by} > {cap.first} AND {by} <"
        if cap.time in PER_SECOND:
            return f"{since} UNIX_TIMESTAMP() * {PER_SECOND[cap.time]} - {cap.units}"
        if cap.time == "zoned":
            # The index is searched in the session's zone, in which one hour of a night in autumn occurs twice.
            now = f"UNIX_TIMESTAMP() - {cap.seconds}"
            return f"{since} FROM_UNIXTIME({now}) AND UNIX_TIMESTAMP({by}) < {now}"
        now = f"UTC_TIMESTAMP(6) - INTERVAL {cap.seconds} SECOND"
        return f"{since} DATE({now})" if cap.time == "date" else f"{since} {now}"

    def victims(self, key: str = "%s", past: str = "") -> str:
        """Return the query that locks rows that are too old, oldest first, skipping rows that another session holds."""
        return (
            f"SELECT {self.columns(self.cap.id, 'i.')} FROM {self.table} i WHERE {self.over('i')}\n"
            f"  ORDER BY i.{self.dialect.quoted(self.cap.by)} LIMIT {CUT} OFFSET {past or 0} FOR UPDATE SKIP LOCKED"
        )

    @property
    def event(self) -> str:
        """The statement that creates the server event, which makes a pass."""
        work = f"""\
    REPEAT
      SET roostcap_cut = 0;
      START TRANSACTION;
      {self._delete_each("", " " * 6)}
      COMMIT;
      DO SLEEP(0.01);
    UNTIL roostcap_cut < {CUT} OR roostcap_held END REPEAT;"""
        return self._pass("", work, self.cap.table)
