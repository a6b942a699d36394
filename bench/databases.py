"""MariaDB and PostgreSQL: one Python process with an `AsyncStore` beside 64 connections of C clients.

The baselines are the source texts' own statements, one per call, by mysqlslap and pgbench, on the same server in the
same run; where a text loses data by a race, it is made correct first. Servers are started by the run, with their
default durability: every answered write is on disk.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import servers

import roost
from bench.report import Line, rate, say, show, show_lines
from bench.shapes import Visit, structures
from roost.databases import open_engine
from roost.databases.engine import Wait

CONNECTIONS = 64
KEYS = 10_000
KEEP, CAPPED_KEEP = 5, 12

counter, ring, capped, _ = structures(KEEP, CAPPED_KEEP)


@dataclass(frozen=True)
class Work:
    """What is measured: the baseline's statement, Roost's operation, and what their ratio has to be, and may be."""

    name: str
    statements: dict[str, Callable[[], str]]  # by server: the next statement of mysqlslap, the script of pgbench
    operation: Callable[[], roost.Operation[Any]]
    must: tuple[float, float]  # with 64 tasks, with 1,024
    aim: tuple[float, float]


def key() -> int:
    return random.randrange(1, KEYS + 1)


_fresh = itertools.count(10**6)
_ANY = f"FLOOR(1 + RAND() * {KEYS})"  # each of mysqlslap's clients runs the same statements: chance is the server's
_UID = rf"\set uid random(1, {KEYS})" + "\n"

WORKS = [
    Work(
        "one hot counter",
        {
            "mariadb": lambda: (
                "INSERT INTO pageviews_counts (url, slot, count) VALUES ('/home', FLOOR(RAND() * 100), 1)"
                " ON DUPLICATE KEY UPDATE count = count + 1"
            ),
            "postgresql": lambda: (
                "INSERT INTO pageviews_counts AS c (url, slot, count) VALUES"
                " ('/home', floor(random() * 100), 1) ON CONFLICT (url, slot) DO UPDATE SET count = c.count + 1;"
            ),
        },
        lambda: counter.add(7),
        (3, 4),
        (5, 8),
    ),
    Work(
        "ring pushes over 10,000 keys",
        {
            "mariadb": lambda: f"CALL visit({_ANY}, RAND() * 1e9)",
            "postgresql": lambda: _UID + r"\set who random(1, 1000000000)" + "\nSELECT visit(:uid, :who);",
        },
        lambda: ring.push(Visit(key(), next(_fresh))),
        (2, 3),
        (3, 5),
    ),
    Work(
        "capped adds over 10,000 keys",
        {
            "mariadb": lambda: f"INSERT INTO baskets_proxy (basket_id, egg_id) VALUES ({_ANY}, RAND() * 4e9)",
            "postgresql": lambda: (
                _UID + r"\set egg random(1, 1000000000000)" + "\n"
                "INSERT INTO baskets_proxy (basket_id, egg_id) VALUES (:uid, :egg);"
            ),
        },
        lambda: capped.add(Visit(key(), next(_fresh))),
        (1.5, 2),
        (3, 4),
    ),
    Work(
        "latest 5 of a ring, 10,000 keys",
        {
            "mariadb": lambda: f"SELECT visitor_uid FROM visits_log WHERE uid = {key()} ORDER BY last_update DESC",
            "postgresql": lambda: (
                _UID + "SELECT visitor_uid FROM visits_log WHERE uid = :uid ORDER BY last_update DESC;"
            ),
        },
        lambda: ring.latest(key(), 5),
        (1, 1.5),
        (1.5, 3),
    ),
]

# The source texts' tables. Corrected: sequences instead of moments of a second, the key's row locked before the newest
# is looked at, counts that are signed.
TABLES = {
    "mariadb": [
        """CREATE TABLE pageviews_counts (id INT NOT NULL AUTO_INCREMENT, url VARCHAR(255) NOT NULL,
            slot INT NOT NULL DEFAULT 0, count INT DEFAULT NULL, PRIMARY KEY (id),
            UNIQUE KEY url_and_slot (url, slot))""",
        "CREATE TABLE visits_keys (uid INT UNSIGNED PRIMARY KEY)",
        f"INSERT INTO visits_keys SELECT seq FROM seq_1_to_{KEYS}",
        """CREATE TABLE visits_log (uid INT UNSIGNED NOT NULL, sequence_id TINYINT UNSIGNED NOT NULL,
            last_update DATETIME(6) NOT NULL, visitor_uid INT UNSIGNED NOT NULL, PRIMARY KEY (uid, sequence_id),
            KEY newest (uid, last_update))""",
        f"""INSERT INTO visits_log SELECT k.seq, s.seq, NOW(6) - INTERVAL ({KEEP} - s.seq) SECOND, 1
            FROM seq_1_to_{KEYS} k, seq_0_to_{KEEP - 1} s""",
        f"""CREATE PROCEDURE visit(k INT UNSIGNED, who INT UNSIGNED) BEGIN
            DECLARE next INT;
            START TRANSACTION;
            SELECT uid INTO next FROM visits_keys WHERE uid = k FOR UPDATE;
            SELECT (sequence_id + 1) % {KEEP} INTO next FROM visits_log WHERE uid = k ORDER BY last_update DESC LIMIT 1;
            REPLACE INTO visits_log SET uid = k, sequence_id = next, last_update = NOW(6), visitor_uid = who;
            COMMIT; END""",
        """CREATE TABLE baskets (basket_id INT UNSIGNED NOT NULL, egg_id INT UNSIGNED NOT NULL,
            created_at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) NOT NULL, PRIMARY KEY (basket_id, egg_id),
            KEY basket_id (basket_id, created_at))""",
        "CREATE TABLE basket_count (basket_id INT UNSIGNED NOT NULL PRIMARY KEY, count INT NOT NULL)",
        """CREATE TABLE baskets_proxy (basket_id INT UNSIGNED NOT NULL, egg_id INT UNSIGNED NOT NULL,
            PRIMARY KEY (basket_id, egg_id)) ENGINE=BLACKHOLE""",
        f"INSERT INTO baskets (basket_id, egg_id) SELECT k.seq, e.seq FROM seq_1_to_{KEYS} k, seq_1_to_{CAPPED_KEEP} e",
        f"INSERT INTO basket_count SELECT seq, {CAPPED_KEEP} FROM seq_1_to_{KEYS}",
        f"""CREATE TRIGGER proxy_ai AFTER INSERT ON baskets_proxy FOR EACH ROW BEGIN
            DECLARE n INT;
            INSERT INTO basket_count VALUES (NEW.basket_id, 1) ON DUPLICATE KEY UPDATE count = count + 1;
            INSERT INTO baskets (basket_id, egg_id) VALUES (NEW.basket_id, NEW.egg_id);
            SELECT count INTO n FROM basket_count WHERE basket_id = NEW.basket_id;
            IF n > {CAPPED_KEEP} THEN
              DELETE FROM baskets WHERE basket_id = NEW.basket_id ORDER BY created_at LIMIT 1;
              UPDATE basket_count SET count = count - 1 WHERE basket_id = NEW.basket_id;
            END IF; END""",
    ],
    "postgresql": [
        """CREATE TABLE pageviews_counts (url text NOT NULL, slot int NOT NULL, count int, PRIMARY KEY (url, slot))
            WITH (fillfactor = 50)""",
        "CREATE TABLE visits_keys (uid int PRIMARY KEY)",
        f"INSERT INTO visits_keys SELECT generate_series(1, {KEYS})",
        """CREATE TABLE visits_log (uid int NOT NULL, sequence_id smallint NOT NULL, last_update timestamptz NOT NULL,
            visitor_uid bigint NOT NULL, PRIMARY KEY (uid, sequence_id))""",
        "CREATE INDEX newest ON visits_log (uid, last_update)",
        f"""INSERT INTO visits_log SELECT k, s, now() - ({KEEP} - s) * interval '1 second', 1
            FROM generate_series(1, {KEYS}) k, generate_series(0, {KEEP - 1}) s""",
        f"""CREATE FUNCTION visit(k int, who bigint) RETURNS void LANGUAGE plpgsql AS $$ DECLARE next int; BEGIN
            PERFORM 1 FROM visits_keys WHERE uid = k FOR UPDATE;
            SELECT (sequence_id + 1) % {KEEP} INTO next FROM visits_log WHERE uid = k ORDER BY last_update DESC LIMIT 1;
            INSERT INTO visits_log VALUES (k, next, clock_timestamp(), who) ON CONFLICT (uid, sequence_id)
              DO UPDATE SET last_update = excluded.last_update, visitor_uid = excluded.visitor_uid; END $$""",
        """CREATE TABLE baskets (basket_id int NOT NULL, egg_id bigint NOT NULL,
            created_at timestamptz DEFAULT clock_timestamp() NOT NULL, PRIMARY KEY (basket_id, egg_id))""",
        "CREATE INDEX basket_id ON baskets (basket_id, created_at)",
        "CREATE TABLE basket_count (basket_id int PRIMARY KEY, count int NOT NULL) WITH (fillfactor = 50)",
        "CREATE VIEW baskets_proxy AS SELECT basket_id, egg_id FROM baskets",
        f"""INSERT INTO baskets (basket_id, egg_id)
            SELECT k, e FROM generate_series(1, {KEYS}) k, generate_series(1, {CAPPED_KEEP}) e""",
        f"INSERT INTO basket_count SELECT generate_series(1, {KEYS}), {CAPPED_KEEP}",
        f"""CREATE FUNCTION proxy_ai() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN
            INSERT INTO basket_count AS c VALUES (NEW.basket_id, 1)
              ON CONFLICT (basket_id) DO UPDATE SET count = c.count + 1 RETURNING count INTO n;
            INSERT INTO baskets (basket_id, egg_id) VALUES (NEW.basket_id, NEW.egg_id);
            IF n > {CAPPED_KEEP} THEN
              DELETE FROM baskets WHERE (basket_id, egg_id) IN (SELECT basket_id, egg_id FROM baskets
                WHERE basket_id = NEW.basket_id ORDER BY created_at LIMIT 1);
              UPDATE basket_count SET count = count - 1 WHERE basket_id = NEW.basket_id;
            END IF; RETURN NEW; END $$""",
        """CREATE TRIGGER proxy_ai INSTEAD OF INSERT ON baskets_proxy FOR EACH ROW EXECUTE FUNCTION proxy_ai()""",
    ],
}


@dataclass
class Load:
    """What tasks of one loop have done."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Operations per second."""
        return len(self.waits) / self.seconds

    def __str__(self) -> str:
        cuts = statistics.quantiles(self.waits, n=100)
        return f"{1000 * cuts[49]:.1f} / {1000 * cuts[98]:.1f} ms"


