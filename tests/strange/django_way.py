"""Django's own connections as a way in, in a process of their own: `python -m tests.strange.django_way`.

ROOST_TEST_DJANGO are the databases, as JSON: one, perhaps under several names. The structures must be there, and hold
nothing.
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
    databases = json.loads(os.environ["ROOST_TEST_DJANGO"])
    engine = databases["default"]["ENGINE"]
    if engine.endswith("mysql"):
        import pymysql

        pymysql.install_as_MySQLdb()
    from django.conf import settings

    settings.configure(DATABASES=databases, USE_TZ=engine.endswith("mysql"), TIME_ZONE="Asia/Kathmandu")
    django.setup()
    from django.db import transaction

    from roost.contrib.django import DjangoStore

    model, chance = Model(), random.Random(behaviour.SEED)
    encoding = os.environ.get("ROOST_TEST_ENCODING", "utf8")
    chooser = behaviour.Chooser(chance, nul=not engine.endswith("postgresql"), encoding=encoding)
    for using in databases:
        store = DjangoStore(using)

        def joined(*operations: roost.Operation[Any], store: Any = store, using: str = using) -> Sequence[Any]:
            with transaction.atomic(using=using):
                found: Sequence[Any] = store.run_all(*operations)
                return found

        behaviour.play(joined, model, chooser, chance, f"Django's {using}, in atomic()")
        behaviour.play(store.run_all, model, chooser, chance, f"Django's {using}")
        with transaction.atomic(using=using):
            assert store.check() == [], store.check()
        store.close()


if __name__ == "__main__":
    main()
