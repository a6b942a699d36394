"""Steps of a capped collection's add on servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roost.structures.steps import DUPLICATE, INT, Do, Leave, Let, Put, Refuse, Step, number
from roost.structures.words.words import Words
from roost.types.column_types import INT_MAX

if TYPE_CHECKING:
    from roost.structures.capped.plan import CappedPlan

BOUND = number("roost_bound")
FEW = 50  # rows of a key with an order that are counted with each row beyond them


def putting(plan: CappedPlan, w: Words) -> Iterator[Step]:
    """Insert the row, or overwrite the one that is there, and remember what was there as `there`; refuse a duplicate.

    On MariaDB and MySQL before anything is searched: at REPEATABLE READ, where SQL clients are, a search locks gaps,
    also that of a row that is not there, and two who hold the same one, for different keys, could not insert. Only a
    key that seems to be full is searched before: it has rows, so that nobody else waits for its gaps.
    """
    structure, there = plan.structure, w["there"]
    names = [w.dialect.name_of(each) for each in (*structure.key.columns, *structure.id.columns)]
    this = w.mine([*structure.key.columns, *structure.id.columns])
    values = plan.values_of(w, f"{w['sequence']} + 1", w.values(plan.given))
    yield Put(w.rows, values, names, "added")
    found = f"SELECT {'until' if plan.expires else 'sequence'} FROM {w.rows} WHERE {this}{w.dialect.for_update}"
    yield Let("there", INT, f"CASE WHEN {w['added']} = 0 THEN ({found}) END")
    if structure.on_duplicate == "error":
        is_there = f"{there} > {w['now']}" if plan.expires else f"{there} IS NOT NULL"
        yield Refuse(is_there, DUPLICATE, plan.there_already)
    # The row that is there is overwritten; where there is none, an index of somebody else's refuses this one.
    again = plan.put(w, f"{w['sequence']} + 1", w.values(plan.given))
    if plan.expires:
        again = w.replace(w.rows, values, names, "", structure.rows.unknown)
    yield Do(again, when=f"{w['added']} = 0")


def expiring(plan: CappedPlan, w: Words, full: str = "") -> Iterator[Step]:
    """Delete the given key's expired rows, and remember how many are left as `n`.

    They expire in the order of their sequences, so the living ones are the last.

    full: a condition for all of it.
    """
    mine, rows, bound, n = w.mine(), plan.by_index(w, plan.newest), w[BOUND.name], w["n"]
    lock = w.dialect.for_update if w.dialect.family == "mariadb" else ""
    behind, delete, upto = f"{mine} AND sequence > {bound}", f"DELETE FROM {plan.by_index(w, plan.newest)}", ""
    first_living = f"{behind} AND until > {w['now']} ORDER BY sequence LIMIT 1"
    living = f"SELECT sequence FROM {rows} WHERE {first_living}{lock}"
    also = f" AND {full}" if full else ""
    if w.dialect.family == "mariadb":  # a search by a range that finds none locks the first row of another key
        last_until = f"SELECT until FROM {rows} WHERE {mine}{also} ORDER BY sequence DESC LIMIT 1{lock}"
        yield Do(f"SET {w['gone']} = 0")
        yield Let("living", INT, f"CASE WHEN ({last_until}) > {w['now']} THEN ({living}) END")
        upto = f"{w['living']} IS NULL{also}"
        yield Do(f"{delete} WHERE {mine} AND until <= {w['now']}", when=upto, counts="gone")
        upto = f"{w['living']} IS NOT NULL"
    else:
        yield Let("living", INT, f"coalesce(({living}), {INT_MAX})")
    yield Do(f"{delete} WHERE {behind} AND sequence < {w['living']}", when=upto, counts="gone")
    left = f", n = {n} - {w['gone']}" if plan.structure.keep is not None else ""
    yield Do(f"UPDATE {w.head} SET sequence = {w['sequence']}{left} WHERE {w.my_head}", when=f"{w['gone']} > 0")
    yield Let("n", INT, f"{n} - {w['gone']}")


def finding_worst(plan: CappedPlan, w: Words, is_full: str, count: str, lock: str) -> Iterator[Step]:
    """Delete the worst row of a full key, or leave where it is better than the given one.

    No row is protected by its sequence, so the rows are counted again: each time if they are few, else sometimes.
    """
    structure, keep, mine, rows = plan.structure, plan.keep, w.mine(), plan.by_index(w, plan.best)
    assert structure.score is not None
    score, n = w.dialect.name_of(structure.score), w["n"]
    if (structure.keep or 0) <= FEW:  # the last one that has a place, if all places are taken
        worst = f"FROM {rows} WHERE {mine} ORDER BY {score} DESC, sequence LIMIT 1 OFFSET {(structure.keep or 0) - 1}"
    else:
        worst = f"FROM {rows} WHERE {mine} ORDER BY {score}, sequence DESC LIMIT 1"
        due = f"{is_full} AND {w.dialect.modulo.format(w['sequence'], keep)} = 0"
        yield Let("n", INT, f"CASE WHEN {due} THEN {count} ELSE {n} END")
    yield Let("worst", structure.score.type, f"CASE WHEN {is_full} THEN (SELECT {score} {worst}{lock}) END")
    yield Leave(f"{w.new(structure.score.name)} <= {w['worst']}", ["0"])
    yield Let("victim", INT, f"CASE WHEN {w['worst']} IS NOT NULL THEN (SELECT sequence {worst}{lock}) END")
    gone = f"{mine} AND {score} = {w['worst']} AND sequence = {w['victim']}"
    yield Do(f"DELETE FROM {plan.by_index(w, plan.best)} WHERE {gone}", when=f"{w['victim']} IS NOT NULL")
