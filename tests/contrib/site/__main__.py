"""Run the project's tests: `python -m tests.contrib.site`; the database is told by ROOST_TEST_DJANGO.

Arguments name some of its modules. What is tagged `anywhere` is decided by Django, or by Roost before it asks a
database.
"""

from __future__ import annotations

import os
import sys

import django
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.contrib.site.settings"
    django.setup()
    execute_from_command_line(["manage.py", "test", "--no-input", *(sys.argv[1:] or ["tests.contrib.site"])])
