"""SQLite, MariaDB, MySQL and PostgreSQL: types, placeholders and quoting, as frozen data."""

from roost.dialects.dialect import (
    Answer,
    Control,
    Dialect,
    Gather,
    Statement,
    Template,
    Together,
    Wanted,
    render,
    scatter,
)
from roost.dialects.mariadb import MARIADB, MYSQL
from roost.dialects.postgresql import POSTGRESQL
from roost.dialects.sqlite import SQLITE

__all__ = [
    "MARIADB",
    "MYSQL",
    "POSTGRESQL",
    "SQLITE",
    "Answer",
    "Control",
    "Dialect",
    "Gather",
    "Statement",
    "Template",
    "Together",
    "Wanted",
    "render",
    "scatter",
]
