"""Serializers: what comes back, what is refused, and that no stored byte is executed unless a pickle is chosen."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import random
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import roost
from roost.contrib.cachelib import RoostCache
from roost.contrib.serializers import Codec, Signed

KINDS: dict[str, Any] = {
    "json": "json",
    "msgpack": "msgpack",
    "signed": Signed("of the tests"),
    "signed json": Signed([b"of the tests"], "json"),
    "pickle": "pickle",
    "own": type("Upper", (), {"dumps": lambda _, v: repr(v).encode(), "loads": lambda _, data: eval(data)})(),
}
SAFE = ["json", "msgpack", "signed", "signed json"]
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = dt.datetime(2026, 1, 1, 12, 30, 1, 7, tzinfo=dt.UTC)
VALUES: list[Any] = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**80), 1.5, 1e300, -0.0, "", "42", "ä\u2028\0", b"", b"42",
    b"\x80\xff", [], [1, [2, (3,)]], {}, {"a": None}, {"~": "tuple", "v": [1]}, {"~": {"~": 1}}, (), ("a", (1, b"b")),
    {1, "a", (2,)}, frozenset([b"x"]), Decimal("1.50"), Decimal("NaN"), UUID(int=7), dt.date(2026, 1, 1),
    dt.timedelta(days=-1, microseconds=5), dt.timedelta.max, [2**70, {"a": -(2**70)}], NOON.replace(tzinfo=None), NOON,
    NOON.astimezone(dt.timezone(dt.timedelta(hours=-3))), dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    [2**63 - 1, 2**64, -(2**63) - 1], dt.datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
    dt.datetime(2026, 3, 29, 2, 30, fold=1, tzinfo=BERLIN), dt.datetime.min.replace(tzinfo=BERLIN),
    dt.datetime.max.replace(tzinfo=zoneinfo.ZoneInfo("America/New_York")),
]  # fmt: skip


class Planted:
    """What runs code when its pickle is read."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.flag,)


@pytest.mark.parametrize("kind", [*SAFE, "pickle"])
def test_values_come_back_as_they_went(kind: str) -> None:
    codec = Codec(KINDS[kind], "pages")
    for value in VALUES:
        found = codec.loads("key", codec.dumps("key", value), "a miss")
        assert (type(found), repr(found) if isinstance(value, Decimal | float) else found) == (
            type(value),
            repr(value) if isinstance(value, Decimal | float) else value,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_ints_are_digits_unless_they_are_signed(kind: str) -> None:
    codec, digits = Codec(KINDS[kind], "pages"), [b"0", b"42", b"18446744073709551615"]
    signs = kind.startswith("signed")
    assert ([codec.dumps("n", n) for n in (0, 42, -1)] == digits) is not signs
    assert [codec.loads("n", data, "a miss") for data in digits] == (["a miss"] * 3 if signs else [0, 42, -1])


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(
    "value",
    [{1: "a"}, [{None: 1}], {b"a": 1}, object(), type("Text", (str,), {})("a"), "\ud800", range(3), UUID],
    ids=lambda value: type(value).__name__,
)
def test_what_could_not_be_restored_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(roost.Invalid, match=r"pages: .* could not be restored.*; serializer=Signed\(secret\)"):
        Codec(kind, "pages").dumps("key", value)


def test_an_object_of_ones_own_may_make_text() -> None:
    for serializer in (json, Signed("of the tests", json)):
        codec = Codec(serializer, "pages")
        assert codec.loads("key", codec.dumps("key", {"ä": [1]})) == {"ä": [1]}


def test_json_has_neither_nan_nor_endless_lists() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (math.nan, [math.inf], endless):
        with pytest.raises(roost.Invalid, match="could not be restored"):
            Codec("json", "pages").dumps("key", value)


@pytest.mark.parametrize("reader", KINDS)
@pytest.mark.parametrize("writer", KINDS)
def test_a_value_of_another_serializer_is_a_miss_and_a_warning(
    writer: str, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = Codec(KINDS[writer], "pages").dumps("key", ["a", "list"])
    found = Codec(KINDS[reader], "pages").loads("key", data, "a miss")
    same = writer == reader
    assert (found, len(caplog.records)) == ((["a", "list"], 0) if same else ("a miss", 1))


@pytest.mark.parametrize("kind", SAFE)
def test_no_stored_byte_is_executed(kind: str, tmp_path: Path) -> None:
    flag, codec, dice = tmp_path / "executed", Codec(KINDS[kind], "pages"), random.Random(5)
    stored = codec.dumps("key", ["a", {"list": (1, 2)}])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        planted = pickle.dumps(Planted(flag), protocol)
        for mark in (b"", stored[:33], b"\xfe" + bytes(32), b"\xc1", b"\xff"):
            assert codec.loads("key", mark + planted, "a miss") == "a miss"
    for _ in range(2_000):  # any bytes are a value or a miss
        changed = bytearray(stored)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        codec.loads("key", bytes(changed[: dice.randrange(len(changed) + 1)]))
    assert not flag.exists()
    assert pickle.loads(pickle.dumps(Planted(flag))) is None
    assert flag.exists()  # it would have been


def test_a_signature_is_for_a_key_of_a_cache_and_secrets_can_be_changed() -> None:
    old, new, both = (Codec(Signed(secrets), "pages") for secrets in ("old", ["new"], ["new", "old"]))
    other = Codec(Signed("old"), "page")
    stored = old.dumps("ada", {"admin": False})
    assert old.loads("ada", stored) == both.loads("ada", stored) == {"admin": False}
    assert (new.loads("ada", stored), old.loads("bob", stored)) == (None, None)
    assert (other.loads("ada", stored), other.loads("sada", stored)) == (None, None)
    assert new.loads("ada", both.dumps("ada", [1])) == [1]
    nothing: list[Any] = ["", [], ["a", b""]]
    for secrets in nothing:
        with pytest.raises(roost.Invalid, match="a secret"):
            Signed(secrets)
    with pytest.raises(roost.Invalid, match="a serializer is"):
        Codec("yaml", "pages")


@pytest.mark.parametrize("kind", SAFE)
def test_a_planted_pickle_is_a_miss_in_a_cache(
    kind: str, tmp_path: Path, make_store: Callable[..., roost.Store]
) -> None:
    pages = roost.Cache("pages")
    store = make_store(pages)
    cache = RoostCache(store, pages, serializer=KINDS[kind])
    store.run(pages.set("key", pickle.dumps(Planted(tmp_path / "executed"))))
    assert (cache.get("key"), cache.get_many("key"), cache.has("key")) == (None, [None], True)
    assert not (tmp_path / "executed").exists()
    assert (cache.set("key", ["mended"]), cache.get("key")) == (True, ["mended"])
