"""Operations of a declaration that differs from the stored one, while a change is deployed: the stored one is used."""

from __future__ import annotations

from collections.abc import Generator

from roost.dialects.dialect import Statement
from roost.errors import Mismatch
from roost.structures.operation import RUNS, Operation
from roost.structures.plan import Context, Operations, Plan, StructurePlan, each
from roost.structures.rows import RowStructure

WRITING = frozenset(["push", "add", *RUNS])  # verbs whose arguments are rows

# The columns for which a row must have a value.
DEMANDED = {
    "sqlite": 'SELECT name FROM pragma_table_info(?) WHERE "notnull" AND dflt_value IS NULL',
    "mariadb": "SELECT column_name FROM information_schema.columns\n"
    "  WHERE table_schema = DATABASE() AND table_name = %s AND is_nullable = 'NO' AND column_default IS NULL",
    "postgresql": "SELECT attname FROM pg_attribute\n"
    "  WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef",
}


def run_overlapping(plan: StructurePlan, operations: Operations, context: Context) -> Plan:
    """Run operations of another declaration by the plan of the stored one (see `StructurePlan.as_stored`).

    `Mismatch` only if a value would be lost, or if a column needs a value that the operation does not have.
    """
    demanded = yield from _demanded(plan, operations)
    refused = [_refused(plan, op, demanded) for op in operations]
    wanted = [op for op, error in zip(operations, refused, strict=True) if error is None]
    results = iter((yield from plan.run(wanted, context)) if wanted else ())
    return [next(results) if error is None else error for error in refused]


def _demanded(plan: StructurePlan, operations: Operations) -> Generator[Statement, object, str]:
    structure = plan.structure
    if not isinstance(structure, RowStructure) or not any([op.verb in WRITING for op in operations]):
        return ""
    unknown = {column.name for column in structure.rows.unknown if not column.nullable}
    if not unknown:
        return ""
    found: object = yield Statement(each(plan.dialect.choose(DEMANDED)), [(plan.rows_table,)])
    assert isinstance(found, list)
    return ", ".join(sorted(unknown & {name for (name,) in found[0]}))


def _refused(plan: StructurePlan, op: Operation[object], demanded: str) -> Mismatch | None:
    structure = plan.structure
    if not isinstance(structure, RowStructure) or op.verb not in WRITING:
        return None
    if demanded:
        return Mismatch(f"{op!r}: what is stored has {demanded}, without a default; the declaration lacks it")
    for row in op.args:
        if lost := structure.rows.loses(row):
            return Mismatch(
                f"{op!r}: the column {lost} is only in the declaration; store.alter({structure.name}) adds it"
            )
    return None
