"""Settings: one database, told as JSON; the rest is what makes things hard."""

import json
import os

import pymysql

pymysql.install_as_MySQLdb()

DATABASES = {"default": json.loads(os.environ["ROOST_TEST_DJANGO"])}
INSTALLED_APPS = ["roost.contrib.django", "django.contrib.sessions", "tests.contrib.site.pages"]
ROOT_URLCONF = "tests.contrib.site.urls"
SECRET_KEY = "of the tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "America/New_York"
USE_TZ = False  # Django's connections then answer in local time, without a zone

ROOST = "roost.contrib.django.cache.RoostCache"
CACHES = {
    "default": {"BACKEND": ROOST},
    "prefixed": {"BACKEND": ROOST, "KEY_PREFIX": "shop", "VERSION": 3, "TIMEOUT": None},
    "small": {"BACKEND": ROOST, "LOCATION": "small_cache", "OPTIONS": {"MAX_ENTRIES": 3}},
    "apart": {"BACKEND": ROOST, "LOCATION": "apart_cache", "OPTIONS": {"JOIN": False}},
    "signed": {"BACKEND": ROOST, "KEY_PREFIX": "signed", "OPTIONS": {"SERIALIZER": "signed"}},
}
SESSION_ENGINE = "roost.contrib.django.sessions"
