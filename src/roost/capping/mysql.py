"""How tables are capped in MySQL: as in MariaDB (`mariadb.py`), where MySQL has other words.

It has no SET STATEMENT, no variables of a row's types, and replaces no trigger, event or index. A pass deletes a key's
excess rows by one statement, and one by one where some may not be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.capping.cap import Asking, read, write
from roost.capping.mariadb import HERE, MariaDBAdoption
from roost.capping.mariadb_sql import CUT, IN_UTC, NTH, NUMBER, MariaDBWords
from roost.dialects.dialect import Gather, Row, Statement, Template
from roost.dialects.mysql import MYSQL

ZONED = f"/*+ SET_VAR({IN_UTC.replace(' ', '')}) */"


class MySQLWords(MariaDBWords):
    """A cap's SQL for MySQL."""

    def reading(self, sql: str, in_utc: bool) -> str:
        """Return a query, in UTC if that is wanted."""
        return sql.replace("SELECT", f"SELECT {ZONED}", 1) if in_utc else sql

    def deleting(self, sql: str, in_utc: bool) -> str:
        """Return a DELETE, in UTC if what it is given was read so; it waits for a lock for a second at most."""
        return sql.replace("DELETE", f"DELETE {ZONED}", 1) if in_utc else sql

    def delete_all(self, rows: Sequence[Row], in_utc: bool) -> Statement:
        """Return the statement that deletes rows by the columns that identify them."""
        if not all(type(value) is int for value in rows[0]):
            return Statement(Template(self.deleting(self._delete_by("%s"), in_utc)), rows)
        delete = f"DELETE FROM {self.table} WHERE ({self.columns(self.cap.id)}) IN ({{rows}})"
        return Statement(Template(self.deleting(delete, in_utc), Gather.VALUES), rows)

    @property
    def make_index_sql(self) -> str:
        """The statement that creates the index while others write."""
        return f"{self.index_sql} ALGORITHM=INPLACE LOCK=NONE"

    @property
    def drop_index_sql(self) -> str:
        """The statement that drops the index."""
        return f"ALTER TABLE {self.table} DROP INDEX {self.dialect.quoted(self.cap.index_name)}"

    def lenient(self, insert: str) -> str:
        """Return an INSERT IGNORE as a trigger has it: a value out of range fails all the same in a strict mode."""
        ranges = "SQLSTATE '22003', SQLSTATE '22001'"
        return f"BEGIN DECLARE CONTINUE HANDLER FOR {ranges} BEGIN END; {insert}; END"

    @property
    def triggers(self) -> dict[str, str]:
        """The statements that create the triggers which write the notes, by name."""
        return {name: sql.replace("CREATE OR REPLACE", "CREATE", 1) for name, sql in super().triggers.items()}

    def _equal(self, row: str, key: str) -> str:
        if key == "%s":
            return super()._equal(row, key)
        quoted = self.dialect.quoted
        noted = f"(SELECT n.{{}} FROM {self.notes} n WHERE n.{NUMBER} = roostcap_note)"
        return " AND ".join(f"{row}.{quoted(name)} = {noted.format(quoted(name))}" for name in self.cap.per)

    @property
    def event(self) -> str:
        """The statement that creates the server event, which makes a pass as MariaDB's does."""
        key = "" if self.cap.older_than else "roostcap_key."
        cursor, begin, end, due = "", "", "", "TRUE"
        if key:
            due = "roostcap_turn = 1"
            cursor = f"""
  DECLARE roostcap_notes CURSOR FOR SELECT o.{NUMBER}, o.{NTH} FROM (
      {self.noted}) o ORDER BY o.{NTH}, o.{NUMBER};
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET roostcap_end = TRUE;"""
            begin = """
    OPEN roostcap_notes;
    roostcap_keys: LOOP
      FETCH roostcap_notes INTO roostcap_note, roostcap_turn;
      IF roostcap_end THEN LEAVE roostcap_keys; END IF;"""
            end = f"""
      IF NOT {due} OR NOT roostcap_held AND NOT {self.is_long("roostcap_past", key)} THEN
        DELETE FROM {self.notes} WHERE {NUMBER} = roostcap_note;
      END IF;
    END LOOP;
    CLOSE roostcap_notes;"""
        same = " AND ".join(f"d.{name} = x.{name}" for name in map(self.dialect.quoted, self.cap.id))
        victims = self.victims("roostcap_past", key).replace(f"LIMIT {CUT}", "LIMIT roostcap_most")
        if key:  # a limit keeps MySQL from merging the query into the DELETE, which may not read its own table (1093)
            victims = victims.replace("  FOR UPDATE", f"  LIMIT {CUT} FOR UPDATE")
        return f"""\
CREATE{self._definer} EVENT {self.dialect.quoted(self.cap.index_name)} ON SCHEDULE EVERY 1 SECOND DO
BEGIN
  DECLARE roostcap_began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE roostcap_note BIGINT UNSIGNED;
  DECLARE roostcap_turn BIGINT;
  DECLARE roostcap_cut, roostcap_past, roostcap_most INT DEFAULT 0;
  DECLARE roostcap_held, roostcap_refused, roostcap_end BOOLEAN DEFAULT FALSE;
  DECLARE roostcap_may BOOLEAN DEFAULT {self.may};{cursor}
  DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
  IF roostcap_may AND GET_LOCK({self.lock}, 0) <=> 1 THEN
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION innodb_lock_wait_timeout = 1;
    START TRANSACTION;{begin}
      SET roostcap_held = FALSE, roostcap_past = {self.cap.keep}, roostcap_most = {CUT};
      REPEAT
        SET roostcap_cut = 0, roostcap_refused = FALSE;
        IF {due} THEN
          BEGIN
            DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET roostcap_refused = TRUE;
            DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE;
            DELETE d FROM ({victims}) x
              STRAIGHT_JOIN {self.table} d ON {same};
            SET roostcap_cut = ROW_COUNT();
          END;
          IF roostcap_refused THEN
            SET roostcap_past = roostcap_past + (roostcap_most = 1), roostcap_most = 1, roostcap_cut = 1;
          END IF;
        END IF;
        IF SYSDATE(6) > roostcap_began + INTERVAL 25000 MICROSECOND THEN
          COMMIT;
          DO SLEEP(0.01);
          START TRANSACTION;
          SET roostcap_began = SYSDATE(6);
        END IF;
      UNTIL roostcap_cut < roostcap_most OR roostcap_held END REPEAT;{end}
    COMMIT;
    DO RELEASE_LOCK({self.lock});
  END IF;
END"""


class MySQLAdoption(MariaDBAdoption):
    """Notes of the keys that grow, and passes, in MySQL."""

    dialect = MYSQL
    words_class = MySQLWords
    indexes_sql = MariaDBAdoption.indexes_sql.replace("IGNORED = 'NO'", "IS_VISIBLE = 'YES'")

    def _replace(self, what: str, name: str, sql: str) -> Asking:
        # What comes between the two statements is without a note, and found by the trimming that follows.
        yield write(f"DROP {what} IF EXISTS {self.dialect.quoted(name)}")
        yield write(sql)

    def _drop_index(self, words: MariaDBWords) -> Asking:
        found = yield read(
            f"SELECT count(*) FROM information_schema.STATISTICS WHERE {HERE} AND TABLE_NAME = %s AND INDEX_NAME = %s",
            *(words.cap.table, words.cap.index_name),
        )
        if found[0][0][0]:
            yield write(words.drop_index_sql)
