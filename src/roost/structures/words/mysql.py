"""MariaDB's and MySQL's words: a routine is a procedure, with its result as the last parameter (OUT).

Under autocommit each of its statements would be a transaction, so it is called inside of one: by the library, by the
trigger of an inlet, or by the procedure for SQL clients, which begins one where there is none.
A procedure keeps the sql_mode under which it was made, so a value that its parameter's type cannot hold is refused.
Variables and parameters have a blank in their names, which no column has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roost.dialects.dialect import Dialect
from roost.structures.clock import TRIGGER_CLOCK
from roost.structures.steps import Count, Do, Give, Let, Program, Routine, Take
from roost.structures.words.words import Words, digest
from roost.types.columns import Column

MARK = "a program, made by Roost"  # in the comment of a procedure: without, it is somebody else's
HEXADECIMAL = ("binary", "uuid")  # kinds of values that JSON has in hexadecimal


class MySQLWords(Words):
    """One structure in MariaDB's and MySQL's words."""

    now = TRIGGER_CLOCK  # whoever calls it cannot set it

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._given: Sequence[Column] = ()
        self._many = False

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
        return f"ON DUPLICATE KEY UPDATE {assigned or f'{key[0]} = {key[0]}'}"

    @property
    def source(self) -> str:
        """The given rows, as FROM has them."""
        columns = ", ".join(
            f"`{each.name}` {self._in_json(each)} PATH '$[{place}]'" for place, each in enumerate(self._given)
        )
        return f"JSON_TABLE(`new rows`, '$[*]' COLUMNS ({columns})) q"

    def _in_json(self, column: Column) -> str:
        limit = column.type.limit or 0
        if column.type.kind == "uuid":
            return "CHAR(32) CHARACTER SET ascii"
        if column.type.kind == "binary":
            return f"VARCHAR({2 * limit}) CHARACTER SET ascii" if limit <= 8000 else "LONGTEXT"
        return self.type_of(column)

    def routine(self, program: Program) -> Routine:
        """Return the procedure."""
        self._given, self._many = program.given, program.many
        name, declared, lines = self.routine_name(program), [], []
        for step in program.steps(self):
            match step:
                case Let(variable, type_, value, locking):
                    declared.append(f"DECLARE `the {variable}` {self.type_of(Column(variable, type_))}")
                    # A plain read may have an old snapshot, and no variable tells the transaction's isolation level.
                    lock = self.dialect.for_update if locking else ""
                    lines.append(f"SELECT ({value}{lock}) INTO `the {variable}`")
                case Do(sql, when):
                    lines.append(f"IF {when} THEN {sql}; END IF" if when else sql)
                case Count(variable):
                    declared.append(f"DECLARE `the {variable}` BIGINT")
                    lines.append(f"SET `the {variable}` = ROW_COUNT()")
                case Take(variable, table, where, value):
                    declared.append(f"DECLARE `the {variable}` DECIMAL(65)")
                    lines += [
                        f"SELECT {value} INTO `the {variable}` FROM {table} WHERE {where}{self.dialect.for_update}",
                        f"DELETE FROM {table} WHERE {where}",
                    ]
                case Give(value):
                    lines.append(f"SET `the result` = {value}")
        parameters = "`new rows` LONGTEXT CHARACTER SET utf8mb4"
        if not program.many:
            parameters = ", ".join(f"IN `new {each.name}` {self.type_of(each)}" for each in program.given)
        if program.gives is not None:
            parameters += f", OUT `the result` {self.type_of(Column('result', program.gives))}"
        body = "BEGIN\n" + "".join(f"  {line};\n" for line in [*declared, *lines]) + "END"
        comment = f"{MARK}: {digest(parameters + body)}"
        drop = f"DROP PROCEDURE IF EXISTS `{name}`"
        replace = self.dialect.name == "mariadb"
        make = (
            f"CREATE {'OR REPLACE ' if replace else ''}PROCEDURE `{name}` ({parameters})\n"
            f"  MODIFIES SQL DATA COMMENT '{comment}'\n{body}"
        )
        return Routine(name, (*(() if replace else (drop,)), make), (drop,), comment)

    def routine_name(self, program: Program) -> str:
        """Return the name of a program's procedure."""
        return f"roost_{self.name}_{program.verb}"
