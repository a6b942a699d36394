"""What a database cannot hold, or not in an index, is refused when it is declared, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Annotated, Any, NamedTuple

import pytest

import roost
from tests.suite.clients import Client


class Three(NamedTuple):
    a: str
    b: str
    c: str


Many = make_dataclass("Many", [("uid", int), *[(f"t{n}", Annotated[str, roost.text(200)]) for n in range(90)]])
Long = make_dataclass("Long", [("uid", Annotated[str, roost.text(600)]), ("v", Annotated[str, roost.text(600)])])
many: Any = roost.Ring("many", Many, per="uid", keep=2)
long: Any = roost.Capped("long", Long, per="uid", keep=2, unique="v")
texts = roost.Counter("texts", key=Three)  # 3,060 bytes in an index at most
one_text = roost.Cache("one_text", key=roost.text(700))
no_varchar = roost.Cache("no_varchar", key=roost.binary(4000))  # its column is MEDIUMBLOB, which is in no index


REFUSED_BY: dict[Any, tuple[str, ...]] = {
    many: ("mysql",),
    long: ("mysql", "postgresql"),
    texts: ("postgresql",),
    one_text: ("postgresql",),
    no_varchar: ("mysql", "postgresql"),
}


@pytest.mark.needs("second store", "cache")
def test_what_has_too_many_bytes_is_refused_when_it_is_declared(
    open_store: Callable[..., roost.Store], sql: Client, store_url: str
) -> None:
    store = open_store()
    for structure, refused_by in REFUSED_BY.items():
        if store_url.startswith(refused_by):
            with pytest.raises(roost.Invalid, match=r"bytes.*shorter .*roost\.text\(100\)"):
                store.create(structure)
            assert [each for each in sql.private_tables() if structure.name in each] == []
        else:
            store.create(structure)


@pytest.mark.needs("second store", "cache")
def test_the_longest_key_of_two_texts_is_stored(open_store: Callable[..., roost.Store]) -> None:
    pairs = roost.Set("pairs")
    longest = ["".join(chr(0x10000 + 7919 * (place + n) % 0xFFFF) for place in range(255)) for n in range(2)]
    store = open_store(pairs)
    assert store.run(pairs.add(longest[0], longest[1])) == 1
    assert store.run(pairs.members(longest[0])) == {longest[1]}
