"""How tables are capped in MySQL: as in MariaDB (`mariadb.py`), where MySQL has other words.

It has no SET STATEMENT, no variables of a column's type, and replaces no trigger, event or index. A row of another
table that somebody holds, and that would go too, is waited for: a second, the least that MySQL can, a few times in a
pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.capping.adoption import Broken, Column
from roost.capping.cap import Asking
from roost.capping.mariadb import HERE, MariaDBAdoption
from roost.capping.mariadb_sql import IN_UTC, MariaDBWords
from roost.dialects import MYSQL
from roost.dialects.dialect import execute, fetch
from roost.dialects.mariadb_definers import may
from roost.errors import Invalid
from roost.structures.adopted import Cap

BY_KEY = "DELETE /*+ INDEX(r PRIMARY) */"  # or a scan would wait for whoever is writing
IN_ZONE = f"SET_VAR({IN_UTC.replace(' ', '')})"


class MySQLWords(MariaDBWords):
    """A cap's SQL for MySQL."""

    create = "CREATE"
    most_waits = 5  # a second each

    def reading(self, sql: str, in_utc: bool) -> str:
        return sql.replace("SELECT", f"SELECT /*+ {IN_ZONE} */", 1) if in_utc else sql

    def deleting(self, sql: str, in_utc: bool) -> str:
        """Return a DELETE, in UTC if what it is given was read so; it waits for a lock for a second at most."""
        if in_utc and sql.startswith(BY_KEY):
            return sql.replace("*/", f"{IN_ZONE} */", 1)
        return sql.replace("DELETE", f"DELETE /*+ {IN_ZONE} */", 1) if in_utc else sql

    def by_key(self, table: str, key: Sequence[str]) -> str:
        return f"{BY_KEY} FROM {table} AS r WHERE ({self.columns(key)}) IN ({{rows}})"

    def lenient(self, insert: str) -> str:
        """Return an INSERT IGNORE as a trigger has it: a value out of range fails all the same in a strict mode."""
        ranges = "SQLSTATE '22003', SQLSTATE '22001'"
        return f"BEGIN DECLARE CONTINUE HANDLER FOR {ranges} BEGIN END; {insert}; END"


class MySQLAdoption(MariaDBAdoption):
    """Notes of the keys that grow, and passes, in MySQL."""

    dialect = MYSQL
    words_class = MySQLWords
    indexes_sql = MariaDBAdoption.indexes_sql.replace("IGNORED = 'NO'", "IS_VISIBLE = 'YES'")

    def _fits(self, cap: Cap, columns: Sequence[Column]) -> Asking:
        if odd := [name for name in (cap.table, *cap.per, *cap.order) if "`" in name]:  # shown otherwise in a trigger
            raise Invalid(f"{cap.table}: a table whose names have ` in them, as {odd[0]!r}, cannot be capped on MySQL")
        yield from super()._fits(cap, columns)

    def broken(self, cap: Cap) -> Broken:
        """Return the violations of a table's cap; none of triggers to who has no right to them, and is shown none."""
        found = yield from super().broken(cap)
        seen = yield from may("TRIGGER", cap.table)
        return [each for each in found if seen or each[0] != "triggers"]

    def _replace(self, what: str, name: str, sql: str) -> Asking:
        # What comes between the two statements is without a note, and found by the trimming that follows.
        yield execute(f"DROP {what} IF EXISTS {self.dialect.quoted(name)}")
        yield execute(sql)

    def _event(self, words: MariaDBWords) -> Asking:
        found = yield from fetch(
            "SELECT COLUMN_NAME, CONCAT(COLUMN_TYPE, COALESCE(\n"
            "    CONCAT(' CHARACTER SET ', CHARACTER_SET_NAME, ' COLLATE ', COLLATION_NAME), ''))\n"
            f"  FROM information_schema.COLUMNS WHERE {HERE} AND TABLE_NAME = %s",
            words.cap.table,
        )
        return words.event(dict(found))
