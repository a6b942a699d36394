"""PostgreSQL's words: a routine is a function in PL/pgSQL, `NAME_VERB`, which returns the result.

Rules for all functions:

- Parameters are named as the columns, for whoever calls by name, and used by their number: a column may have any name.
  For the same reason variables are always qualified with the name of their block.
- They run with the rights of the tables' owner; nobody else has EXECUTE unless it is granted. Their search path is the
  schema in which they were made, and operators have operands of exactly the types for which the system defines them.
- Each statement of a function sees what was committed before it began (READ COMMITTED): what the first one has locked,
  the following ones read as it is then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from roost.dialects.conditions import refused, wanted
from roost.dialects.dialect import Dialect
from roost.structures.steps import Count, Do, Give, Let, Program, Routine, Take
from roost.structures.views.postgresql import given_away, refusing, revoked
from roost.structures.views.view import dollar_tag
from roost.structures.words.words import MARK, Words
from roost.types.columns import Column

# The search path, the owner and the rights of a function. A new one gets no rights from ALTER DEFAULT PRIVILEGES; one
# that is replaced keeps those that were granted, if it has the comment and was the tables' owner's.
BIND = """\
DO $roost$ DECLARE owner name; old name; other regrole; BEGIN
  SELECT pg_get_userbyid(r.relowner) INTO owner FROM pg_class r WHERE r.oid = to_regclass({rows})::oid;
  SELECT pg_get_userbyid(p.proowner) INTO old FROM pg_proc p WHERE p.oid = {literal}::regprocedure::oid;
  EXECUTE format('ALTER FUNCTION {function} SET search_path = %I, pg_temp', current_schema());
  IF old <> owner OR obj_description({literal}::regprocedure::oid, 'pg_proc') IS NULL THEN
{revoked}
  END IF;
  COMMENT ON FUNCTION {function} IS 'a program, made by Roost';
  EXECUTE format('ALTER FUNCTION {function} OWNER TO %I', owner);
END $roost$"""


class PostgreSQLWords(Words):
    """One structure in PostgreSQL's words."""

    now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    def __init__(self, name: str, dialect: Dialect, key: Sequence[Column]) -> None:
        super().__init__(name, dialect, key)
        self._given: list[str] = []
        self._many = False

    def type_of(self, column: Column) -> str:
        """Return a column's type as a parameter has it: without a collation and limits."""
        return re.split(r"\(| COLLATE", super().type_of(column))[0]

    def new(self, name: str) -> str:
        """Return the given value of a column."""
        return f'q."{name}"' if self._many else f"${self._given.index(name) + 1}"

    def __getitem__(self, name: str) -> str:
        """Return a variable."""
        return f"it.{name}"

    @property
    def source(self) -> str:
        """The given rows, as FROM has them."""
        holes = ", ".join(f"${place}" for place in range(1, len(self._given) + 1))
        return f"unnest({holes}) AS q ({', '.join(self.dialect.quoted(each) for each in self._given)})"

    def upsert(self, key: Sequence[str], change: Mapping[str, str]) -> str:
        """Return the end of `put`. A row that is there and not to be changed is locked, without a new version of it."""
        if change:
            return super().upsert(key, change)
        return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {key[-1]} = excluded.{key[-1]} WHERE false"

    def routine(self, program: Program) -> Routine:
        """Return the function."""
        self._given, self._many = [each.name for each in program.given], program.many
        name = self.routine_name(program)
        declared, lines = [], []
        for step in program.steps(self):
            match step:
                case Let(variable, type_, value):
                    declared.append(f"{variable} {self.type_of(Column(variable, type_))}")
                    lines.append(f"it.{variable} := ({value});")
                case Do(sql, when):
                    lines.append(f"IF {when} THEN\n  {sql};\nEND IF;" if when else f"{sql};")
                case Count(variable):
                    declared.append(f"{variable} bigint")
                    lines.append(f"GET DIAGNOSTICS it.{variable} = ROW_COUNT;")
                case Take(variable, table, where, value):
                    declared.append(f"{variable} numeric")
                    lines.append(
                        f"WITH gone AS (DELETE FROM {table} WHERE {where} RETURNING *)\n"
                        f"  SELECT {value} INTO it.{variable} FROM gone;"
                    )
                case Give(value):
                    lines.append(f"RETURN {value};")
        gives = "void" if program.gives is None else self.type_of(Column("result", program.gives))
        array = "[]" if program.many else ""
        parameters = ", ".join(f'"{each.name}" {self.type_of(each)}{array}' for each in program.given)
        block = "\n".join(f"  {line}" for line in "\n".join([*self._guards(program), *lines]).split("\n"))
        head = f"<<it>>\nDECLARE {' '.join(f'{each};' for each in declared)}\n" if declared else ""
        text = f"\n#variable_conflict use_column\n{MARK}\n{head}BEGIN\n{block}\nEND\n"
        tag = dollar_tag(text)
        types = ", ".join(f"{self.type_of(each)}{array}" for each in program.given)
        make = (
            f"CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {gives} LANGUAGE plpgsql SECURITY DEFINER\n"
            f"  AS {tag}{text}{tag}"
        )
        function = f"{name}({types})"
        literal = self.dialect.literal
        bind = BIND.format(
            rows=literal(self.rows), function=function, literal=literal(function), revoked=revoked(function)
        )
        return Routine(name, (make, bind), (f"DROP FUNCTION IF EXISTS {function}",), text)

    def routine_name(self, program: Program) -> str:
        """Return the name of a program's function: SQL clients call the row form, only the library the set form."""
        return f"{'roost_' if program.many else ''}{self.name}_{program.verb}"

    def _guards(self, program: Program) -> list[str]:
        # What is refused before the first step.
        moved = f"{self.name}: its tables were given to another owner; store.create({self.name}) binds it anew"
        guards = [refusing(given_away([self.rows]), "42501", moved)]
        for place, column in enumerate(() if program.many else program.given, 1):
            if condition := refused(self.dialect, column, f"${place}"):
                message = f"{self.name}.{column.name}: it takes {wanted(self.dialect, column)}"
                guards.append(refusing(condition, "23514", message))
        return guards
