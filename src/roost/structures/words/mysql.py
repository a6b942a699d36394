"""MariaDB's and MySQL's words: a routine is a procedure, with its outcome as the last parameters (OUT).

Under autocommit each of its statements would be a transaction, so it is called inside of one: by the library, by the
trigger of an inlet, or by the procedure for SQL clients, which begins one where there is none.
A procedure keeps the sql_mode under which it was made, so a value that its parameter's type cannot hold is refused.
Variables and parameters have a blank in their names, which no column has.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from roost.dialects.dialect import Answer, Dialect, Row, Template
from roost.dialects.mariadb_conditions import given_type
from roost.structures import steps
from roost.structures.clock import SECOND, TRIGGER_CLOCK
from roost.structures.steps import Program, Routine
from roost.structures.views.mysql import checked, signal, strangers, transaction
from roost.structures.words.words import ServerWords, digest, short_digest
from roost.types.columns import Column

MARK = "a program, made by Roost"  # in the comment of a procedure: without, it is somebody else's
LONGEST = 64  # characters of a procedure's name
MOST_JSON_ROWS = 5_000  # of one call of a set form
MOST_JSON_LENGTH = 2**18  # characters of its values: as JSON in hexadecimal, one has up to twelve bytes
HEXADECIMAL = ("binary", "uuid")  # kinds of values that JSON has in hexadecimal


class MySQLWords(ServerWords):
    """One structure in MariaDB's and MySQL's words."""

    variable = "DECLARE `the {}` {}"
    moments = ("clock", "now", "latest", "ahead", "clock_row")
    # Forwards, InnoDB passes all entries that are marked as deleted up to the first one alive, also those of rows that
    # would expire later, and an old snapshot keeps them.
    backwards = " DESC"

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._named: dict[str, str] = {}  # the names of MySQL's programs, by verb

    clock = TRIGGER_CLOCK  # whoever calls it cannot set it
    at = (
        "IF(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6)) BETWEEN 0 AND 3599,\n"
        "    UTC_TIMESTAMP(6), CONVERT_TZ(SYSDATE(6), @@time_zone, '+00:00'))"
    )

    @property
    def now(self) -> str:
        return f"COALESCE((SELECT GREATEST({self.clock} + t.ahead, t.latest) FROM {self.times} t), {self.clock})"

    @property
    def current(self) -> str:  # type: ignore[override]
        return self.dialect.for_update

    def divided(self, value: str, by: str) -> str:
        return f"({value}) DIV {by}"

    def by_index(self, index: str) -> str:
        return f"{self.rows} FORCE INDEX (roost_{self.name}_{index})"

    def delete_by(self, index: str) -> str:
        return self._deleting(self.rows, f"roost_{self.name}_{index}")

    def _deleting(self, table: str, index: str) -> str:
        # A table with few rows would be scanned, and all of them locked. A DELETE can name an index only where it names
        # its table twice; there MySQL scans all the same where the table has one row, or where there are many ranges.
        if self.dialect.name == "mysql":
            return f"DELETE /*+ INDEX({table} {index}) */ FROM {table}"
        return f"DELETE {table} FROM {table} FORCE INDEX ({index})"

    def new(self, name: str) -> str:
        if not self._program.many:
            return f"`new {name}`"
        return self.json_column(next(each for each in self._program.given if each.name == name), "q")

    def __getitem__(self, name: str) -> str:
        return f"`the {name}`"

    def proposed(self, name: str) -> str:
        return f"VALUES({name})"

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        # A row that is there and not to be changed is locked all the same.
        assigned = ", ".join(f"{name} = {value}" for name, value in change.items())
        return f"ON DUPLICATE KEY UPDATE {assigned or f'{key[0]} = {self.proposed(key[0])}'}"

    @property
    def source(self) -> str:
        return f"JSON_TABLE(`new rows`, '$[*]' COLUMNS (ord FOR ORDINALITY, {self._from_json(self._program.given)})) q"

    def _from_json(self, columns: Sequence[Column]) -> str:
        return ", ".join(f"`{each.name}` {self._in_json(each)} PATH '$[{place}]'" for place, each in enumerate(columns))

    def listing(self, columns: Sequence[Column], values: Sequence[str]) -> str:
        """Return the aggregate of rows of values, for a variable that `listed` reads."""
        as_text = dict.fromkeys(("decimal", "datetime", "date"), "CAST({} AS CHAR)")
        as_text |= dict.fromkeys(HEXADECIMAL, "HEX({})")
        parts = [as_text.get(each.type.kind, "{}").format(value) for each, value in zip(columns, values, strict=True)]
        return f"JSON_ARRAYAGG(JSON_ARRAY({', '.join(parts)}))"

    def listed(self, columns: Sequence[Column], variable: str) -> str:
        """Return the rows of a variable as a table `k`."""
        return f"JSON_TABLE({self[variable]}, '$[*]' COLUMNS ({self._from_json(columns)})) k"

    @staticmethod
    def json_column(column: Column, prefix: str) -> str:
        """Return the value of a column of given or listed rows."""
        return f"UNHEX({prefix}.`{column.name}`)" if column.type.kind in HEXADECIMAL else f"{prefix}.`{column.name}`"

    def _in_json(self, column: Column) -> str:
        limit = column.type.limit or 0
        if column.type.kind == "uuid":
            return "CHAR(32) CHARACTER SET ascii"
        if column.type.kind == "binary":  # in a window's or a group's rows UNHEX of a LONGTEXT is empty on MariaDB
            return f"VARCHAR({2 * limit}) CHARACTER SET ascii" if limit <= 8000 else "MEDIUMTEXT CHARACTER SET ascii"
        return self.type_of(column)

    def _stored(self, name: str, lines: Sequence[str], declared: Sequence[str]) -> Routine:
        program = self._program
        parameters = ["`new rows` LONGTEXT CHARACTER SET utf8mb4"]
        if not program.many:
            parameters = [f"IN `new {each.name}` {self.type_of(each)}" for each in program.given]
        parameters += [f"OUT `its {each.name}` {self.type_of(each)}" for each in program.gives]
        body = "it: BEGIN\n" + "".join(f"  {line};\n" for line in [*declared, *lines]) + "END"
        if not self.dialect.replaces:  # so that no call misses one, each text has a procedure of its own
            of_text = f"_{short_digest(', '.join(parameters) + body)}"
            name = self._named[program.verb] = name[: LONGEST - len(of_text)] + of_text
        return self._procedure(name, parameters, body)

    def routine_name(self, program: Program) -> str:
        return self._named.get(program.verb) or super().routine_name(program)

    def _procedure(self, name: str, parameters: Sequence[str], body: str) -> Routine:
        comment = f"{MARK}: {digest(', '.join(parameters) + body)} of {self.name}"
        drop = f"DROP PROCEDURE IF EXISTS `{name}`"
        replace = self.dialect.replaces
        make = (
            f"CREATE {'OR REPLACE ' if replace else ''}PROCEDURE `{name}` ({', '.join(parameters)})\n"
            f"  MODIFIES SQL DATA COMMENT '{comment}'\n{body}"
        )
        return Routine(name, (*(() if replace else (drop,)), make), (drop,), comment)

    def calls(self, program: Program) -> tuple[str, Template]:
        holes = self.dialect.placeholder if program.many else self.dialect.holes(len(program.given))
        text = f"CALL {self.routine_name(program)}({holes}{{result}})"
        return text, calling(text, 0, len(program.gives))  # of a set form alone: it is given all rows as one value

    def door(self, program: Program) -> Routine | None:
        door = program.door
        if door is None:
            return None
        name, given = self.routine_name(program), door.given or program.given
        gives = door.gives or {each: f"{{{each.name}}}" for each in program.gives}
        words = {each.name: f"`new {each.name}`" for each in given}
        words |= {each.name: f"`its {each.name}`" for each in program.gives}
        declared, lines = checked(self.dialect, self.name, given, "`given {}`")
        declared += [f"DECLARE `its {each.name}` {self.type_of(each)}" for each in program.gives]
        for when, message in door.refuses.items():
            lines.append(f"IF {when.format(**words)} THEN {signal(f'{self.name}: {message}')}; END IF")
        passed = [door.passes.get(each.name, f"{{{each.name}}}").format(**words) for each in program.given]
        called = f"CALL {name}({', '.join([*passed, *(f'`its {each.name}`' for each in program.gives)])})"
        lines.append(strangers(self.dialect, called))
        lines += [f"SET `as {each.name}` = {value.format(**words)}" for each, value in gives.items()]
        block = "  BEGIN\n" + "".join(f"    {line};\n" for line in [*declared, *lines]) + "  END"
        shown = [f"DECLARE `as {each.name}` {self.type_of(each)}" for each in gives]
        row = ", ".join(f"`as {each.name}` AS `{each.name}`" for each in gives)
        parameters = [f"`given {each.name}` {given_type(self.dialect, each)}" for each in given]
        # Its name is the same whatever the declaration's form: clients know it.
        door_name = f"{self.name}_{program.verb}"
        return self._procedure(door_name, parameters, transaction(block, shown, f"SELECT {row}"))

    def _if(self, when: str, work: str) -> str:
        return f"IF {when} THEN {work}; END IF" if when else work

    def _let(self, variable: str, value: str, locking: bool) -> str:
        # A plain read may have an old snapshot, and no variable tells the transaction's isolation level. By SET, a
        # query locks what it reads at REPEATABLE READ; by SELECT it does not.
        if locking:
            return f"SET {self[variable]} = ({value}{self.dialect.for_update})"
        return f"SELECT ({value}) INTO {self[variable]}"

    def _fetch(self, variables: Sequence[str], values: Sequence[str], source: str) -> str:
        nothing = ", ".join(f"{name} = NULL" for name in variables)
        return f"SET {nothing}; SELECT {', '.join(values)} INTO {', '.join(variables)} {source}"

    def _do(self, sql: str, counts: str) -> str:
        # By the key: a sweep names its own index.
        sql = re.sub(r"\ADELETE FROM (\S+)(?= WHERE)", lambda found: self._deleting(found[1], "PRIMARY"), sql)
        work, updates = re.subn(r"\AUPDATE (\S+)\s+SET", r"UPDATE \1 FORCE INDEX (PRIMARY) SET", sql)
        if updates and self.dialect.name == "mariadb":
            # From 11 on an UPDATE of one table that is interrupted (KILL QUERY, a limit) before it has found its rows
            # has changed none of them, without an error. One of two tables fails then.
            again = work.replace(" SET", ", (SELECT 1) one SET", 1)
            work += f" /*M!110000 ; IF ROW_COUNT() = 0 THEN {again}; END IF */"
        return work + (f"; SET {self[counts]} = ROW_COUNT()" if counts else "")

    def _put(self, step: steps.Put) -> str:
        # Of an upsert that leaves a row as it is, the client's flags say what is counted.
        new = self[step.new]
        if step.change:
            return f"{self.put(step.table, step.values, step.key, step.change)}; SET {new} = ROW_COUNT() = 1"
        names, given = ", ".join(step.values), ", ".join(step.values.values())
        return (
            f"SET {new} = 1; BEGIN DECLARE CONTINUE HANDLER FOR 1062 SET {new} = 0;\n"
            f"    INSERT INTO {step.table} ({names}) VALUES ({given}); END"
        )

    def _looked_up(self, fact: str, value: int) -> str:
        found = (
            f"SELECT JSON_VALUE(c.definition, '$.{fact}') FROM roost_catalog c\n"
            f"    WHERE c.name = {self.dialect.literal(self.name)} LOCK IN SHARE MODE"
        )
        return f"SET {self[fact]} = COALESCE(({found}), {value})"

    def _store_time(self) -> list[str]:
        # With a timeout of 0, as a call has that waits for nobody, MariaDB's SKIP LOCKED rolls back the transaction.
        skips = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR " if self.dialect.name == "mariadb" else ""
        now, clock, latest, ahead, row = map(self.__getitem__, ("now", "clock", "latest", "ahead", "clock_row"))
        return [
            f"SELECT t.latest, t.ahead INTO {latest}, {ahead} FROM {self.times} t WHERE t.id = 0",
            f"SET {clock} = {self.clock}",  # after it: who is held up between them does not take it for a jump back
            f"SET {now} = GREATEST({clock} + COALESCE({ahead}, 0), COALESCE({latest}, 0))",
            f"IF ABS({clock} + {ahead} - {latest}) >= {SECOND} THEN\n"
            f"    {skips}SELECT id INTO {row} FROM {self.times}\n"
            f"      WHERE id = 0 AND latest = {latest} AND ahead = {ahead} FOR UPDATE SKIP LOCKED;\n"
            f"    IF {row} IS NOT NULL THEN\n"
            f"      UPDATE {self.times} FORCE INDEX (PRIMARY) SET latest = {now},\n"
            f"        ahead = IF({now} - ({clock} + {ahead}) >= {SECOND}, {now} - {clock}, {ahead}) WHERE id = 0;\n"
            f"    END IF;\n  END IF",
        ]

    def _lock_head(self, head: steps.Head) -> list[str]:
        values = {**self.values(self.key), **head.first}
        make = self.put(self.head, values, [*values][: len(self.key)])
        lines = [self._if(head.makes, make) if isinstance(head.makes, str) else make] if head.makes else []
        lines += self._read_head(head.columns)
        if head.makes is not True:
            lines.append(self._if(f"{self[head.columns[0].name]} IS NULL", self._leave(["0"])))
        return lines

    def _raise_head(self, step: steps.Next) -> list[str]:
        values = {**self.values(self.key), step.column: "1", **step.first}
        put = self.put(self.head, values, [*values][: len(self.key)], {step.column: f"{step.column} + 1"})
        return [put, *self._read_head(step.remembered)]

    def _read_head(self, remembered: Sequence[Column]) -> list[str]:
        # INTO keeps what a variable had where there is no row; by SET, an interrupted query is NULL on MariaDB.
        columns, variables = [each.name for each in remembered], [self[each.name] for each in remembered]
        source = f"FROM {self.head} WHERE {self.mine()}{self.dialect.for_update}"
        return [f"SET {variables[0]} = NULL", f"SELECT {', '.join(columns)} INTO {', '.join(variables)} {source}"]

    def _give(self, values: Sequence[str]) -> str:
        assigned = [f"`its {each.name}` = {value}" for each, value in zip(self._program.gives, values, strict=False)]
        return f"SET {', '.join(assigned)}"

    def _leave(self, values: Sequence[str]) -> str:
        return f"{self._give(values)}; LEAVE it" if self._program.gives else "LEAVE it"

    def _loop(self, step: steps.Each, _: dict[str, str]) -> str:
        # A block of its own, for the cursor and the handler.
        declared: dict[str, str] = {}
        self._declare(declared, *step.columns)
        lines = self._lines(step.steps, declared)
        into = ", ".join(self[each.name] for each in step.columns)
        work = [
            *declared.values(),
            "DECLARE `at end` BOOLEAN DEFAULT FALSE",
            f"DECLARE `its rows` CURSOR FOR {step.select}",
            "DECLARE CONTINUE HANDLER FOR NOT FOUND SET `at end` = TRUE",
            "OPEN `its rows`",
            f"`the loop`: LOOP\n      FETCH `its rows` INTO {into};\n"
            f"      IF `at end` THEN LEAVE `the loop`; END IF;\n      "
            + "".join(f"{line};\n      " for line in lines)
            + "SET `at end` = FALSE;\n    END LOOP",
            "CLOSE `its rows`",
        ]
        return "BEGIN\n" + "".join(f"    {line};\n" for line in work) + "  END"


def in_json(rows: Sequence[Row]) -> str:
    """Return rows as a set form of MariaDB's and MySQL's is given them."""
    return json.dumps(rows, default=_json_value, ensure_ascii=False)


def _json_value(value: Any) -> str:
    match value:
        case bytes():
            return value.hex()
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
    raise TypeError(f"{value!r} is no value of MariaDB's")


@lru_cache(1000)
def calling(call: str, first: int, width: int) -> Template:
    """Return the template of a call whose outcome, is in so many numbered variables from there on."""
    return Template(call.format(result="".join(f", @roost_{place}" for place in range(first, first + width))))


@lru_cache(64)
def results(number: int) -> Template:
    """Return the template of the query for so many of these variables."""
    return Template(f"SELECT {', '.join(f'@roost_{place}' for place in range(number))}", answer=Answer.ORDINAL)
