"""Set as a SQL view: what plain SQL clients see, and the effect of their statements."""

from __future__ import annotations

from roost.structures.plan import N, StructurePlan
from roost.structures.set.declaration import Set
from roost.structures.views import mariadb, postgresql, sqlite


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Set)
    words = sqlite.ViewWords(plan)
    rows, head, key = words.rows, words.head, words.dialect.names(words.key)
    pair = [*words.key, *plan.structure.member.columns]
    return sqlite.Made(
        view=f"SELECT {words.dialect.names(pair)} FROM {rows}",
        insert=[
            words.refuse(*words.rules(pair)),
            f"INSERT INTO {head} ({key}, {sqlite.quoted(N.name)}) SELECT {words.news(words.key)}, 1\n"
            f"    WHERE NOT EXISTS (SELECT 1 FROM {rows} WHERE {words.is_new(pair)})\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET n = n + 1",
            f"INSERT INTO {rows} ({words.dialect.names(pair)}) VALUES ({words.news(pair)}) ON CONFLICT DO NOTHING",
        ],
        update=[words.refuse(("1", ": a member cannot be changed; delete it and insert the other one"))],
        delete=[
            f"DELETE FROM {rows} WHERE {words.is_old(pair)}",
            f"UPDATE {head} SET n = n - changes() WHERE {words.is_old(words.key)}",
        ],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    assert isinstance(plan.structure, Set)
    key, member = plan.structure.key.columns, plan.structure.member.columns

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        return words.door(
            [*key, *member],
            ["DECLARE `is new` BOOLEAN DEFAULT TRUE", mariadb.KNOWN],
            [
                f"INSERT INTO {words.head} ({words.names(key)}, n) VALUES ({words.news(key)}, 0)\n"
                "    ON DUPLICATE KEY UPDATE n = n",
                f"INSERT INTO {words.rows} ({words.names([*key, *member])}) VALUES ({words.news([*key, *member])})",
                f"IF `is new` THEN UPDATE {words.head} h SET h.n = h.n + 1 WHERE {words.is_new(key, 'h.')}; END IF",
            ],
        )

    return mariadb.Made(mariadb.shown(plan, [*key, *member]), add, mariadb.removing(key, member), True)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Set)
    words = postgresql.ViewWords(plan)
    rows, head, key = words.rows, words.head, words.names(words.key)
    pair = [*words.key, *plan.structure.member.columns]
    return postgresql.Made(
        view=f"SELECT {words.names(pair)} FROM {rows}",
        insert=[
            words.refuse(*words.rules(pair)),
            *words.normal(pair),
            f"INSERT INTO {head} ({key}, n) VALUES ({words.values(words.key)}, 0)\n"
            f"  ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false;",
            f"INSERT INTO {rows} ({words.names(pair)}) VALUES ({words.values(pair)}) ON CONFLICT DO NOTHING;",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            f"UPDATE {head} SET n = n + 1 WHERE {words.equal(words.key)};",
            "RETURN NEW;",
        ],
        update=[words.stop("0A000", ": a member cannot be changed; delete it and insert the other one")],
        delete=[words.refuse(), *postgresql.delete(words, words.equal(pair, "OLD"))],
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
