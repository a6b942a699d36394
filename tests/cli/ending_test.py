"""Rate limits and leases on the command line."""

from __future__ import annotations

import roost
from tests.cli.conftest import Shell

DAY = 86_400

logins = roost.RateLimit("logins", limit=3, within=3 * DAY)
jobs = roost.Lease("jobs", key=roost.text(40))


def test_a_rate_limit(shell: Shell) -> None:
    assert shell("create", f"{__name__}:logins") == "logins: made\n"
    assert shell("list").splitlines()[1:] == ["logins\trate_limit\tkey text(255)\t\tlimit 3, within 3d"]
    with roost.Store("sqlite:///roost.db") as store:
        store.run_all(logins.take("ada", 2), logins.take("bob", 3))
    assert shell("show", "logins").splitlines()[:2] == ["key\tremaining\tretry_after", "ada\t1\t0.0"]
    shown = shell.json("show", "logins", "bob")
    assert shown["remaining"] == 0
    assert DAY - 600 < shown["retry_after"] <= DAY
    shell.write("logins.csv", "who\nada\n")
    shell("import", "logins", "logins.csv", code=1)
    assert "nothing can be imported into a rate_limit" in shell.error
    assert shell("clear", "logins", "bob", "--yes") == "logins: 1 row removed from key bob\n"
    assert shell.json("show", "logins", "bob")["remaining"] == 3
    assert shell("check") == "every promise is kept\n"


def test_a_rate_limit_and_a_lease_are_declared_in_words(shell: Shell) -> None:
    assert shell("create", "rate_limit", "logins", "--limit", "3", "--within", "15m") == "logins: made\n"
    assert shell("create", "rate_limit", "logins", "--limit", "3", "--within", "900s") == "logins: is there already\n"
    assert shell("create", "lease", "jobs", "--key", "text(40)") == "jobs: made\n"
    assert shell.json("list") == [
        {"kind": "lease", "name": "jobs", "key": [["key", "text(40)"]]},
        {"kind": "rate_limit", "name": "logins", "key": [["key", "text(255)"]], "limit": 3, "within": 900_000_000},
    ]
    assert shell("list").splitlines()[2] == "logins\trate_limit\tkey text(255)\t\tlimit 3, within 15m"
    assert shell("alter", "logins", "--within", "1h", "--limit", "5") == "logins: limit: 3 -> 5; within: 15m -> 1h\n"
    assert shell("create", "rate_limit", "logins", "--limit", "5", "--within", "2h", code=1) == ""
    assert "within is 1h in the database and 2h in the declaration" in shell.error
    for words, code, message in (
        (("rate_limit", "calls"), 2, "a rate_limit needs --limit and --within"),
        (("rate_limit", "calls", "--limit", "5", "--within", "soon"), 2, "'soon' is no time"),
        (("rate_limit", "calls", "--limit", "0", "--within", "1h"), 1, "calls: limit is a whole number from 1 on"),
        (("lease", "locks", "--keep", "5"), 2, "a lease takes --key here, not --keep"),
        (("capped", "visits"), 2, "a capped needs --per and --unique"),
    ):
        assert shell("create", *words, code=code) == ""
        assert message in shell.error
    assert shell("check") == "every promise is kept\n"


def test_a_lease(shell: Shell) -> None:
    assert shell("create", f"{__name__}:jobs") == "jobs: made\n"
    assert shell("list").splitlines()[1:] == ["jobs\tlease\tkey text(40)\tholder text(255)\t"]
    with roost.Store("sqlite:///roost.db") as store:
        grant = store.run(jobs.acquire("daily", "ada", DAY))
        assert grant is not None
    shown = shell.json("show", "jobs", "daily")
    assert (shown["holder"], shown["token"]) == ("ada", grant.token)
    assert shell("show", "jobs").splitlines()[1].startswith(f"daily\tada\t{grant.token}\t")
    assert shell("show", "jobs", "weekly").splitlines() == ["holder\ttoken\texpires"]
    assert shell("clear", "jobs", "daily", "--yes") == "jobs: 1 lease removed from key daily\n"
    assert shell("show", "jobs").splitlines() == ["key\tholder\ttoken\texpires"]
    assert shell("check") == "every promise is kept\n"
