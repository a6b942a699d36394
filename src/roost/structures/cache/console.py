"""A cache on the command line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from roost.structures.cache.declaration import Cache
from roost.structures.cache.view import EXPIRES, FLAGS
from roost.structures.console import Console
from roost.structures.operation import Operation
from roost.structures.structure import Structure
from roost.types.columns import Column


class CacheConsole(Console[Cache[Any, Any]]):
    """Keys, and the value of one; an imported record may have an expiry time and flags, with the names of the view."""

    takes: ClassVar[Mapping[str, Any]] = {
        "key": (),
        "value": [("value", "binary")],
        "max_items": None,
        "max_bytes": None,
    }
    changes = ("max_items", "max_bytes")

    def contents(self, key: Any, n: int | None) -> Operation[Any]:
        """Return the operation that reads the value."""
        return self.structure.get(key)

    @property
    def fields(self) -> Sequence[Column]:
        """The columns of the key, the value, its expiry time and its flags."""
        return *self.structure.columns, EXPIRES, FLAGS

    def insertion(self, values: Sequence[Any]) -> Operation[Any]:
        """Return the operation that stores a value; its expiry time is compared with the clock of this machine.

        An expired record removes the value of its key.
        """
        *key, value, expires, flags = values
        key = self.structure.key.value(key)
        if expires is None:
            return self.structure.set(key, value, None, flags or 0)
        end = expires if expires.tzinfo else expires.replace(tzinfo=dt.UTC)
        ttl = end - dt.datetime.now(dt.UTC)
        return self.structure.set(key, value, ttl, flags or 0) if ttl > dt.timedelta(0) else self.structure.delete(key)

    def deletes(self, new: Structure) -> str:
        """Say that a smaller bound evicts values."""
        for bound in self.changes:
            before, after = getattr(self.structure, bound), getattr(new, bound)
            if after is not None and (before is None or after < before):
                return f"{bound} becomes {after:,}: what was used longest ago is deleted"
        return ""

    def removed(self, number: int) -> str:
        """Say whether there was a value."""
        return f"{number:,} value{'' if number == 1 else 's'}"
