"""Helpers for tests: structures are not models, so Django's `flush` does not empty them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from unittest import TestCase

from django.db import DEFAULT_DB_ALIAS, connections

from roost.batching.known import Known
from roost.catalog.catalog import listed
from roost.catalog.private import guarded
from roost.contrib.django.address import dialect_of
from roost.contrib.django.executor import run_atomic
from roost.dialects import Statement, Template
from roost.structures.registry import from_definition

Clearing = Generator[Statement, Any, None]


def clear_structures(using: str = DEFAULT_DB_ALIAS) -> None:
    """Empty every structure of a database, as if each had just been created, and forget all tokens (`once=`).

    Tables of the application's own (`roost cap`) are left alone.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        made = "roost_catalog" in connection.introspection.table_names(cursor)
    if made:
        run_atomic(_clear(Known(dialect_of(connection))), connection)


def _clear(known: Known) -> Clearing:
    for _, _, definition in (yield from listed(known.catalog)):
        plan = known.plan(from_definition(definition))
        for table in plan.layout:  # empty for a table of the application's own
            yield Statement(Template(f"DELETE FROM {table}"), [()])
        for sql in plan.tables:
            if sql.startswith("INSERT"):  # the row of its time
                yield Statement(Template(sql), [()])
    for table in (yield from guarded(known.dialect, ["roost_once"], writes=True)):
        yield Statement(Template(f"DELETE FROM {table}"), [()])


class ClearsStructures(TestCase):
    """Mixin for a TransactionTestCase: empties the structures in every database of `databases` after each test.

    A TestCase does not need it: Django rolls back its changes.

    >>> from django.test import TransactionTestCase
    >>> from roost.contrib.django.testing import ClearsStructures
    >>> class CheckoutTests(ClearsStructures, TransactionTestCase):
    ...     pass
    """

    def setUp(self) -> None:
        super().setUp()
        for using in getattr(self, "databases", {DEFAULT_DB_ALIAS}):
            self.addCleanup(clear_structures, using)
