"""A model, beside which structures live."""

from typing import Any

from django.db import models


class Page(models.Model):
    name: Any = models.CharField(max_length=40)
