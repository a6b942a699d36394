"""Every command, with both kinds of client, on the plugin and on Roost's server."""

from __future__ import annotations

from decimal import Decimal

import pytest

import roost
from roost.client import Index, Where, While
from roost.client.requests import Value
from tests.client.conftest import Client, Connect, Server


def fruit(server: Server) -> Index:
    return server.index("fruit", "id", "name", "count", filters=("name", "count"))


def test_find_by_each_operator(server: Server, reader: Client) -> None:
    index = server.index("fruit", "id")
    found = {op: reader.run(index.find(op, 3, limit=10)) for op in ("=", "<", "<=", ">", ">=")}
    ids = {op: [int(row[0] or 0) for row in rows] for op, rows in found.items()}
    assert ids == {"=": [3], "<": [2, 1], "<=": [3, 2, 1], ">": [4, 5], ">=": [3, 4, 5]}


def test_find_with_limit_offset_in_and_filters(server: Server, reader: Client) -> None:
    index = fruit(server)
    assert reader.run(index.find(">=", 1)) == [("1", "apple", "5")]
    assert reader.run(index.find(">=", 1, limit=2, offset=2)) == [("3", "cherry", "1"), ("4", "damson", None)]
    assert reader.run(index.find("=", 99)) == []
    among = index.find("=", "", in_=(0, [5, 99, 1]))
    assert reader.run(among) == [("5", "elder", "9"), ("1", "apple", "5")]
    high = index.find(">=", 0, limit=9, filters=[Where("count", ">", 4)])
    assert reader.run(high) == [("1", "apple", "5"), ("5", "elder", "9")]
    both = index.find(">=", 0, limit=9, filters=[Where("name", "!=", "apple"), While("count", ">=", 4)])
    assert reader.run(both) == [("2", "banana", "4")]
    nulls = index.find(">=", 0, limit=9, filters=[Where("count", "=", None)])
    assert reader.run(nulls) == [("4", "damson", None)]


def test_find_by_another_index(server: Server, reader: Client) -> None:
    index = server.index("fruit", "name", index="by_name")
    assert reader.run(index.find(">", "b", limit=2)) == [("banana",), ("cherry",)]
    assert reader.run(index.find("<", "b", limit=2)) == [("apple",)]


def test_insert_answers_the_id(server: Server, writer: Client) -> None:
    index = fruit(server)
    assert writer.run(index.insert((None, "fig", 3))) == 6
    assert writer.run(index.insert((40, "grape", None))) == 0
    assert server.sql("SELECT name, count FROM fruit WHERE id IN (6, 40) ORDER BY id") == [("fig", 3), ("grape", None)]
    server.sql("CREATE TABLE plain (id BIGINT NOT NULL, v VARCHAR(9), PRIMARY KEY (id))")
    assert writer.run(server.index("plain", "id", "v").insert(7)) in (None, 0)
    assert server.sql("SELECT id FROM plain") == [(7,)]


def test_update_and_what_it_replaced(server: Server, writer: Client) -> None:
    index = server.index("fruit", "name", "count", filters=("count",))
    assert writer.run(index.update("=", 1, ("avocado", None))) == 1
    assert writer.run(index.update("=", 2, ("blackberry", 8)).returning()) == [("banana", "4")]
    assert writer.run(index.update("=", 99, ("nothing", 0))) == 0
    assert writer.run(index.update(">=", 1, ("x", 0), limit=9, filters=[Where("count", "<", 5)])) == 3
    found = server.sql("SELECT name FROM fruit ORDER BY id")
    assert found == [("x",), ("blackberry",), ("x",), ("x",), ("elder",)]


def test_delete_and_what_it_removed(server: Server, writer: Client) -> None:
    index = server.index("fruit", "id", "name")
    assert writer.run(index.delete("=", 1)) == 1
    assert writer.run(index.delete("=", "", in_=(0, [2, 3])).returning()) == [("2", "banana"), ("3", "cherry")]
    assert writer.run(index.delete(">", 4, limit=9)) == 1
    assert server.sql("SELECT id FROM fruit") == [(4,)]


def test_increment_and_decrement(server: Server, writer: Client) -> None:
    index = server.index("fruit", "id", "count")
    assert writer.run(index.increment("=", 1, (None, 10))) == 1
    assert writer.run(index.decrement("=", 1, (None, 3)).returning()) == [("1", "15")]
    assert writer.run(index.decrement("=", 1, (None, 13))) == 0  # the sign would change
    assert writer.run(index.increment("=", 4, (None, 1))) == 1  # NULL stays
    assert server.sql("SELECT id, count FROM fruit WHERE id IN (1, 4) ORDER BY id") == [(1, 12), (4, None)]


def test_every_byte_and_nothing(server: Server, writer: Client) -> None:
    server.sql("CREATE TABLE things (id BIGINT NOT NULL, v BLOB, PRIMARY KEY (id))")
    index = server.index("things", "v").as_bytes()
    put = server.index("things", "id", "v")
    values = [bytes(range(256)), b"", None, b"\x00", b"\xff\xfe", b"\t\n\x01A\r"]
    writer.pipeline([put.insert((number, value)) for number, value in enumerate(values)])
    assert [writer.run(index.find("=", number)) for number in range(len(values))] == [[(value,)] for value in values]


