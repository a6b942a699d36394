"""MariaDB with settings that are not its defaults: it works just the same, or is refused and the setting is named."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

import roost
from tests.model.model import Model
from tests.strange import behaviour
from tests.strange.mariadb import Client, connection, default_mode, strange
from tests.suite.conftest import InAsyncio
from tests.suite.ways import WAYS, App, Way


@dataclass(frozen=True)
class Case:
    """One strange server.

    settings: global ones; {default} is the sql_mode that the server comes with.
    options: of a server of its own, where it is no setting that can be changed.
    charset: of the database.
    empty: whether a SQL client can write a text that is empty.
    django: whether Django works there, without Roost.
    outlives: whether a connection of an application outlives its COMMIT.
    refused: what the message says to asyncmy, which leaves the session's character set to the server; "": it works.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    charset: str = ""
    empty: bool = True
    django: bool = True
    outlives: bool = True
    refused: str = ""


CASES = [
    Case("no-backslash-escapes", {"sql_mode": "{default},NO_BACKSLASH_ESCAPES"}),
    Case("empty-string-is-null", {"sql_mode": "{default},EMPTY_STRING_IS_NULL"}, empty=False),
    Case("select-limit", {"sql_select_limit": 1}),
    Case("chained", {"completion_type": "CHAIN", "sql_safe_updates": 1, "autocommit": 0}),
    Case("latin1", {"character_set_server": "latin1", "collation_server": "latin1_german1_ci"}),
    Case("lax", {"sql_mode": ""}),
    Case("ansi", {"sql_mode": "ANSI"}),
    Case("oracle", {"sql_mode": "ORACLE"}),
    Case("oracle-empty", {"sql_mode": "ORACLE,EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES"}, empty=False),
    Case("traditional", {"sql_mode": "TRADITIONAL,ONLY_FULL_GROUP_BY"}),
    Case("padded", {"sql_mode": "{default},PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,IGNORE_SPACE"}),
    Case("zero-dates", {"sql_mode": "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_UNSIGNED_SUBTRACTION"}),
    Case("assigned-at-once", {"sql_mode": "SIMULTANEOUS_ASSIGNMENT,REAL_AS_FLOAT,TIME_ROUND_FRACTIONAL"}),
    Case("released", {"completion_type": "RELEASE"}, django=False, outlives=False),
    Case("autocommit-off", {"autocommit": 0}),
    Case("safe-updates", {"sql_safe_updates": 1}),
    Case("small-selects", {"max_join_size": 1}),
    # Django sets it back together with the isolation level, as two statements in one text, which PyMySQL refuses.
    Case("auto-is-null", {"sql_auto_is_null": 1}, django=False),
    Case("read-uncommitted", {"tx_isolation": "READ-UNCOMMITTED"}),
    Case("serializable", {"tx_isolation": "SERIALIZABLE"}),
    Case("statement-time", {"max_statement_time": 2}),
    Case("east", {"time_zone": "+13:00"}),
    Case("idle", {"wait_timeout": 1, "interactive_timeout": 1}),
    Case("short-sort", {"max_sort_length": 64, "group_concat_max_len": 4}),
    Case("unquoted", {"sql_quote_show_create": 0}),
    Case("impatient", {"innodb_lock_wait_timeout": 1, "lock_wait_timeout": 1, "innodb_default_row_format": "compact"}),
    Case("turkish", charset="CHARACTER SET utf8mb4 COLLATE utf8mb4_turkish_ci"),
    Case("utf16", charset="CHARACTER SET utf16"),
    Case("lower-case-names", options=("--lower-case-table-names=1",)),
    Case(
        "no-handshake",
        options=("--skip-character-set-client-handshake", "--character-set-server=latin1"),
        refused="character_set_client of the connection is latin1",
    ),
    Case("rolls-back-on-timeout", options=("--innodb-rollback-on-timeout=1",)),
]


def together(*names: str) -> Case:
    """Return one server with the settings of several cases."""
    found = {case.name: case for case in CASES}
    cases = [found[name] for name in names]
    settings = {name: value for case in cases for name, value in case.settings.items()}
    first, *others = [case.settings["sql_mode"] for case in cases if "sql_mode" in case.settings]
    settings["sql_mode"] = ",".join([first, *[mode.removeprefix("{default},") for mode in others]])
    return Case("+".join(names), settings, empty=all(case.empty for case in cases))


# A short run has two servers, on which settings meet; the campaign plays each case alone.
PLAYED = (
    CASES
    if behaviour.ALL_OF_IT
    else [
        together("no-backslash-escapes", "select-limit", "chained", "east", "impatient"),
        together("oracle", "empty-string-is-null", "latin1", "serializable", "short-sort", "unquoted"),
    ]
)
MARIADB_WAYS = [way for way in WAYS if way.engine == "mariadb"]
# A driver and the other kind over it are enough for each server of a short run.
ON = MARIADB_WAYS if behaviour.ALL_OF_IT else [way for way in MARIADB_WAYS if not way.sqlalchemy]


