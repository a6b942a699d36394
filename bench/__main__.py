"""Run the measurements: `python -m bench [NAME …] [--quick] [--seconds=N]`."""

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
from bench.report import console, machine

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


def main() -> int:
    quick = "--quick" in sys.argv
    names = [name for name in sys.argv[1:] if not name.startswith("-")] or list(MEASUREMENTS)
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no measurement {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    console.print(f"Roost, {machine()}")
    met = [MEASUREMENTS[name](quick) for name in names]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
