"""The dialect of MySQL 8.0.20 and later: MariaDB's, except where MySQL differs or lacks a feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roost.dialects.mariadb import BYTEWISE, MARIADB
from roost.types.columns import Column


def with_its_collation(type_: Callable[[Column], str]) -> Callable[[Column], str]:
    """Return the types of columns that MariaDB has, with a collation of MySQL's that compares bytes."""
    return lambda column: type_(column).replace(BYTEWISE, "CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin")


MYSQL = replace(
    MARIADB,
    name="mysql",
    read_committed="@@transaction_isolation = 'READ-COMMITTED'",
    # utf8mb4_bin pads blanks here too, and what MariaDB has beside it is not known.
    types={kind: with_its_collation(type_) for kind, type_ in MARIADB.types.items()},
    replaces=False,
    singles=False,  # it has no SET STATEMENT
    for_share=" FOR SHARE",
    nowait=" NOWAIT",
    returning=False,
)
