"""The SQL view of a structure that SQL only reads and deletes from: INSERT and UPDATE fail, and say what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roost.structures.plan import StructurePlan
from roost.structures.views import mysql, postgresql, sqlite
from roost.types.columns import Column

Shown = Callable[[Any], str]  # makes the query of the view
Removing = Callable[[StructurePlan, str], str]  # makes the statement of a DELETE, for the rows that a condition names


def read_only(
    shown: Shown, remove: Removing, instead: str, same: Sequence[Column] = ()
) -> Mapping[str, Callable[[StructurePlan], Any]]:
    """Return what the view is made of, by dialect.

    instead: what an INSERT or UPDATE is refused with.
    same: what tells a key's row from a later one, which a DELETE leaves: on PostgreSQL a client's statement may have
        found a row that is another one by now.
    """

    def on_sqlite(plan: StructurePlan) -> sqlite.Made:
        words = sqlite.ViewWords(plan)
        refuse = [words.refuse(("1", f": {instead}"))]
        delete = [remove(plan, words.is_old(words.key))]
        return sqlite.Made(view=shown(plan), insert=refuse, update=refuse, delete=delete)

    def on_mariadb(plan: StructurePlan) -> mysql.Made:
        key = plan.structure.key.columns

        def add(words: mysql.ViewWords) -> mysql.Door:
            return words.door(key, [], [words.signal(f"{words.name}: {instead}")])

        def out(words: mysql.ViewWords) -> mysql.Door:
            return words.door(key, [], [remove(plan, words.is_new(key, f"{words.rows}."))])

        return mysql.Made(f"SELECT * FROM ({shown(plan)}) {{mark}}", add, out, False)

    def on_postgresql(plan: StructurePlan) -> postgresql.Made:
        words = postgresql.ViewWords(plan)
        refuse = [words.stop("0A000", f": {instead}")]
        return postgresql.Made(
            view=shown(plan),
            insert=refuse,
            update=refuse,
            delete=[
                words.refuse(),
                f"{remove(plan, words.equal([*words.key, *same], 'OLD'))};",
                "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
                "RETURN OLD;",
            ],
        )

    return {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
