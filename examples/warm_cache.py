"""A cache that is warm after a restart: pages that take long to render are rendered once.

The first caller renders the page; all others, in any process, wait for it or get the old one. After a restart of the
application, or of the database, the pages are still there, so they need not all be rendered again. Any client of
memcached can read the same pages: `roost serve URL --memcached 127.0.0.1:11211 --cache pages`.

    python examples/warm_cache.py sqlite:///app.db   # and again
"""

from __future__ import annotations

import sys
import time

import roost

pages = roost.Cache("pages", max_bytes=100_000_000)
rendered: list[str] = []


def render(name: str) -> bytes:
    """Make a page, slowly."""
    rendered.append(name)
    time.sleep(0.01)
    return f"<h1>{name}</h1>".encode()


def page(store: roost.Store, name: str) -> bytes:
    """Return a page, at most an hour old. In its last minute one caller renders it anew; others get the old one."""
    return store.get_or_set(pages, name, lambda: render(name), ttl=3600, stale=60)


def main(url: str) -> None:
    """Show it at work."""
    with roost.Store(url) as store:
        store.create(pages)
        begun = time.perf_counter()
        for number in range(100):
            page(store, f"page {number % 20}")
        seconds = time.perf_counter() - begun
        print(f"100 requests, {len(rendered)} pages rendered, {seconds * 1000:.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///app.db")
