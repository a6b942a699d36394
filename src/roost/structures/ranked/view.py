"""Ranked as a SQL view: what plain SQL clients see, and the effect of their statements.

Inserting a row that is not good enough changes nothing and is not an error. An insert into a full key recounts it.
"""

from __future__ import annotations

from roost.structures.plan import AT, SEQUENCE, StructurePlan
from roost.structures.ranked.declaration import Ranked
from roost.structures.views import mariadb, postgresql, sqlite


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Ranked)
    words, structure, now = sqlite.ViewWords(plan), plan.structure, sqlite.NOW
    rows, head, keep = words.rows, words.head, structure.keep
    key, ids = words.dialect.names(words.key), structure.id.columns
    others = [each for each in sqlite.others_of(structure, words.key) if each not in ids]
    written = [*words.key, *ids, *others]
    score, new_score = sqlite.quoted(structure.order), words.new(structure.score)
    mine, this = words.is_new(words.key), words.is_new([*words.key, *ids])
    there = f"EXISTS (SELECT 1 FROM {rows} WHERE {this})"
    worst = f"FROM {rows} WHERE {mine} ORDER BY {score}, sequence DESC LIMIT 1"
    cases = [words.own, *words.rules(structure.columns)]
    if structure.on_duplicate == "error":
        cases.append((there, f": {' and '.join(each.name for each in ids)} is there already"))
    is_full = f"(SELECT count(*) FROM {rows} WHERE {mine}) >= {keep}"
    not_better = f"NOT {there} AND {is_full} AND {new_score} <= (SELECT {score} {worst})"
    if structure.on_duplicate == "best":
        not_better += f"\n    OR {new_score} <= (SELECT {score} FROM {rows} WHERE {this})"
    place = words.is_old([*words.key, *ids])
    shown = ", ".join(
        words.shown([each]) if each in others else words.dialect.names([each]) for each in structure.columns
    )
    return sqlite.Made(
        view=(
            f"SELECT {shown}, sequence, at FROM {rows}\n"
            f"  ORDER BY {', '.join(f'{sqlite.quoted(each.name)} DESC' for each in words.key)}, {score} DESC, sequence"
        ),
        insert=[
            words.refuse(*cases),
            f"SELECT RAISE(IGNORE) WHERE {not_better}",
            f"INSERT INTO {head} ({key}, sequence, n) VALUES ({words.news(words.key)}, 1, 0)\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + 1",
            f"DELETE FROM {rows} WHERE {mine} AND NOT {there} AND {is_full} AND sequence = (SELECT sequence {worst})",
            f"INSERT INTO {rows} ({words.dialect.names(written)}, sequence, at)\n"
            f"    VALUES ({words.news(written)}, (SELECT sequence FROM {head} WHERE {mine}), {now})\n"
            f"    ON CONFLICT ({words.dialect.names([*words.key, *ids])}) DO UPDATE SET "
            f"{words.excluded(others)}, sequence = excluded.sequence, at = excluded.at",
            f"UPDATE {head} SET n = (SELECT count(*) FROM {rows} WHERE {mine}) WHERE {mine}",
        ],
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
    assert isinstance(plan.structure, Ranked)
    structure = plan.structure
    key, ids, score = structure.key.columns, structure.id.columns, structure.order
    others = [each for each in structure.columns if each not in key and each not in ids]

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        mine, this = words.is_new(key, "r."), words.is_new([*key, *ids], "r.")
        columns = [*key, *ids, *others]
        there = f"{words.name}: {' and '.join(each.name for each in ids)} is there already"
        better = "TRUE" if structure.on_duplicate == "refresh" else f"`the worst` < `new {score}`"
        if structure.on_duplicate == "error":
            found = words.signal(there, mariadb.DUPLICATE)
        else:
            found = (
                f"SELECT r.`{score}` INTO `the worst` FROM {words.rows} r WHERE {this} FOR UPDATE;\n"
                f"    SET `is kept` = {better}"
            )
        changed = "".join(f", r.`{each.name}` = `new {each.name}`" for each in others)
        return words.door(
            columns,
            [
                "DECLARE `the sequence`, `the count`, `the keep`, `is there` BIGINT",
                "DECLARE `is kept` BOOLEAN DEFAULT TRUE",
                f"DECLARE `the worst` {plan.dialect.types[structure.score.type.kind](structure.score)}",
            ],
            [
                words.option("keep"),
                f"INSERT INTO {words.head} ({words.names(key)}, sequence, n) VALUES ({words.news(key)}, 0, 0)\n"
                "    ON DUPLICATE KEY UPDATE n = n",
                f"SELECT h.sequence + 1, h.n INTO `the sequence`, `the count` FROM {words.head} h\n"
                f"    WHERE {words.is_new(key, 'h.')} FOR UPDATE",
                f"SELECT COUNT(*) INTO `is there` FROM {words.rows} r WHERE {this} FOR UPDATE",
                f"IF `is there` THEN\n    {found};\n"
                "  ELSEIF `the count` >= `the keep` THEN\n"
                f"    SELECT COUNT(*) INTO `the count` FROM {words.rows} r WHERE {mine} FOR UPDATE;\n"
                f"    SELECT r.`{score}` INTO `the worst` FROM {words.rows} r WHERE {mine}\n"
                f"      ORDER BY r.`{score}`, r.sequence DESC LIMIT 1 FOR UPDATE;\n"
                f"    SET `is kept` = `the count` < `the keep` OR `the worst` < `new {score}`;\n"
                "  END IF",
                "IF `is kept` THEN\n"
                "    IF `is there` THEN\n"
                f"      UPDATE {words.rows} r SET r.sequence = `the sequence`, r.at = UTC_TIMESTAMP(6){changed}\n"
                f"        WHERE {this};\n"
                "    ELSE\n"
                "      IF `the count` >= `the keep` THEN\n"
                f"        DELETE FROM {words.rows} WHERE {words.is_new(key, f'{words.rows}.')}\n"
                f"          ORDER BY `{score}`, sequence DESC LIMIT 1;\n"
                "        SET `the count` = `the count` - 1;\n"
                "      END IF;\n"
                f"      INSERT INTO {words.rows} ({words.names([*columns, SEQUENCE, AT])})\n"
                f"        VALUES ({words.news(columns)}, `the sequence`, UTC_TIMESTAMP(6));\n"
                "      SET `the count` = `the count` + 1;\n"
                "    END IF;\n"
                f"    UPDATE {words.head} h SET h.sequence = `the sequence`, h.n = `the count`\n"
                f"      WHERE {words.is_new(key, 'h.')};\n"
                "  END IF",
            ],
        )

    return mariadb.Made(mariadb.shown(plan, [*structure.columns, SEQUENCE, AT]), add, mariadb.removing(key, ids), True)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    assert isinstance(plan.structure, Ranked)
    words, structure = postgresql.ViewWords(plan), plan.structure
    rows, head, key, keep = words.rows, words.head, words.names(words.key), structure.keep
    ids, score = structure.id.columns, postgresql.quoted(structure.order)
    others = [each for each in structure.columns if each not in words.key and each not in ids]
    written = [*others, SEQUENCE, AT]
    mine, this = words.equal(words.key), words.equal([*words.key, *ids])
    look = f"SELECT sequence, n INTO it.last, it.n FROM {head} WHERE {mine}"
    if structure.on_duplicate == "error":
        there = words.stop("23505", f": {' and '.join(each.name for each in ids)} is there already")
        found = [f"PERFORM 1 FROM {rows} WHERE {this};", f"IF FOUND THEN\n  {there}\nEND IF;"]
    else:
        not_better = f"  IF NEW.{score} <= it.worst THEN\n    RETURN NULL;\n  END IF;\n"
        found = [
            f"SELECT {score} INTO it.worst FROM {rows} WHERE {this};",
            "IF FOUND THEN\n"
            + (not_better if structure.on_duplicate == "best" else "")
            + f"  UPDATE {rows} SET ({words.names(written)}) = ROW({words.values(written)}) WHERE {this};\n"
            f"  UPDATE {head} SET sequence = NEW.sequence WHERE {mine};\n  RETURN NEW;\nEND IF;",
        ]
    place = f"{words.equal([*words.key, *ids], 'OLD')} AND sequence = OLD.sequence"
    return postgresql.Made(
        view=f"SELECT {words.names([*structure.columns, SEQUENCE, AT])} FROM {rows}",
        insert=[
            words.refuse(words.own, *words.rules(structure.columns)),
            *words.normal(structure.columns),
            f"{look} FOR UPDATE;",
            "IF NOT FOUND THEN\n"
            f"  INSERT INTO {head} ({key}, sequence, n) VALUES ({words.values(words.key)}, 0, 0)\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false;\n"
            f"  {look};\nEND IF;",
            "NEW.sequence := it.last + 1;",
            "NEW.at := clock_timestamp();",
            *found,
            f"IF it.n >= {keep} THEN\n"
            f"  SELECT count(*) INTO it.n FROM {rows} WHERE {mine};\n"
            f"  IF it.n >= {keep} THEN\n"
            f"    SELECT {score}, sequence INTO it.worst, it.gone FROM {rows} WHERE {mine}\n"
            f"      ORDER BY {score}, sequence DESC LIMIT 1;\n"
            f"    IF NEW.{score} <= it.worst THEN\n      RETURN NULL;\n    END IF;\n"
            f"    DELETE FROM {rows} WHERE {mine} AND sequence = it.gone;\n"
            "    it.n := it.n - 1;\n"
            "  END IF;\nEND IF;",
            f"INSERT INTO {rows} ({key}, {words.names([*ids, *written])})\n"
            f"  VALUES ({words.values([*words.key, *ids, *written])});",
            f"UPDATE {head} SET sequence = NEW.sequence, n = it.n + 1 WHERE {mine};",
            "RETURN NEW;",
        ],
        update=[
            words.refuse(words.fixed_row([*words.key, *ids]), *words.changes(others)),
            *words.change(others, place),
        ],
        delete=[words.refuse(), *postgresql.delete(words, place, others)],
        variables=(
            "last bigint",
            "n bigint",
            "gone bigint",
            f"worst {words.dialect.types[structure.score.type.kind](structure.score)}",
        ),
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
