"""Django's cache, one thread: `RoostCache` beside `DatabaseCache` on the same database, and `RedisCache`.

1,000 keys with values of 100 bytes, each with an end, as many as MAX_ENTRIES allows. SQLite is FULL and in WAL mode for
both; the servers are as tests start them. Redis keeps nothing on disk.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import servers

from bench.memcached import redis_daemon
from bench.report import Line, in_turn, micros, say, show_lines

KEYS = 1000
VALUE = bytes(random.Random(1).randrange(256) for _ in range(100))
TTL = 3600
ROUNDS = 15
MUST = 1.5
TABLE = "cache_of_"
ENGINES = {"sqlite": "sqlite3", "mysql": "mysql", "postgresql": "postgresql"}


class Router:
    """Says where Django's cache tables are, by their names."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        table: str = model._meta.db_table
        return table.removeprefix(TABLE) if table.startswith(TABLE) else None

    db_for_write = db_for_read


def main(quick: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as made:
        Path(folder, "redis").mkdir()
        databases = {"sqlite": f"sqlite:///{folder}/cache.db"}
        try:
            redis = redis_daemon(f"{folder}/redis")
            made.callback(redis.kill)
            for name in servers.SERVERS:
                databases[name] = made.enter_context(servers.database(name))
        except servers.NotHere as error:
            say(str(error))
            return False
        _set_up(databases, redis.url)
        met = [_measured(name, 5 if quick else ROUNDS) for name in databases]
        _close()
    return all(met)


def _close() -> None:
    from django.db import connections

    from roost.contrib.django.cache import shared_store

    connections.close_all()
    for name in connections:
        shared_store(name, joins=True).close()


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    path = parts.path.removeprefix("/")
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    return {
        "ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}",
        "NAME": path,
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


def _set_up(urls: dict[str, str], redis: str) -> None:
    import django
    import pymysql
    from django.conf import settings
    from django.core.management import call_command

    pymysql.install_as_MySQLdb()
    caches: dict[str, Any] = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "redis": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{redis.rpartition(':')[2]}",
        },
    }
    for name in urls:
        caches[f"{name} django"] = {
            "BACKEND": "django.core.cache.backends.db.DatabaseCache",
            "LOCATION": TABLE + name,
            "OPTIONS": {"MAX_ENTRIES": KEYS},
        }
        for kind, options in (("plain", {}), ("bounded", {"MAX_ENTRIES": KEYS})):
            caches[f"{name} {kind}"] = {
                "BACKEND": "roost.contrib.django.cache.RoostCache",
                "LOCATION": f"{kind}_cache",
                "OPTIONS": {"DATABASE": name, **options},
            }
    settings.configure(
        DATABASES={"default": {}, **{name: _database(url) for name, url in urls.items()}},
        DATABASE_ROUTERS=[Router()],
        CACHES=caches,
        INSTALLED_APPS=["roost.contrib.django"],
    )
    django.setup()
    for name in urls:
        call_command("migrate", database=name, verbosity=0)
        call_command("createcachetable", TABLE + name, database=name, verbosity=0)


def _measured(name: str, rounds: int) -> bool:
    from django.core.cache import caches

    dice = random.Random(2)
    keys = [f"page:{n}" for n in range(KEYS)]
    asked, written = [dice.choice(keys) for _ in range(200)], [dice.choice(keys) for _ in range(50)]
    of_all = [caches[each] for each in (f"{name} django", f"{name} plain", f"{name} bounded", "redis")]

    def gets(cache: Any) -> None:
        for key in asked:
            cache.get(key)

    def sets(cache: Any) -> None:
        for key in written:
            cache.set(key, VALUE, TTL)

    for cache in of_all:
        cache.set_many(dict.fromkeys(keys, VALUE), TTL)
        assert cache.get(asked[0]) == VALUE
    lines: list[Line] = []
    for verb, work, n in (("get", gets, len(asked)), ("set", sets, len(written))):
        found = in_turn(rounds, *[partial(work, cache) for cache in of_all])
        theirs, ours, bounded, redis = [each / n for each in found]
        for what, beside, mine, must in (
            (f"{verb}, beside DatabaseCache", theirs, ours, MUST),
            (f"{verb} with MAX_ENTRIES, beside DatabaseCache", theirs, bounded, 0),
            (f"{verb}, beside RedisCache", redis, ours, 0),
        ):
            wanted = f">= {must}" if must else ""
            lines.append(Line(what, micros(beside), micros(mine), beside / mine, wanted, beside / mine >= must))
    return show_lines(f"Django's cache on {name}, one thread", "beside", "Roost", lines)
