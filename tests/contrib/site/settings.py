"""Settings: one database, told as JSON; the rest is what makes things hard."""

import json
import os

import pymysql

pymysql.install_as_MySQLdb()

DATABASES = {"default": json.loads(os.environ["ROOST_TEST_DJANGO"])}
INSTALLED_APPS = ["tests.contrib.site.pages"]
ROOT_URLCONF = "tests.contrib.site.urls"
SECRET_KEY = "of the tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "America/New_York"
USE_TZ = False  # Django's connections then answer in local time, without a zone
