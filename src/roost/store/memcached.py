"""The working part of a store over memcached. It has no transactions, no catalog and no queues.

Every caller's thread talks to memcached itself. Operations that run together (those that waited in asyncio, or one
`run_all`) share exchanges: all reads are one `get`, the adds and removes of one key are one `append`.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from roost.batching.atoms import Atom, refuse_all
from roost.batching.stats import Stats
from roost.catalog.check import Violation
from roost.catalog.doctor import Finding
from roost.databases.engine import Trace, drive
from roost.databases.waits import Mutex
from roost.errors import Closed, Error, Full, Invalid, Mismatch
from roost.store.links import cores, threads
from roost.structures.memcached_set.commands import List, Memory, TooLarge
from roost.structures.memcached_set.declaration import MemcachedSet
from roost.structures.memcached_set.plan import MemcachedPlan, Whole
from roost.structures.operation import READS, Operation, Target
from roost.structures.structure import Structure

if TYPE_CHECKING:
    from roost.databases.memcached.engine import MemcachedEngine

MOST_TOGETHER = 64 * 1024  # bytes of members in one `append` for several callers
MOST_KEYS = 100  # keys in one `get`
MANY_PLANS = 1000  # plans that are cached; at that number the cache is emptied
CHANGES = frozenset(["add", "remove"])


class CacheCore:
    """The counterpart of `Core` for memcached: runs atoms and answers them."""

    reading = 1  # concurrent batches of reads, for asyncio

    def __init__(
        self, url: str, timeout: float, trace: Trace | None, clock: Callable[[], dt.datetime], random: Random | None
    ) -> None:
        try:
            from roost.databases.memcached.engine import MemcachedEngine
        except ModuleNotFoundError as error:
            raise Invalid(f"memcached needs the driver {error.name}: pip install 'roost[memcached]'") from error
        self._make: Callable[[], MemcachedEngine] = partial(MemcachedEngine, url, timeout=timeout, trace=trace)
        self.engine = self._make()
        self.timeout = timeout
        self._random = random or Random()
        self._memory = Memory(lambda: clock().timestamp(), self._random)
        self.closed = False
        self.threads, self.aside = threads(), threads()
        self._mutex = Mutex()  # guards the numbers in `_stats`
        self._stats = Stats()
        self._plans: dict[int, MemcachedPlan] = {}  # by the id of the structure, which the plan keeps alive
        cores[id(self)] = self

    def total(self) -> Stats:
        """Return the statistics of this store in this process; `retries` are lost races."""
        return replace(self._stats, retries=self._memory.lost_races)

    def refused(self) -> Invalid:
        return Invalid(
            f"{self.engine.place} is memcached: it has no catalog, no tables and no transactions, and a MemcachedSet "
            "needs none; so there is no ddl, alter, structures or on(connection)"
        )

    def plan(self, structure: Target) -> MemcachedPlan:
        """Return the plan of a structure; `Invalid` if memcached cannot hold the structure."""
        plan = self._plans.get(id(structure))
        if plan is not None:
            return plan
        if not isinstance(structure, MemcachedSet):
            what = type(structure).__name__ if isinstance(structure, Target) else repr(structure)
            raise Invalid(
                f"{getattr(structure, 'name', what)} is a {what}, which memcached does not hold; it holds "
                "MemcachedSet alone, and SQLite, MariaDB and PostgreSQL the others"
            )
        if len(self._plans) >= MANY_PLANS:
            self._plans.clear()
        self.engine.note(structure.name)
        plan = self._plans[id(structure)] = MemcachedPlan(structure, self._memory)
        return plan

    def create(self, structures: Sequence[Structure]) -> None:
        """Refuse structures that memcached cannot hold, and connect to the servers; nothing has to be made."""
        for structure in structures:
            self.plan(structure)
        self._open()
        self.engine.reach()

    def run_single(self, op: Operation[Any], _: float) -> Any:
        atom = Atom((op,))
        self.run([atom])
        return atom.answer[0]

    def submit(self, atoms: Sequence[Atom], reader: int = 0) -> None:
        self.run(atoms)

    def run(self, atoms: Sequence[Atom], *, single: bool = True) -> None:
        """Run atoms until each has its answer; they share exchanges."""
        self._open()
        engine = self.engine.for_turn()
        reads: list[tuple[Atom, int]] = []
        writes: dict[str, list[Atom]] = {}
        for atom in atoms:
            try:
                item = self._together(atom)
            except (Invalid, Mismatch) as error:
                refuse_all([atom], error)
                continue
            if item is None:
                atom.results = [None] * len(atom.operations)
                reads += [(atom, place) for place in range(len(atom.operations))]
            else:
                writes.setdefault(item, []).append(atom)
        self._read(engine, reads)
        for atom in {id(atom): atom for atom, _ in reads}.values():
            atom.done = True
        deadline = time.monotonic() + self.timeout
        for item, waiting in writes.items():
            self._write(engine, item, waiting, deadline)
        with self._mutex:
            self._stats.batches += 1
            self._stats.operations += sum([len(atom.operations) for atom in atoms if atom.error is None])

    def give_up(self, atom: Atom) -> None:
        """Do nothing: `Core` forgets an atom's lock here, and memcached has no locks."""

    def check(self, structures: Sequence[Structure]) -> list[Violation]:
        """Read every set of these structures that memcached lists, and return the violations."""
        if not structures:
            raise Invalid(f"{self.engine.place} has no catalog: name the structures to check")
        self._open()
        return [each for structure in structures for each in self._check(self.plan(structure))]

    def doctor(self) -> list[Finding]:
        self._open()
        return [finding for name, facts in self.engine.servers() for finding in _findings(name, facts)]

    def close(self) -> None:
        """Close the connections; those in use are closed after their answer."""
        self.closed = True
        self.dispose()

    def dispose(self) -> None:
        self.threads.shutdown(wait=False)
        self.aside.shutdown(wait=False)
        self.engine.close()

    def after_fork(self) -> None:
        """Reset the store in a child process, which must not use its parent's connections."""
        self._random.seed()  # otherwise all children would have the same numbers
        self._mutex = Mutex()
        self._stats = Stats()
        self.threads, self.aside = threads(), threads()  # a child has none of its parent's
        self.engine.forget()
        if not self.closed:
            self.engine = self._make()

    def _open(self) -> None:
        if self.closed:
            raise Closed("the store was closed")

    def _together(self, atom: Atom) -> str | None:
        # The item that an atom writes, or None if it only reads. memcached changes one item at a time.
        items = set()
        for op in atom.operations:
            plan = self.plan(op.structure)
            if op.verb not in READS:
                items.add(plan.structure.item(op.args[0]))
        if not items:
            return None
        alone = len(atom.operations) == 1
        if not alone and (len(items) > 1 or any([op.verb not in CHANGES for op in atom.operations])):
            raise Invalid(
                "memcached has no transactions: run_all takes operations that only read, or adds and removes of one "
                f"key, which are one append; not {', '.join(map(repr, atom.operations[:3]))} together"
            )
        return items.pop()

    def _read(self, engine: MemcachedEngine, reads: list[tuple[Atom, int]]) -> None:
        groups: dict[Target, list[tuple[Atom, int]]] = {}
        for atom, place in reads:
            groups.setdefault(atom.operations[place].structure, []).append((atom, place))
        for structure, group in groups.items():
            plan = self.plan(structure)
            for begin in range(0, len(group), MOST_KEYS):
                self._read_some(engine, plan, group[begin : begin + MOST_KEYS])

    def _read_some(self, engine: MemcachedEngine, plan: MemcachedPlan, group: list[tuple[Atom, int]]) -> None:
        try:
            results = drive(plan.read([atom.operations[place] for atom, place in group]), engine)
        except Error as error:
            if len({atom.operations[place].args[0] for atom, place in group}) > 1:  # the error may concern one key only
                for each in group:
                    self._read_some(engine, plan, [each])
            else:
                refuse_all([atom for atom, _ in group], error)
            return
        for (atom, place), result in zip(group, results, strict=True):
            atom.results[place] = result  # type: ignore[index]

    def _write(self, engine: MemcachedEngine, item: str, atoms: list[Atom], deadline: float) -> None:
        # Run the writes of one item in their order; consecutive changes are one append.
        for part in _parts(atoms):
            try:
                operations = [op for atom in part for op in atom.operations]
                self._perform(engine, self.plan(operations[0].structure), item, operations, deadline)
            except Full as error:
                if len(part) == 1:
                    refuse_all(part, error)
                else:  # perhaps only some of them exceed the limit
                    for atom in part:
                        self._write(engine, item, [atom], deadline)
                continue
            except Error as error:
                refuse_all(part, error)
                continue
            for atom in part:
                atom.results = [None] * len(atom.operations)
                atom.done = True

    def _perform(
        self,
        engine: MemcachedEngine,
        plan: MemcachedPlan,
        item: str,
        operations: Sequence[Operation[Any]],
        deadline: float,
    ) -> None:
        verb, out = operations[0].verb, plan.structure.texts.out
        changes: list[tuple[bool, Collection[Any]]]
        try:
            if verb in CHANGES:
                changes = [(op.verb == "add", [out(member) for member in op.args[1]]) for op in operations]
                drive(plan.change(item, changes, lambda: time.monotonic() > deadline), engine)
            elif verb == "replace":
                engine.note(plan.structure.name, item)  # from now on the set is complete
                drive(plan.replace(item, [out(member) for member in operations[0].args[1]]), engine)
            else:
                drive(plan.clear(item), engine)
        except TooLarge as error:
            self._memory.limit = None
            raise Full(f"{item}: {error}: the server's limit for items is smaller than it reported before") from error

    def _check(self, plan: MemcachedPlan) -> Iterator[Violation]:
        structure = plan.structure
        listed: dict[str, int] = self.engine.execute(List(f"{structure.name}:"))
        for item, expires in sorted(listed.items()):
            if "%%" in item and not item.startswith(f"{structure.name}:%%"):
                continue  # a shard: it is checked with its root, or belongs to no set any more
            try:
                key = structure.key_of(item)
            except (ValueError, KeyError, TypeError, ArithmeticError):
                yield Violation(structure.name, "key", None, f"{item} is no key of this declaration")
                continue
            try:
                whole: Whole | None = drive(plan.fetch({item: None}), self.engine)[item]
                if whole is not None:
                    plan.values(item, whole.live)
            except Mismatch as error:
                yield Violation(structure.name, "records", key, str(error))
                continue
            if whole is None:
                continue  # removed since it was listed
            header = whole.log.header
            if header.lost:
                yield Violation(structure.name, "shards", key, "some of its shards were evicted or lost")
            if header.complete and header.lost:
                yield Violation(structure.name, "complete", key, "it says that it is complete, and that it is not")
            kept = header.expires
            late = abs(kept - expires) > CLOCKS if kept and expires else kept != expires
            if kept >= 0 and late:  # an item of another program may have any expiry time
                yield Violation(structure.name, "ttl", key, f"it is to expire at {kept}, memcached says {expires}")


