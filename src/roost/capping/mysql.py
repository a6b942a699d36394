"""How tables are capped in MySQL: as in MariaDB (`mariadb.py`), where MySQL has other words.

It has no SET STATEMENT, no variables of a row's types, and replaces no trigger, event or index. A row of another table
that somebody holds, and that would go too, is waited for: a second, the least that MySQL can, a few times in a pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.capping.cap import Asking, read, write
from roost.capping.mariadb import HERE, MariaDBAdoption
from roost.capping.mariadb_sql import CUT, IN_UTC, NTH, NUMBER, PAUSE, MariaDBWords
from roost.dialects import MYSQL

MOST_WAITS = 5  # of a pass, a second each, for rows that go too
BY_KEY = "DELETE /*+ INDEX(r PRIMARY) */"  # or a scan would wait for whoever is writing
IN_ZONE = f"SET_VAR({IN_UTC.replace(' ', '')})"


class MySQLWords(MariaDBWords):
    """A cap's SQL for MySQL."""

    def reading(self, sql: str, in_utc: bool) -> str:
        """Return a query, in UTC if that is wanted."""
        return sql.replace("SELECT", f"SELECT /*+ {IN_ZONE} */", 1) if in_utc else sql

    def deleting(self, sql: str, in_utc: bool) -> str:
        """Return a DELETE, in UTC if what it is given was read so; it waits for a lock for a second at most."""
        if in_utc and sql.startswith(BY_KEY):
            return sql.replace("*/", f"{IN_ZONE} */", 1)
        return sql.replace("DELETE", f"DELETE /*+ {IN_ZONE} */", 1) if in_utc else sql

    def by_key(self, table: str, key: Sequence[str]) -> str:
        return f"{BY_KEY} FROM {table} AS r WHERE ({self.columns(key)}) IN ({{rows}})"

    @property
    def make_index_sql(self) -> str:
        return f"{self.index_sql} ALGORITHM=INPLACE LOCK=NONE"

    @property
    def drop_index_sql(self) -> str:
        return f"ALTER TABLE {self.table} DROP INDEX {self.dialect.quoted(self.cap.index_name)}"

    def lenient(self, insert: str) -> str:
        """Return an INSERT IGNORE as a trigger has it: a value out of range fails all the same in a strict mode."""
        ranges = "SQLSTATE '22003', SQLSTATE '22001'"
        return f"BEGIN DECLARE CONTINUE HANDLER FOR {ranges} BEGIN END; {insert}; END"

    @property
    def triggers(self) -> dict[str, str]:
        return {name: sql.replace("CREATE OR REPLACE", "CREATE", 1) for name, sql in super().triggers.items()}

    def _equal(self, row: str, key: str) -> str:
        if key == "%s":
            return super()._equal(row, key)
        quoted = self.dialect.quoted
        noted = f"(SELECT n.{{}} FROM {self.notes} n WHERE n.{NUMBER} = roostcap_note)"
        return " AND ".join(f"{row}.{quoted(name)} = {noted.format(quoted(name))}" for name in self.cap.per)

    def event_for(self, types: Sequence[str]) -> str:
        """Return the statement that creates the server event, which makes a pass as MariaDB's does.

        types: of the columns that identify a row.
        """
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
      IF roostcap_waits >= {MOST_WAITS} THEN LEAVE roostcap_keys; END IF;
      IF NOT {due} OR NOT roostcap_held AND NOT {self.is_long("roostcap_past", key)} THEN
        DELETE FROM {self.notes} WHERE {NUMBER} = roostcap_note;
      END IF;
    END LOOP;
    CLOSE roostcap_notes;"""
        variables = [f"roostcap_id_{place}" for place in range(len(self.cap.id))]
        declared = "".join(f"\n  DECLARE {name} {type_};" for name, type_ in zip(variables, types, strict=True))
        this = " AND ".join(f"{self.column(name)} = {each}" for name, each in zip(self.cap.id, variables, strict=True))
        return f"""\
CREATE{self._definer} EVENT {self._scheduled}
BEGIN
  DECLARE roostcap_began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE roostcap_note BIGINT UNSIGNED;
  DECLARE roostcap_turn BIGINT;{declared}
  DECLARE roostcap_cut, roostcap_past, roostcap_waits INT DEFAULT 0;
  DECLARE roostcap_held, roostcap_end BOOLEAN DEFAULT FALSE;
  DECLARE roostcap_lock VARCHAR(64) DEFAULT {self.lock};
  DECLARE roostcap_may BOOLEAN DEFAULT {self.may};{cursor}
  DECLARE CONTINUE HANDLER FOR 1205, 1213 SET roostcap_held = TRUE, roostcap_waits = roostcap_waits + 1;
  IF roostcap_may AND GET_LOCK(roostcap_lock, 0) <=> 1 THEN
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION innodb_lock_wait_timeout = 1;
    START TRANSACTION;{begin}
      SET roostcap_held = FALSE, roostcap_past = {self.cap.keep};
      REPEAT
        SET roostcap_cut = 0;
        IF {due} THEN
          BEGIN
            DECLARE roostcap_over BOOLEAN DEFAULT FALSE;
            DECLARE roostcap_gone CURSOR FOR {self.victims("roostcap_past", key)};
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET roostcap_over = TRUE;
            OPEN roostcap_gone;
            roostcap_rows: LOOP
              FETCH roostcap_gone INTO {", ".join(variables)};
              IF roostcap_over OR roostcap_waits >= {MOST_WAITS} THEN LEAVE roostcap_rows; END IF;
              BEGIN
                DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET roostcap_past = roostcap_past + 1;
                DECLARE CONTINUE HANDLER FOR 1205, 1213 SET
                  roostcap_past = roostcap_past + 1, roostcap_held = TRUE, roostcap_waits = roostcap_waits + 1;
                DELETE FROM {self.table} WHERE {this};
              END;
              SET roostcap_cut = roostcap_cut + 1;
            END LOOP;
            CLOSE roostcap_gone;
          END;
        END IF;
{PAUSE}
      UNTIL roostcap_cut < {CUT} OR roostcap_waits >= {MOST_WAITS} END REPEAT;{end}
    COMMIT;
    DO RELEASE_LOCK(roostcap_lock);
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

    def _event(self, words: MariaDBWords) -> Asking:
        assert isinstance(words, MySQLWords)
        found = yield read(
            "SELECT COLUMN_NAME, CONCAT(COLUMN_TYPE, COALESCE(\n"
            "    CONCAT(' CHARACTER SET ', CHARACTER_SET_NAME, ' COLLATE ', COLLATION_NAME), ''))\n"
            f"  FROM information_schema.COLUMNS WHERE {HERE} AND TABLE_NAME = %s",
            words.cap.table,
        )
        types = dict(found[0])
        return words.event_for([types.get(name, "BIGINT") for name in words.cap.id])

    def _drop_index(self, words: MariaDBWords) -> Asking:
        found = yield read(
            f"SELECT count(*) FROM information_schema.STATISTICS WHERE {HERE} AND TABLE_NAME = %s AND INDEX_NAME = %s",
            *(words.cap.table, words.cap.index_name),
        )
        if found[0][0][0]:
            yield write(words.drop_index_sql)
