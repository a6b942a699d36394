"""Models over the view of a structure: Django's ORM reads them, a store writes the structure."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

from django.core import checks
from django.db import connections, models, router

from roost.errors import Invalid

# Django's fields that find nothing in a view's column, or cannot read it, and those that do, by the database's vendor.
OTHERS: dict[str, dict[type[Any], str]] = {
    "sqlite": {models.UUIDField: "TextField", models.DecimalField: "TextField", models.DateTimeField: "MomentField"},
    "mysql": {models.UUIDField: "BinaryField"},
}


def _refuse(what: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        model = getattr(self, "model", None) or type(self)
        raise Invalid(
            f"{model.__name__}.{what}: the rows of {model._meta.db_table} are those of a structure; the ORM reads them,"
            " and store.run(…) with an operation of the structure writes them"
        )

    refuse.__name__ = what
    refuse.__doc__ = "Raise `Invalid`: a structure is written by its operations."
    return refuse


class StructureQuerySet(models.QuerySet):  # type: ignore[type-arg]
    """Allows reads only; methods that write, or lock rows of a view, raise `Invalid`."""

    create, get_or_create, update_or_create = map(_refuse, ("create", "get_or_create", "update_or_create"))
    bulk_create, bulk_update, select_for_update = map(_refuse, ("bulk_create", "bulk_update", "select_for_update"))
    update, _update, delete, _raw_delete = map(_refuse, ("update", "update", "delete", "delete"))


class TotalField(models.BigIntegerField):  # type: ignore[type-arg]
    """The total of a counter's view: an int, of any size.

    MariaDB and PostgreSQL return a sum as a decimal, so a `BigIntegerField` would yield a `Decimal`.
    """

    def from_db_value(self, value: Any, *_: Any) -> int | None:
        return None if value is None else int(value)


class MomentField(models.DateTimeField):  # type: ignore[type-arg]
    """A datetime in a structure's view, which on SQLite is a text that always has its microseconds."""

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        found = super().get_db_prep_value(value, connection, prepared)
        return f"{found}.000000" if type(found) is str and "." not in found else found


class StructureModel(models.Model):
    """A model for reading a structure through the view that has the structure's name.

    SQLite reports 0 changed rows for an UPDATE of a view; `save` of a plain model concludes that the row is missing and
    inserts it, so a counter would count twice. Therefore every method that writes raises `Invalid` here, and `loaddata`
    skips its rows with a warning. ::

        class PageViews(StructureModel):
            key = models.CharField(max_length=255, primary_key=True)
            total = TotalField()

            class Meta(StructureModel.Meta):
                db_table = "pageviews"
    """

    objects = StructureQuerySet.as_manager()

    class Meta:
        """Unmanaged: migrations make structures, and no tables of these models."""

        abstract = True
        managed = False
        base_manager_name = "objects"

    save = _refuse("save")
    save_base = _refuse("save")
    delete = _refuse("delete")

    def _save_table(self, *_: Any, **__: Any) -> bool:
        # Reached only by `loaddata`, which calls Model.save_base itself: other rows of the fixture can be loaded.
        name, table = type(self).__name__, self._meta.db_table
        message = f"{name}: a fixture's rows are not loaded, since only operations of the structure {table} write them"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return True

    @classmethod
    def check(cls, **kwargs: Any) -> list[Any]:
        found = list(super().check(**kwargs))
        if cls._meta.managed:
            message = "its Meta does not inherit from StructureModel.Meta, so migrations would make a table of it"
            found.append(checks.Error(message, obj=cls, id="roost.E001"))
        others = OTHERS.get(connections[router.db_for_read(cls)].vendor, {})
        for field in cls._meta.fields:
            if (other := others.get(type(field))) is not None:
                message = (
                    f"no {type(field).__name__} finds what is in this column of a structure's view; a {other} does"
                )
                found.append(checks.Error(message, obj=field, id="roost.E002"))
        return found