CLOCKS = 60  # seconds by which the clocks of clients and servers may differ


def _parts(atoms: list[Atom]) -> Iterator[list[Atom]]:
    part: list[Atom] = []
    weight = 0
    for atom in atoms:
        alone = atom.operations[0].verb not in CHANGES
        if part and (alone or weight > MOST_TOGETHER):
            yield part
            part, weight = [], 0
        part.append(atom)
        if alone:
            yield part
            part = []
        elif len(atoms) > 1:
            weight += atom.weight()
    if part:
        yield part


def _findings(name: str, facts: dict[str, str] | Error) -> Iterator[Finding]:
    if isinstance(facts, Error):
        yield Finding(
            "server", f"{name} does not answer: {facts}",
            "calls that need its sets raise CannotOpen or ConnectionLost; what it held is lost if it comes back empty",
            "start the server, or restore its network",
        )  # fmt: skip
        return
    version = facts.get("version", "of no version")
    yield Finding("version", f"{name}: memcached {version}", "all of Roost's commands")
    limit = int(facts.get("item_size_max", 2**20))
    yield Finding(
        "size", f"{name}: item_size_max = {limit:,}",
        f"a set in one item has at most {limit:,} bytes, one of many shards {limit // 2:,} in each",
        "" if limit >= 2**20 else "memcached -I 1m: fewer shards",
    )  # fmt: skip
    evictions = int(facts.get("evictions", 0))
    yield Finding(
        "evictions", f"{name}: {evictions:,} in {int(facts.get('uptime', 0)):,} s",
        "sets are lost when memory runs out" if evictions else "nothing was lost for want of memory",
        f"memcached -m: more than its {int(facts.get('limit_maxbytes', 0)) // 2**20:,} MB" if evictions else "",
    )  # fmt: skip