def test_a_value_that_is_no_text_costs_its_own_request_alone(server: Server, writer: Client) -> None:
    server.sql("CREATE TABLE things (id BIGINT NOT NULL, v BLOB, PRIMARY KEY (id))")
    index = server.index("things", "id", "v")
    asked = [index.insert((1, b"\xff")), index.insert((2, "é")), index.find("=", 1), index.find("=", 2)]
    *_, bad, good = writer.pipeline(asked)
    assert isinstance(bad, roost.Mismatch)
    assert "as_bytes" in str(bad)
    assert good == [("2", "é")]


def test_a_pipeline_has_each_answer_in_its_place(server: Server, writer: Client) -> None:
    server.sql("CREATE TABLE numbers (id BIGINT NOT NULL, v BIGINT, PRIMARY KEY (id))")
    index = server.index("numbers", "id", "v")
    assert writer.pipeline([]) == []
    writer.pipeline([index.insert((number, number * number)) for number in range(500)])
    found = writer.pipeline([index.find("=", number) for number in range(500)])
    assert found == [[(str(number), str(number * number))] for number in range(500)]


def test_what_fails_in_a_pipeline_costs_no_other(server: Server, writer: Client) -> None:
    # No table that is missing: after one of those on its write port, the plugin refuses keys until it is restarted.
    index, missing = fruit(server), server.index("fruit", "zest")
    asked = [index.find("=", 1), index.insert((1, "again", 0)), missing.find("=", 1), index.find("=", 2)]
    first, double, absent, last = writer.pipeline(asked)
    assert (first, last) == ([("1", "apple", "5")], [("2", "banana", "4")])
    assert isinstance(double, roost.Refused)
    assert (double.code, double.word) == (1, "121")
    assert isinstance(absent, roost.Refused)
    assert (absent.code, absent.word) == (2, "fld")
    assert writer.run(index.find("=", 3)) == [("3", "cherry", "1")]


def test_more_than_sockets_hold_at_once(server: Server, writer: Client) -> None:
    server.sql("CREATE TABLE large (id BIGINT NOT NULL, v VARCHAR(4000), PRIMARY KEY (id))")
    index = server.index("large", "id", "v")
    writer.run(index.insert((1, "x" * 4000)))
    found = writer.pipeline([index.find("=", 1)] * 5000)
    assert found == [[("1", "x" * 4000)]] * 5000
    long = ["y" * 4000] * 1000
    assert writer.pipeline([index.update("=", 1, (1, value)) for value in long]) == [1] * 1000


def test_what_a_port_refuses(server: Server, reader: Client) -> None:
    with pytest.raises(roost.Refused, match="only reads") as caught:
        reader.run(fruit(server).insert((9, "z", 0)))
    assert (caught.value.code, caught.value.word, caught.value.retry) == (2, "readonly", False)
    with pytest.raises(roost.Refused, match="kpnum"):
        reader.run(fruit(server).find("=", (1, 2)))
    with pytest.raises(roost.Refused, match="no such column"):
        reader.run(server.index("fruit", "zest").find("=", 1))
    with pytest.raises(roost.Refused, match="no such index"):
        reader.run(server.index("fruit", "id", index="by_zest").find("=", 1))
    assert reader.run(fruit(server).find("=", 1)) == [("1", "apple", "5")]


@pytest.mark.parametrize("secret", [None, "wrong", b"to write"])
def test_without_the_right_secret_nothing_is_answered(
    server: Server, connect: Connect, secret: str | bytes | None
) -> None:
    client = connect(f"127.0.0.1:{server.read_port}", secret=secret)
    with pytest.raises(roost.Refused, match="secret is wrong") as caught:
        client.run(fruit(server).find("=", 1))
    assert caught.value.word == "unauth"


def test_an_index_is_opened_early_and_once(server: Server, reader: Client) -> None:
    index = reader.open_index(server.database, "fruit", "PRIMARY", ["id", "name"])
    assert reader.open_index(server.database, "fruit", "PRIMARY", ["id", "name"]) == index
    assert "1 indexes open" in repr(reader.client)
    with pytest.raises(roost.Refused, match="no such database or table"):
        reader.open_index(server.database, "missing", "PRIMARY", ["id"])
    assert reader.run(index.find("=", 1)) == [("1", "apple")]


def test_values_of_python(server: Server, writer: Client) -> None:
    server.sql("CREATE TABLE v (id BIGINT NOT NULL, v VARCHAR(40), PRIMARY KEY (id))")
    index = server.index("v", "id", "v")
    values: list[Value] = ["é\U0001f41f", 2**63, -7, 0.1, Decimal("1.50"), True, None, b"raw"]
    writer.pipeline([index.insert((number, value)) for number, value in enumerate(values)])
    found = [row[1] for row in writer.run(index.find(">=", 0, limit=20))]
    assert found == ["é\U0001f41f", "9223372036854775808", "-7", "0.1", "1.50", "1", None, "raw"]
