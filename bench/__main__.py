"""Run the measurements: `python -m bench [NAME …] [--quick] [--seconds=N] [--gate]`.

What was measured is kept as JSON and drawn as a chart, in bench/kept and bench/charts. `--gate` keeps nothing: it
compares the median of three runs with what is kept.
"""

from __future__ import annotations

import sys

from bench import (
    adoption,
    bulk,
    cache,
    calls,
    clusters,
    databases,
    django_cache,
    doors,
    footprint,
    growth,
    handlersocket,
    kept,
    limits,
    memcached,
    memcached_protocol,
    modes,
    served,
    servers,
    snapshot,
    threads,
    views,
)
from bench.report import Report, console, machine, reports

MEASUREMENTS = {
    "calls": calls.main,
    "threads": threads.main,
    "bulk": bulk.main,
    "cache": cache.main,
    "django": django_cache.main,
    "limits": limits.main,
    "doors": doors.main,
    "views": views.main,
    "growth": growth.main,
    "footprint": footprint.main,
    "adoption": adoption.main,
    "databases": databases.main,
    "servers": servers.main,
    "handlersocket": handlersocket.main,
    "served": served.main,
    "memcached": memcached.main,
    "memcached-protocol": memcached_protocol.main,
    "modes": modes.main,
    "clusters": clusters.main,
    "snapshot": snapshot.main,
}


def measured(name: str, quick: bool) -> tuple[bool, list[Report]]:
    """Run one measurement; return whether its targets were met, and what it has printed with targets."""
    reports.clear()
    met = MEASUREMENTS[name](quick)
    return met, list(reports)


def gate(names: list[str]) -> int:
    """Compare the median of three runs with what is kept; return how many ratios are worse."""
    worse = 0
    for name in names:
        quick, before = kept.read(name)
        found = kept.worse(before, [measured(name, quick)[1] for _ in range(3)])
        for line in found:
            console.print(f"{name}: {line}")
        worse += len(found)
    console.print(f"{worse} ratios are worse than what is kept" if worse else "no ratio is worse than what is kept")
    return worse


def main() -> int:
    quick = "--quick" in sys.argv
    all_names = kept.names() if "--gate" in sys.argv else list(MEASUREMENTS)
    names = [name for name in sys.argv[1:] if not name.startswith("-")] or all_names
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no measurement {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    console.print(f"Roost, {machine()}")
    if "--gate" in sys.argv:
        return 1 if gate(names) else 0
    all_met = True
    for name in names:
        met, found = measured(name, quick)
        all_met = met and all_met
        kept.keep(name, quick, found)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