async def drive(
    run: Callable[[roost.Operation[Any]], Awaitable[Any]],
    operation: Callable[[], roost.Operation[Any]],
    tasks: int,
    seconds: float,
    per_second: float | None = None,
) -> Load:
    """Let tasks run one operation after the other; `per_second` in all, or as fast as it goes."""
    load = Load()
    waits = load.waits
    clock = time.perf_counter
    began = clock()
    end = began + seconds
    pace = 0.0 if per_second is None else tasks / per_second

    async def task(number: int) -> None:
        due = began + pace * number / tasks
        while (now := clock()) < end:
            if pace:
                if due > now:
                    await asyncio.sleep(due - now)
                due = max(due + pace, now)
            asked = clock()
            await run(operation())
            waits.append(clock() - asked)

    await asyncio.gather(*[task(number) for number in range(tasks)])
    load.seconds = clock() - began
    return load


def execute(url: str, statements: list[str]) -> None:
    """Run statements as somebody without Roost."""
    raw: Any = open_engine(url, timeout=60, trace=None, random=random.Random()).connect(Wait(time.monotonic() + 60)).raw
    with raw.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
    raw.close()


def mysqlslap(url: str, work: Work, seconds: float, folder: Path, guess: float) -> float:
    """Return the statements per second of 64 connections."""
    parts = urlsplit(url)
    number = max(2_000, round(guess * seconds))
    script = folder / "slap.sql"
    script.write_text(";\n".join(work.statements["mariadb"]() for _ in range(number)))
    output = subprocess.run(
        [
            *("mysqlslap", "--no-defaults", "--host=127.0.0.1", f"--port={parts.port}", f"--user={parts.username}"),
            *(f"--create-schema={parts.path[1:]}", "--no-drop", "--delimiter=;", f"--query={script}"),
            *(f"--concurrency={CONNECTIONS}", f"--number-of-queries={number}"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(r"Average number of seconds to run all queries: ([\d.]+)", output.stdout)
    assert found, output
    return number / float(found[1])


def pgbench(url: str, work: Work, seconds: float, folder: Path) -> float:
    """Return the statements per second of 64 connections."""
    parts = urlsplit(url)
    script = folder / "bench.sql"
    script.write_text(work.statements["postgresql"]())
    program = servers.binary("pgbench", servers.POSTGRESQL[1], "postgresql-contrib")
    output = subprocess.run(
        [
            *(program, "-n", "-M", "prepared", "-h", "127.0.0.1", "-p", str(parts.port), "-U", str(parts.username)),
            *("-c", str(CONNECTIONS), "-j", "2", "-T", str(max(1, round(seconds))), "-f", str(script), parts.path[1:]),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(r"tps = ([\d.]+)", output.stdout)
    assert found, output
    return float(found[1])


def fill(store: roost.Store) -> None:
    """Fill every ring and collection."""
    for n in range(CAPPED_KEEP):
        store.run_all(*[capped.add(Visit(uid, n)) for uid in range(1, KEYS + 1)])
        if n < KEEP:
            store.run_all(*[ring.push(Visit(uid, n)) for uid in range(1, KEYS + 1)])


def measure(name: str, rounds: int, seconds: float) -> Iterator[tuple[Line, str, str]]:
    """Measure a server; yield each line, and the waits at full and at half load."""
    with servers.database(name) as url, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        execute(url, TABLES[name])
        with roost.Store(url, timeout=60) as store:
            store.create(counter, ring, capped)
            fill(store)
        guesses = {work.name: 10_000.0 for work in WORKS}

        def baseline(work: Work) -> float:
            if name == "postgresql":
                return pgbench(url, work, seconds, folder)
            guesses[work.name] = mysqlslap(url, work, seconds, folder, guesses[work.name])
            return guesses[work.name]

        async def ours(work: Work, tasks: int, per_second: float | None = None) -> Load:
            async with roost.AsyncStore(url, timeout=60) as store:
                await store.run(work.operation())
                return await drive(store.run, work.operation, tasks, seconds, per_second)

        for work in WORKS:
            before: list[float] = []
            after: dict[int, list[Load]] = {64: [], 1024: []}
            for _ in range(rounds):
                before.append(baseline(work))
                for tasks, loads in after.items():
                    loads.append(asyncio.run(ours(work, tasks)))
            base = statistics.median(before)
            for (tasks, loads), must, aim in zip(after.items(), work.must, work.aim, strict=True):
                mine = statistics.median(load.rate for load in loads)
                full = sorted(loads, key=lambda load: load.rate)[len(loads) // 2]
                half = asyncio.run(ours(work, tasks, mine / 2))
                line = Line(
                    f"{work.name}, {tasks} tasks", rate(base), rate(mine), mine / base, f">= {must} (aim {aim})",
                    mine >= must * base,
                )  # fmt: skip
                say(f"{name}: {line.work}: {line.baseline} {line.ours} {line.ratio:.2f}; {full}; half {half}")
                yield line, str(full), str(half)
        with roost.Store(url, timeout=60) as store:
            assert store.check() == []


def main(quick: bool) -> bool:
    rounds, seconds = (1, 1.0) if quick else (5, 3.0)
    assert shutil.which("mysqlslap"), "mysqlslap is not on this machine; install the package mariadb-client"
    met = True
    for name in ("mariadb", "postgresql"):
        measured = list(measure(name, rounds, seconds))
        client = "mysqlslap" if name == "mariadb" else "pgbench"
        lines = [line for line, _, _ in measured]
        met &= show_lines(f"{name}: one Python process beside {CONNECTIONS} connections", client, "Roost", lines)
        show(
            "p50 / p99 from the call to the answer",
            ["work", "full load", "half load"],
            [[line.work, full, half] for line, full, half in measured],
        )
    return met
