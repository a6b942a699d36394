"""Latest as a SQL view: INSERT sets, whatever was there; UPDATE sets, DELETE forgets."""

from __future__ import annotations

from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from tests.latest.declaration import Latest

KEY_IS_FIXED = "a key cannot be changed; delete it and insert the other one"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Latest)
    words, columns, value = sqlite.ViewWords(plan), plan.structure.columns, plan.structure.value.columns
    rows, names = words.rows, words.dialect.names(columns)
    return sqlite.Made(
        view=f"SELECT {words.dialect.names(words.key)}, {words.shown(value)} FROM {rows}",
        insert=[
            words.refuse(*words.rules(columns)),
            f"INSERT INTO {rows} ({names}) VALUES ({words.news(columns)})\n"
            f"    ON CONFLICT ({words.dialect.names(words.key)}) DO UPDATE SET {words.excluded(value)}",
        ],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes(value)),
            *words.change(value, words.is_old(words.key)),
        ],
        delete=[f"DELETE FROM {rows} WHERE {words.is_old(words.key)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    assert isinstance(plan.structure, Latest)
    key, columns, value = plan.structure.key.columns, plan.structure.columns, plan.structure.value.columns

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        return words.door(
            columns,
            [],
            [
                f"INSERT INTO {words.rows} ({words.names(columns)}) VALUES ({words.news(columns)})\n"
                f"    ON DUPLICATE KEY UPDATE {words.values(value)}"
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        return words.door(key, [], [f"DELETE FROM {words.rows} WHERE {words.is_new(key, f'{words.rows}.')}"])

    return mariadb.Made(mariadb.shown(plan, columns), add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Latest)
    words, columns, value = postgresql.ViewWords(plan), plan.structure.columns, plan.structure.value.columns
    old = words.equal(words.key, "OLD")
    return postgresql.Made(
        view=f"SELECT {words.names(columns)} FROM {words.rows}",
        insert=[
            words.refuse(*words.rules(columns)),
            *words.normal(columns),
            f"INSERT INTO {words.rows} ({words.names(columns)}) VALUES ({words.values(columns)})\n"
            f"  ON CONFLICT ({words.names(words.key)}) DO UPDATE SET {words.excluded(value)};",
            "RETURN NEW;",
        ],
        update=[
            words.refuse(words.fixed(words.key, KEY_IS_FIXED), *words.changes(value)),
            *words.normal(value),
            f"UPDATE {words.rows} SET ({words.names(value)}) = ROW({words.values(value)}) WHERE {old};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN NEW;",
        ],
        delete=[
            words.refuse(),
            f"DELETE FROM {words.rows} WHERE {old};",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
