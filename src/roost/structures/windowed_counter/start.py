"""The column with a window's start: whole microseconds since 1970-01-01 UTC."""

from __future__ import annotations

from roost.types.column_types import ColumnType
from roost.types.columns import Column

START_COLUMN = Column("start", ColumnType("int"))
