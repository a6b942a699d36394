"""A model, beside which structures live."""

from typing import Any

from django.db import models

from roost.contrib.django.models import StructureModel


class Page(models.Model):
    name: Any = models.CharField(max_length=40)


class PageViews(StructureModel):
    key: Any = models.CharField(max_length=255, primary_key=True)
    total: Any = models.BigIntegerField()

    class Meta(StructureModel.Meta):
        db_table = "pageviews"
