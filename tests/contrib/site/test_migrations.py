"""Migrations: there and back, printed, squashed, frozen; routers are asked."""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import skipIf

from django.core.cache import caches
from django.core.management import call_command
from django.db import connection, migrations, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter
from django.test import SimpleTestCase, TransactionTestCase
from django.test.utils import override_settings, tag

import roost
from roost.contrib.django import DjangoStore
from roost.contrib.django.operations import AlterStructure, CreateStructure, DropStructure
from roost.contrib.django.sessions import SessionStore
from roost.contrib.django.testing import clear_structures
from tests.contrib.kinds import KINDS
from tests.contrib.site.pages import structures
from tests.contrib.site.pages.structures import ALL, Mood, Visit, pageviews, store, visits
from tests.latest import Latest
from tests.lengths import length


@dataclass
class LongVisit:
    uid: int
    visitor: int
    mood: Mood = Mood.BAD
    note: str | None = None


def ring(keep: int = 5, row: Any = Visit, name: str = "visits") -> Any:
    return roost.Ring(name, row, per="uid", keep=keep)


def tables() -> list[str]:
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor, include_views=True)
    return sorted(name for name in names if "visits" in name or "pageviews" in name or "extra" in name)


def said(*command: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


# Of servers each makes some of the kinds in the short form, and a file all of them.
TURNS = {"sqlite": slice(None), "mysql": slice(0, None, 2), "postgresql": slice(1, None, 2)}
TURN = length(TURNS[connection.vendor], slice(None))
ROUNDS = length(2 if connection.vendor == "sqlite" else 1, 2)


class Nowhere:
    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        return None if hints.get("structure") != "extra" else False


class MigrateTests(TransactionTestCase):
    def tearDown(self) -> None:
        call_command("migrate", "pages", verbosity=0)
        self.assertEqual(store.check(*ALL), [])
        clear_structures()
        super().tearDown()

    def apply(self, operation: Any, *, back: bool = False, collect: bool = False) -> list[str]:
        state = ProjectState()
        with connection.schema_editor(atomic=connection.features.can_rollback_ddl, collect_sql=collect) as editor:
            work = operation.database_backwards if back else operation.database_forwards
            work("pages", editor, state, state)
        return editor.collected_sql if collect else []

    def test_there_and_back_and_there_again(self) -> None:
        made = tables()
        self.assertIn("roost_visits_rows", made)
        store.run_all(pageviews.add("/"), visits.push(Visit(1, 2)))
        call_command("migrate", "pages", "zero", verbosity=0)
        self.assertEqual(tables(), [])
        with self.assertRaises(roost.Missing):
            store.run(pageviews.add("/"))
        call_command("migrate", "pages", verbosity=0)
        self.assertEqual(tables(), made)
        self.assertEqual(store.run_all(pageviews.total("/"), visits.latest(1)), (0, []))

    def test_every_kind_is_made_changed_changed_back_and_dropped(self) -> None:
        for first, second, operation in KINDS[TURN]:
            with self.subTest(first.name):
                self.apply(written_and_read(CreateStructure(first)))
                store.create(first)  # nothing is missing, nothing differs
                store.run(operation(first))
                if second is not None:
                    change = written_and_read(AlterStructure(second, was=first))
                    self.apply(change)
                    store.create(second)
                    self.apply(change, back=True)
                store.create(first)
                self.assertEqual(store.check(first), [])
                self.assertIn(f"roost_{first.name}_rows", "".join(self.apply(DropStructure(first), collect=True)))
                self.apply(DropStructure(first))
                with self.assertRaises(roost.Missing):
                    store.run(operation(first))

    @tag("anywhere")
    def test_what_is_there_already_is_left_as_it_is(self) -> None:
        store.run(pageviews.add("/"))
        self.apply(CreateStructure(pageviews))
        self.assertEqual(store.run(pageviews.total("/")), 1)
        with self.assertRaises(roost.Mismatch):
            self.apply(CreateStructure(roost.Counter("pageviews", slots=3)))

    @tag("anywhere")
    def test_a_declaration_changes_and_changes_back(self) -> None:
        store.run_all(*[visits.push(Visit(1, n)) for n in range(9)])
        change = AlterStructure(ring(3), was=ring(5))
        self.apply(change)
        self.assertEqual([row.visitor for row in store.run(visits.latest(1))], [8, 7, 6])
        self.assertEqual([row.visitor for row in store.run(ring(3).latest(1))], [8, 7, 6])
        self.apply(change, back=True)
        self.assertEqual([row.visitor for row in store.run(visits.latest(1))], [8, 7, 6])

    @skipIf(connection.vendor == "sqlite", "it adds no CHECK to a table that is there")
    def test_f18_a_check_of_the_applications_own_is_an_error_of_roosts(self) -> None:
        table = "ALTER TABLE roost_visits_rows"
        with connection.cursor() as cursor:
            cursor.execute(f"{table} ADD CONSTRAINT positive CHECK (visitor > 0)")
        try:
            with transaction.atomic():
                with self.assertRaisesMessage(roost.StatementFailed, "positive"):
                    store.run(visits.push(Visit(1, -1)))
                self.assertEqual(store.run(visits.push(Visit(1, 1))), 1)
            facts = connection.settings_dict
            place = f"default ({facts['NAME']} on {facts['HOST']}:"
            with self.assertRaisesMessage(roost.StatementFailed, place), transaction.atomic():
                store.run(visits.push(Visit(1, -1)))
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"{table} DROP CONSTRAINT positive")

    @tag("anywhere")
    def test_a_new_column_gets_the_frozen_default(self) -> None:
        self.addCleanup(self.apply, DropStructure(ring(row=LongVisit, name="extra")))
        self.apply(CreateStructure(ring(name="extra")))
        store.run(ring(name="extra").push(Visit(1, 2)))
        written = written_and_read(AlterStructure(ring(row=LongVisit, name="extra"), was=ring(name="extra")))
        self.apply(written)
        found = store.run(ring(row=LongVisit, name="extra").latest(1))
        self.assertEqual(found, [LongVisit(1, 2)])

    def test_f120_the_way_back_keeps_added_columns(self) -> None:
        first, last = ring(name="extra"), ring(row=LongVisit, name="extra")
        between = AlterStructure(ring(3, row=LongVisit, name="extra"), was=first)
        other = AlterStructure(last, was=ring(3, name="extra"))  # it tells nothing of the columns before it
        self.addCleanup(self.apply, DropStructure(first))
        for _ in range(ROUNDS):
            self.apply(CreateStructure(first))
            self.apply(between)
            self.apply(other)
            store.run(last.push(LongVisit(1, 2, Mood.GOOD, "hello")))
            self.apply(other, back=True)
            self.apply(between, back=True)
            self.assertEqual(store.run_all(first.push(Visit(1, 3)), first.latest(1))[1], [Visit(1, 3), Visit(1, 2)])
            longer = AlterStructure(ring(7, name="extra"), was=first)  # neither declaration has them
            self.apply(longer)
            self.apply(longer, back=True)
            self.assertEqual(store.check(), [])
            self.apply(between)
            self.assertEqual(store.run(last.latest(1)), [LongVisit(1, 3), LongVisit(1, 2, Mood.GOOD, "hello")])
            self.apply(between, back=True)
            self.apply(CreateStructure(first), back=True)

    @tag("anywhere")
    def test_a_structure_of_ones_own_is_made_used_and_dropped(self) -> None:
        moods = Latest("extra", key=int, value=str)
        self.apply(written_and_read(CreateStructure(moods)))
        with transaction.atomic():
            store.run_all(moods.set(1, "calm"), moods.set(1, "glad"))
            self.assertEqual(store.run(moods.get(1)), "glad")
        self.assertEqual(store.check(moods), [])
        self.apply(written_and_read(DropStructure(moods)))
        self.assertEqual([name for name in tables() if "extra" in name], [])

    @tag("anywhere")
    def test_dropping_and_making_anew(self) -> None:
        store.run(pageviews.add("/"))
        drop = DropStructure(pageviews)
        self.apply(drop)
        self.apply(drop)
        self.assertEqual([name for name in tables() if "pageviews" in name], [])
        self.apply(drop, back=True)
        self.assertEqual(store.run(pageviews.total("/")), 0)

    @tag("anywhere")
    def test_a_router_that_says_no_is_obeyed(self) -> None:
        extra = roost.Counter("extra")
        with override_settings(DATABASE_ROUTERS=[Nowhere()]):
            for operation in (CreateStructure(extra), AlterStructure(extra), DropStructure(extra)):
                self.apply(operation)
                self.assertEqual(self.apply(operation, collect=True), [])
        self.assertEqual([name for name in tables() if "extra" in name], [])

    def test_sqlmigrate_prints_what_would_be_run(self) -> None:
        printed = said("sqlmigrate", "pages", "0001")
        known = DjangoStore()._store(connection)._core.known
        for structure in (structures.pageviews, structures.carts, structures.everything):
            for table in known.plan(structure).tables:
                self.assertIn(table, printed)
            self.assertIn(known.catalog.dialect.literal(structure.definition), printed)
        back = said("sqlmigrate", "pages", "0001", backwards=True)
        self.assertIn("DROP TABLE IF EXISTS roost_pageviews_rows;", back)
        self.assertIn("DELETE FROM roost_catalog WHERE name = 'pageviews';", back)

    def test_a_printed_change_is_what_would_be_run_now(self) -> None:
        change = AlterStructure(ring(3), was=ring(5))
        printed = self.apply(change, collect=True)
        if connection.vendor == "postgresql":  # what keeps others from writing meanwhile is made again
            self.assertTrue(any(sql.startswith("CREATE TRIGGER roost_visits_insert ") for sql in printed), printed)
        for collected in (printed, self.apply(CreateStructure(visits), collect=True)):
            if connection.vendor == "mysql":  # whose client ends a statement at any `;`
                self.assertEqual((collected[1], collected[-1]), ("DELIMITER ;;", "DELIMITER ;"))
        self.assertTrue(any(sql.startswith("DELETE FROM roost_visits_rows") for sql in printed), printed)
        self.assertTrue(any(sql.startswith("UPDATE roost_catalog") and ":3}" in sql for sql in printed), printed)
        store.run(visits.push(Visit(1, 2)))
        unknown = self.apply(AlterStructure(roost.Counter("extra")), collect=True)
        self.assertIn("-- extra is not there yet", unknown[0])
        with connection.schema_editor(collect_sql=True) as editor:
            DropStructure(visits).database_forwards("pages", editor, ProjectState(), ProjectState())
            change.database_forwards("pages", editor, ProjectState(), ProjectState())
        self.assertIn("-- visits is changed before", editor.collected_sql[-1])

    @tag("anywhere")
    def test_sqlmigrate_of_a_database_that_has_nothing_yet(self) -> None:
        call_command("migrate", "pages", "zero", verbosity=0)
        for structure in {*(each.structure for each in caches.all(initialized_only=False)), SessionStore.structure}:  # type: ignore[attr-defined]
            self.apply(DropStructure(structure))
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE roost_catalog")
        printed = said("sqlmigrate", "pages", "0001")
        self.assertIn("-- visits is changed before", printed)
        self.assertIn("CREATE TABLE roost_everything_rows", printed)
        self.assertIn("CREATE TABLE IF NOT EXISTS roost_once", printed)
        change = AlterStructure(ring(3))
        with connection.schema_editor(collect_sql=True) as editor:
            for _ in range(2):
                change.database_forwards("pages", editor, ProjectState(), ProjectState())
        self.assertEqual(len(editor.collected_sql), 2)

    @tag("anywhere")
    def test_makemigrations_finds_nothing_to_do(self) -> None:
        self.assertIn("No changes detected", said("makemigrations", check_changes=True, dry_run=True))

    @tag("anywhere")
    def test_the_migrations_squash(self) -> None:
        loader = MigrationLoader(connection)
        migration = loader.get_migration("pages", "0001_initial")
        squashed = MigrationOptimizer().optimize(list(migration.operations), "pages")
        self.assertEqual([type(each).__name__ for each in squashed], ["CreateModel"] * 2 + ["CreateStructure"] * 5)
        self.assertEqual(
            {each.structure for each in squashed if isinstance(each, CreateStructure)}, set(structures.ALL)
        )

    def test_what_the_engine_cannot_take_back_is_not_made_inside_a_transaction(self) -> None:
        extra = roost.Counter("extra")
        if connection.features.can_rollback_ddl:
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                store.create(extra)
                store.run(extra.add("/"))
                raise ZeroDivisionError
        else:
            with transaction.atomic(), self.assertRaises(transaction.TransactionManagementError):
                store.create(extra)
        self.assertEqual([name for name in tables() if "extra" in name], [])


