"""The load generator of `bench`: it drives a server, counts on both sides, and notices a wrong answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.load import Load, drive

from tests.client.conftest import Server, served

ROWS = 2000


@pytest.mark.parametrize("server", [served], indirect=True)
def test_the_load_generator_drives_a_server_and_notices_wrong_answers(server: Server) -> None:
    server.sql("CREATE TABLE bench (id BIGINT PRIMARY KEY, v VARCHAR(64))")
    server.sql("CREATE TABLE counts (id BIGINT PRIMARY KEY, n BIGINT)")
    write = Load("fill", f"127.0.0.1:{server.write_port}", server.write_secret, server.database, rows=ROWS)
    write = replace(write, connections=2, seconds=0.1, warmup=0.0)
    read = replace(write, work="get", address=f"127.0.0.1:{server.read_port}", secret=server.read_secret)
    filled = drive(replace(write, seconds=60.0, pipeline=50))
    assert (filled.errors, filled.lost, filled.answered) == ({}, 0, ROWS - 50)  # and those before, one at least
    for load in (read, replace(read, work="range", pipeline=7, idle=2)):
        report = drive(load, 2 if load is read else 1)
        assert (report.errors, report.example, report.lost) == ({}, "", 0)
        assert report.requests > 0
    counted = drive(replace(write, work="increment", table="counts", hot=3, pipeline=9))
    assert counted.counted == counted.answered > 0
    server.sql("UPDATE bench SET v = 'wrong'")
    assert set(drive(read).errors) == {"wrong answer"}
