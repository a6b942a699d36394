"""Django's own connection as a way in, in a process of its own: `python -m tests.strange.django_way` with the settings.

ROOST_TEST_DJANGO is the database, as JSON; the structures must be there, and hold nothing.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from typing import Any

import django

import roost
from tests.model.model import Model
from tests.strange import behaviour


def main() -> None:
    """Play inside of atomic() and outside of it, on one model."""
    database = json.loads(os.environ["ROOST_TEST_DJANGO"])
    if database["ENGINE"].endswith("mysql"):
        import pymysql

        pymysql.install_as_MySQLdb()
    from django.conf import settings

    settings.configure(DATABASES={"default": database}, USE_TZ=True, TIME_ZONE="Asia/Kathmandu")
    django.setup()
    from django.db import transaction

    from roost.contrib.django import DjangoStore

    store = DjangoStore()
    model, chance = Model(), random.Random(behaviour.SEED)
    chooser = behaviour.Chooser(chance, nul=not database["ENGINE"].endswith("postgresql"))

    def joined(*operations: roost.Operation[Any]) -> Sequence[Any]:
        with transaction.atomic():
            return store.run_all(*operations)

    behaviour.play(joined, model, chooser, chance, "Django, in atomic()")
    behaviour.play(store.run_all, model, chooser, chance, "Django")
    with transaction.atomic():
        assert store.check() == []
    store.close()


if __name__ == "__main__":
    main()
