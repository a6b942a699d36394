"""How a list of rows becomes statements, and how what they fetch finds the rows that asked: pure, on every dialect."""

from __future__ import annotations

import enum
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.catalog.catalog import entry
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Answer, Dialect, Gather, Statement, Template
from roost.dialects.dialect import MOST_ROWS, collect, render, scatter
from roost.structures.registry import plan_for
from roost.types.column_types import ColumnType
from roost.types.columns import Column, parse_column
from tests.values.shapes import Colour, visits

DIALECTS = [SQLITE, MARIADB, MYSQL, POSTGRESQL]

# template, rows, what goes out
RENDERED: list[tuple[Template, list[tuple[Any, ...]], list[tuple[str, tuple[Any, ...]]]]] = [
    (Template("DELETE ? ?"), [(1, "a")], [("DELETE ? ?", (1, "a"))]),
    (Template("DELETE ? ?"), [(1, "a"), (2, "b")], [("DELETE ? ?", (1, "a")), ("DELETE ? ?", (2, "b"))]),
    (Template("SELECT ?", answer=Answer.ORDINAL), [(1,), (1,)], [("SELECT ?", (1,)), ("SELECT ?", (1,))]),
    (Template("SELECT"), [()], [("SELECT", ())]),
    (Template("DELETE ?"), [], []),
    (Template("INSERT VALUES {rows} x", Gather.VALUES), [(1,)], [("INSERT VALUES (%s) x", (1,))]),
    (
        Template("INSERT VALUES {rows} x", Gather.VALUES),
        [(1, "{rows}"), (2, "%s")],
        [("INSERT VALUES (%s, %s), (%s, %s) x", (1, "{rows}", 2, "%s"))],
    ),
    (
        Template("VALUES {rows} x", Gather.ROW_LIST, Answer.ORDINAL),
        [(1, "{rows}"), (2, "%s")],
        [("VALUES ROW(0, %s, %s), ROW(1, %s, %s) x", (1, "{rows}", 2, "%s"))],
    ),
    (Template("SELECT {i}, a = %s", Gather.UNION), [(7,)], [("SELECT 0, a = %s", (7,))]),
    (
        Template("SELECT {i}, %s, %s", Gather.UNION),
        [(7, "{i}"), (8, "b"), (7, "{i}")],
        [
            (
                "SELECT 0, %s, %s\nUNION ALL\nSELECT 1, %s, %s\nUNION ALL\nSELECT 2, %s, %s",
                (7, "{i}", 8, "b", 7, "{i}"),
            )
        ],
    ),
    (
        Template("VALUES {rows} x", Gather.LIST, Answer.ORDINAL),
        [(7, "{rows}"), (8, "%s")],
        [("VALUES (0, %s, %s), (1, %s, %s) x", (7, "{rows}", 8, "%s"))],
    ),
    (Template("unnest(%s, %s)", Gather.ARRAYS), [(1, "a")], [("unnest(%s, %s)", ([1], ["a"]))]),
    (
        Template("unnest(%s, %s)", Gather.ARRAYS),
        [(1, "a"), (2, None), (1, "a")],
        [("unnest(%s, %s)", ([1, 2, 1], ["a", None, "a"]))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "rows", "wanted"), RENDERED, ids=[f"{t.gather.value}-{len(rows)}" for t, rows, _ in RENDERED]
)
def test_render(template: Template, rows: list[tuple[Any, ...]], wanted: list[tuple[str, tuple[Any, ...]]]) -> None:
    assert render(Statement(template, rows)) == wanted


@settings(deadline=None)
@given(st.sampled_from(list(Gather)), st.integers(1, 4), st.lists(st.integers(), min_size=1, max_size=6))
def test_there_is_a_parameter_for_every_placeholder(gather: Gather, width: int, numbers: list[int]) -> None:
    holes = ", ".join(["%s"] * width)
    sql = {Gather.EACH: holes, Gather.UNION: f"{{i}} {holes}", Gather.ARRAYS: holes}.get(gather, "{rows}")
    rows = [tuple(range(number, number + width)) for number in numbers]
    sent = render(Statement(Template(sql, gather), rows))
    assert all(text.count("%s") == len(params) for text, params in sent)
    assert not any("{" in text for text, _ in sent)
    assert len(sent) == (len(rows) if gather is Gather.EACH else 1)


@pytest.mark.parametrize("gather", [Gather.VALUES, Gather.LIST, Gather.UNION])
def test_what_is_too_much_for_one_text_goes_out_in_several(gather: Gather) -> None:
    template = Template({Gather.UNION: "{i} %s"}.get(gather, "{rows}"), gather, Answer.ORDINAL)
    most = MOST_ROWS[gather]
    texts = render(Statement(template, [(n,) for n in range(2 * most + 1)]))
    assert [len(row) for _, row in texts] == [most, most, 1]
    assert [n for _, row in texts for n in row] == list(range(2 * most + 1))
    if gather in (Gather.LIST, Gather.UNION):  # the ordinals go on
        assert texts[-1][0] in (f"({2 * most}, %s)", f"{2 * most} %s")
    large = render(
        Statement(template, [("x" * 400_000,), (b"x" * 400_000,), ("x" * 400_000,), ("x" * 2_000_000,), (1,)])
    )
    assert [len(row) for _, row in large] == [2, 1, 1, 1]


@pytest.mark.parametrize("value", [5, 0.5, "x", b"x", None])
def test_what_a_column_has_behind_a_null_may_be_of_any_type(value: Any) -> None:
    rows = [(1, None), (2, value)]
    assert render(Statement(Template("{rows}", Gather.VALUES), rows)) == [("(%s, %s), (%s, %s)", (1, None, 2, value))]


def test_the_answers_of_several_texts_find_their_rows() -> None:
    statement = Statement(
        Template("{i}", Gather.UNION, Answer.ORDINAL), [(n,) for n in range(MOST_ROWS[Gather.UNION] + 2)]
    )
    assert [row for _, row in render(statement)] == [tuple(range(250)), (250, 251)]
    answers = collect(statement, [[(3, "a")], [(251, "b")]])
    assert {place: rows for place, rows in enumerate(answers) if rows} == {3: [("a",)], 251: [("b",)]}


BY_ORDINAL = Template("SELECT", Gather.UNION, Answer.ORDINAL)
# template, asking rows, what is fetched, what each row gets
SCATTERED: list[tuple[Template, list[tuple[Any, ...]], list[Any], list[list[tuple[Any, ...]]]]] = [
    (BY_ORDINAL, [(5,), (6,)], [(0, "a"), (1, "b"), (0, "c")], [[("a",), ("c",)], [("b",)]]),
    (BY_ORDINAL, [(5,), (6,)], [], [[], []]),
    (BY_ORDINAL, [(5,), (5,)], [(1, "a", 1), (0, "a", 1)], [[("a", 1)], [("a", 1)]]),  # by position, never by value
]  # fmt: skip


@pytest.mark.parametrize(("template", "rows", "fetched", "wanted"), SCATTERED)
def test_scatter(
    template: Template, rows: list[tuple[Any, ...]], fetched: list[Any], wanted: list[list[tuple[Any, ...]]]
) -> None:
    assert scatter(Statement(template, rows), fetched) == wanted


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(IndexError):
        scatter(Statement(BY_ORDINAL, [("/home",)]), [(1, 5)])


def test_a_template_is_a_value() -> None:
    made = Template("SELECT b, {i}", Gather.UNION, Answer.ORDINAL)
    assert made.returns
    assert not Template("DELETE").returns
    assert hash(made) == hash(Template("SELECT b, {i}", Gather.UNION, Answer.ORDINAL))
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(FrozenInstanceError):
        made.sql = ""  # type: ignore[misc]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_words_of_a_dialect(dialect: Dialect) -> None:
    q, hole = dialect.quote, dialect.placeholder
    columns = [parse_column("s", "a", "int"), parse_column("s", "Order", "text(5)?")]
    assert dialect.names(columns) == f"{q}a{q}, {q}Order{q}"
    assert dialect.names(columns, "r.") == f"r.{q}a{q}, r.{q}Order{q}"
    assert dialect.equal(columns) == f"{q}a{q} = {hole} AND {q}Order{q} = {hole}"
    assert dialect.equal(columns[:1], "h.") == f"h.{q}a{q} = {hole}"
    assert dialect.holes(3) == f"{hole}, {hole}, {hole}"
    assert dialect.declared(columns[0]).endswith(" NOT NULL")
    assert "NULL" not in dialect.declared(columns[1])
    with pytest.raises(FrozenInstanceError):
        dialect.name = "another"  # type: ignore[misc]


def test_a_dialect_says_what_its_family_says_where_it_has_nothing_of_its_own() -> None:
    assert [dialect.family for dialect in DIALECTS] == ["sqlite", "mariadb", "mariadb", "postgresql"]
    words = {"sqlite": 1, "mariadb": 2, "postgresql": 3}
    assert [dialect.choose(words) for dialect in DIALECTS] == [1, 2, 2, 3]
    assert MYSQL.choose(words | {"mysql": 4}) == 4
    with pytest.raises(KeyError):
        SQLITE.choose({"mariadb": 2})


def test_columns_that_need_no_conversion_have_none() -> None:
    plain = [
        parse_column("s", name, spec) for name, spec in [("a", "int"), ("b", "text"), ("c", "float"), ("d", "bytes")]
    ]
    moment, shade = Column("m", ColumnType("datetime"), nullable=True), Column("e", ColumnType("enum", enum=Colour))
    for dialect in DIALECTS:
        assert dialect.encoder(plain) is None
        assert dialect.decoder(plain) is None
        encode, decode = dialect.encoder([*plain, moment, shade]), dialect.decoder([*plain, moment, shade])
        assert encode is not None
        assert decode is not None
        assert encode((1, "b", 0.5, b"d", None, Colour.BROWN)) == (1, "b", 0.5, b"d", None, "brown")
        assert decode((1, "b", 0.5, b"d", None, "brown")) == (1, "b", 0.5, b"d", None, Colour.BROWN)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_kind_of_column_has_a_type_everywhere(dialect: Dialect) -> None:
    assert set(dialect.types) == set(SQLITE.types)
    assert set(dialect.encoders) <= set(dialect.types)
    assert set(dialect.decoders) <= set(dialect.types)


def test_the_array_of_a_type_has_neither_limits_nor_a_collation() -> None:
    specs = 'int float bool text(5) binary(5) datetime date decimal(12,2) uuid enum("a") enum(1)'
    columns = [parse_column("s", f"c{i}", spec) for i, spec in enumerate(specs.split())]
    assert POSTGRESQL.arrays(columns) == (
        "%s::bigint[], %s::double precision[], %s::boolean[], %s::text[], %s::bytea[], %s::timestamptz[], %s::date[], "
        "%s::numeric[], %s::uuid[], %s::text[], %s::bigint[]"
    )


# --- the catalog -------------------------------------------------------------------------------------------------


def test_an_entry_of_the_catalog_quotes_what_it_must() -> None:
    assert entry(plan_for(visits, SQLITE), view=True).splitlines() == [
        "INSERT INTO roost_catalog (name, version, definition, has_view)",
        f"  VALUES ('visits', 1, '{visits.definition}', true)",
    ]
    odd = enum.Enum("odd", {"A": "it's"})
    counter = roost.Counter("c", key=odd)
    assert """enum(\\"it''s\\")""" in entry(plan_for(counter, SQLITE), view=True)
    assert f"_utf8mb4 X'{counter.definition.encode().hex().upper()}'" in entry(plan_for(counter, MARIADB), view=True)
