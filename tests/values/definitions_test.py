"""A definition is all there is to know of a structure: it makes an equal declaration again, in any process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import keyword
import uuid
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.structures.registry import from_definition
from roost.structures.structure import Structure
from roost.types.columns import parse_column
from tests.lengths import length
from tests.values.shapes import (
    Colour,
    Egg,
    Level,
    Visit,
    baskets,
    likes,
    named,
    pageviews,
    places,
    seen,
    sightings,
    tags,
    things,
    visits,
)

# The texts are compared, so they must not change: a database that was made before would be a `Mismatch`.
DEFINITIONS: list[tuple[Structure, str]] = [
    (pageviews, '{"kind":"counter","name":"pageviews","key":[["key","text(255)"]],"slots":null}'),
    (places, '{"kind":"counter","name":"places","key":[["site","text(255)"],["page","int"]],"slots":null}'),
    (roost.Counter("c", key=dt.date, slots=4), '{"kind":"counter","name":"c","key":[["key","date"]],"slots":4}'),
    (visits, '{"kind":"ring","name":"visits","columns":[["uid","int"],["visitor","int"]],"per":["uid"],"keep":5}'),
    (
        seen,
        '{"kind":"ring","name":"seen","columns":[["page","int"],["who","int"],["site","text(255)"]],'
        '"per":["site","page"],"keep":5}',
    ),
    (
        baskets,
        '{"kind":"capped","name":"baskets","columns":[["basket","int"],["egg","int"],["colour","text(20)"]],'
        '"per":["basket"],"keep":12,"unique":["egg"],"on_full":"evict","on_duplicate":"error"}',
    ),
    (
        sightings,
        '{"kind":"capped","name":"sightings","columns":[["page","int"],["who","int"],["site","text(255)"]],'
        '"per":["site"],"keep":3,"unique":["page","who"],"on_full":"evict","on_duplicate":"refresh"}',
    ),
    (likes, '{"kind":"set","name":"likes","key":[["key","int"]],"member":[["member","text(255)"]]}'),
    (
        tags,
        '{"kind":"set","name":"tags","key":[["site","text(255)"],["page","int"]],'
        '"member":[["member","enum(\\"white\\",\\"brown\\")"]]}',
    ),
    (
        things,
        '{"kind":"ring","name":"things","columns":[["k","int"],["i","int"],["f","float"],["s","text(1000000)"],'
        '["t","text(5)"],["b","binary(1000000)"],["c","binary(4)"],["o","bool"],["m","datetime"],["d","date"],'
        '["p","decimal(6,2)"],["u","uuid"],["e","enum(\\"white\\",\\"brown\\")"],["g","enum(-1,7)"],["q","int?"]],'
        '"per":["k"],"keep":2}',
    ),
]


@pytest.mark.parametrize(("structure", "definition"), DEFINITIONS, ids=lambda value: repr(value)[:30])
def test_a_definition_is_canonical(structure: Structure, definition: str) -> None:
    assert structure.definition == definition
    again = from_definition(definition)
    assert again == structure
    assert again.definition == definition
    assert type(again) is type(structure)


def identifiers(*, key: bool) -> st.SearchStrategy[str]:
    taken = {"at", "sequence", "slot"} | ({"n", "total"} if key else set())
    first = "abcdefghijklmnopqrstuvwxyzABCXYZ"
    names = st.builds(
        str.__add__, st.sampled_from(first), st.text(first + "0123456789_", max_size=39)
    )  # fields of a NamedTuple begin with no underscore
    return names.filter(lambda name: name.lower() not in taken and not keyword.iskeyword(name))


def distinct(*, key: bool, least: int, most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(identifiers(key=key), min_size=least, max_size=most, unique_by=str.lower)


STRUCTURE_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True).filter(
    lambda name: not name.startswith("roost_")
)
LIMITS = st.integers(1, 1_000_000)
DIGITS = st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits)))
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


def make_enum(values: list[Any]) -> Any:
    functional: Any = enum.Enum
    return functional("Made", [(f"M{i}", value) for i, value in enumerate(values)])


ENUMS = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True),
).map(make_enum)

PLAIN_KEYS: list[Any] = [int, str, bytes, bool, dt.datetime, dt.date, uuid.UUID, Colour, Level]
KEY_TYPES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(PLAIN_KEYS),
    LIMITS.map(lambda limit: Annotated[str, roost.text(limit)]),
    LIMITS.map(lambda limit: Annotated[bytes, roost.binary(limit)]),
    DIGITS.map(lambda digits: Annotated[Decimal, roost.decimal(*digits)]),
    ENUMS,
)
VALUE_TYPES: st.SearchStrategy[Any] = st.one_of(KEY_TYPES, st.just(float))
COLUMN_TYPES = st.one_of(VALUE_TYPES, VALUE_TYPES.map(lambda type_: type_ | None))


@st.composite
def keys(draw: st.DrawFn, taken: frozenset[str] = frozenset()) -> Any:
    """Draw what `key=` or `member=` takes: a type, or a NamedTuple."""
    if draw(st.booleans()):
        return draw(KEY_TYPES)
    names = draw(distinct(key=True, least=2, most=4).filter(lambda names: not {n.lower() for n in names} & taken))
    return named("Key", **{name: draw(KEY_TYPES) for name in names})


@st.composite
def structures(draw: st.DrawFn) -> Structure:
    """Draw a declaration of any kind."""
    name = draw(STRUCTURE_NAMES)
    kind = draw(st.sampled_from(["counter", "set", "expiring_ring", "ring", "capped", "leaderboard"]))
    if kind == "counter":
        slots = draw(st.none() | st.integers(1, 1024))
        if draw(st.booleans()):
            return roost.Counter(name, key=draw(keys()), slots=slots)
        window: Any = draw(st.sampled_from(["minute", "hour", "day", dt.timedelta(seconds=90)]))
        key: Any = draw(keys(frozenset(["start"])))
        return roost.Counter(name, key=key, window=window, keep=draw(st.integers(1, 1000)), slots=slots)
    if kind == "set":
        key = draw(keys(frozenset(["member", "sequence", "until"])))
        taken = frozenset(field.lower() for field in getattr(key, "_fields", ["key"])) | {"key", "sequence", "until"}
        keep, keep_for = draw(st.none() | st.integers(1, 1000)), draw(st.none() | st.integers(1, 10**9))
        return roost.Set(name, key=key, member=draw(keys(taken)), keep=keep, keep_for=keep_for)
    in_key = draw(distinct(key=True, least=2, most=5))
    others = [each for each in draw(distinct(key=False, least=0, most=5)) if each.lower() not in map(str.lower, in_key)]
    cut = draw(st.integers(1, len(in_key) - 1))
    per, unique = in_key[:cut], in_key[cut:]
    types = {each: draw(KEY_TYPES) for each in in_key} | {each: draw(COLUMN_TYPES) for each in others}
    order = draw(st.permutations(list(types)))
    row = dataclasses.make_dataclass("Row", [(each, types[each]) for each in order])
    keep = draw(st.integers(1, 2**31 - 1))
    given_per: Any = (
        named("Per", **{each: types[each] for each in per}) if len(per) > 1 and draw(st.booleans()) else per
    )
    if kind == "expiring_ring" and "until" not in map(str.lower, types):
        return roost.Ring(name, row, per=given_per, keep=keep, keep_for=draw(st.integers(1, 10**9)))
    if kind in ("ring", "expiring_ring"):
        return roost.Ring(name, row, per=given_per, keep=keep)
    if kind == "leaderboard":
        used = {each.lower() for each in types}
        score = next(each for each in ("score", "points", "best", "seconds") if each not in used)
        kinds = st.sampled_from([int, float, dt.date, dt.datetime])
        row = dataclasses.make_dataclass("Row", [*((each, types[each]) for each in order), (score, draw(kinds))])
        options: Any = {"order": score, "on_duplicate": draw(st.sampled_from(["error", "refresh", "best"]))}
    else:
        options = {"on_duplicate": draw(st.sampled_from(["error", "refresh"]))}
        options["on_full"] = draw(st.sampled_from(["evict", "reject"]))
    if "until" not in map(str.lower, types) and draw(st.booleans()):
        options["keep_for"] = draw(st.integers(1, 10**9))
        if options.get("on_full") == "evict" and draw(st.booleans()):
            return roost.Capped(name, row, per=given_per, unique=unique, **options)
    return roost.Capped(name, row, per=given_per, keep=keep, unique=unique, **options)


@settings(max_examples=length(40, 400), deadline=None)
@given(structures())
def test_a_definition_makes_an_equal_structure(structure: Structure) -> None:
    again = from_definition(structure.definition)
    assert again == structure
    assert hash(again) == hash(structure)
    assert again.definition == structure.definition
    assert type(again) is type(structure)
    assert [(column.name, column.spec) for column in again.columns] == [
        (column.name, column.spec) for column in structure.columns
    ]
    assert json.dumps(json.loads(again.definition), separators=(",", ":")) == structure.definition
    assert from_definition(again.definition) == structure


@settings(deadline=None)
@given(ENUMS)
def test_a_generated_enum_has_the_values_in_their_order(declared: Any) -> None:
    again: Any = from_definition(roost.Counter("c", key=declared).definition)
    (column,) = again.columns
    assert [member.value for member in column.type.enum] == [member.value for member in declared]


def test_a_generated_row_takes_the_same_values() -> None:
    again: Any = from_definition(baskets.definition)
    row = again.rows.type
    assert row.__name__ == "Baskets"
    assert [field.name for field in dataclasses.fields(row)] == ["basket", "egg", "colour"]
    assert again.add(row(42, 1, "white")) == baskets.add(Egg(42, 1))
    assert repr(again.add(row(42, 1, "white"))) == "baskets.add(Baskets(basket=42, egg=1, colour='white'))"
    with pytest.raises(roost.Invalid, match=r"^baskets\.colour: 'x{21}' has 21 characters; the limit is 20$"):
        again.add(row(42, 1, "x" * 21))
    with pytest.raises(roost.Invalid, match=r"^visits: Visit\(uid=5, visitor=7\) is not a Visits$"):
        from_definition(visits.definition).push(Visit(5, 7))  # type: ignore[attr-defined]


# What the catalog and the command line have, and what it is.
SPECS: list[tuple[str, str]] = [
    ("int", "int"),
    (" int ? ", "int?"),
    ("float?", "float?"),
    ("bool", "bool"),
    ("datetime?", "datetime?"),
    ("date", "date"),
    ("uuid", "uuid"),
    ("text(5)", "text(5)"),
    (" text ( 5 ) ? ", "text(5)?"),
    ("text", "text(1000000)"),
    ("str", "text(1000000)"),
    ("str(7)?", "text(7)?"),
    ("binary(16)", "binary(16)"),
    ("bytes?", "binary(1000000)?"),
    ("decimal(12,2)", "decimal(12,2)"),
    ("decimal( 12 , 0 )?", "decimal(12,0)?"),
    ('enum("a","b")', 'enum("a","b")'),
    ('enum( "a" , "b" )?', 'enum("a","b")?'),
    ('enum("a)?","(",",","\\"","\\u00e9","é?")', 'enum("a)?","(",",","\\"","\\u00e9","\\u00e9?")'),
    ('enum("a","A","a b","a-b","","_x_","__x__","mro","ß","ss","1","value_1","class")', ""),
    ("enum(1,-1,0,9223372036854775807)", "enum(1,-1,0,9223372036854775807)"),
]


@pytest.mark.parametrize(("spec", "wanted"), SPECS, ids=[spec for spec, _ in SPECS])
def test_a_type_in_words(spec: str, wanted: str) -> None:
    column = parse_column("visits", "note", spec)
    assert column.name == "note"
    assert column.nullable is spec.rstrip().endswith("?")
    if wanted:
        assert column.spec == wanted
    assert parse_column("visits", "note", column.spec).spec == column.spec


def test_a_type_in_words_has_a_keys_limit_in_a_key() -> None:
    assert parse_column("visits", "uid", "text", key=True).spec == "text(255)"
    assert parse_column("visits", "uid", "bytes", key=True).spec == "binary(255)"
    assert parse_column("visits", "uid", "text(9)", key=True).spec == "text(9)"
    for spec in ("int?", "text(9)?"):
        with pytest.raises(roost.Invalid, match=r"^visits\.uid: None cannot be a key, an id or a member$"):
            parse_column("visits", "uid", spec, key=True)
    with pytest.raises(roost.Invalid, match=r"^visits\.uid: a float is no key"):
        parse_column("visits", "uid", "float", key=True)
    with pytest.raises(
        roost.Invalid, match=r"^visits: a column cannot be called 'n', which is a column of Roost's own"
    ):
        parse_column("visits", "n", "int", key=True)


LISTED = (
    "; there are int, float, text(n), binary(n), bool, datetime, date, decimal(digits,scale), uuid and "
    'enum("a","b"), each with ? when it may be empty'
)
# A spec that is none, and what is told beside `visits.note: `
NO_SPECS: list[tuple[str, str]] = [
    ("", "'' is not a type"),
    ("?", "'?' is not a type"),
    ("int??", "'int??' is not a type"),
    ("INT", "'INT' is not a type"),
    ("text(5", "'text(5' is not a type"),
    ("text(five)", "'text(five)' is not a type"),
    ("text(5) not null", "'text(5) not null' is not a type"),
    ("varchar(5)", f"'varchar(5)' is not a type{LISTED}"),
    ("int(5)", f"'int(5)' is not a type{LISTED}"),
    ("text(5,6)", f"'text(5,6)' is not a type{LISTED}"),
    ("decimal", f"'decimal' is not a type{LISTED}"),
    ("decimal(4)", f"'decimal(4)' is not a type{LISTED}"),
    ("enum", f"'enum' is not a type{LISTED}"),
    ("enum()", f"'enum()' is not a type{LISTED}"),
    ("text(0)", "text: the limit is a whole number from 1 to 4,000,000, not 0"),
    ("text(1e3)", "text: the limit is a whole number from 1 to 4,000,000, not 1000.0"),
    ("text(true)", "text: the limit is a whole number from 1 to 4,000,000, not True"),
    ("binary(NaN)", "binary: the limit is a whole number from 1 to 8,000,000, not nan"),
    ("text([5])", "text: the limit is a whole number from 1 to 4,000,000, not [5]"),
    ("decimal(39,0)", "decimal: the limit is a whole number from 1 to 38, not 39"),
    ("decimal(4,5)", "decimal: the scale is a whole number from 0 to 4, not 5"),
    ('enum("a","a")', "an Enum has different values that are all int or all str, not 'a'"),
    ("enum(1,true)", "an Enum has different values that are all int or all str, not True"),
    ("enum(1.5)", "an Enum has different values that are all int or all str, not 1.5"),
    ("enum(null)", "an Enum has different values that are all int or all str, not None"),
    ("enum([1])", "an Enum has different values that are all int or all str, not [1]"),
    ('enum("a",1)', "an Enum has values that are all int or all str, and is no Flag"),
    ("enum(9223372036854775808)", f"{2**63} does not fit in 64 bits ({-(2**63)} to {2**63 - 1})"),
    (f'enum("{"x" * 256}")', f"'{'x' * 56}... has 256 characters; the limit is 255"),
    (r'enum("\ud800")', r"'\ud800' has a lone surrogate at 0"),
    (f"enum({'[' * 100_000})", f"'enum({'[' * 51}... is not a type"),
    (f"text({'9' * 5000})", f"'text({'9' * 51}... is not a type"),
]


@pytest.mark.parametrize(("spec", "message"), NO_SPECS, ids=[spec[:20] for spec, _ in NO_SPECS])
def test_words_that_are_no_type(spec: str, message: str) -> None:
    with pytest.raises(roost.Invalid) as caught:
        parse_column("visits", "note", spec)
    assert str(caught.value) == f"visits.note: {message}"


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_type_or_refused(spec: str) -> None:
    try:
        column = parse_column("visits", "note", spec)
    except roost.Invalid:
        return
    assert parse_column("visits", "note", column.spec).spec == column.spec
