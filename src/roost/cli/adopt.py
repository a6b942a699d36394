"""cap, uncap: commands that cap a table of the application's own, and undo that."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

import roost
from roost.capping.adoption import Inspection
from roost.capping.cap import EPOCHS
from roost.cli.app import Failure, GlobalOptions, answer, counted, must_agree, progress_bar, shared, uninterrupted
from roost.cli.values import duration, offset
from roost.store import bursts
from roost.store.bursts import EVERY, NARROW, SMALL
from roost.structures.adopted import Cap
from roost.structures.clock import in_words


@click.command()
@click.argument("table")
@click.option("--per", multiple=True, metavar="COLUMN[,COLUMN]", help="The columns of the key.")
@click.option("--keep", type=click.IntRange(1, 2**31 - 1), metavar="N", help="Rows per key.")
@click.option(
    "--newest-by", metavar="COLUMN", help="The column whose larger value is newer; by default, an integer primary key."
)
@click.option("--older-than", type=duration, metavar="TIME", help="The age at which a row is deleted: 12h, 30d.")
@click.option("--by", metavar="COLUMN", help="The column with a row's time (--older-than).")
@click.option("--epoch", type=click.Choice(list(EPOCHS)), help="Its numbers are seconds or milliseconds since 1970.")
@click.option(
    "--utc-offset", "offset", type=offset, metavar="±HH:MM", help="The zone of times without one. [default: +00:00]"
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and change nothing.")
@click.option("--make-index", is_flag=True, help="Make a missing index, even if writers must wait for long.")
@click.option(
    "--definer",
    metavar="NAME@HOST",
    default="",
    help="MariaDB, MySQL: the account with whose rights triggers and event run.",
)
@click.option("--watch", is_flag=True, help="MariaDB, MySQL: keep trimming, every second, until stopped.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared
@click.pass_obj
def cap(
    settings: GlobalOptions, /, table: str, dry_run: bool, make_index: bool, watch: bool, yes: bool, **rule: Any
) -> None:
    """Keep a table of yours short: the newest rows per key, or those that are not too old.

    Triggers delete the rows that a new row displaces (--per, --keep), or at each write some of the rows that have
    become too old (--older-than, --by). Excess rows that exist already are deleted in short transactions, while the
    application goes on writing: a writer waits about 50 ms at most, unless the disk stalls. You can stop the command at
    any moment (Ctrl-C), and continue with `roost cap TABLE`. It asks before rows are deleted, but not again for what
    you have agreed to. Rows with NULL in a column of --per, or in that of --by, are not touched. The table needs an
    index on the columns of --per and then --newest-by, or on that of --by.

    In MariaDB and MySQL a trigger cannot delete from its own table. There a server event deletes the excess or old
    rows every second, if event_scheduler is ON and the account may create events; otherwise use --watch, which deletes
    them until Ctrl-C or SIGTERM. Triggers and event run with the rights of --definer, by default of the account that
    makes them.

    \b
    Examples:
      roost cap visits --per uid --keep 5 --dry-run
      roost cap visits --per uid --keep 5 --newest-by last_update
      roost cap messages --per room,topic --keep 100 --yes
      roost cap events --older-than 30d --by created_at --dry-run
      roost cap requests --older-than 12h --by at --epoch ms
      roost cap visits --watch --store mysql://user@host/app
    """
    rule["per"] = [each.strip() for columns in rule["per"] for each in columns.split(",")] or None
    given = {option for option, value in rule.items() if value is not None}
    if given & {"per", "keep", "newest_by"} and given & {"older_than", "by", "epoch", "offset"}:
        raise click.UsageError("a table is kept short by --per and --keep, or by --older-than and --by, not by both")
    if rule["definer"] and not all(rule["definer"].rpartition("@")):
        raise click.UsageError("--definer is an account with its host, as roostcap@localhost")
    with settings.open() as store:
        found = bursts.inspect(store, table, **rule)
        if dry_run:
            answer(settings, _document(found), _told(found))
            return
        _may_make_index(found, make_index)
        if found.runs_as:
            must_agree(f"{found.runs_as}. Go on all the same?", yes)
        if found.excess and not _agreed_before(found):
            must_agree(f"{_loss(found)}. Go on?", yes)
        if watch:
            bursts.claim(store, found.cap)
        deleted, seconds = _trim(store, found)
        keeper, table = "watch" if watch else bursts.keeper(store, found.cap), found.cap.table
        document = {"table": table, "deleted": deleted, "seconds": round(seconds, 3), "kept_by": keeper}
        kept, done = _KEPT[keeper].format(table=table), _summary(found.cap, deleted, seconds)
        answer(settings, document, [f"{table}: {done}; {_rule(found)}{kept}"])
        if watch:
            _watch(store, table)


TELL = 60.0  # seconds between lines that tell the progress where no terminal shows a bar

_KEPT = {
    "triggers": ", and triggers keep it so",
    "event": ", and a server event keeps it so, every second",
    "watch": ", and this command keeps it so, every second",
    "": ", and from now on while `roost cap {table} --watch` runs: event_scheduler is not ON, or not for this account",
}


def _agreed_before(found: Inspection) -> bool:
    # Whether the user agreed to deleting these rows when the table was capped. So a service is not asked at each start.
    old, cap = found.old, found.cap
    same = old is not None and replace(cap, keep=old.keep, older_than=old.older_than, index=old.index) == old
    return same and old is not None and (cap.keep, cap.older_than) >= (old.keep, old.older_than)


def _watch(store: roost.Store, table: str) -> None:
    # Ctrl-C and SIGTERM take effect at the end of a transaction, and are no failure: a watch is meant to end by them.
    ended, made = threading.Event(), bursts.capped(store, table)
    before = {each: signal.signal(each, lambda *_: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        if made is None:
            raise Failure(f"{table} was uncapped meanwhile")
        while not ended.wait(EVERY):
            with suppress(roost.Busy):  # rows that ON DELETE CASCADE would delete are locked: left to the next pass
                for _ in bursts.work_off(store, made):
                    if ended.is_set():
                        break
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _may_make_index(found: Inspection, make_index: bool) -> None:
    if found.index or make_index or not found.bytes or (found.rows <= SMALL and found.bytes <= NARROW):
        return
    columns = ", ".join([*found.cap.per, *([found.cap.by] if found.cap.by else [])])
    raise Failure(
        f"{found.cap.table} has no index on ({columns}), and making one on {counted(found.rows, 'row')} holds up every "
        f"writer for about {found.rows / 1e6:.1f} s. Make it when that may be (CREATE INDEX …), or say --make-index"
    )


def _summary(cap: Cap, deleted: int, seconds: float) -> str:
    if not deleted:
        return "no row was too old" if cap.older_than else "no row was too many"
    rate = f" ({deleted / seconds:,.0f}/s)" if seconds else ""
    return f"{counted(deleted, 'row')} deleted in {seconds:.1f} s{rate}"


def _trim(store: roost.Store, found: Inspection) -> tuple[int, float]:
    # Returns how many rows were deleted, and how long that took.
    table, began, told, total, seconds = found.cap.table, time.perf_counter(), 0.0, 0, 0.0
    steps = bursts.cap(store, found)
    try:
        with progress_bar("rows") as bar:
            task = bar.add_task("", total=found.excess)
            while True:
                with uninterrupted():  # Ctrl-C takes effect after the transaction, so that its rows are counted
                    deleted = next(steps, None)
                    total += deleted or 0
                    seconds = time.perf_counter() - began
                bar.update(task, completed=total, total=max(found.excess, total))
                if deleted is None:
                    return total, seconds
                if bar.disable and seconds - told >= TELL:
                    told = seconds
                    click.echo(f"{table}: {_summary(found.cap, total, seconds)} so far, of {found.excess:,}", err=True)
    except KeyboardInterrupt:
        click.echo(f"\n{table}: {_summary(found.cap, total, seconds)}; `roost cap {table}` goes on", err=True)
        raise
    except roost.Error as error:
        if not total:
            raise
        raise Failure(f"{error}\n{_summary(found.cap, total, seconds)}; `roost cap {table}` goes on") from error
    finally:
        steps.close()


def _rule(found: Inspection) -> str:
    cap = found.cap
    if cap.older_than:
        return f"rows go when {cap.by} is older than {in_words(cap.older_than)}"
    return f"every {', '.join(cap.per)} keeps its newest {cap.keep:,}{f' by {cap.by}' if cap.by else ''}"


def _loss(found: Inspection) -> str:
    cap = found.cap
    which = (
        f"those whose {cap.by} is older than {in_words(cap.older_than)}"
        if cap.older_than
        else (
            f"those beyond the newest {cap.keep:,} of {', '.join(cap.per)} by {found.by}, which {found.full:,} of "
            f"{counted(found.keys, 'key')} have"
        )
    )
    return f"{cap.table}: {found.excess:,} of {counted(found.rows, 'row')} are deleted, {which}"


def _document(found: Inspection) -> dict[str, Any]:
    counts = ("rows", "excess", "keyless", *(() if found.cap.older_than else ("keys", "full")))
    return {
        "table": found.cap.table,
        **found.cap.rule,
        **{fact: getattr(found, fact) for fact in ("others", *counts)},
        "index": found.index or None,
        "capped": found.old is not None,
    }


def _told(found: Inspection) -> list[str]:
    cap = found.cap
    too = "too old" if cap.older_than else "too many"
    lines = [_loss(found) if found.excess else f"{cap.table}: no row of {counted(found.rows, 'row')} is {too}"]
    if found.others:
        lines.append(f"rows of {', '.join(found.others)} are deleted with them, by ON DELETE CASCADE")
    if found.keyless:
        columns = ", ".join(cap.per) or cap.by
        lines.append(f"{counted(found.keyless, 'row')} with NULL in {columns}: left alone")
    if cap.time in ("plain", "date"):
        hours, minutes = divmod(abs(cap.offset), 60)
        zone = f"{'-' if cap.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if cap.offset else ""
        lines.append(f"its times are taken for those of UTC{zone}; --utc-offset says otherwise")
    if found.runs_as:
        lines.append(found.runs_as)
    lines.append(f"rows are found by: {found.index}" if found.index else f"an index would be made: {found.index_sql}")
    return [*lines, "nothing was changed"]


@click.command()
@click.argument("table")
@shared
@click.pass_obj
def uncap(settings: GlobalOptions, table: str) -> None:
    """Undo `roost cap`: the table is no longer kept short.

    This removes its triggers, or on MariaDB and MySQL the event; the index, if `cap` made one; and its entry in the
    catalog. The existing rows stay; deleted rows do not come back.

    \b
    Examples:
      roost uncap visits
    """
    with settings.open() as store:
        made = bursts.uncap(store, table)
    answer(settings, {"table": made.table}, [f"{made.table}: not capped any more; its rows are as they were"])
