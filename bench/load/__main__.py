"""Drive a HandlerSocket server, Roost's or MariaDB's plugin: `python -m bench.load get --address 127.0.0.1:9998`.

Every answer is compared with the expected one; wrong answers are counted by kind, and end in exit code 1. The tables
are those of `workloads.py`; `fill` inserts the rows 1 to `--rows` into an empty one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

from bench.load.load import WORKLOADS, Load
from bench.load.processes import drive
from bench.report import console, show
from roost.errors import Error

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.load", description=__doc__)
    parser.add_argument("work", choices=WORKLOADS)
    parser.add_argument("--processes", type=int, default=1)
    for field in dataclasses.fields(Load)[1:]:
        default = os.environ.get("ROOST_BENCH_SECRET", "") if field.name == "secret" else field.default
        if field.name == "address":
            parser.add_argument("--address", required=True)
        else:
            parser.add_argument(f"--{field.name}", type=type(field.default), default=default)
    options = vars(parser.parse_args())
    processes = options.pop("processes")
    if options["work"] == "fill":
        options |= {"seconds": 1e6, "warmup": 0.0}
    load = Load(**options)
    try:
        report = drive(load, processes)
    except Error as error:
        print(error, file=sys.stderr)
        return 2
    own, kernel = report.cost
    rows = [
        ["requests per second", f"{report.rate:,.0f}"],
        *[[f"{name} of a chunk, µs", f"{report.percentile(share):,.0f}"] for name, share in SHARES.items()],
        *[[f"error {kind}", f"{number:,}"] for kind, number in report.errors.most_common()],
        ["the generator's CPU per request, µs", f"{own:.1f} + {kernel:.1f} in the kernel"],
        ["of a core, in its busiest process", f"{report.busiest:.0%}"],
    ]
    show(f"{load.work} at {load.address}", ["", ""], rows)
    if report.is_bottleneck:
        console.print("The generator was the bottleneck: take more --processes, or another machine.")
    if report.counted not in (None, report.answered):
        console.print(f"{report.answered} increments were answered, and the rows have grown by {report.counted}.")
        return 1
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
