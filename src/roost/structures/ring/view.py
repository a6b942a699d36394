"""Ring as a SQL view: what plain SQL clients see, and the effect of their statements."""

from __future__ import annotations

from roost.structures.plan import AT, SEQUENCE, SLOT, StructurePlan
from roost.structures.ring.declaration import Ring
from roost.structures.views import mariadb, postgresql, sqlite
from roost.structures.views.lasting import Ends


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Ring)
    words, keep = sqlite.ViewWords(plan), plan.structure.keep
    rows, head, key = words.rows, words.head, words.dialect.names(words.key)
    others = sqlite.others_of(plan.structure, words.key)
    ends = Ends(plan, [*words.key, SLOT])
    columns = ", ".join([key, f"slot, sequence, at{ends.column}", *([words.dialect.names(others)] if others else [])])
    shown = ", ".join(
        [words.dialect.names(words.key, "h."), "r.sequence, r.at", *([words.shown(others, "r.")] if others else [])]
    )
    # The newest row is in slot `sequence % keep`: the slots up to it are newer than the others, and both are runs of
    # the primary key, so nothing is sorted.
    same = words.same(words.key, "r.", "h.")
    run = (
        f"SELECT * FROM (SELECT {shown}\n"
        f"  FROM {head} h CROSS JOIN {rows} r ON {same} AND r.slot {{}} h.sequence % {keep}{ends.living('r.')}\n"
        f"  ORDER BY {', '.join(f'h.{sqlite.quoted(each.name)} DESC' for each in words.key)}, r.slot DESC)"
    )
    values = "".join(f", {words.new(each)}" for each in others)
    place = f"{words.is_old(words.key)} AND slot = OLD.sequence % {keep} AND sequence = OLD.sequence"
    return sqlite.Made(
        view=f"{run.format('<=')}\nUNION ALL\n{run.format('>')}",
        insert=[
            words.refuse(words.own, *words.rules([*words.key, *others])),
            f"INSERT INTO {head} ({key}, sequence) VALUES ({words.news(words.key)}, 1)\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + 1",
            f"INSERT INTO {rows} ({columns})\n"
            f"    SELECT {key}, sequence % {keep}, sequence, {sqlite.NOW}{ends.value}{values}\n"
            f"    FROM {head} WHERE {words.is_new(words.key)}\n"
            f"    ON CONFLICT ({key}, slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at{ends.excluded}"
            + "".join(f", {words.excluded([each])}" for each in others),
            *ends.sweep,
        ],
        update=[
            words.refuse(
                sqlite.fixed_row(words, words.key),
                *words.changes(others),
            ),
            *words.change(others, place),
        ],
        delete=[f"DELETE FROM {rows} WHERE {place}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    assert isinstance(plan.structure, Ring)
    structure = plan.structure
    key = structure.key.columns
    others = [each for each in structure.columns if each not in key]
    ends = Ends(plan, [*key, SLOT])

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        names = words.names(key)
        sequence = "`the sequence`"
        return words.door(
            [*key, *others],
            [f"DECLARE {sequence}, `the keep` BIGINT", *ends.declared],
            [
                words.option("keep"),
                f"INSERT INTO {words.head} ({names}, sequence) VALUES ({words.news(key)}, 1)\n"
                "    ON DUPLICATE KEY UPDATE sequence = sequence + 1",
                f"SELECT h.sequence INTO {sequence} FROM {words.head} h WHERE {words.is_new(key, 'h.')} FOR UPDATE",
                *ends.read,
                f"INSERT INTO {words.rows} "
                f"({words.names([*key])}, slot, {words.names([SEQUENCE, AT, *others])}{ends.column})\n"
                f"    VALUES ({words.news(key)}, {sequence} % `the keep`, {sequence}, UTC_TIMESTAMP(6)"
                f"{''.join(f', {words.news([each])}' for each in others)}{ends.value})\n"
                f"    ON DUPLICATE KEY UPDATE {words.values([SEQUENCE, AT, *others])}{ends.values}",
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        row = f"{words.is_new([*key, SEQUENCE], f'{words.rows}.')} AND slot = `new sequence` % `the keep`"
        return words.door(
            [*key, SEQUENCE],
            [mariadb.LOCKED, "DECLARE `the keep` BIGINT"],
            [words.option("keep"), words.lock(), f"DELETE FROM {words.rows} WHERE {row}"],
        )

    return mariadb.Made(mariadb.shown(plan, [*key, SEQUENCE, AT, *others], ends.where), add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Ring)
    words, keep = postgresql.ViewWords(plan), f"{plan.structure.keep}::bigint"
    rows, head, key = words.rows, words.head, words.names(words.key)
    others = [each for each in plan.structure.columns if each not in words.key]
    shown, written = [*words.key, SEQUENCE, AT, *others], [SEQUENCE, AT, *others]
    ends = Ends(plan, [*words.key, SLOT])
    place = f"{words.equal(words.key, 'OLD')} AND slot = OLD.sequence % {keep} AND sequence = OLD.sequence"
    return postgresql.Made(
        view=f"SELECT {words.names(shown)} FROM {rows}{ends.where}",
        insert=[
            words.refuse(words.own, *words.rules([*words.key, *others])),
            *words.normal([*words.key, *others]),
            f"INSERT INTO {head} AS h ({key}, sequence) VALUES ({words.values(words.key)}, 1)\n"
            f"  ON CONFLICT ({key}) DO UPDATE SET sequence = h.sequence + 1 RETURNING sequence INTO NEW.sequence;",
            "NEW.at := clock_timestamp();",
            *ends.read,
            f"INSERT INTO {rows} ({key}, slot, {words.names(written)}{ends.column})\n"
            f"  VALUES ({words.values(words.key)}, NEW.sequence % {keep}, {words.values(written)}{ends.value})\n"
            f"  ON CONFLICT ({key}, slot) DO UPDATE SET {words.excluded(written)}{ends.excluded};",
            "RETURN NEW;",
        ],
        update=[words.refuse(words.fixed_row(words.key), *words.changes(others)), *words.change(others, place)],
        delete=[words.refuse(), *words.remove(place, others), "RETURN OLD;"],
        variables=ends.variables,
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