def written_and_read(operation: Any) -> Any:
    """Write a migration as Django does, and read it again."""
    migration = type("Migration", (migrations.Migration,), {"operations": [operation]})("written", "pages")
    source = MigrationWriter(migration).as_string()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "written.py")
        path.write_text(source)
        namespace: dict[str, Any] = {}
        exec(compile(source, path, "exec"), namespace)
    return namespace["Migration"].operations[0]


class WrittenTests(SimpleTestCase):
    def test_what_django_writes_is_the_same_operation_without_the_module(self) -> None:
        long = ring(row=LongVisit)
        for operation in (
            *[CreateStructure(each) for each in structures.ALL],
            CreateStructure(pageviews, view=False),
            CreateStructure(Latest("moods", key=int, value=str)),
            AlterStructure(long, was=ring(), view=False),
            AlterStructure(pageviews),
            DropStructure(pageviews, view=False),
        ):
            with self.subTest(operation.describe()):
                again = written_and_read(operation)
                self.assertIs(type(again), type(operation))
                self.assertEqual(again.deconstruct(), operation.deconstruct())
                self.assertEqual(again.structure.definition, operation.structure.definition)
                self.assertNotIn("tests.contrib", repr(operation.deconstruct()))

    def test_names_and_sentences(self) -> None:
        self.assertEqual(CreateStructure(pageviews).migration_name_fragment, "pageviews")
        self.assertEqual(AlterStructure(pageviews).migration_name_fragment, "alter_pageviews")
        self.assertEqual(DropStructure(pageviews).migration_name_fragment, "drop_pageviews")
        self.assertEqual(AlterStructure(pageviews).describe(), "Alter counter pageviews")
        self.assertFalse(AlterStructure(pageviews).reversible)
        self.assertTrue(AlterStructure(pageviews, was=pageviews).reversible)

    def test_what_cannot_be_meant_is_refused(self) -> None:
        with self.assertRaises(roost.Invalid):
            AlterStructure(pageviews, was=roost.Counter("others"))
        with self.assertRaises(roost.Invalid):
            CreateStructure({"kind": "heap", "name": "visits"})


