"""Operations as a plain SQL client does them: statements on the view, as the documentation says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import roost
from roost.structures.operation import RUNS

# What a view says when it refuses a row, and what the library raises then.
REFUSALS = {"is there already": roost.Duplicate, "is full": roost.Full, "64 bits": roost.Overflow}


def run(connection: sqlite3.Connection, operation: Any) -> Any:
    """Do an operation in the connection's transaction and return its answer; NotImplemented where no SQL does it."""
    if operation.verb in RUNS:
        return NotImplemented
    try:
        return _WAYS[operation.structure.kind](connection, operation)
    except sqlite3.IntegrityError as error:
        for message, kind in REFUSALS.items():
            if message in str(error):
                raise kind(str(error)) from error
        raise


def _counter(connection: sqlite3.Connection, operation: Any) -> Any:
    name = operation.structure.name
    match operation.verb, operation.args:
        case "add", ((key,), n):
            connection.execute(f"INSERT INTO {name} (key, total) VALUES (?, ?)", (key, n))
            return None
        case "total", ((key,),):
            return _one(connection, f"SELECT coalesce(sum(total), 0) FROM {name} WHERE key = ?", key)
        case "totals", (keys,):
            marks = ", ".join("?" * len(keys))
            found = connection.execute(f"SELECT * FROM {name} WHERE key IN ({marks})", [key for (key,) in keys])
            return {key: 0 for (key,) in keys} | dict(found)
        case "clear", ((key,),):
            total = _one(connection, f"SELECT coalesce(sum(total), 0) FROM {name} WHERE key = ?", key)
            connection.execute(f"DELETE FROM {name} WHERE key = ?", (key,))
            return total
    return NotImplemented


def _windowed(connection: sqlite3.Connection, operation: Any) -> Any:
    if operation.verb not in ("add", "total", "clear"):
        return NotImplemented
    args = operation.args[:1] if operation.verb == "total" else operation.args
    return _counter(connection, roost.Operation(operation.structure, operation.verb, args))


def _rows(connection: sqlite3.Connection, operation: Any) -> Any:
    structure, name = operation.structure, operation.structure.name
    columns = ", ".join(each.name for each in structure.columns)
    if operation.verb in ("push", "add"):
        values = operation.args[0]
        last = f"SELECT sequence FROM roost_{name}_head WHERE uid = {values[0]}"
        before = connection.execute(last).fetchall()
        connection.execute(f"INSERT INTO {name} ({columns}) VALUES (?, ?, ?)", values)
        if getattr(structure, "score", None):
            return connection.execute(last).fetchall() != before
        newest = f"SELECT sequence FROM {name} WHERE uid = ? LIMIT 1"
        return _one(connection, newest, values[0]) if operation.verb == "push" else None
    if operation.verb in ("keys", "forget"):
        return NotImplemented
    (key,) = operation.args[0]
    match operation.verb, operation.args[1:]:
        case "remove", ((id_,),):
            there = _one(connection, f"SELECT count(*) FROM {name} WHERE uid = ? AND visitor = ?", key, id_)
            connection.execute(f"DELETE FROM {name} WHERE visitor = ? AND uid = ?", (id_, key))
            return bool(there)
        case "get", ((id_,),):
            found = connection.execute(f"SELECT {columns} FROM {name} WHERE uid = ? AND visitor = ?", (key, id_))
            return next((structure.rows.make(row) for row in found), None)
        case "count", ():
            return _one(connection, f"SELECT count(*) FROM {name} WHERE uid = ?", key)
        case "top", (n,):
            some = f"SELECT {columns} FROM {name} WHERE uid = ? LIMIT ?"
            return [structure.rows.make(row) for row in connection.execute(some, (key, -1 if n is None else n))]
        case "latest", _ if getattr(structure, "score", None):
            return NotImplemented
        case "latest", (n,):
            some = f"SELECT {columns} FROM {name} WHERE uid = ? LIMIT ?"
            return [structure.rows.make(row) for row in connection.execute(some, (key, -1 if n is None else n))]
        case "entries", (after, n):
            sql = f"SELECT sequence, {columns} FROM {name} WHERE uid = ? AND sequence > ? ORDER BY sequence LIMIT ?"
            found = connection.execute(sql, (key, after, -1 if n is None else n))
            return [(sequence, structure.rows.make(row)) for sequence, *row in found]
        case "clear", ():
            there = _one(connection, f"SELECT count(*) FROM {name} WHERE uid = ?", key)
            connection.execute(f"DELETE FROM {name} WHERE uid = ?", (key,))
            return there
    return NotImplemented


def _set(connection: sqlite3.Connection, operation: Any) -> Any:
    name = operation.structure.name
    if operation.verb in ("keys", "forget"):
        return NotImplemented
    (key,) = operation.args[0]
    size = f"SELECT count(*) FROM {name} WHERE key = ?"
    before = _one(connection, size, key)
    match operation.verb, operation.args[1:]:
        case "add", _ if operation.structure.keep:
            return NotImplemented
        case "add", (added,):
            if added:
                marks = ", ".join(["(?, ?)"] * len(added))
                values = [value for (member,) in added for value in (key, member)]
                connection.execute(f"INSERT INTO {name} (key, member) VALUES {marks}", values)
            return _one(connection, size, key) - before
        case "remove", (removed,):
            marks = ", ".join("?" * len(removed))
            members = [member for (member,) in removed]
            connection.execute(f"DELETE FROM {name} WHERE key = ? AND member IN ({marks})", (key, *members))
            return before - _one(connection, size, key)
        case "members", ():
            return {member for (member,) in connection.execute(f"SELECT member FROM {name} WHERE key = ?", (key,))}
        case "contains", ((member,),):
            return bool(_one(connection, f"{size} AND member = ?", key, member))
        case "clear", ():
            connection.execute(f"DELETE FROM {name} WHERE key = ?", (key,))
    return before


def _one(connection: sqlite3.Connection, sql: str, *values: Any) -> Any:
    return connection.execute(sql, values).fetchone()[0]


_WAYS: dict[str, Callable[[sqlite3.Connection, Any], Any]] = {
    "counter": lambda connection, op: (_windowed if op.structure.window else _counter)(connection, op),
    "ring": _rows,
    "capped": _rows,
    "set": _set,
}
