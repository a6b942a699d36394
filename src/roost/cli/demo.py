"""demo: write a stream of events into four structures, and show that they keep their promises."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import click
from rich.console import Console

import roost
from roost.cli.app import Failure, GlobalOptions, agreed, answer, counted, print_table, progress_bar, shared
from roost.structures.structure import Structure

DEMO_STORE = "sqlite:///roost-demo.db"
AT_ONCE = 250  # events per transaction, four operations each
PAGE = 500  # more keys than there are files, or people


@dataclass(frozen=True, slots=True)
class Change:
    """A person changed a file."""

    who: str
    what: str
    moment: dt.datetime


CHANGES = roost.Counter("demo_changes")
FILES = roost.Ring("demo_files", Change, per="who", keep=5)
PEOPLE = roost.Capped("demo_people", Change, per="what", keep=12, unique="who", on_duplicate="refresh")
KNOWS = roost.Set("demo_knows")
ALL: tuple[Structure, ...] = (CHANGES, FILES, PEOPLE, KNOWS)

PEOPLE_NAMES = ["ada", "bob", "cy", "dot", "eve", "fay", "gus", "hal", "ivy", "jim", "kit", "lou", "mae", "ned", "oda"]
FOLDERS = ["api", "core", "docs", "engine", "jobs", "mail", "pages", "tests"]
FILE_NAMES = ["cache", "client", "config", "errors", "index", "keys", "main", "parser", "queue", "rows", "server"]


def changes(n: int, chance: random.Random) -> Iterator[Change]:
    """Generate `n` changes: a few files and people occur often, most rarely; the changes of a burst share a second."""
    files = [f"{folder}/{name}.py" for folder in FOLDERS for name in FILE_NAMES]
    chance.shuffle(files)
    busy = [1 / (place + 1) for place in range(len(files))]
    moment = dt.datetime(2008, 1, 1, tzinfo=dt.UTC)
    made = 0
    while made < n:
        who = PEOPLE_NAMES[min(int(chance.expovariate(0.2)), len(PEOPLE_NAMES) - 1)]
        moment += dt.timedelta(seconds=chance.randrange(4))
        burst = min(chance.choice((1, 1, 2, 3, 8)), n - made)
        yield from (Change(who, what, moment) for what in chance.choices(files, busy, k=burst))
        made += burst


@click.command()
@click.option(
    "--events", type=click.IntRange(min=1), default=20_000, show_default=True, help="The number of events to generate."
)
@click.option("--yes", is_flag=True, help="Delete the data of an earlier demo without asking.")
@partial(shared, default=f"default: {DEMO_STORE}")
@click.pass_obj
def demo(settings: GlobalOptions, events: int, yes: bool) -> None:
    """Show Roost at work: four structures, filled with generated events.

    People change files: every change is counted per file (a counter), and stored among the person's last 5 files (a
    ring), among the file's last 12 different people (a capped collection), and in the set of files that the person
    knows. The database is the file roost-demo.db in the current directory, which you may delete afterwards, unless
    --store names another one; the demo makes the four structures demo_changes, demo_files, demo_people and demo_knows
    there, and they stay. ROOST_STORE is ignored.

    \b
    Examples:
      roost demo
      roost demo --yes --events 100000
      roost demo --store sqlite:////tmp/demo.db
    """
    url = settings.store or DEMO_STORE
    console = Console(quiet=settings.json, markup=False, emoji=False)
    with roost.Store(url) as store:
        store.create(*ALL)
        _begin(store, console, yes)
        facts = _push(store, console, events)
        facts |= _show(store, console)
        violations = store.check(*ALL)
        facts["violations"] = [str(violation) for violation in violations]
        console.print(f"check: {counted(len(violations), 'violation')}\n")
        _advise(console, store)
    if settings.json:
        answer(settings, {"store": store.url, **facts}, ())
    if violations:
        raise Failure("\n".join(facts["violations"]))


def _begin(store: roost.Store, console: Console, yes: bool) -> None:
    if not store.run(CHANGES.keys(n=1)):
        return
    if yes or (sys.stdin.isatty() and agreed(f"{store.url} has an earlier demo. Delete it and start anew?", yes)):
        store.drop(*ALL)
        store.create(*ALL)
        console.print(f"{store.url}: the earlier demo was removed")
    else:
        console.print(
            f"{store.url} has an earlier demo, and this one goes on with it; --yes starts anew", soft_wrap=True
        )


def _push(store: roost.Store, console: Console, events: int) -> dict[str, Any]:
    stream = changes(events, random.Random(2008))
    commits = store.stats().batches
    began = time.perf_counter()
    with progress_bar("events") as bar:
        task = bar.add_task("pushing", total=events)
        while some := list(islice(stream, AT_ONCE)):
            store.run_all(*[operation for change in some for operation in _operations(change)])
            bar.advance(task, len(some))
    seconds = time.perf_counter() - began
    operations = events * len(ALL)
    commits = store.stats().batches - commits
    console.print(
        f"{events:,} changes, {operations:,} operations in {counted(commits, 'commit')} and {seconds:.1f} s: "
        f"{operations / seconds:,.0f} operations/s\n",
        soft_wrap=True,
    )
    return {"events": events, "operations": operations, "seconds": round(seconds, 3), "commits": commits}


def _operations(change: Change) -> list[roost.Operation[Any]]:
    return [CHANGES.add(change.what), FILES.push(change), PEOPLE.add(change), KNOWS.add(change.who, change.what)]


def _show(store: roost.Store, console: Console) -> dict[str, Any]:
    top = store.run(CHANGES.top(5))
    print_table(console, "Counter: the files changed most", ("file", "changes"), top)
    console.print()
    who = PEOPLE_NAMES[0]
    last, size = store.run_all(FILES.latest(who), KNOWS.size(who))
    rows = [(row.moment, row.what) for row in last]
    print_table(console, f"Ring: the last {FILES.keep} files of {who}, newest first", ("moment", "file"), rows)
    console.print(f"Set: {who} knows {counted(size, 'file')}\n")
    evicted = _evict(store, console, top[0][0])
    return {"top": [list(each) for each in top], "evicted": evicted, "rows": _count(store, console)}


def _evict(store: roost.Store, console: Console, what: str) -> str | None:
    # The name is new even if the demo continues an earlier one.
    guest = f"guest {store.run(CHANGES.total(what))}"
    came = Change(guest, what, dt.datetime.now(dt.UTC))
    before, *_, after = store.run_all(PEOPLE.latest(what), *_operations(came), PEOPLE.latest(what))
    width = max(len(before), len(after))
    columns = [[row.who for row in rows] + [""] * (width - len(rows)) for rows in (before, after)]
    title = f"Capped: the last {PEOPLE.keep} different people of {what}, before {guest} came and after"
    print_table(console, title, ("before", "after"), zip(*columns, strict=True))
    gone = next((row.who for row in before if row not in after), None)
    console.print(f"{gone} was the oldest and was evicted\n" if gone else "nobody had to go yet\n")
    return gone


def _count(store: roost.Store, console: Console) -> dict[str, int]:
    files, people = store.run_all(CHANGES.keys(n=PAGE), KNOWS.keys(n=PAGE))
    totals = store.run(CHANGES.totals(files))
    kept = {
        CHANGES.name: len(files),
        FILES.name: sum(map(len, store.run_all(*[FILES.latest(who) for who in people]))),
        PEOPLE.name: sum(store.run_all(*[PEOPLE.count(what) for what in files])),
        KNOWS.name: sum(store.run_all(*[KNOWS.size(who) for who in people])),
    }
    limits = {
        CHANGES.name: f"{len(files)} files",
        FILES.name: f"{len(people)} people x {FILES.keep}",
        PEOPLE.name: f"{len(files)} files x {PEOPLE.keep}",
        KNOWS.name: f"{len(people)} people x {len(files)} files",
    }
    written = sum(totals.values())
    rows = [(each.name, each.kind, written, kept[each.name], limits[each.name]) for each in ALL]
    print_table(console, "Rows stay bounded", ("structure", "kind", "written", "rows", "at most"), rows)
    return kept


def _inserted(store: roost.Store, what: str) -> str:
    # The statement that counts a change by SQL. The views of MariaDB and MySQL take no rows: there are inlets, or
    # procedures.
    if not store.url.startswith(("mysql", "mariadb")):
        return f"INSERT INTO {CHANGES.name} (key, total) VALUES ('{what}', 1);"
    views = next(each.found for each in store.doctor() if each.subject == "views")
    if views.startswith("BLACKHOLE"):
        return f"INSERT INTO {CHANGES.name}_in (`key`, total) VALUES ('{what}', 1);"
    return f"CALL {CHANGES.name}_add('{what}', 1);"


def _advise(console: Console, store: roost.Store) -> None:
    what, who, url = "core/main.py", PEOPLE_NAMES[1], store.url
    console.print("Any SQL client reads and writes them as well:")
    console.print(f"  SELECT * FROM {FILES.name} WHERE who = '{who}';", soft_wrap=True)
    console.print(f"  {_inserted(store, what)}\n", soft_wrap=True)
    console.print("Try next:")
    program = "roost" if shutil.which("roost") else sys.argv[0]  # `make run` has no activated environment
    for command in (
        f"list --store {url}",
        f"show {CHANGES.name} --store {url}",
        f"show {FILES.name} {who} --store {url}",
        f"show {PEOPLE.name} {what} --json --store {url}",
        f"check --store {url}",
        "create --help",
    ):
        console.print(f"  {program} {command}", soft_wrap=True)
