"""Set: look up the pairs that a run names, play it in Python, write its net effect and the new sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from roost.dialects.dialect import Control, Dialect, Row, Statement
from roost.plans.plan import Context, N, Operations, Plan, StructurePlan, each, same, unsupported, write
from roost.structures.sets import Set


class SetPlan(StructurePlan):
    """A set in one dialect's words."""

    structure: Set[Any, Any]
    together: ClassVar[Mapping[str, str]] = {"add": "change", "remove": "change"}

    def __init__(self, structure: Set[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        if dialect.name != "sqlite":
            raise unsupported(structure, dialect)
        key, member = structure.key.columns, structure.member.columns
        rows, head = self.rows_table, self.head_table
        keys, pairs = dialect.names(key), dialect.names((*key, *member))
        equal, equal_pair = dialect.equal(key), dialect.equal((*key, *member))
        self.tables = (
            self.create(head, [*key, N], keys),
            self.create(rows, [*key, *member], pairs),
        )
        self.find = each(f"SELECT 1 FROM {rows} WHERE {equal_pair}")
        self.put = write(f"INSERT INTO {rows} ({pairs}) VALUES ({dialect.holes(len(key) + len(member))})")
        self.cut = write(f"DELETE FROM {rows} WHERE {equal_pair}")
        self.resize = write(
            f"INSERT INTO {head} ({keys}, n) VALUES ({dialect.holes(len(key) + 1)})\n"
            f"  ON CONFLICT ({keys}) DO UPDATE SET n = n + excluded.n"
        )
        self.head = each(f"SELECT n FROM {head} WHERE {equal}")
        self.all = each(f"SELECT {dialect.names(member)} FROM {rows} WHERE {equal}")
        self.delete = write(f"DELETE FROM {rows} WHERE {equal}")
        self.empty = write(f"UPDATE {head} SET n = 0 WHERE {equal}")
        self.drop = write(f"DELETE FROM {head} WHERE {equal}")
        self.first_keys, self.later_keys = self.key_after(head)
        self.member_out: Callable[[Row], Row] = dialect.encoder(member) or same
        self._member_in: Callable[[Row], Row] = dialect.decoder(member) or same

    def plan_change(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Play adds and removes in Python, in their order, and write what remains of them."""
        requests = [
            (op.verb == "add", self.key_out(op.args[0]), [self.member_out(member) for member in op.args[1]])
            for op in run
        ]
        pairs = sorted({(key, member) for _, key, members in requests for member in members})
        found = yield Statement(self.find, [key + member for key, member in pairs])
        if not locked:
            yield Control.LOCKED
        before = {pair: bool(rows) for pair, rows in zip(pairs, found, strict=True)}
        now = dict(before)
        sizes: dict[Row, int] = {}
        results = []
        for adds, key, members in requests:
            changed = 0
            for member in members:
                if now[key, member] is not adds:
                    now[key, member] = adds
                    changed += 1
            if changed:
                sizes[key] = sizes.get(key, 0) + (changed if adds else -changed)
            results.append(changed)
        new = [key + member for (key, member), there in now.items() if there and not before[key, member]]
        gone = [key + member for (key, member), there in now.items() if not there and before[key, member]]
        if new:
            yield Statement(self.put, new)
        if gone:
            yield Statement(self.cut, gone)
        if sizes:
            yield Statement(self.resize, [(*key, change) for key, change in sorted(sizes.items())])
        return results

    def plan_members(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read all members."""
        found = yield Statement(self.all, [self.key_out(op.args[0]) for op in run])
        value, convert = self.structure.member.value, self._member_in
        return [{value(convert(row)) for row in rows} for rows in found]

    def plan_contains(self, run: Operations, _: Context, __: bool) -> Plan:
        """Look up pairs."""
        asked = [self.key_out(op.args[0]) + self.member_out(op.args[1]) for op in run]
        found = yield Statement(self.find, asked)
        return [bool(rows) for rows in found]

    def plan_size(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read the heads."""
        found = yield Statement(self.head, [self.key_out(op.args[0]) for op in run])
        return [rows[0][0] if rows else 0 for rows in found]

    def plan_clear(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Remove all members; the head stays."""
        return (yield from self.remove_keys(run, locked, self.delete, self.empty))

    def plan_forget(self, run: Operations, _: Context, locked: bool) -> Plan:
        """Remove all members and the head."""
        return (yield from self.remove_keys(run, locked, self.delete, self.drop))
