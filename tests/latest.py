"""The latest value of each key, as a structure of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from roost import own

K = TypeVar("K")
V = TypeVar("V")


class Latest(own.Structure, Generic[K, V]):
    """The latest value of each key; a key that was never set has none."""

    kind = "latest"

    def __init__(self, name: str, *, key: type[K] | own.ColumnType[K], value: type[V] | own.ColumnType[V]) -> None:
        super().__init__(name, own.Group.declared(name, "key", key))
        self.value: own.Group[V]
        self.value = self.second = own.Group.declared(name, "value", value)
        if len(self.value.columns) != 1 or self.value.names[0] in self.key.names:
            raise own.Invalid(f"{name}: a value is one column, and not one of the key's")
        facts = {"key": own.column_facts(self.key.columns), "value": own.column_facts(self.value.columns)}
        self._define({"name": name, "key": key, "value": value}, **facts)

    def set(self, key: K, value: V) -> own.Operation[None]:
        """Set the value, whatever it was."""
        return own.Operation(self, "set", (self.key.check(key), self.value.check(value)))

    def get(self, key: K) -> own.Operation[V | None]:
        """Read the value; None where there is none."""
        return own.Operation(self, "get", (self.key.check(key),))

    def _record(self, values: Sequence[Any]) -> own.Operation[Any]:
        *key, value = values
        return self.set(self.key.value(key), value)


class LatestPlan(own.ProgramPlan):
    """The programs and reads of a `Latest`: one table, whose rows are their own heads."""

    structure: Latest[Any, Any]

    def made(self) -> Iterator[str]:
        """Yield the statement that makes the table."""
        columns, key = self.structure.columns, self.structure.key.columns
        yield self.create(self.rows_table, columns, self.dialect.names(key))

    def programs(self) -> Iterator[own.Program]:
        """Yield the programs: what keeps the promise, whoever writes."""
        key = self.structure.key.columns
        count = f"SELECT count(*) FROM {self.rows_table} WHERE {self.mine()}"
        yield own.Program("set", self.structure.columns, self._setting)
        yield own.Program("clear", key, self._clearing, [own.number("had")], before=count)
        yield from self.row_locks()

    def _setting(self, w: own.Words) -> Iterator[own.Step]:
        yield own.Do(w.replace(w.rows, w.values(self.structure.columns), [*w.values(w.key)]))

    def _clearing(self, w: own.Words) -> Iterator[own.Step]:
        yield own.Do(f"DELETE FROM {w.rows} WHERE {w.mine()}", counts="had")
        yield own.Give([w["had"]])

    def written(self) -> Mapping[str, own.Write]:
        """Return what the verbs that write call: a program, with these rows."""
        out = self.dialect.encoder(self.structure.columns) or tuple
        clear = own.Write("clear", self.key_of, own.first)
        return {"set": own.Write("set", lambda op: [out(op.args[0] + op.args[1])]), "clear": clear, "forget": clear}

    def asked(self) -> Mapping[str, own.Ask]:
        """Return what the verb that reads asks: one SELECT, from which the form for many keys is made."""
        value, back = self.structure.value, self.dialect.decoder(self.structure.value.columns) or tuple
        sql = f"SELECT {self.dialect.names(value.columns)} FROM {self.rows_table} WHERE {self.mine()}"

        def result(_: own.Operation[Any], rows: list[own.Row]) -> Any:
            return value.value(back(rows[0])) if rows else None

        read = self.read(sql, self.structure.key.columns)
        return {"get": own.Ask(read, lambda op, _: self.key_out(op.args[0]), result)}

    def relation(self) -> own.Relation:
        """Return what SQL clients see, and the program that an INSERT calls."""
        key, value = self.structure.key.columns, self.structure.value.columns
        return own.Relation(self.structure.columns, insert="set", identity=key, changes=value)


class LatestWire(own.Wire):
    """Over HandlerSocket a key has one row."""

    def rows(self, key: tuple[Any, ...], found: Any) -> list[tuple[Any, ...]]:
        """Return the row of a key that has a value."""
        return [] if found is None else [(*key, *self.structure.value.check(found))]


class LatestConsole(own.Console[Latest[Any, Any]]):
    """On the command line, `show` reads the value."""

    shows = "get"


LatestPlan.wire = LatestWire
own.register(Latest, LatestPlan, LatestConsole)
