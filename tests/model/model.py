"""A dumb model of every structure: what a store must answer, in the simplest Python there is."""

from __future__ import annotations

import copy
from collections import Counter as Totals
from collections import OrderedDict, deque
from typing import Any

import roost
from roost.structures.operation import RUNS

MOST = 2**63 - 1


class Model:
    """Dictionaries, deques and sets. `run_all` answers like a store: a tuple of results, or an error's class."""

    def __init__(self) -> None:
        self.totals: dict[str, Totals[Any]] = {}
        self.adding: dict[str, str] = {}  # by a counter's name, the verb of the last operation of the atom
        self.rings: dict[str, dict[Any, tuple[int, deque[tuple[int, Any]]]]] = {}
        self.collections: dict[str, dict[Any, tuple[int, OrderedDict[Any, tuple[int, Any]]]]] = {}
        self.sets: dict[str, dict[Any, set[Any]]] = {}

    def run_all(self, operations: Any) -> Any:
        """Run an atom: all of it, or nothing and the class of the first error."""
        before = copy.deepcopy(self.__dict__)
        self.adding.clear()
        results = []
        for operation in operations:
            result = self._run(operation)
            if isinstance(result, type):
                self.__dict__ = before
                return result
            results.append(result)
        if any(map(_overflows, self.totals.values())):
            self.__dict__ = before
            return roost.Overflow
        return tuple(results)

    def _run(self, operation: Any) -> Any:
        play = self.ranked if getattr(operation.structure, "score", None) else getattr(self, operation.structure.kind)
        if operation.verb not in RUNS:
            return play(operation)
        results = [play(each) for each in _each(operation)]
        error = next((result for result in results if isinstance(result, type)), None)
        says = operation.structure.kind not in ("counter", "capped") or getattr(operation.structure, "score", None)
        if error is not None or not says:
            return error
        return results

    def counter(self, operation: Any) -> Any:
        totals = self.totals.setdefault(operation.structure.name, Totals())
        before = self.adding.get(operation.structure.name)
        self.adding[operation.structure.name] = operation.verb
        if (operation.verb, before) != ("add", "add") and _overflows(totals):
            return roost.Overflow  # judged on the sum of the adds up to the next other operation, not on each of them
        args = operation.args
        if operation.structure.window and operation.verb in ("total", "totals", "top"):
            args = args[:1]  # no time goes by: its window is longer than any test
        match operation.verb, args:
            case (("add" | "increment"), ((key,), n)):
                totals[key] += n
                return None if operation.verb == "add" else totals[key]
            case "total", ((key,),):
                return totals.get(key, 0)
            case "totals", (keys,):
                return {key: totals.get(key, 0) for (key,) in keys}
            case "top", (n,):
                return sorted(totals.items(), key=lambda item: (-item[1], item[0].encode()))[:n]
            case "keys", (after, n):
                return _page(totals, after, n)
            case (("clear" | "forget"), ((key,),)):
                return totals.pop(key, 0)
        return None

    def ring(self, operation: Any) -> Any:
        ring = operation.structure
        heads = self.rings.setdefault(ring.name, {})
        if operation.verb == "push":
            row = ring.rows.make(operation.args[0])
            sequence, rows = heads.get(row.uid, (0, deque(maxlen=ring.keep)))
            rows.append((sequence + 1, row))
            heads[row.uid] = (sequence + 1, rows)
            return sequence + 1
        if operation.verb == "keys":
            return _page(heads, *operation.args)
        (key,) = operation.args[0]
        sequence, rows = heads.get(key, (0, deque(maxlen=ring.keep)))
        match operation.verb, operation.args[1:]:
            case "latest", (n,):
                return [row for _, row in reversed(rows)][:n]
            case "entries", (after, n):
                return [entry for entry in rows if entry[0] > after][:n]
            case "clear", ():
                if key in heads:
                    heads[key] = (sequence, deque(maxlen=ring.keep))
            case "forget", ():
                heads.pop(key, None)
        return len(rows)

    def _add(self, collection: Any, row: Any) -> Any:
        heads = self.collections.setdefault(collection.name, {})
        sequence, rows = heads.get(row.uid, (0, OrderedDict()))
        if row.visitor in rows:
            if collection.on_duplicate == "error":
                return roost.Duplicate
            del rows[row.visitor]
        elif len(rows) >= collection.keep:
            if collection.on_full == "reject":
                return roost.Full
            rows.popitem(last=False)
        rows[row.visitor] = (sequence + 1, row)
        heads[row.uid] = (sequence + 1, rows)
        return None

    def capped(self, operation: Any) -> Any:
        collection = operation.structure
        heads = self.collections.setdefault(collection.name, {})
        if operation.verb == "add":
            return self._add(collection, collection.rows.make(operation.args[0]))
        if operation.verb == "keys":
            return _page(heads, *operation.args)
        (key,) = operation.args[0]
        sequence, rows = heads.get(key, (0, OrderedDict()))
        match operation.verb, operation.args[1:]:
            case "remove", ((id_,),):
                return rows.pop(id_, None) is not None
            case "get", ((id_,),):
                return rows[id_][1] if id_ in rows else None
            case "count", ():
                return len(rows)
            case "latest", (n,):
                return [row for _, row in reversed(rows.values())][:n]
            case "entries", (after, n):
                return [entry for entry in rows.values() if entry[0] > after][:n]
            case "clear", ():
                if key in heads:
                    heads[key] = (sequence, OrderedDict())
            case "forget", ():
                heads.pop(key, None)
        return len(rows)

    def ranked(self, operation: Any) -> Any:
        collection = operation.structure
        heads = self.collections.setdefault(collection.name, {})
        if operation.verb == "add":
            row = collection.rows.make(operation.args[0])
            sequence, rows = heads.get(row.uid, (0, OrderedDict()))
            there = rows.get(row.visitor)
            if there is not None:
                if collection.on_duplicate == "error":
                    return roost.Duplicate
                if collection.on_duplicate == "best" and row.points <= there[1].points:
                    return False
                del rows[row.visitor]
            elif len(rows) >= collection.keep:
                worst = _best_first(rows)[-1]
                if row.points <= worst[1].points:
                    return False
                del rows[worst[1].visitor]
            rows[row.visitor] = (sequence + 1, row)
            heads[row.uid] = (sequence + 1, rows)
            return True
        if operation.verb in ("top", "rank"):
            _, rows = heads.get(operation.args[0][0], (0, OrderedDict()))
            ranked = [row for _, row in _best_first(rows)]
            if operation.verb == "top":
                return ranked[: operation.args[1]]
            return next((place for place, row in enumerate(ranked, 1) if (row.visitor,) == operation.args[1]), None)
        return self.capped(operation)

    def set(self, operation: Any) -> Any:
        heads = self.sets.setdefault(operation.structure.name, {})
        if operation.verb == "keys":
            return _page(heads, *operation.args)
        (key,) = operation.args[0]
        members = heads.get(key, set())
        match operation.verb, operation.args[1:]:
            case "add", (added,):
                if added:
                    new = {member for (member,) in added}
                    if new - members:
                        heads[key] = members | new
                    return len(new - members)
                return 0
            case "remove", (removed,):
                gone = {member for (member,) in removed} & members
                if gone:
                    heads[key] = members - gone
                return len(gone)
            case "members", ():
                return set(members)
            case "contains", ((member,),):
                return member in members
            case "size", ():
                return len(members)
            case "clear", ():
                if key in heads:
                    heads[key] = set()
            case "forget", ():
                heads.pop(key, None)
        return len(members)


def _each(operation: Any) -> list[Any]:
    # The operations of one row that an operation of many rows stands for.
    structure = operation.structure
    match structure:
        case roost.Counter():
            return [structure.add(key, n) for key, n in operation.args]
        case roost.Set():
            return [structure.add(key, member) for key, member in operation.args]
    add = structure.push if isinstance(structure, roost.Ring) else structure.add
    return [add(structure.rows.make(row)) for row in operation.args]


def _best_first(rows: Any) -> list[Any]:
    return sorted(rows.values(), key=lambda entry: (-entry[1].points, entry[0]))


def _overflows(totals: Totals[Any]) -> bool:
    return any(not -MOST - 1 <= total <= MOST for total in totals.values())


def _page(keys: Any, after: Any, n: int) -> list[Any]:
    return [key for key in sorted(keys) if after is None or key > after[0]][:n]
