"""A model over a structure's view: read by the ORM, never written by it."""

from __future__ import annotations

import datetime as dt
import tempfile
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import connection, models
from django.test import TestCase, override_settings
from django.test.utils import isolate_apps

import roost
from roost.contrib.django.models import MomentField, StructureModel
from tests.contrib.site.pages.models import Page, PageViews
from tests.contrib.site.pages.structures import Everything, Mood, everything, pageviews, store

OBJECTS: Any = PageViews.objects


class ModelTests(TestCase):
    def setUp(self) -> None:
        super().setUp()
        store.run_all(pageviews.add("/", 7), pageviews.add("/about", 2))

    def test_it_is_read(self) -> None:
        self.assertEqual([(page.key, page.total) for page in OBJECTS.order_by("-total")], [("/", 7), ("/about", 2)])
        self.assertEqual({type(page.total) for page in OBJECTS.all()}, {int})
        self.assertEqual(OBJECTS.filter(total__gt=2).aggregate(models.Sum("total")), {"total__sum": 7})
        page = OBJECTS.get(key="/")
        store.run(pageviews.add("/"))
        page.refresh_from_db()
        self.assertEqual(page.total, 8)

    def test_f60_what_would_write_is_refused(self) -> None:
        page = OBJECTS.get(key="/")
        page.total = 9
        refused: list[Callable[[], Any]] = [
            page.save,
            page.save_base,
            page.delete,
            lambda: OBJECTS.create(key="/new", total=1),
            lambda: OBJECTS.get_or_create(key="/new", defaults={"total": 1}),
            lambda: OBJECTS.update_or_create(key="/", defaults={"total": 1}),
            lambda: OBJECTS.bulk_create([PageViews(key="/new", total=1)]),
            lambda: OBJECTS.bulk_update([page], ["total"]),
            lambda: OBJECTS.filter(key="/").update(total=1),
            lambda: OBJECTS.all().delete(),
            lambda: OBJECTS.select_for_update().get(key="/"),
        ]
        for call in refused:
            with self.assertRaisesMessage(roost.Invalid, "store.run(…) with an operation of the structure writes them"):
                call()
        self.assertEqual(store.run(pageviews.top()), [("/", 7), ("/about", 2)])
        self.assertEqual(store.check(), [])

    def test_f120_a_fixture_of_the_whole_application_is_loaded_without_its_rows(self) -> None:
        Page.objects.create(name="home")
        with tempfile.TemporaryDirectory() as folder:
            fixture = str(Path(folder, "pages.json"))
            call_command("dumpdata", "pages", output=fixture)
            Page.objects.all().delete()
            with self.assertWarnsMessage(RuntimeWarning, "PageViews: a fixture's rows are not loaded"):
                call_command("loaddata", fixture, verbosity=0)
        self.assertEqual([page.name for page in Page.objects.all()], ["home"])
        self.assertEqual(store.run(pageviews.top()), [("/", 7), ("/about", 2)])
        self.assertEqual(store.check(), [])

    @isolate_apps("tests.contrib.site.pages")
    def test_a_model_that_migrations_would_make_is_an_error(self) -> None:
        class Managed(StructureModel):
            key: Any = models.TextField(primary_key=True)

            class Meta:
                app_label = "pages"

        self.assertIn("roost.E001", [found.id for found in Managed.check()])
        self.assertNotIn("roost.E001", [found.id for found in PageViews.check()])

    @isolate_apps("tests.contrib.site.pages")
    def test_a_field_that_would_find_nothing_is_an_error(self) -> None:
        class Odd(StructureModel):
            key: Any = models.UUIDField(primary_key=True)
            price: Any = models.DecimalField(max_digits=5, decimal_places=2)
            at: Any = models.DateTimeField()
            moment: Any = MomentField()

            class Meta(StructureModel.Meta):
                app_label = "pages"

        told = [found.obj.name for found in Odd.check() if found.id == "roost.E002"]
        self.assertEqual(told, {"sqlite": ["key", "price", "at"], "mysql": ["key"]}.get(connection.vendor, []))

    @override_settings(USE_TZ=True)
    @isolate_apps("tests.contrib.site.pages")
    def test_a_moment_of_a_whole_second_is_found(self) -> None:
        class Moments(StructureModel):
            key: Any = models.TextField(primary_key=True)
            a_datetime: Any = MomentField()

            class Meta(StructureModel.Meta):
                app_label, db_table = "pages", "everything"

        at = dt.datetime(2008, 1, 1, 22, 3, 23, tzinfo=dt.UTC)
        rest: Any = (1.5, True, b"", at, at.date(), Decimal("1.50"), uuid.UUID(int=7), Mood.GOOD)
        store.run(everything.add(Everything("/", *rest)))
        found: Any = Moments.objects
        self.assertEqual([each.a_datetime for each in found.filter(a_datetime=at)], [at])
        self.assertEqual(
            [found.filter(a_datetime__range=(at, at)).count(), found.filter(a_datetime__gt=at).count()], [1, 0]
        )
