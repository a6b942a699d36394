"""The cache and the sessions: in transactions, outside of them, and what migrations make of their settings."""

from __future__ import annotations

import datetime as dt
import enum
import os
from contextlib import nullcontext, suppress
from itertools import count
from typing import Any, cast
from unittest import mock, skipIf

from django.conf import settings
from django.contrib.sessions.backends.base import CreateError, UpdateError
from django.core.cache import CacheHandler, cache, caches
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.state import ProjectState
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, TestCase, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils.safestring import mark_safe
from django.views.decorators.cache import cache_page

import roost
from roost.contrib.django import DjangoStore, sessions
from roost.contrib.django.operations import DropStructure
from roost.contrib.django.sessions import SessionStore
from roost.contrib.django.testing import ClearsStructures
from tests.contrib.site.pages.structures import store
from tests.contrib.site.test_batches import in_thread

SESSIONS = SessionStore.structure
SEASON = int(os.environ.get("ROOST_TEST_SEASON", "40"))  # days


class Number(enum.IntEnum):
    ONE = 1


class CacheTests(TestCase):
    def tearDown(self) -> None:
        self.assertEqual(store.check(*{cast(Any, caches[alias]).structure for alias in caches}), [])
        super().tearDown()

    def test_every_value_comes_back_as_it_went(self) -> None:
        values = [None, 0, -1, 2**63 - 1, -(2**63), 2**63, 10**30, True, 1.5, "42", b"42", b"", (1,), {"a": [None]}]
        for alias, more in (("default", mark_safe("<p>")), ("signed", Number.ONE)):
            caches[alias].set_many({str(n): value for n, value in enumerate([*values, more])})
            found = [caches[alias].get(str(n)) for n in range(len(values) + 1)]
            self.assertEqual(found, [*values, more])
            self.assertEqual([type(each) for each in found], [*map(type, values), type(more)])

    def test_whole_responses_need_the_signed_form(self) -> None:
        def view(_: HttpRequest) -> HttpResponse:
            return HttpResponse(str(next(numbers)))

        numbers, request = count(), RequestFactory().get("/")
        with self.assertRaisesMessage(roost.Invalid, "'SERIALIZER': 'signed'"):
            cache_page(60)(view)(request)
        self.assertEqual([cache_page(60, cache="signed")(view)(request).content for _ in range(2)], [b"1", b"1"])

    def test_a_value_of_another_serializer_is_a_miss(self) -> None:
        signed = caches["signed"]
        cache.set_many({"a": [1], "b": [2]})
        structure = signed.structure  # type: ignore[attr-defined]
        store.run(structure.set("signed:1:a", b"[1]"))
        with self.assertLogs("roost", "WARNING"):
            self.assertEqual((signed.get("a", 7), signed.get_many(["a", "b"])), (7, {}))
        with override_settings(SECRET_KEY="another"):
            others = CacheHandler({"default": {**settings.CACHES["signed"]}})["default"]
            signed.set("a", [1])
            with self.assertLogs("roost", "WARNING"):
                self.assertIsNone(others.get("a"))
        with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
            others = CacheHandler({"default": {**settings.CACHES["signed"]}})["default"]
            self.assertEqual(others.get("a"), [1])

    def test_an_int_is_digits_to_others(self) -> None:
        cache.set("n", 41)
        self.assertEqual(store.run(caches["default"].structure.get(":1:n")), b"41")  # type: ignore[attr-defined]

    def test_counting(self) -> None:
        for begin, delta, wanted in (
            *((1, -3, -2), (-2, 1, -1), (-1, 5, 4), (0.5, 1, 1.5), (5, 2**64 + 1, 2**64 + 6)),
            *((2**63 - 1, 2, 2**63 + 1), (-(2**63), -1, -(2**63) - 1)),
        ):
            cache.set("n", begin)
            found = cache.incr("n", delta) if delta > 0 else cache.decr("n", -delta)
            self.assertEqual((found, cache.get("n")), (wanted, wanted))
        with self.assertRaises(ValueError):
            cache.incr("nowhere")
        cache.set("text", "x")
        with self.assertRaises(TypeError):
            cache.incr("text")

    def test_adding_keeps_the_end(self) -> None:
        cache.set("n", 1, None)
        structure = caches["default"].structure  # type: ignore[attr-defined]
        before = store.run(structure.touch(":1:n"))
        cache.incr("n")
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM roost_django_cache_rows WHERE until = 9223372036854775807")
            self.assertEqual((before, cursor.fetchone()), (True, (1,)))

    def test_a_timeout_of_zero_or_less_is_over_at_once(self) -> None:
        for timeout in (0, -1, 1e-7):
            cache.set("a", 1)
            cache.set("a", 2, timeout)
            self.assertEqual((cache.get("a"), cache.add("a", 3, timeout), cache.get("a")), (None, True, None))
            cache.set("a", 1)
            self.assertEqual((cache.add("a", 3, timeout), cache.get("a")), (False, 1))
            self.assertEqual((cache.touch("a", timeout), cache.touch("a", timeout), cache.has_key("a")),
                             (True, False, False))  # fmt: skip

    def test_a_timeout_of_a_thousand_years(self) -> None:
        cache.set("a", 1, 1000 * 366 * 86_400)
        self.assertEqual(cache.get("a"), 1)

    def test_prefixes_and_versions_share_a_structure(self) -> None:
        cache.set("a", 1)
        caches["prefixed"].set("a", 2)
        self.assertEqual((cache.get("a"), caches["prefixed"].get("a")), (1, 2))
        structure = caches["default"].structure  # type: ignore[attr-defined]
        self.assertEqual(store.run(structure.keys()), [":1:a", "shop:3:a"])
        cache.set("1", 3)
        self.assertEqual(cache.get_many([1, "1", "b"]), {1: 3, "1": 3})  # of one name

    def test_a_bound_holds(self) -> None:
        small = caches["small"]
        for n in range(5):
            small.set(str(n), n)
        self.assertEqual(small.get_many(map(str, range(5))), {"2": 2, "3": 3, "4": 4})

    def test_it_goes_with_the_block_that_it_is_in(self) -> None:
        cache.set("a", 1)
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            cache.set("a", 2)
            self.assertEqual(cache.get("a"), 2)
            raise ZeroDivisionError
        self.assertEqual(cache.get("a"), 1)

    async def test_with_await(self) -> None:
        await cache.aset_many({"a": 1, "b": 2})
        self.assertEqual(await cache.aget_many(["a", "b", "c"]), {"a": 1, "b": 2})
        self.assertEqual((await cache.aincr("a", 2), await cache.adecr("b", 5)), (3, -3))
        self.assertEqual((await cache.aadd("a", 9), await cache.atouch("a"), await cache.ahas_key("a")),
                         (False, True, True))  # fmt: skip
        await cache.adelete_many(["a"])
        self.assertEqual((await cache.aget("a"), await cache.aget("b")), (None, -3))
        await cache.aclear()
        self.assertFalse(await cache.ahas_key("b"))


