"""Django's own tests of caches and sessions, with Roost as the backend: `tests/cache` and `tests/sessions_tests`.

They come with the source distribution of the Django that is installed, which pip downloads. One process for each
database; `--database` names one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tests import servers

DATABASES = ("in_memory", "in_a_file", "on_mariadb", "on_postgresql")
BACKEND = "roost.contrib.django.cache.RoostCache"
TOLD = "ROOST_TEST_DJANGO"

# Classes that test a backend, with the tests that do not apply to Roost, each with the reason.
EXACT = "MAX_ENTRIES is exact, whatever CULL_FREQUENCY is: what was used longest ago goes, one by one"
WITHOUT_AWAIT = "Django itself asks the cache without `await` in an event loop, which none in a database allows"
CACHES: Mapping[str, Mapping[str, str]] = {
    "BaseCacheTests": {"test_cull": EXACT, "test_zero_cull": EXACT},
    "CacheUtils": {},
    "PrefixedCacheUtils": {},
    "CacheHEADTest": {},
    "CacheI18nTest": {},
    "PrefixedCacheI18nTest": {},
    "CacheMiddlewareTest": {},
    "TestWithTemplateResponse": {},
}
SESSIONS: Mapping[str, Mapping[str, str]] = {
    "SessionTestsMixin": {},
    "SessionMiddlewareTests": {"test_empty_session_saved": "looks into the table of Django's own backend"},
    "CacheSessionTests": {
        "test_create_and_save_async": WITHOUT_AWAIT,
        "test_default_cache": "asks whether the default backend is LocMemCache",
        "test_non_default_cache": "opens a cache in a file and a dummy",
    },
    "CacheDBSessionTests": {
        "test_non_default_cache": "asks for a dummy",
        "test_exists_searches_cache_first": "counts queries of the cache's, which are of the same database here",
        **dict.fromkeys(
            [
                "test_actual_expiry_async",
                "test_cycle_async",
                "test_cycle_with_no_session_cache_async",
                "test_delete_async",
                "test_flush_async",
                "test_invalid_key_async",
                "test_save_async",
                "test_save_doesnt_clear_data_async",
                "test_session_asave_does_not_resurrect_session_logged_out_in_other_context",
            ],
            WITHOUT_AWAIT,
        ),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        sys.exit(run())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = unpacked(folder)
        failed = [each for each in given.database or DATABASES if not passes(each, source, folder)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def unpacked(folder: Path) -> Path:
    """Download Django's source distribution and return its tests."""
    import django

    version = django.get_version()
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
    subprocess.run([*pip, "--dest", str(folder), f"django=={version}"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (source,) = folder.glob("*/tests")
    return source


def passes(database: str, source: Path, folder: Path) -> bool:
    from tests.contrib import django_test

    try:
        settings = getattr(django_test, database)(folder)
    except servers.NotHere as error:
        print(f"{database}: not run, {error}")
        return False
    path = os.pathsep.join([str(source), "src", "."])
    environment = {**os.environ, TOLD: json.dumps(settings), "PYTHONPATH": path}
    print(f"--- {database}", flush=True)
    return not subprocess.run([sys.executable, "-m", __spec__.name, "--child"], env=environment).returncode


def run() -> bool:
    """Run the tests on one database, with Django's own runner; return whether some failed."""
    import django
    import pymysql
    from django.conf import settings

    pymysql.install_as_MySQLdb()
    database = json.loads(os.environ[TOLD])
    settings.configure(
        # The second one is for the tests that have a router between them.
        DATABASES={"default": database, "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "cache", "sessions_tests",
            "roost.contrib.django",
        ],
        CACHES={"default": as_roost({}), "cull": as_roost({"OPTIONS": {"MAX_ENTRIES": 30}}),
                "other": as_roost({"LOCATION": "other"})},
        LANGUAGE_CODE="en",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        SESSION_ENGINE="roost.contrib.django.sessions",
        SECRET_KEY="of the tests",
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=False,
    )  # fmt: skip
    django.setup()
    from django.test.runner import DiscoverRunner

    from roost.contrib.django import store
    from roost.contrib.django.cache import shared_store

    # Connections stay open, as in an application: some tests have a timeout of one second, and connecting for each call
    # takes a tenth of one.
    store._apart = lambda core, connection, work: work()

    class Runner(DiscoverRunner):
        def build_suite(self, *args: Any, **options: Any) -> unittest.TestSuite:
            return suite()

        def teardown_databases(self, *args: Any, **options: Any) -> None:
            shared_store("default", joins=True).close()
            super().teardown_databases(*args, **options)

    return bool(Runner(verbosity=1, interactive=False).run_tests([]))


def suite() -> unittest.TestSuite:
    from django.test import TestCase, TransactionTestCase

    from roost.contrib.django.sessions import SessionStore

    found = unittest.TestSuite()
    for module_name, classes in (("cache.tests", CACHES), ("sessions_tests.tests", SESSIONS)):
        module: Any = import_module(module_name)
        for name, others in classes.items():
            class_ = getattr(module, name)
            for case in [TestCase, TransactionTestCase] if class_.__bases__ == (object,) else [None]:
                bases = (class_,) if case is None else (class_, case)
                made: dict[str, Any] = {"databases": {"default"}, "backend": SessionStore}
                if name == "BaseCacheTests":
                    made["_overridden_settings"] = {"CACHES": module.caches_setting_for_tests()}
                for test, reason in others.items():
                    made[test] = unittest.skip(reason)(getattr(class_, test))
                if name.startswith("Cache") and "Session" in name:
                    del made["backend"]  # Django's session backend, over Roost's cache
                tested: Any = type(f"{name}On{'Roost' if case is None else case.__name__}", bases, made)
                overridden = dict(tested._overridden_settings or {})
                if "CACHES" in overridden:
                    overridden["CACHES"] = {alias: as_roost(params) for alias, params in overridden["CACHES"].items()}
                tested._overridden_settings = overridden
                found.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(tested))
    return found


def as_roost(params: Mapping[str, Any]) -> dict[str, Any]:
    bound = params.get("OPTIONS", {}).get("MAX_ENTRIES")
    return {
        **params,
        "BACKEND": BACKEND,
        "OPTIONS": {"SERIALIZER": "signed"},  # the tests store classes and whole responses
        "LOCATION": params.get("LOCATION", "") if bound is None else f"culled_{bound}",
    }


if __name__ == "__main__":
    main()
