"""The application "roost.contrib.django": `migrate` creates the structures that the settings declare."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from django import conf  # not `settings` itself: a tool that inspects this module for tests would load the settings
from django.apps import AppConfig
from django.core.cache import caches
from django.db import connections
from django.db.models.signals import post_migrate

from roost.batching.known import Known
from roost.catalog.alter import alter
from roost.catalog.catalog import create
from roost.contrib.django.address import dialect_of
from roost.contrib.django.cache import RoostCache
from roost.contrib.django.executor import change
from roost.contrib.django.sessions import SessionStore
from roost.errors import Mismatch
from roost.structures.cache.declaration import Cache


class RoostConfig(AppConfig):
    """Creates the structures of CACHES and SESSION_ENGINE after migrations, and updates their bounds."""

    name = "roost.contrib.django"
    label = "roost"
    verbose_name = "Roost"

    def ready(self) -> None:
        post_migrate.connect(make_structures, sender=self)


def make_structures(using: str, **_: Any) -> None:
    """Create the structures that the settings declare for a database and that are missing; update changed bounds."""
    connection = connections[using]
    for structure in set(_declared(using)):
        known = Known(dialect_of(connection))
        plan = known.plan(structure)
        try:
            change(create(known.catalog, [plan]), connection)
        except Mismatch:
            change(alter(known.catalog, plan), connection)


def _declared(using: str) -> Iterator[Cache[Any, Any]]:
    for alias in conf.settings.CACHES:
        cache = caches[alias]
        if isinstance(cache, RoostCache) and cache.using == using:
            yield cache.structure
    store = import_module(conf.settings.SESSION_ENGINE).SessionStore
    if (
        "django.contrib.sessions" in conf.settings.INSTALLED_APPS
        and issubclass(store, SessionStore)
        and store.using == using
    ):
        yield store.structure
