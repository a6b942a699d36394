"""A dumb model of every structure, with all its options: what a store must answer, in the simplest Python there is."""

from __future__ import annotations

import copy
import math
from collections import Counter as Totals
from typing import Any, NamedTuple

import roost
from roost.structures.operation import RUNS

MOST = 2**63 - 1


class Held(NamedTuple):
    """A row of a key; until: the second in which it expires."""

    sequence: int
    row: Any
    until: float


class Model:
    """Dictionaries and lists. `run_all` answers like a store: a tuple of results, or an error's class.

    now: seconds that have passed; a counter's windows, which are longer than any test, are told by `next_window`.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.totals: dict[str, list[Totals[Any]]] = {}  # by a counter's name, its windows, the current one first
        self.adding: dict[str, str] = {}  # by a counter's name, the verb of the last operation of the atom
        self.rows: dict[str, dict[Any, tuple[int, list[Held]]]] = {}  # by key: the last sequence, oldest rows first
        self.sets: dict[str, dict[Any, dict[Any, float]]] = {}  # by key: members, oldest first, with their ends

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
        if any(_overflows(each) for windows in self.totals.values() for each in windows):
            self.__dict__ = before
            return roost.Overflow
        return tuple(results)

    def _run(self, operation: Any) -> Any:
        structure = operation.structure
        answer = {roost.Counter: self._counter, roost.Set: self._set}.get(type(structure), self._rows)
        if operation.verb not in RUNS:
            return answer(operation)
        results = [answer(each) for each in _each(operation)]
        error = next((result for result in results if isinstance(result, type)), None)
        says = isinstance(structure, roost.Ring | roost.Set) or getattr(structure, "score", None)
        return results if error is None and says else error

    def next_window(self, counter: Any) -> None:
        """Let a window of time go by."""
        self.totals[counter.name] = [Totals(), *self.totals.get(counter.name, [Totals()])][: counter.keep]

    def _counter(self, operation: Any) -> Any:
        counter, verb, args = operation.structure, operation.verb, operation.args
        windows = self.totals.setdefault(counter.name, [Totals()])
        current, before = windows[0], self.adding.get(counter.name)
        self.adding[counter.name] = verb
        if (verb, before) != ("add", "add") and _overflows(current):
            return roost.Overflow  # judged on the sum of the adds up to the next other operation, not on each of them
        last = None
        if counter.window and verb in ("total", "totals", "top", "series"):
            args, last = args[:1], args[1]
        totals = dict[Any, int]()
        for each in windows[:last]:
            for key, n in each.items():
                totals[key] = totals.get(key, 0) + n
        match verb, args:
            case (("add" | "increment"), ((key,), n)):
                current[key] += n
                return None if verb == "add" else current[key]
            case "total", ((key,),):
                return totals.get(key, 0)
            case "totals", (keys,):
                return {key: totals.get(key, 0) for (key,) in keys}
            case "series", ((key,),):
                found = [each.get(key, 0) for each in windows] + [0] * counter.keep
                return found[: min(last or counter.keep, counter.keep)][::-1]
            case "top", (n,):
                return sorted(totals.items(), key=lambda item: (-item[1], item[0].encode()))[:n]
            case "keys", (after, n):
                return _page(totals, after, n)
            case (("clear" | "forget"), ((key,),)):
                for each in windows:
                    each.pop(key, None)
                return totals.get(key, 0)
        return None

    def _rows(self, operation: Any) -> Any:
        structure = operation.structure
        heads = self.rows.setdefault(structure.name, {})
        if operation.verb == "keys":
            return _page(heads, *operation.args)
        if operation.verb in ("push", "add"):
            return self._add(structure, structure.rows.make(operation.args[0]))
        (key,) = operation.args[0]
        last, there = self.living(structure, key)
        ids = [_id(structure, each.row) for each in there]
        match operation.verb, operation.args[1:]:
            case "latest", (n,):
                return [each.row for each in reversed(there)][:n]
            case "entries", (after, n):
                return [(each.sequence, each.row) for each in there if each.sequence > after][:n]
            case "top", (n,):
                return [each.row for each in _best_first(structure, there)][:n]
            case "rank", (id_,):
                ranked = [_id(structure, each.row) for each in _best_first(structure, there)]
                return ranked.index(id_) + 1 if id_ in ranked else None
            case "get", (id_,):
                return there[ids.index(id_)].row if id_ in ids else None
            case "remove", (id_,):
                if id_ in ids:
                    heads[key] = last, [each for each, its in zip(there, ids, strict=True) if its != id_]
                return id_ in ids
            case "clear", ():
                if key in heads:
                    heads[key] = last, []
            case "forget", ():
                heads.pop(key, None)
        return len(there)

    def living(self, structure: Any, key: Any) -> tuple[int, list[Held]]:
        """Return the last sequence of a key, and the rows that have not expired, oldest first."""
        heads = self.rows.setdefault(structure.name, {})
        last, rows = heads.get(key, (0, []))
        there = [each for each in rows if each.until > self.now]
        if key in heads:
            heads[key] = last, there
        return last, there

    def _add(self, structure: Any, row: Any) -> Any:
        key = getattr(row, structure.rows.per[0])
        last, there = self.living(structure, key)
        ordered = getattr(structure, "score", None)
        if isinstance(structure, roost.Capped):
            gone = next((each for each in there if _id(structure, each.row) == _id(structure, row)), None)
            if gone is not None and structure.on_duplicate == "error":
                return roost.Duplicate
            only_if_better = structure.on_duplicate == "best"
            if gone is None and len(there) == structure.keep:
                if structure.on_full == "reject":
                    return roost.Full
                gone = _best_first(structure, there)[-1] if ordered else there[0]
                only_if_better = bool(ordered)
            if gone is not None and only_if_better and _score(structure, row) <= _score(structure, gone.row):
                return False
            there = [each for each in there if each is not gone]
        there = [*there, Held(last + 1, row, self._until(structure))]
        self.rows[structure.name][key] = last + 1, there[-structure.keep :] if structure.keep else there
        return last + 1 if isinstance(structure, roost.Ring) else True if ordered else None

    def _until(self, structure: Any) -> float:
        return self.now + (structure.keep_for or math.inf)

    def _set(self, operation: Any) -> Any:
        structure = operation.structure
        heads = self.sets.setdefault(structure.name, {})
        for key, held in list(heads.items()):
            heads[key] = {member: until for member, until in held.items() if until > self.now}
            if structure.keep_for and not heads[key]:
                del heads[key]
        if operation.verb == "keys":
            return _page(heads, *operation.args)
        (key,) = operation.args[0]
        members = heads.get(key, {})
        match operation.verb, operation.args[1:]:
            case "add", (added,):
                new = 0
                for (member,) in added:
                    new += members.pop(member, None) is None
                    members[member] = self._until(structure)
                    if structure.keep and len(members) > structure.keep:
                        del members[next(iter(members))]
                if members:
                    heads[key] = members
                return new
            case "remove", (removed,):
                return sum([members.pop(member, None) is not None for (member,) in removed])
            case "members", ():
                return set(members)
            case "contains", ((member,),):
                return member in members
            case "size", ():
                return len(members)
            case "clear", ():
                if key in heads:
                    heads[key] = {}
            case "forget", ():
                heads.pop(key, None)
        return len(members)


def _each(operation: Any) -> list[Any]:
    # The operations of one row that an operation of many rows stands for.
    structure = operation.structure
    if isinstance(structure, roost.Counter | roost.Set):
        return [structure.add(key, value) for (key, value) in operation.args]
    add = structure.push if isinstance(structure, roost.Ring) else structure.add
    return [add(structure.rows.make(row)) for row in operation.args]


def _id(structure: Any, row: Any) -> Any:
    return tuple([getattr(row, name) for name in getattr(structure, "unique", ())])


def _score(structure: Any, row: Any) -> Any:
    return getattr(row, structure.score.name)


def _best_first(structure: Any, rows: list[Held]) -> list[Held]:
    return sorted(rows, key=lambda each: (-_score(structure, each.row), each.sequence))


def _overflows(totals: Totals[Any]) -> bool:
    return any(not -MOST - 1 <= total <= MOST for total in totals.values())


def _page(keys: Any, after: Any, n: int) -> list[Any]:
    return [key for key in sorted(keys) if after is None or key > after[0]][:n]
