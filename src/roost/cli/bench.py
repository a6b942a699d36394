"""bench: drive a HandlerSocket server, Roost's or MariaDB's plugin, and report how fast it answers."""

from __future__ import annotations

import os
from typing import Any

import click

from roost.cli.app import Failure, GlobalOptions, as_json
from roost.cli.screen import answer_table
from roost.client.load import Load, Report, drive
from roost.errors import Invalid

READS = ("get", "range")


def _secret(option: str, path: str | None, name: str) -> str:
    if path is None:
        return os.environ.get(name, "")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{option}: {path} cannot be read: {error}") from error


@click.command()
@click.argument("work", type=click.Choice(["get", "range", "update", "insert", "increment", "fill"]))
@click.option("--read", metavar="HOST:PORT", default="127.0.0.1:9998", show_default=True, help="The address for reads.")
@click.option(
    "--write", metavar="HOST:PORT", default="127.0.0.1:9999", show_default=True, help="The address for writes."
)
@click.option("--secret", metavar="S", help="The secret of the address in use; visible in the list of processes.")
@click.option(
    "--secret-file", metavar="FILE", help="A file with the secret. [env: ROOST_BENCH_SECRET: the secret itself]"
)
@click.option("--database", default="bench", show_default=True)
@click.option("--table", default="bench", show_default=True)
@click.option("--rows", type=click.IntRange(min=1000), default=1_000_000, show_default=True, help="Rows of the table.")
@click.option("--hot", type=click.IntRange(min=1), default=10, show_default=True, help="Rows to increment.")
@click.option("--connections", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--pipeline", type=click.IntRange(min=1), default=1, show_default=True, help="Requests sent at once.")
@click.option("--idle", type=click.IntRange(min=0), default=0, help="Further connections that send nothing.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the load generator."
)
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, show_default=True)
@click.option(
    "--zipf", type=click.FloatRange(min=0.01), metavar="S", help="Exponent of Zipf-distributed keys, such as 0.99."
)
@click.option(
    "--pace", type=click.FloatRange(min=1), metavar="N", help="Requests per second; by default, as many as possible."
)
@as_json
@click.pass_obj
def bench(
    settings: GlobalOptions,
    /,
    work: str,
    read: str,
    write: str,
    secret: str | None,
    secret_file: str | None,
    zipf: float | None,
    pace: float | None,
    processes: int,
    **options: Any,
) -> None:
    """Load a HandlerSocket server and report how fast it answers.

    Any server: Roost's, or MariaDB's plugin. Every answer is compared with the expected one; wrong answers are counted
    by kind, and make the command fail. A connection sends --pipeline requests at once, and the next ones when all are
    answered; the reported times are those of such a chunk. With --pace they are measured from the time when the chunk
    was due.

    \b
    The tables, in the database that --database names (on SQLite: main):
      CREATE TABLE bench (id BIGINT PRIMARY KEY, v VARCHAR(64));
      CREATE TABLE counts (id BIGINT PRIMARY KEY, n BIGINT);  -- increment
    On SQLite, use INTEGER PRIMARY KEY. `fill` inserts the rows 1 to --rows into an empty table.

    \b
    Examples:
      roost bench fill --database main --pipeline 100 --connections 4
      roost bench get --database main --pipeline 32 --zipf 0.99 --processes 2
      roost bench increment --database main --table counts
      roost bench get --read db:9998 --secret-file secret --idle 9900
    """
    key = secret if secret is not None else _secret("--secret-file", secret_file, "ROOST_BENCH_SECRET")
    address = read if work in READS else write
    load = Load(work=work, address=address, secret=key, zipf=zipf or 0.0, pace=pace or 0.0, **options)
    if work == "fill":
        load = Load(**{**vars(load), "seconds": 1e6, "warmup": 0.0})
    try:
        report = drive(load, processes)
    except Invalid as error:
        raise click.UsageError(str(error)) from error
    rows = _lines(load, report, processes)
    answer_table(settings, _document(report), f"{work} at {address}", ("", ""), rows)
    if report.errors:
        example = f": {report.example}" if report.example else ""
        raise Failure(f"{report.errors.total()} answers were not what they have to be{example}")
    if report.counted is not None and report.counted != report.answered:
        raise Failure(
            f"{report.answered} increments were answered, and the rows have grown by {report.counted}; "
            "another client writes them, or increments were lost or done twice"
        )


def _document(report: Report) -> dict[str, Any]:
    own, kernel = report.cost
    return {
        "requests_per_second": round(report.rate, 1),
        "requests": report.requests,
        "seconds": round(report.seconds, 3),
        "p50_us": report.percentile(0.5),
        "p99_us": report.percentile(0.99),
        "p99_9_us": report.percentile(0.999),
        "errors": dict(report.errors),
        "lost_connections": report.lost,
        "generator_us_per_request": round(own + kernel, 2),
        "generator_busiest": round(report.busiest, 3),
        "generator_is_bottleneck": report.is_bottleneck,
    }


def _lines(load: Load, report: Report, processes: int) -> list[tuple[str, str]]:
    own, kernel = report.cost
    lines = [
        ("requests", f"{report.rate:,.0f} per second"),
        ("connections", f"{load.connections} with {load.pipeline} in flight, {load.idle} idle"),
        *[(f"{name} of a chunk", _time(report.percentile(share))) for name, share in SHARES],
        *[(f"error {kind}", f"{number:,}") for kind, number in report.errors.most_common()],
        (
            "this generator",
            f"{own:.1f} + {kernel:.1f} µs of CPU per request (its own, the kernel's); "
            f"{report.busiest:.0%} of a core in the busiest of {processes}",
        ),
    ]
    if report.is_bottleneck:
        lines.append(("", "it was the bottleneck, not the server: take more --processes, or another machine"))
    return lines


SHARES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))


def _time(micros: float) -> str:
    return f"{micros:,.0f} µs" if micros < 10_000 else f"{micros / 1000:,.1f} ms"
