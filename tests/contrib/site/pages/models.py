"""A model, beside which structures live, and one over the view of a structure."""

from typing import Any

from django.db import models

from roost.contrib.django.models import StructureModel, TotalField


class Page(models.Model):
    name: Any = models.CharField(max_length=40)


class PageViews(StructureModel):
    key: Any = models.CharField(max_length=255, primary_key=True)
    total: Any = TotalField()

    class Meta(StructureModel.Meta):
        db_table = "pageviews"
