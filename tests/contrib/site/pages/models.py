"""A model, beside which structures live."""

from django.db import models


class Page(models.Model):
    name = models.CharField(max_length=40)
