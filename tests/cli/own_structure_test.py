"""A kind of structure that is declared outside of Roost works in every command."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.latest import Latest, LatestConsole

prices = Latest("prices", key=str, value=int)


def test_a_kind_of_ones_own_works_in_every_command(shell: Shell) -> None:
    assert shell("create", f"{__name__}:prices") == "prices: made\n"
    assert shell("create", f"{__name__}:prices") == "prices: is there already\n"
    shell.write("prices.csv", "key,value\negg,3\nhen,20\negg,4\n")
    assert shell.json("import", "prices", "prices.csv")["imported"] == 3
    assert shell("list").splitlines()[1:] == ["prices\tlatest\tkey text(255)\tvalue int\t"]
    assert shell("show", "prices").splitlines() == ["key", "egg", "hen"]
    assert shell("show", "prices", "egg").splitlines() == ["value", "4"]
    assert shell.json("show", "prices", "hen") == {"structure": "prices", "key": "hen", "rows": [{"value": 20}]}
    assert shell.json("show", "prices", "fox")["rows"] == []
    assert shell("check") == "every promise is kept\n"
    assert shell("clear", "prices", "egg", "--yes") == "prices: 1 row removed from key egg\n"
    assert shell.json("show", "prices") == [{"key": "hen"}]
    assert shell("alter", f"{__name__}:prices") == "prices: nothing to change\n"
    assert "CREATE TABLE roost_prices_rows" in shell("ddl", f"{__name__}:prices")


def test_a_kind_of_ones_own_in_words(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LatestConsole, "takes", {"key": (), "value": [("value", "int")]})
    assert shell("create", "latest", "depths", "--key", "int") == "depths: made\n"
    assert shell("list").splitlines()[1:] == ["depths\tlatest\tkey int\tvalue int\t"]
    shell("create", "latest", "heights", "--keep", "3", code=2)
    assert "a latest takes --key, --value here, not --keep" in shell.error
    shell("alter", "depths", "--keep", "3", code=2)
    assert "a latest takes no options here, not --keep" in shell.error
