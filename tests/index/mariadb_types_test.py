"""What MariaDB's types make of values: an ENUM takes its labels by its collation."""

from __future__ import annotations

from pathlib import Path

import pytest

import roost
from tests.index.databases import database


@pytest.mark.parametrize(("collation", "taken"), [("utf8mb4_bin", False), ("utf8mb4_general_ci", True)])
def test_the_labels_of_an_enum(collation: str, taken: bool) -> None:
    with database("mariadb", Path()) as db, roost.Store(db.url) as store:
        db.script(f"CREATE TABLE t (id int PRIMARY KEY, v ENUM('a', 'b') COLLATE {collation}, KEY k (v))")
        by_id, by_label = roost.Index("t", "PRIMARY", ["id", "v"]), roost.Index("t", "k", ["id"])
        store.run(by_id.insert((1, "b")))
        if taken:
            store.run(by_id.insert((2, "B")))
        else:
            with pytest.raises(roost.StatementFailed):
                store.run(by_id.insert((2, "B")))
        found = store.run(by_label.find("=", ("b",), limit=9))
        assert found == ([(1,), (2,)] if taken else [(1,)])
        if taken:
            assert store.run(by_label.find("=", ("B",), limit=9)) == found
