"""MariaDB's and MySQL's words: a routine is a procedure, with its outcome as the last parameters (OUT).

Under autocommit each of its statements would be a transaction, so it is called inside of one: by the library, by the
trigger of an inlet, or by the procedure for SQL clients, which begins one where there is none.
A procedure keeps the sql_mode under which it was made, so a value that its parameter's type cannot hold is refused.
Variables and parameters have a blank in their names, which no column has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from roost.dialects.dialect import Dialect
from roost.dialects.mariadb_conditions import given_type
from roost.structures import steps
from roost.structures.clock import SECOND, TRIGGER_CLOCK
from roost.structures.steps import Program, Routine, number
from roost.structures.views.mysql import checked, signal, transaction
from roost.structures.words.words import Words, digest
from roost.types.column_types import ColumnType
from roost.types.columns import Column

MARK = "a program, made by Roost"  # in the comment of a procedure: without, it is somebody else's
HEXADECIMAL = ("binary", "uuid")  # kinds of values that JSON has in hexadecimal


class MySQLWords(Words):
    """One structure in MariaDB's and MySQL's words."""

    clock = TRIGGER_CLOCK  # whoever calls it cannot set it
    at = (
        "IF(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6)) BETWEEN 0 AND 3599,\n"
        "    UTC_TIMESTAMP(6), CONVERT_TZ(SYSDATE(6), @@time_zone, '+00:00'))"
    )

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._given: Sequence[Column] = ()
        self._gives: Sequence[Column] = ()
        self._many = False

    @property
    def now(self) -> str:
        """The structure's time, as an expression."""
        return f"COALESCE((SELECT GREATEST({self.clock} + t.ahead, t.latest) FROM {self.times} t), {self.clock})"

    def new(self, name: str) -> str:
        """Return the given value of a column."""
        if not self._many:
            return f"`new {name}`"
        column = next(each for each in self._given if each.name == name)
        return f"UNHEX(q.`{name}`)" if column.type.kind in HEXADECIMAL else f"q.`{name}`"

    def __getitem__(self, name: str) -> str:
        """Return a variable."""
        return f"`the {name}`"

    def proposed(self, name: str) -> str:
        """Return the value that a row of `put` would have had."""
        return f"VALUES({name})"

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        """Return the end of `put`. A row that is there and not to be changed is locked all the same."""
        assigned = ", ".join(f"{name} = {value}" for name, value in change.items())
        return f"ON DUPLICATE KEY UPDATE {assigned or f'{key[0]} = {self.proposed(key[0])}'}"

    @property
    def source(self) -> str:
        """The given rows, as FROM has them; `ord` is a row's number from 1 on."""
        columns = ", ".join(
            f"`{each.name}` {self._in_json(each)} PATH '$[{place}]'" for place, each in enumerate(self._given)
        )
        return f"JSON_TABLE(`new rows`, '$[*]' COLUMNS (ord FOR ORDINALITY, {columns})) q"

    def _in_json(self, column: Column) -> str:
        limit = column.type.limit or 0
        if column.type.kind == "uuid":
            return "CHAR(32) CHARACTER SET ascii"
        if column.type.kind == "binary":
            return f"VARCHAR({2 * limit}) CHARACTER SET ascii" if limit <= 8000 else "LONGTEXT"
        return self.type_of(column)

    def routine(self, program: Program) -> Routine:
        """Return the procedure."""
        self._given, self._gives, self._many = program.given, program.gives, program.many
        name = self.routine_name(program)
        declared: dict[str, str] = {}
        self.refusals: dict[str, int] = {}
        lines = self._lines(program.steps(self), declared)
        parameters = ["`new rows` LONGTEXT CHARACTER SET utf8mb4"]
        if not program.many:
            parameters = [f"IN `new {each.name}` {self.type_of(each)}" for each in program.given]
        parameters += [f"OUT `its {each.name}` {self.type_of(each)}" for each in program.gives]
        body = "it: BEGIN\n" + "".join(f"  {line};\n" for line in [*declared.values(), *lines]) + "END"
        return self._procedure(name, parameters, body)._replace(refusals=self.refusals)

    def _procedure(self, name: str, parameters: Sequence[str], body: str) -> Routine:
        comment = f"{MARK}: {digest(', '.join(parameters) + body)}"
        drop = f"DROP PROCEDURE IF EXISTS `{name}`"
        replace = self.dialect.replaces
        make = (
            f"CREATE {'OR REPLACE ' if replace else ''}PROCEDURE `{name}` ({', '.join(parameters)})\n"
            f"  MODIFIES SQL DATA COMMENT '{comment}'\n{body}"
        )
        return Routine(name, (*(() if replace else (drop,)), make), (drop,), comment)

    def door(self, program: Program) -> Routine | None:
        """Return the procedure for SQL clients: its row is what it selects last."""
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
            lines.append(f"IF {when.format(**words)} THEN {signal(self.dialect, f'{self.name}: {message}')}; END IF")
        passed = [door.passes.get(each.name, f"{{{each.name}}}").format(**words) for each in program.given]
        lines.append(f"CALL {name}({', '.join([*passed, *(f'`its {each.name}`' for each in program.gives)])})")
        lines += [f"SET `as {each.name}` = {value.format(**words)}" for each, value in gives.items()]
        block = "  BEGIN\n" + "".join(f"    {line};\n" for line in [*declared, *lines]) + "  END"
        shown = [f"DECLARE `as {each.name}` {self.type_of(each)}" for each in gives]
        row = ", ".join(f"`as {each.name}` AS `{each.name}`" for each in gives)
        parameters = [f"`given {each.name}` {given_type(self.dialect, each)}" for each in given]
        # Its name is the same whatever the declaration's form: clients know it.
        door_name = f"{self.name}_{program.verb}"
        return self._procedure(door_name, parameters, transaction(block, shown, f"SELECT {row}"))

    def _lines(self, run: Iterable[steps.Step], declared: dict[str, str]) -> list[str]:
        # The statements of steps; `declared` gets those that declare variables, by name.
        lines = []
        for step in run:
            match step:
                case steps.Head(makes=makes):
                    if makes:
                        values = {**self.values(self.key), **step.first}
                        make = self.put(self.head, values, [*values][: len(self.key)])
                        lines.append(f"IF {makes} THEN {make}; END IF" if isinstance(makes, str) else make)
                    lines += self._read_head(step.remembered, declared)
                    if makes is not True:
                        lines.append(f"IF {self[step.columns[0]]} IS NULL THEN {self._leave(['0'])} END IF")
                case steps.Next(column, first):
                    values = {**self.values(self.key), column: "1", **first}
                    lines.append(self.put(self.head, values, [*values][: len(self.key)], {column: f"{column} + 1"}))
                    lines += self._read_head(step.remembered, declared)
                case steps.Now():
                    lines += self._store_time(declared)
                case steps.Fact(fact, value, when):
                    self._declare(number(fact), declared)
                    found = (
                        f"SELECT JSON_VALUE(c.definition, '$.{fact}') FROM roost_catalog c\n"
                        f"    WHERE c.name = {self.dialect.literal(self.name)} LOCK IN SHARE MODE"
                    )
                    look = f"SET {self[fact]} = COALESCE(({found}), {value})"
                    lines.append(f"IF {when} THEN {look}; END IF" if when else look)
                case steps.Let(variable, type_, value, locking):
                    self._declare(Column(variable, type_), declared)
                    # A plain read may have an old snapshot, and no variable tells the transaction's isolation level.
                    # By SET, a query locks what it reads at REPEATABLE READ; by SELECT it does not.
                    if locking:
                        lines.append(f"SET `the {variable}` = ({value}{self.dialect.for_update})")
                    else:
                        lines.append(f"SELECT ({value}) INTO `the {variable}`")
                case steps.Fetch(columns, selected, source, when):
                    for each in columns:
                        self._declare(each, declared)
                    variables = [self[each.name] for each in columns]
                    nothing = ", ".join(f"{name} = NULL" for name in variables)
                    work = f"SET {nothing}; SELECT {', '.join(selected)} INTO {', '.join(variables)} {source}"
                    lines.append(f"IF {when} THEN {work}; END IF" if when else work)
                case steps.Do(sql, when, counts):
                    work = self._by_index(sql)
                    if counts:
                        self._declare(Column(counts, ColumnType("int")), declared)
                        work += f"; SET `the {counts}` = ROW_COUNT()"
                    lines.append(f"IF {when} THEN {work}; END IF" if when else work)
                case steps.Put(table, row, key, new, update):
                    self._declare(Column(new, ColumnType("int")), declared)
                    # Of an upsert that leaves a row as it is, the client's flags say what is counted.
                    if update:
                        lines.append(f"{self.put(table, row, key, update)}; SET {self[new]} = ROW_COUNT() = 1")
                        continue
                    names, given = ", ".join(row), ", ".join(row.values())
                    lines.append(
                        f"SET {self[new]} = 1; BEGIN DECLARE CONTINUE HANDLER FOR 1062 SET {self[new]} = 0;\n"
                        f"    INSERT INTO {table} ({names}) VALUES ({given}); END"
                    )
                case steps.Refuse(when, outcome, message):
                    self.refusals[message] = outcome
                    lines.append(f"IF {when} THEN {self._leave([str(outcome)])} END IF")
                case steps.Leave(when, results):
                    lines.append(f"IF {when} THEN {self._leave(results)} END IF")
                case steps.Take(variable, table, where, value):
                    declared[variable] = f"DECLARE `the {variable}` DECIMAL(65)"
                    lines += [
                        f"SELECT {value} INTO `the {variable}` FROM {table} WHERE {where}{self.dialect.for_update}",
                        self._by_index(f"DELETE FROM {table} WHERE {where}"),
                    ]
                case steps.Each(columns, select, inner):
                    lines.append(self._loop(columns, select, inner))
                case steps.Give(results):
                    lines.append(self._give(results))
        return lines

    def _store_time(self, declared: dict[str, str]) -> list[str]:
        for name in ("clock", "now", "latest", "ahead", "due"):
            self._declare(Column(name, ColumnType("int")), declared)
        now, clock, latest, ahead, due = map(self.__getitem__, ("now", "clock", "latest", "ahead", "due"))
        return [
            f"SET {clock} = {self.clock}",
            f"SELECT t.latest, t.ahead INTO {latest}, {ahead} FROM {self.times} t WHERE t.id = 0",
            f"SET {now} = GREATEST({clock} + COALESCE({ahead}, 0), COALESCE({latest}, 0))",
            f"IF ABS({clock} + {ahead} - {latest}) >= {SECOND} THEN\n"
            f"    SELECT id INTO {due} FROM {self.times} WHERE id = 0 AND latest = {latest} AND ahead = {ahead}\n"
            f"      FOR UPDATE SKIP LOCKED;\n"
            f"    IF {due} IS NOT NULL THEN\n"
            f"      UPDATE {self.times} FORCE INDEX (PRIMARY) SET latest = {now},\n"
            f"        ahead = IF({now} - ({clock} + {ahead}) >= {SECOND}, {now} - {clock}, {ahead}) WHERE id = 0;\n"
            f"    END IF;\n  END IF",
        ]

    def _declare(self, column: Column, declared: dict[str, str]) -> None:
        declared[column.name] = f"DECLARE `the {column.name}` {self.type_of(column)}"

    def _read_head(self, remembered: Sequence[Column], declared: dict[str, str]) -> list[str]:
        for each in remembered:
            self._declare(each, declared)
        columns = [each.name for each in remembered]
        # By SET, which leaves NULL where there is no row; INTO would warn, and keep what the variable had.
        if len(columns) == 1:
            (only,) = columns
            return [f"SET {self[only]} = (SELECT {only} FROM {self.head} WHERE {self.mine()}{self.dialect.for_update})"]
        into = ", ".join(map(self.__getitem__, columns))
        read = f"SELECT {', '.join(columns)} INTO {into} FROM {self.head} WHERE {self.mine()}{self.dialect.for_update}"
        return [f"SET {self[columns[0]]} = NULL", read]

    def _give(self, values: Sequence[str]) -> str:
        return (
            f"SET {', '.join(f'`its {each.name}` = {value}' for each, value in zip(self._gives, values, strict=False))}"
        )

    def _leave(self, values: Sequence[str]) -> str:
        return f"{self._give(values)}; LEAVE it;" if self._gives else "LEAVE it;"

    def _loop(self, columns: Sequence[Column], select: str, run: Iterable[steps.Step]) -> str:
        # A block of its own, for the cursor and the handler.
        declared = {each.name: f"DECLARE `the {each.name}` {self.type_of(each)}" for each in columns}
        lines = self._lines(run, declared)
        into = ", ".join(self[each.name] for each in columns)
        work = [
            *declared.values(),
            "DECLARE `at end` BOOLEAN DEFAULT FALSE",
            f"DECLARE `its rows` CURSOR FOR {select}",
            "DECLARE CONTINUE HANDLER FOR NOT FOUND SET `at end` = TRUE",
            "OPEN `its rows`",
            f"`the loop`: LOOP\n      FETCH `its rows` INTO {into};\n"
            f"      IF `at end` THEN LEAVE `the loop`; END IF;\n      "
            + "".join(f"{line};\n      " for line in lines)
            + "SET `at end` = FALSE;\n    END LOOP",
            "CLOSE `its rows`",
        ]
        return "BEGIN\n" + "".join(f"    {line};\n" for line in work) + "  END"

    def _by_index(self, sql: str) -> str:
        # A table with few rows would be scanned, and all of them locked. A DELETE can name an index only where it names
        # its table twice; there MySQL scans all the same where the table has one row, or where there are many ranges.
        found = re.match(r"(DELETE FROM|UPDATE) (\S+)(?: FORCE INDEX \((\w+)\))?(?=\s+(WHERE|SET)\b)", sql)
        if not found:
            return sql
        verb, table, index = found[1], found[2], found[3] or "PRIMARY"
        begin = f"{verb} {table} FORCE INDEX ({index})"
        if verb == "DELETE FROM":
            begin = f"DELETE {table} FROM {table} FORCE INDEX ({index})"
            if self.dialect.name == "mysql":
                begin = f"DELETE /*+ INDEX({table} {index}) */ FROM {table}"
        return begin + sql[found.end() :]
