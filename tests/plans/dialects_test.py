"""How a list of rows becomes statements, and how what they fetch finds the rows that asked: pure, on every dialect."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roost
from roost.catalog.catalog import entry
from roost.dialects import MARIADB, MYSQL, POSTGRESQL, SQLITE, Answer, Gather, Statement, Template
from roost.dialects.dialect import MOST_ROWS, collect, render, scatter
from roost.structures.registry import plan_for
from roost.types.column_types import ColumnType
from roost.types.columns import Column, parse_column
from tests.values.shapes import Colour, visits

DIALECTS = [SQLITE, MARIADB, MYSQL, POSTGRESQL]

VALUES = st.sampled_from([1, 0.5, None, "a", b"x", "{rows}", "{i}", "%s"])  # what is in a value is not looked at


@settings(deadline=None)
@given(st.sampled_from(list(Gather)), st.integers(0, 4), st.data())
def test_every_value_has_its_placeholder_in_order(gather: Gather, width: int, data: st.DataObject) -> None:
    width = max(width, gather is not Gather.EACH)
    rows = data.draw(st.lists(st.tuples(*[VALUES] * width), max_size=6))
    holes = ", ".join(["%s"] * width)
    sql = {Gather.EACH: holes, Gather.UNION: f"{{i}} {holes}", Gather.ARRAYS: holes}.get(gather, "{rows}")
    sent = render(Statement(Template(sql, gather), rows))
    assert len(sent) == (len(rows) if gather is Gather.EACH else len(rows[:1]))
    assert all(text.count("%s") == len(params) and "{" not in text for text, params in sent)
    given = [
        each for _, params in sent for each in (zip(*params, strict=True) if gather is Gather.ARRAYS else [params])
    ]
    assert [value for each in given for value in each] == [value for row in rows for value in row]


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


def test_the_answers_of_several_texts_find_their_rows() -> None:
    statement = Statement(
        Template("{i}", Gather.UNION, Answer.ORDINAL), [(n,) for n in range(MOST_ROWS[Gather.UNION] + 2)]
    )
    assert [row for _, row in render(statement)] == [tuple(range(250)), (250, 251)]
    answers = collect(statement, [[(3, "a")], [(251, "b")]])
    assert {place: rows for place, rows in enumerate(answers) if rows} == {3: [("a",)], 251: [("b",)]}


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(IndexError):
        scatter(Statement(Template("SELECT", Gather.UNION, Answer.ORDINAL), [("/home",)]), [(1, 5)])


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
