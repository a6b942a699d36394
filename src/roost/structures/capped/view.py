"""Capped as a SQL view: what plain SQL clients see, and the effect of their statements."""

from __future__ import annotations

from roost.structures.capped.declaration import Capped
from roost.structures.plan import AT, SEQUENCE, StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.structures.views.lasting import Ends


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Capped)
    words, structure, now = sqlite.ViewWords(plan), plan.structure, sqlite.NOW
    rows, head, key, keep = words.rows, words.head, words.dialect.names(words.key), structure.keep
    ids = structure.id.columns
    others = [each for each in sqlite.others_of(structure, words.key) if each not in ids]
    ends = Ends(plan, ())
    columns = ", ".join(
        [
            key,
            words.dialect.names(ids),
            *([words.dialect.names(others)] if others else []),
            f"sequence, at{ends.column}",
        ]
    )
    values = "".join(f", {words.new(each)}" for each in others)
    refreshes, rejects = structure.on_duplicate == "refresh", structure.on_full == "reject"
    there = f"EXISTS (SELECT 1 FROM {rows} WHERE {words.is_new([*words.key, *ids])})"
    mine = words.is_new(words.key)
    count = f"(SELECT count(*) FROM {rows} WHERE {mine})"
    is_full = f"(SELECT n FROM {head} WHERE {mine}) >= {keep}"
    more = f"NOT {there}" if refreshes else "1"
    cases = [words.own, *words.rules(structure.columns)]
    if not refreshes:
        cases.append((there, f": {' and '.join(each.name for each in ids)} is there already"))
    if rejects:  # the count may be too high: somebody has emptied the table
        absent = f" AND NOT {there}" if refreshes else ""
        cases.append((f"{is_full}{absent} AND {count} >= {keep}", f": the collection is full; keep is {keep}"))
    insert = [words.refuse(*cases)]
    if ends.lasts:
        over = f"{mine} AND until <= {ends.now}"
        insert = [
            f"UPDATE {head} SET n = n - (SELECT count(*) FROM {rows} WHERE {over}) WHERE {mine}",
            f"DELETE FROM {rows} WHERE {over}",
            *insert,
        ]
    if rejects:
        insert.append(
            f"UPDATE {head} SET n = {count} WHERE {mine} AND n >= {keep}" + (f" AND NOT {there}" if refreshes else "")
        )
    insert += [
        f"INSERT INTO {head} ({key}, sequence, n) VALUES ({words.news(words.key)}, 1, 1)\n"
        f"    ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + 1, n = n + {more}",
        f"INSERT INTO {rows} ({columns})\n"
        f"    VALUES ({words.news([*words.key, *ids])}{values}, (SELECT sequence FROM {head} WHERE {mine}),"
        f" {now}{ends.value})\n"
        f"    ON CONFLICT ({key}, {words.dialect.names(ids)}) DO UPDATE SET "
        + ", ".join(
            [
                *(words.excluded([each]) for each in others),
                f"sequence = excluded.sequence, at = excluded.at{ends.excluded}",
            ]
        ),
    ]
    if not rejects:
        # The guard: the newest `keep` sequences never go, whatever the count says. Where it demanded more than went, it
        # was wrong, and is counted anew.
        insert += [
            f"DELETE FROM {rows} WHERE {mine} AND sequence <= (SELECT sequence FROM {head} WHERE {mine}) - {keep}\n"
            f"    AND sequence <= (SELECT sequence FROM {rows} WHERE {mine} ORDER BY sequence\n"
            f"    LIMIT (SELECT n > {keep} FROM {head} WHERE {mine})\n"
            f"    OFFSET (SELECT n - {keep} - 1 FROM {head} WHERE {mine}))",
            f"UPDATE {head} SET n = CASE WHEN changes() = n - {keep} THEN {keep} ELSE {count} END\n"
            f"    WHERE {mine} AND n > {keep}",
        ]
    place = words.is_old([*words.key, *ids])
    shown = ", ".join(
        words.shown([each]) if each in others else words.dialect.names([each]) for each in structure.columns
    )
    return sqlite.Made(
        view=(
            f"SELECT {shown}, sequence, at FROM {rows}{ends.where}\n"
            f"  ORDER BY {', '.join(f'{sqlite.quoted(each.name)} DESC' for each in words.key)}, sequence DESC"
        ),
        insert=insert,
        update=[
            words.refuse(sqlite.fixed_row(words, [*words.key, *ids]), *words.changes(others)),
            *words.change(others, place),
        ],
        delete=[
            f"DELETE FROM {rows} WHERE {place}",
            f"UPDATE {head} SET n = n - changes() WHERE {words.is_old(words.key)}",
        ],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    assert isinstance(plan.structure, Capped)
    structure = plan.structure
    key, ids = structure.key.columns, structure.id.columns
    others = [each for each in structure.columns if each not in key and each not in ids]
    refreshes, rejects = structure.on_duplicate == "refresh", structure.on_full == "reject"
    ends = Ends(plan, ())

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        mine = words.is_new(key, "r.")
        recount = [
            f"SELECT COUNT(*) INTO `the count` FROM {words.rows} r WHERE {mine} FOR UPDATE",
            f"UPDATE {words.head} h SET h.n = `the count` WHERE {words.is_new(key, 'h.')}",
        ]
        over = f"{words.is_new(key, f'{words.rows}.')} AND until <= `the now`"
        columns = [*key, *ids, *others]
        put = (
            f"INSERT INTO {words.rows} ({words.names([*columns, SEQUENCE, AT])}{ends.column})\n"
            f"    VALUES ({words.news(columns)}, `the sequence`, UTC_TIMESTAMP(6){ends.value})"
        )
        there = f"{words.name}: {' and '.join(each.name for each in ids)} is there already"
        declared = ["DECLARE `the sequence`, `the count`, `the keep`, `too many` BIGINT", *ends.declared]
        if rejects:
            declared.append(f"DECLARE `too full` VARCHAR({mariadb.MESSAGE})")
        if refreshes:  # ROW_COUNT() does not tell an upsert's insert from its update inside a trigger
            declared += ["DECLARE `is new` BOOLEAN DEFAULT TRUE", mariadb.KNOWN]
            changed = "".join(f", r.`{each.name}` = `new {each.name}`" for each in others)
            changed += f", r.until = {ends.until}" if ends.lasts else ""
            written = [
                put,
                "IF NOT `is new` THEN\n"
                f"    UPDATE {words.rows} r SET r.sequence = `the sequence`, r.at = UTC_TIMESTAMP(6){changed}\n"
                f"      WHERE {words.is_new([*key, *ids], 'r.')};\n"
                f"    UPDATE {words.head} h SET h.n = h.n - 1 WHERE {words.is_new(key, 'h.')};\n"
                "    SET `the count` = `the count` - 1;\n  END IF",
            ]
        else:
            declared.append(f"DECLARE EXIT HANDLER FOR {mariadb.DUPLICATE} {words.signal(there, mariadb.DUPLICATE)}")
            written = [put]
        counted = "".join(f"    {each};\n" for each in recount)
        refused = plan.dialect.literal(f"{words.name}: the collection is full; keep is ")
        full = f"SET `too full` = CONCAT({refused}, `the keep`); {words.signal('`too full`')}"
        if rejects:  # counted after the row is there: the gaps that are locked then hold nobody up who holds another
            written += [
                f"IF `the count` > `the keep` THEN\n{counted}    IF `the count` > `the keep` THEN {full}; END IF;\n"
                "  END IF"
            ]
        else:
            # The guard: the newest `keep` sequences never go, whatever the count says. Where it demanded more than
            # went, it was wrong, and is counted anew.
            written += [
                "SET `too many` = `the count` - `the keep`",
                "IF `too many` > 0 THEN\n"
                f"    DELETE FROM {words.rows} WHERE {words.is_new(key, f'{words.rows}.')}\n"
                f"      AND sequence <= `the sequence` - `the keep` ORDER BY sequence LIMIT `too many`;\n"
                f"    IF ROW_COUNT() < `too many` THEN\n{counted}    END IF;\n  END IF",
            ]
        return words.door(
            columns,
            declared,
            [
                words.option("keep"),
                f"INSERT INTO {words.head} ({words.names(key)}, sequence, n) VALUES ({words.news(key)}, 1, 1)\n"
                "    ON DUPLICATE KEY UPDATE sequence = sequence + 1, n = n + 1",
                *ends.read,
                *([f"DELETE FROM {words.rows} WHERE {over}"] if ends.lasts else []),  # a trigger counts them
                f"SELECT h.sequence, h.n INTO `the sequence`, `the count` FROM {words.head} h\n"
                f"    WHERE {words.is_new(key, 'h.')} FOR UPDATE",
                *written,
            ],
        )

    return mariadb.Made(
        mariadb.shown(plan, [*structure.columns, SEQUENCE, AT], ends.where), add, mariadb.removing(key, ids), True
    )


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Capped)
    words, structure = postgresql.ViewWords(plan), plan.structure
    rows, head, key, keep = words.rows, words.head, words.names(words.key), structure.keep
    ids = structure.id.columns
    others = [each for each in structure.columns if each not in words.key and each not in ids]
    written = [*others, SEQUENCE, AT]
    mine, this = words.equal(words.key), words.equal([*words.key, *ids])
    count = f"SELECT count(*) INTO it.n FROM {rows} WHERE {mine};"
    look = f"SELECT sequence, n INTO it.last, it.n FROM {head} WHERE {mine}"
    ends = Ends(plan, ())
    insert = [
        words.refuse(words.own, *words.rules(structure.columns)),
        *words.normal(structure.columns),
        f"{look} FOR UPDATE;",
        "IF NOT FOUND THEN\n"
        f"  INSERT INTO {head} ({key}, sequence, n) VALUES ({words.values(words.key)}, 0, 0)\n"
        f"    ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false;\n"
        f"  {look};\nEND IF;",
        "NEW.sequence := it.last + 1;",
        "NEW.at := clock_timestamp();",
        *ends.read,
    ]
    if ends.lasts:
        insert += [
            f"DELETE FROM {rows} WHERE {mine} AND until <= it.now;",
            "GET DIAGNOSTICS it.gone = ROW_COUNT;",
            f"IF it.gone > 0 THEN\n  it.n := it.n - it.gone;\n  UPDATE {head} SET n = it.n WHERE {mine};\nEND IF;",
        ]
    if structure.on_duplicate == "refresh":
        insert += [
            f"UPDATE {rows} SET ({words.names(written)}{ends.column})\n"
            f"  = ROW({words.values(written)}{ends.value}) WHERE {this};"
            if ends.lasts
            else f"UPDATE {rows} SET ({words.names(written)}) = ROW({words.values(written)}) WHERE {this};",
            f"IF FOUND THEN\n  UPDATE {head} SET sequence = NEW.sequence WHERE {mine};\n  RETURN NEW;\nEND IF;",
        ]
    else:
        there = words.stop("23505", f": {' and '.join(each.name for each in ids)} is there already")
        insert += [f"PERFORM 1 FROM {rows} WHERE {this};", f"IF FOUND THEN\n  {there}\nEND IF;"]
    if structure.on_full == "reject":  # the count may be too high: somebody has emptied the table
        full = words.stop("23514", f": the collection is full; keep is {keep}")
        insert.append(f"IF it.n >= {keep} THEN\n  {count}\n  IF it.n >= {keep} THEN\n    {full}\n  END IF;\nEND IF;")
    else:
        # The guard: the newest `keep` sequences never go, whatever the count says. Where it demanded more than went, it
        # was wrong, and is counted anew.
        insert.append(
            f"IF it.n >= {keep} THEN\n"
            f"  DELETE FROM {rows} WHERE {mine} AND sequence <= NEW.sequence - {keep} AND sequence <= (\n"
            f"    SELECT sequence FROM {rows} WHERE {mine} ORDER BY sequence LIMIT 1 OFFSET it.n - {keep});\n"
            f"  GET DIAGNOSTICS it.gone = ROW_COUNT;\n"
            f"  IF it.gone = it.n + 1 - {keep} THEN\n    it.n := {keep} - 1;\n  ELSE\n    {count}\n  END IF;\nEND IF;"
        )
    insert += [
        f"INSERT INTO {rows} ({key}, {words.names([*ids, *written])}{ends.column})\n"
        f"  VALUES ({words.values([*words.key, *ids, *written])}{ends.value});",
        f"UPDATE {head} SET sequence = NEW.sequence, n = it.n + 1 WHERE {mine};",
        "RETURN NEW;",
    ]
    place = f"{words.equal([*words.key, *ids], 'OLD')} AND sequence = OLD.sequence"
    return postgresql.Made(
        view=f"SELECT {words.names([*structure.columns, SEQUENCE, AT])} FROM {rows}{ends.where}",
        insert=insert,
        update=[
            words.refuse(words.fixed_row([*words.key, *ids]), *words.changes(others)),
            *words.change(others, place),
        ],
        delete=[words.refuse(), *postgresql.delete(words, place, others)],
        variables=("last bigint", "n bigint", "gone bigint", *ends.variables),
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