class CommittedCacheTests(ClearsStructures, TransactionTestCase):
    def test_outside_of_transactions_it_is_committed_at_once(self) -> None:
        with CaptureQueriesContext(connection) as queries:
            cache.set("a", 1)
            self.assertEqual(cache.get("a"), 1)
        if not settings.DATABASES["default"]["NAME"].startswith(("file:", ":memory:")):
            self.assertEqual(len(queries), 0)  # on a connection of Roost's own

    def test_a_rollback_takes_it_back(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            cache.set("a", 1)
            raise ZeroDivisionError
        self.assertIsNone(cache.get("a"))

    @skipIf(connection.vendor == "sqlite", "whose one writer is the transaction: there it takes part")
    def test_apart_it_is_committed_and_stays(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            caches["apart"].set("a", 1)
            self.assertEqual(in_thread(lambda: caches["apart"].get("a")), 1)
            raise ZeroDivisionError
        self.assertEqual(caches["apart"].get("a"), 1)

    @skipIf(connection.vendor != "sqlite", "others have many writers")
    def test_apart_it_does_not_wait_for_its_own_transaction(self) -> None:
        with transaction.atomic():
            cache.set("a", 1)  # has the write lock
            caches["apart"].set("a", 2)
        self.assertEqual((cache.get("a"), caches["apart"].get("a")), (1, 2))


class SettingsTests(ClearsStructures, TransactionTestCase):
    def tearDown(self) -> None:
        structure = roost.Cache("made_cache", max_items=2)
        with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
            DropStructure(structure).database_forwards("pages", editor, ProjectState(), ProjectState())
        super().tearDown()

    def test_migrate_makes_what_settings_declare_and_changes_bounds(self) -> None:
        def declared(**options: Any) -> dict[str, Any]:
            backend = settings.ROOST
            return {"default": {"BACKEND": backend, "LOCATION": "made_cache", "OPTIONS": options}}

        with override_settings(CACHES=declared(MAX_ENTRIES=2)), self.assertRaises(roost.Missing):
            cache.get("a")
        # On PostgreSQL the account is a member of the owner: it may not alter what has an index of an expression.
        bounds = (2,) if connection.vendor == "postgresql" else (2, 4)
        for bound in bounds:
            with override_settings(CACHES=declared(MAX_ENTRIES=bound)):
                call_command("migrate", verbosity=0)
                call_command("migrate", verbosity=0)
                for n in range(6):
                    cache.set(str(n), n)
                self.assertEqual(len(cache.get_many(map(str, range(6)))), bound)
        with override_settings(CACHES=declared()), self.assertRaises(roost.Invalid):
            call_command("migrate", verbosity=0)


class SessionTests(TestCase):
    def stored(self) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT until, token FROM roost_django_sessions_rows")
            return cursor.fetchone()

    def begun(self, **values: Any) -> SessionStore:
        session = SessionStore()
        session.update(values)
        session.save()
        return session

    def again(self, session: SessionStore) -> SessionStore:
        return SessionStore(session.session_key)

    def test_a_session_that_has_not_changed_is_not_written(self) -> None:
        session, before = self.begun(user=1), self.stored()
        for _ in range(3):
            later = self.again(session)
            self.assertEqual(later["user"], 1)
            later.save()
            later.save()
        self.assertEqual(self.stored(), before)
        later["user"] = 2
        later.save()
        self.assertNotEqual(self.stored(), before)
        self.assertEqual(self.again(session)["user"], 2)

    def test_one_that_has_not_changed_takes_back_no_change_of_another_request(self) -> None:
        session = self.begun(user=1)
        slow, fast = self.again(session), self.again(session)
        self.assertEqual((slow["user"], fast["user"]), (1, 1))
        fast["user"] = 2
        fast.save()
        slow.save()
        self.assertEqual(self.again(session)["user"], 2)

    @skipIf(connection.vendor != "sqlite", "the clock is the server's")
    def test_a_season_of_visits(self) -> None:
        # Three people at a time, each of whom comes for thirty days, twice a day for ten requests, and then no more.
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        turned = DjangoStore(clock=lambda: now)
        living: list[str] = []
        requests = writes = 0
        with mock.patch.object(sessions, "shared_store", lambda using, joins: turned):
            for day in range(SEASON):
                if day % 10 == 0:
                    living = [*living, self.begun(user=day).session_key or ""][-3:]
                for request in range(20):
                    now += dt.timedelta(minutes=1) if request % 10 else dt.timedelta(hours=12, minutes=-9)
                    for key in living:
                        before = self.ends()
                        session = SessionStore(key)
                        self.assertIn("user", session)
                        session.save()
                        requests += 1
                        writes += self.ends() != before
        turned.close()
        self.assertLessEqual(writes * 10, requests)
        self.assertLessEqual(len(self.ends()), 5)  # three who come, two whose two weeks are not over

    def ends(self) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT key, until FROM roost_django_sessions_rows ORDER BY key")
            return list(cursor.fetchall())

    def test_it_is_renewed_where_the_end_is_early_by_a_sixteenth(self) -> None:
        session, (before, token) = self.begun(user=1), self.stored()
        with override_settings(SESSION_COOKIE_AGE=settings.SESSION_COOKIE_AGE * 2):
            later = self.again(session)
            later.load()
            later.save()
        until, same = self.stored()
        self.assertGreater(until, before + settings.SESSION_COOKIE_AGE * 900_000)
        self.assertEqual(token, same)

    def test_a_fixed_end_is_not_written_again(self) -> None:
        session = SessionStore()
        session.set_expiry(dt.timedelta(hours=1))
        session.save()
        before = self.stored()
        for _ in range(3):
            later = self.again(session)
            later.get("user")
            later.save()
        self.assertEqual(self.stored(), before)

    def test_one_that_has_gone_is_not_made_again(self) -> None:
        session = self.begun(user=1)
        for change in ({}, {"user": 2}):
            later = self.again(session)
            later.update(later.load() | change)
            later.delete()
            with self.assertRaises(UpdateError):
                later.save()
            session.save(must_create=True)
        with self.assertRaises(CreateError):
            session.save(must_create=True)

    def test_a_new_key_keeps_what_is_in_it(self) -> None:
        session = self.begun(user=1)
        old = session.session_key
        session.cycle_key()
        self.assertNotEqual(session.session_key, old)
        self.assertEqual((self.again(session)["user"], SessionStore(old).load()), (1, {}))

    def test_a_made_up_cookie_begins_another_session(self) -> None:
        for key in ("x" * 32, "x" * 1000, "x" * 9 + "\0", "x" * 9 + "\ud800", "short", ""):
            session = SessionStore(key)
            self.assertEqual((session.get("user"), session.session_key), (None, None))
            session["user"] = 1
            session.save()
            self.assertNotEqual(session.session_key, key)

    def test_what_is_over_at_once(self) -> None:
        session = self.begun(user=1)
        session.set_expiry(-1)
        session.save()
        self.assertFalse(SessionStore().exists(session.session_key or ""))

    async def test_with_await(self) -> None:
        session = SessionStore()
        await session.aset("user", 1)
        await session.asave()
        later = SessionStore(session.session_key)
        self.assertEqual(await later.aget("user"), 1)
        await later.acycle_key()
        self.assertEqual((await later.aexists(session.session_key or ""), await later.aget("user")), (False, 1))
        await later.aflush()
        await SessionStore.aclear_expired()
        self.assertEqual(await store.arun(SESSIONS.keys()), [])


class RolledBackSessionTests(ClearsStructures, TransactionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = SessionStore()
        self.session["failed"] = 0
        self.session.save()
        self.session = SessionStore(self.session.session_key)

    def stored(self) -> Any:
        return SessionStore(self.session.session_key)["failed"]

    def test_f119_what_a_block_took_back_is_stored_by_the_next_save(self) -> None:
        for n in (1, 2):
            with transaction.atomic() if n == 2 else nullcontext():
                with suppress(ZeroDivisionError), transaction.atomic():
                    self.session["failed"] = n
                    self.session.save()
                    raise ZeroDivisionError
                self.assertEqual(self.stored(), n - 1)
                self.session.save()
            self.assertEqual(self.stored(), n)

    def test_f119_what_a_rollback_took_back_is_stored_by_the_next_save(self) -> None:
        transaction.set_autocommit(False)
        try:
            self.session["failed"] = 1
            self.session.save()
            transaction.rollback()
            self.session.save()
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        self.assertEqual(self.stored(), 1)