def settings_of(case: Case) -> dict[str, Any]:
    return {
        name: value.format(default=default_mode()) if isinstance(value, str) else value
        for name, value in case.settings.items()
    }


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: f"mariadb-{case.name}")
def test_it_works_just_the_same(case: Case) -> None:
    with strange(settings_of(case), case.options, case.charset) as url:
        if case.django:
            by_django(url)
        model, chance = Model(), random.Random(behaviour.SEED)
        chooser = behaviour.Chooser(chance, nul=True)
        with roost.Store(url) as store:
            store.create(*behaviour.ALL)
            assert store.check() == []
            behaviour.play(store.run_all, model, chooser, chance, "Store")
            awaited = InAsyncio(url, (), {})
            behaviour.play(awaited.run_all, model, chooser, chance, "AsyncStore")
            awaited.close()
            for way in ON if case.outlives else []:
                if case.refused and way.name == "asyncmy":
                    refused(url, way, case.refused)
                else:
                    by_joining(url, way, model, chooser, chance)
            by_sql(url, store, model, behaviour.Chooser(chance, nul=True, empty=case.empty))
            altered(store, model, chooser, chance)
            behaviour.altered(store, chooser)
            assert store.check() == []
        with connection(url) as application:
            behaviour.capped_table(url, application.read, "Posts", "BIGINT AUTO_INCREMENT PRIMARY KEY")


def by_joining(url: str, way: Way, model: Model, chooser: behaviour.Chooser, chance: random.Random) -> None:
    app = App(way, url)

    def run_all(*operations: roost.Operation[Any]) -> Sequence[Any]:
        try:
            found: Sequence[Any] = app.run_all(*operations)
            return found
        finally:
            app.commit()

    try:
        behaviour.play(run_all, model, chooser, chance, way.name)
    finally:
        app.close()


def refused(url: str, way: Way, message: str) -> None:
    app = App(way, url)
    try:
        with pytest.raises(roost.Invalid, match=message):
            app.run(behaviour.counter.add("é"))
    finally:
        app.close()


def by_sql(url: str, store: roost.Store, model: Model, chooser: behaviour.Chooser) -> None:
    with connection(url) as client:
        assert isinstance(client, Client)
        behaviour.play_by_sql(client, pymysql.MySQLError, model, chooser, "views")
        client.commit()
    behaviour.compare(store.run_all, model, "after the views")


def altered(store: roost.Store, model: Model, chooser: behaviour.Chooser, chance: random.Random) -> None:
    # Rows are rewritten, and the view is made anew.
    ring = behaviour.ring
    longer = roost.Ring(ring.name, behaviour.Thing, per="uid", keep=5)
    store.alter(longer)
    store.alter(ring)
    store.alter(behaviour.evicting, view=False)
    store.alter(behaviour.evicting, view=True)
    behaviour.play(store.run_all, model, chooser, chance, "after alter")


def by_django(url: str) -> None:
    # First, as its model begins with nothing; what it has written is forgotten.
    with roost.Store(url) as store:
        store.create(*behaviour.ALL)
        parts = urlsplit(url)
        database = {
            "ENGINE": "django.db.backends.mysql",
            "HOST": parts.hostname,
            "PORT": str(parts.port),
            "USER": parts.username,
            "NAME": parts.path[1:],
        }
        behaviour.play_by_django({"default": database})
        behaviour.emptied(store)


# Refused: what the setting is called, and what the message has to say beside it.
REFUSED = [("max_allowed_packet", {"max_allowed_packet": 2**20})]


@pytest.mark.parametrize(("setting", "settings"), REFUSED, ids=[f"mariadb-{setting}" for setting, _ in REFUSED])
def test_a_server_that_cannot_be_served_is_refused_at_once(setting: str, settings: dict[str, Any]) -> None:
    with strange(settings) as url, roost.Store(url) as store, pytest.raises(roost.Invalid, match=setting):
        store.create(*behaviour.ALL)


@pytest.mark.parametrize("way", [way for way in MARIADB_WAYS if not way.sqlalchemy], ids=lambda way: way.name)
def test_a_connection_whose_character_set_was_changed_is_refused(way: Way) -> None:
    with strange({}) as url:
        with roost.Store(url) as store:
            store.create(behaviour.counter)
        app = App(way, url)
        try:
            app.sql("SET NAMES latin1")
            with pytest.raises(roost.Invalid, match="character_set_client of the connection is latin1"):
                app.run(behaviour.counter.add("é"))
        finally:
            app.close()
