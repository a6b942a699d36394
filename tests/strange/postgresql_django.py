"""Plays on Django's connection to a strange database, in a process of its own, and leaves what the model has then."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from urllib.parse import urlsplit


def main(url: str, kept: str) -> None:
    import django
    from django.conf import settings

    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port,
        "USER": parts.username, "PASSWORD": parts.password or "",
    }  # fmt: skip
    bound = {**database, "OPTIONS": {"server_side_binding": True}}
    settings.configure(DATABASES={"default": database, "bound": bound}, TIME_ZONE="America/New_York", USE_TZ=False)
    django.setup()
    from django.db import transaction

    from roost.contrib.django import DjangoStore

    play = pickle.loads(Path(kept).read_bytes())
    for using in ("default", "bound"):
        store = DjangoStore(using)
        with transaction.atomic(using=using):
            play.run(store.run_all)
            violations = store.check()
            assert violations == [], violations
        if play.number > 5:
            play.run(store.run_all)  # in batches
        store.close()
    Path(kept).write_bytes(pickle.dumps(play))


if __name__ == "__main__":
    main(*sys.argv[1:])