class SquashTests(SimpleTestCase):
    def optimized(self, *operations: Any) -> list[Any]:
        return [each.deconstruct() for each in MigrationOptimizer().optimize(list(operations), "pages")]

    def test_what_several_operations_come_to(self) -> None:
        extra = roost.Counter("extra")
        create, drop = CreateStructure(pageviews), DropStructure(ring())
        sql = migrations.RunSQL("SELECT 1")
        model = migrations.CreateModel("Other", [("id", models.BigAutoField(primary_key=True))])
        change = AlterStructure(ring(3), was=ring(5))
        off, on = [AlterStructure(ring(), was=ring(), view=view) for view in (False, True)]
        cases: list[tuple[list[Any], list[Any]]] = [
            ([CreateStructure(ring(5)), create, change], [create, CreateStructure(ring(3))]),
            ([CreateStructure(ring(5)), model, drop], [model]),
            ([CreateStructure(ring(5)), sql, drop], [CreateStructure(ring(5)), sql, drop]),
            ([change, AlterStructure(ring(4), was=ring(3))], [AlterStructure(ring(4), was=ring(5))]),
            ([change, CreateStructure(extra), DropStructure(ring(3))], [CreateStructure(extra), drop]),
            ([AlterStructure(ring(3), was=ring(), view=True), drop], [DropStructure(ring(), view=False)]),
            ([off, on, change], [off, AlterStructure(ring(3), was=ring(), view=True)]),
            ([AlterStructure(ring(3)), drop], [AlterStructure(ring(3)), drop]),
            ([CreateStructure(ring()), AlterStructure(ring(), view=False)], [CreateStructure(ring(), view=False)]),
            ([drop, CreateStructure(ring())], [drop, CreateStructure(ring())]),
        ]
        for given, wanted in cases:
            with self.subTest(given):
                self.assertEqual(self.optimized(*given), [each.deconstruct() for each in wanted])
