from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from django.db import migrations, models

import roost
from roost.contrib.django.models import TotalField
from roost.contrib.django.operations import AlterStructure, CreateStructure


class Mood(enum.Enum):
    GOOD = "it's good"
    BAD = "100 % bad?"


@dataclass
class Visit:
    uid: int
    visitor: int


@dataclass
class Item:
    cart: int
    item: int


@dataclass
class Everything:
    key: str
    a_float: float
    a_bool: bool
    a_bytes: bytes
    a_datetime: dt.datetime
    a_date: dt.date
    a_decimal: Annotated[Decimal, roost.decimal(12, 2)]
    a_uuid: uuid.UUID
    a_mood: Mood
    nothing: str | None = None


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Page",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name="PageViews",
            fields=[
                ("key", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("total", TotalField()),
            ],
            options={"db_table": "pageviews", "abstract": False, "managed": False, "base_manager_name": "objects"},
        ),
        CreateStructure(roost.Counter("pageviews")),
        CreateStructure(roost.Ring("visits", Visit, per="uid", keep=12)),
        AlterStructure(
            roost.Ring("visits", Visit, per="uid", keep=5), was=roost.Ring("visits", Visit, per="uid", keep=12)
        ),
        CreateStructure(roost.Capped("carts", Item, per="cart", keep=3, unique="item", on_full="reject")),
        CreateStructure(
            {"kind": "set", "name": "likes", "key": [["key", "int"]], "member": [["member", "text(255)"]]}, view=False
        ),
        CreateStructure(
            roost.Capped("everything", Everything, per="key", keep=3, unique="a_uuid", on_duplicate="refresh")
        ),
    ]
