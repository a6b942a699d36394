"""A cap's SQL for MariaDB: the table of notes, the triggers that write it, and the event; `mariadb.py` installs them.

A note is a row with a key that has a new row. A cap by age needs neither notes nor triggers: a pass finds the rows that
are too old by the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
NOTE = "roostcap_note"  # the event's variable with the number of a note
# Of an event: others get the locks now and then.
PAUSE = """\
        IF SYSDATE(6) > roostcap_began + INTERVAL 25000 MICROSECOND THEN
          COMMIT;
          DO SLEEP(0.01);
          START TRANSACTION;
          SET roostcap_began = SYSDATE(6);
        END IF;"""


class MariaDBWords(Words):
    """A cap's SQL for MariaDB.

    create: makes a trigger or an event. most_waits: of a pass, for locks on rows of other tables.
    """

    create = "CREATE OR REPLACE"
    most_waits = 2**31 - 1  # none of which takes time

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
                f"{self.create}{self._definer} TRIGGER {self.dialect.quoted(name)}"
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

    def _excess(self, columns: str, in_event: bool, limit: int, past: str) -> str:
        order = ", ".join(f"i.{self.dialect.quoted(name)} DESC" for name in self.cap.order)
        return (
            f"SELECT {columns} FROM {self.table} i WHERE {self._equal('i', in_event)}\n"
            f"    ORDER BY {order} LIMIT {limit} OFFSET {past}"
        )

    def _equal(self, row: str, in_event: bool) -> str:
        values = self._variables("key", self.cap.per) if in_event else dict.fromkeys(self.cap.per, "%s")
        return " AND ".join(f"{row}.{self.dialect.quoted(name)} = {value}" for name, value in values.items())

    def _variables(self, what: str, names: Sequence[str]) -> dict[str, str]:
        # Of the event. A variable hides an unqualified column of its name: the application's do not begin like these.
        return {name: f"roostcap_{what}_{place}" for place, name in enumerate(names)}

    def victims(self, past: int | str, in_event: bool = False) -> str:
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
        excess = self._excess(self.columns(cap.order, "i."), in_event, CUT, str(past))
        return (
            f"SELECT {self.columns(cap.id, 'r.')} FROM ({excess}) o\n"
            f"  STRAIGHT_JOIN {self.table} r ON {' AND '.join(same)} AND {self._equal('r', in_event)}\n"
            "  FOR UPDATE SKIP LOCKED"
        )

    def is_long(self, past: int | str, in_event: bool = False) -> str:
        """Return the condition that a key still has too many rows; past: as for `victims`."""
        return f"EXISTS ({self._excess('1', in_event, 1, str(past))})"

    def delete_all(self, rows: Sequence[Row], in_utc: bool) -> Statement:
        """Return the statement that deletes rows by the columns that identify them.

        in_utc: the rows were read in UTC.
        """
        if not all(type(value) is int for value in rows[0]):  # texts in a list would have another character set
            delete = self._delete_by(dict.fromkeys(self.cap.id, "%s"))
            return Statement(Template(self.deleting(delete, in_utc)), rows)
        return Statement(Template(self.deleting(self.by_key(self.table, self.cap.id), in_utc), Gather.VALUES), rows)

    def by_key(self, table: str, key: Sequence[str]) -> str:
        """Return the DELETE of many rows of a table by its primary key, of whole numbers."""
        same = " AND ".join(f"r.{name} = q.{name}" for name in map(self.dialect.quoted, key))
        return CUT_JOINED.format(pairs=self.columns(key), rows=table, same_pair=same)

    def _delete_by(self, values: Mapping[str, str]) -> str:
        same = " AND ".join(f"{self.column(name)} = {value}" for name, value in values.items())
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

    def event(self, types: Mapping[str, str]) -> str:
        """Return the statement that creates the server event, which makes a pass.

        It works on a server that takes writes, on tables (a view of that name would run its maker's code), and if no
        other session makes a pass. By number, a key is trimmed for the first of its notes; the others go, whether it
        could be trimmed or not. A row that may not be deleted, by the application's trigger or a foreign key, is passed
        over.

        types: of the table's columns, by name; of those that it lacks MariaDB finds them when it runs the event.
        """
        keys, ids = self._variables("key", self.cap.per), self._variables("id", self.cap.id)
        declared = "".join(
            f"\n      DECLARE {variable} {types.get(name, f'TYPE OF {self.column(name)}')};"
            for name, variable in [*keys.items(), *ids.items()]
        )
        cursor, begin, end, due = "", "", "", "TRUE"
        if not self.cap.older_than:
            per, due = self.columns(self.cap.per, "q."), "roostcap_turn = 1"
            cursor = f"""
      DECLARE roostcap_notes CURSOR FOR SELECT o.* FROM (
        SELECT q.{NUMBER}, {per}, ROW_NUMBER() OVER (PARTITION BY {per} ORDER BY q.{NUMBER}) AS {NTH}
          FROM (SELECT * FROM {self.notes} ORDER BY {NUMBER} LIMIT 100000) q) o ORDER BY o.{NTH}, o.{NUMBER};
      DECLARE CONTINUE HANDLER FOR NOT FOUND SET roostcap_end = TRUE;"""
            begin = f"""
      OPEN roostcap_notes;
      roostcap_keys: LOOP
      FETCH roostcap_notes INTO {NOTE}, {", ".join(keys.values())}, roostcap_turn;
      IF roostcap_end THEN LEAVE roostcap_keys; END IF;"""
            end = f"""
      IF roostcap_waits >= {self.most_waits} THEN LEAVE roostcap_keys; END IF;
      IF NOT {due} OR NOT roostcap_held AND NOT {self.is_long("roostcap_past", True)} THEN
        DELETE FROM {self.notes} WHERE {NUMBER} = {NOTE};
      END IF;
      END LOOP;
      CLOSE roostcap_notes;"""
        return f"""\
{self.create}{self._definer} EVENT {self._scheduled}
BEGIN
  DECLARE roostcap_began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE {NOTE} BIGINT UNSIGNED;
  DECLARE roostcap_turn BIGINT;
  DECLARE roostcap_cut, roostcap_past, roostcap_waits INT DEFAULT 0;
  DECLARE roostcap_held, roostcap_end BOOLEAN DEFAULT FALSE;
  DECLARE roostcap_lock VARCHAR(64) DEFAULT {self.lock};
  DECLARE roostcap_may BOOLEAN DEFAULT {self.may};
  DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE, roostcap_waits = roostcap_waits + 1;
  IF roostcap_may AND GET_LOCK(roostcap_lock, 0) <=> 1 THEN
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION innodb_lock_wait_timeout = 1;
    START TRANSACTION;
    BEGIN{declared}{cursor}{begin}
      SET roostcap_held = FALSE, roostcap_past = {self.cap.keep};
      REPEAT
        SET roostcap_cut = 0;
        IF {due} THEN
          BEGIN
            DECLARE roostcap_over BOOLEAN DEFAULT FALSE;
            DECLARE roostcap_gone CURSOR FOR {self.victims("roostcap_past", True)};
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET roostcap_over = TRUE;
            OPEN roostcap_gone;
            roostcap_rows: LOOP
              FETCH roostcap_gone INTO {", ".join(ids.values())};
              IF roostcap_over OR roostcap_waits >= {self.most_waits} THEN LEAVE roostcap_rows; END IF;
              BEGIN
                DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET roostcap_past = roostcap_past + 1;
                DECLARE CONTINUE HANDLER FOR 1205, 1213 SET
                  roostcap_past = roostcap_past + 1, roostcap_held = TRUE, roostcap_waits = roostcap_waits + 1;
                {self.deleting(self._delete_by(ids), False)};
              END;
              SET roostcap_cut = roostcap_cut + 1;
            END LOOP;
            CLOSE roostcap_gone;
          END;
        END IF;
{PAUSE}
      UNTIL roostcap_cut < {CUT} OR roostcap_waits >= {self.most_waits} END REPEAT;{end}
    END;
    COMMIT;
    DO RELEASE_LOCK(roostcap_lock);
  END IF;
END"""
