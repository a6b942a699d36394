"""Models over what SQL sees of a structure: to read by Django's ORM, and to write by a store."""

from __future__ import annotations

from typing import Any, NoReturn

from django.core import checks
from django.db import models

from roost.errors import Invalid


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
    """Reads; what would write, or lock rows of a view, is `Invalid`."""

    create = _refuse("create")
    get_or_create = _refuse("get_or_create")
    update_or_create = _refuse("update_or_create")
    bulk_create = _refuse("bulk_create")
    bulk_update = _refuse("bulk_update")
    update = _refuse("update")
    delete = _refuse("delete")
    select_for_update = _refuse("select_for_update")
    _update = _refuse("update")
    _raw_delete = _refuse("delete")


class TotalField(models.BigIntegerField):  # type: ignore[type-arg]
    """The total of a counter's view: an int, of any size.

    MariaDB and PostgreSQL answer a sum as a decimal, so a `BigIntegerField` would be a `Decimal` there.
    """

    def from_db_value(self, value: Any, *_: Any) -> int | None:
        """Return what the database has answered as an int."""
        return None if value is None else int(value)


class StructureModel(models.Model):
    """A model to read a structure by: of the view that has the structure's name.

    SQLite tells of no UPDATE of a view how many rows it changed; `save` of a plain model takes that for a row that is
    missing, and inserts it: a counter has counted twice then. So whatever would write is `Invalid` here. ::

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

    @classmethod
    def check(cls, **kwargs: Any) -> list[Any]:
        """Return what is wrong with the model for `manage.py check`."""
        found = list(super().check(**kwargs))
        if cls._meta.managed:
            message = "its Meta does not inherit from StructureModel.Meta, so migrations would make a table of it"
            found.append(checks.Error(message, obj=cls, id="roost.E001"))
        return found
