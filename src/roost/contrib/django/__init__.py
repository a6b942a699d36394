"""Django integration: a store that takes part in Django's transactions, migrations and tests."""

from roost.contrib.django.store import DjangoStore

__all__ = ["DjangoStore"]
