"""Clients add, remove, fetch and compact one set in memcached; a server is killed in between.

Every client has members of its own, so it knows which of them must be there: all that it added and did not remove,
until a server was killed. What is lost then is counted. What may never be, killed or not: a member that its client has
removed, a fetch that shows half of what was added at once, a set that says that it is complete when it is not.
"""

from __future__ import annotations

import mmap
import random
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import roost
from tests import servers
from tests.campaigns.played import asked
from tests.campaigns.processes import Line, children

ITEM = 128  # KB, so that the set grows over many shards
tags = roost.MemcachedSet("tags", int, str, shards=256)
KEY = 1
SETTLED = 1.0  # seconds after which nobody is in the middle of what was begun before a kill: shards that it has written
PAIRS = 250  # of a client's members; about half of them are there at a time


class Kills:
    """How many kills have begun, and how many have ended; in memory that forked clients share."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 16)

    def begin(self) -> None:
        """Note it before the server is killed."""
        self._shared[0:8] = struct.pack("q", self.begun + 1)

    def end(self) -> None:
        """Note that from now on nothing is lost any more."""
        self._shared[8:16] = struct.pack("q", self.begun)

    @property
    def begun(self) -> int:
        """How many have begun."""
        return int(struct.unpack("q", self._shared[0:8])[0])

    @property
    def ended(self) -> int:
        """How many are over."""
        return int(struct.unpack("q", self._shared[8:16])[0])


@dataclass
class Counts:
    """What was seen."""

    done: Counter[str] = field(default_factory=Counter)
    info: roost.SetInfo | None = None
    stats: roost.Stats = field(default_factory=roost.Stats)
    exchanges: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        shown = ", ".join(f"{self.done[each]:,} {each}" for each in sorted(self.done))
        sent = ", ".join(f"{number:,} {each}" for each, number in sorted(self.exchanges.items()))
        return f"{shown}; sent: {sent}; at the end: {self.info}"


class Client:
    """One client and its model: pairs of members that are added and removed at once."""

    def __init__(self, store: roost.Store, number: int, seed: object, kills: Kills) -> None:
        self._store, self._number, self._kills = store, number, kills
        self._chance = random.Random(f"caches/{seed}/{number}")
        self._there: set[int] = set()
        self._unknown: set[int] = set()  # pairs whose last change had no answer
        self._seen = 0  # kills that were over when it looked
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """Do something, and see whether it is as it must be."""
        pair, verb = self._chance.randrange(PAIRS), self._chance.random()
        try:
            if verb < 0.45:
                self._change(pair, adds=True)
            elif verb < 0.8:
                self._change(pair, adds=False)
            elif verb < 0.9:
                self._fetch()
            else:
                self._contains(pair)
        except roost.OutcomeUnknown:
            self._unknown.add(pair)
            self.done["outcomes unknown"] += 1
            assert self._kills.begun, "an outcome was unknown, and no server had been killed"
        except roost.CannotOpen:
            self.done["servers not reached"] += 1
            assert self._kills.begun, "a server was not reached, and none had been killed"

    def _members(self, pair: int) -> tuple[str, str]:
        return f"{self._number}/{pair}/one/{'x' * 30}", f"{self._number}/{pair}/two/{'x' * 30}"

    def _change(self, pair: int, adds: bool) -> None:
        operation = tags.add(KEY, *self._members(pair)) if adds else tags.remove(KEY, *self._members(pair))
        self._store.run(operation)
        (self._there.add if adds else self._there.discard)(pair)
        self._unknown.discard(pair)
        self.done["added" if adds else "removed"] += 1

    def _fetch(self) -> None:
        ended = self._kills.ended
        found = self._store.run(tags.members(KEY))
        pairs = set()
        for pair in range(PAIRS):
            one, two = (member in found for member in self._members(pair))
            # Both are in one record, so in one root; a lost shard may have had one of them.
            assert one == two or self._kills.begun, f"half of pair {pair} of client {self._number}"
            if one or two:
                pairs.add(pair)
        extra = pairs - self._there - self._unknown
        assert not extra, f"client {self._number}: {extra} were removed and are there"
        missing = self._there - pairs - self._unknown
        if missing:
            assert self._kills.begun > self._seen, (
                f"client {self._number}: {missing} are lost, and no server was killed"
            )
            self.done["members lost with a server"] += 2 * len(missing)
        self._there, self._unknown = pairs, set()
        self._seen = ended
        self.done["fetched"] += 1

    def _contains(self, pair: int) -> None:
        found = self._store.run(tags.contains(KEY, self._members(pair)[0]))
        if pair not in self._unknown and found != (pair in self._there):
            assert not found, f"client {self._number}: {pair} was removed and is there"
            assert self._kills.begun > self._seen, f"client {self._number}: {pair} is lost, and no server was killed"
        self.done["asked for"] += 1

    @property
    def judged(self) -> set[str]:
        """The members that must be there."""
        self._fetch()
        return {member for pair in self._there for member in self._members(pair)}


def _work(line: Line, url: str, numbers: list[int], seed: object, kills: Kills) -> None:
    sent: Counter[str] = Counter()
    store = roost.Store(url, trace=lambda text, _: sent.update([text.split()[0]]))
    ended = threading.Event()
    clients = [Client(store, number, seed, kills) for number in numbers]

    def work(client: Client) -> None:
        try:
            while not ended.is_set():
                client.step()
        except BaseException as error:
            line.say(f"wrong {client._number}: {error!r}")
            raise

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    line.say("ready")
    line.hear(900)
    ended.set()
    for thread in threads:
        thread.join()
    line.say("quiet")
    line.hear(900)  # until all are
    for client in clients:
        try:
            client.done["there at the end"] = len(client.judged)
        except BaseException as error:
            line.say(f"wrong {client._number}: {error!r}")
        for name, number in client.done.items():
            line.say(f"done {number} {name}")
    for name, number in sent.items():
        line.say(f"sent {number} {name}")
    store.close()


def caches(seconds: float, restarts: int, seed: object, processes: int = 4, threads: int = 8) -> Counts:
    """Let clients work for so long, and kill one of two servers so often meanwhile."""
    daemons = [servers.memcached_daemon(*servers.items_of(ITEM)) for _ in range(2)]
    url = "memcached://" + ",".join(daemon.url.partition("://")[2] for daemon in daemons)
    kills, counts, chance = Kills(), Counts(), random.Random(f"caches/{seed}")
    with roost.Store(url) as store:
        store.run(tags.replace(KEY, []))
    groups = [list(range(p * threads, (p + 1) * threads)) for p in range(processes)]
    with children(processes, lambda line, number: _work(line, url, groups[number], seed, kills), 900) as made:
        for child in made:
            assert child.hear() == "ready"
        for n in range(restarts + 1):
            time.sleep(seconds / (restarts + 1))  # the clients' own time
            with roost.Store(url) as store:
                info = store.run(tags.info(KEY))
                assert info.complete or n > 0, "it was replaced, and nothing has been evicted"
                assert not info.complete or n == 0, "a server was killed, and it says that it is complete"
                counts.done["largest number of shards"] = max(counts.done["largest number of shards"], info.shards)
            if n < restarts:
                kills.begin()
                victim = daemons[(n + chance.randrange(2)) % 2] if n else _holder(url, daemons)
                victim.kill()
                victim.start()
                time.sleep(SETTLED)
                kills.end()
        for child in made:
            child.line.say("stop")
        for child in made:
            heard = child.hear()
            assert heard == "quiet", heard
        for child in made:
            child.line.say("judge")
        texts = []
        for child in made:
            texts += child.rest()
            assert child.wait() == 0, texts
    for text in texts:
        kind, number, name = text.split(" ", 2)
        assert kind != "wrong", text
        (counts.done if kind == "done" else counts.exchanges)[name] += int(number)
    with roost.Store(url) as store:
        counts.info = store.run(tags.info(KEY))
        assert counts.info.size == counts.done["there at the end"], "somebody's members are nobody's"
        assert [each.rule for each in store.check(tags)] in ([], ["shards"])
    for daemon in daemons:
        daemon.kill()
    return counts


def _holder(url: str, daemons: list[servers.Daemon]) -> servers.Daemon:
    # The first server to go is the one with the root, so that all of the set goes.
    found = []
    for daemon, client in zip(daemons, servers.memcached_clients(url), strict=True):
        if client.get(f"tags:{KEY}") is not None:
            found.append(daemon)
        client.close()
    (holder,) = found
    return holder


def main() -> None:
    """Run and say what was found."""
    options = asked(seconds=60.0, restarts=1)
    print(caches(options.seconds, options.restarts, options.seed))


if __name__ == "__main__":
    main()
