"""Pools: each caller has its own answer, and one who cannot have a connection is told."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

import roost
from roost.client import AsyncPool, Pool
from tests.client.conftest import Server


def test_threads_share_a_few_connections(server: Server) -> None:
    index, names = server.index("fruit", "id", "name"), ["apple", "banana", "cherry", "damson", "elder"]
    with (
        Pool(f"127.0.0.1:{server.read_port}", size=2, secret=server.read_secret) as pool,
        ThreadPoolExecutor() as threads,
    ):

        def ask(row: int) -> list[object]:
            return [pool.run(index.find("=", row)), *pool.pipeline([index.find("=", row)] * 3)]

        rows = [1, 2, 3, 4, 5] * 50
        assert [*threads.map(ask, rows)] == [[[(str(row), names[row - 1])]] * 4 for row in rows]


def test_after_a_fork_nobody_waits_for_what_the_threads_of_the_parent_use(server: Server) -> None:
    used, left = Barrier(3), Event()
    find = server.index("fruit", "id", "name").find("=", 1)
    with (
        Pool(f"127.0.0.1:{server.read_port}", size=2, wait=1, secret=server.read_secret) as pool,
        ThreadPoolExecutor() as threads,
    ):

        def use() -> None:
            with pool.take() as client, client._lock:
                used.wait()
                left.wait()

        uses = [threads.submit(use) for _ in range(2)]
        used.wait()
        child = os.fork()
        if not child:
            signal.alarm(60)
            pool.close()
            os._exit(0 if pool.run(find) == [("1", "apple")] else 1)
        left.set()
        assert os.waitpid(child, 0)[1] == 0
        for each in uses:
            each.result()


def test_tasks_share_a_few_connections(server: Server) -> None:
    index = server.index("fruit", "id", "name")

    async def main() -> None:
        async with AsyncPool(f"127.0.0.1:{server.read_port}", size=2, secret=server.read_secret) as pool:
            rows = [1, 2, 3] * 20
            found = await asyncio.gather(*[pool.run(index.find("=", row)) for row in rows])
            assert [each[0][0] for each in found] == [str(row) for row in rows]
            assert await pool.pipeline([index.find("=", 1)] * 2) == [[("1", "apple")]] * 2

    asyncio.run(main())


def test_the_connection_used_last_is_taken_first() -> None:
    with Pool("127.0.0.1:1", size=3) as pool:
        with pool.take() as first, pool.take():
            pass
        with pool.take() as again:
            assert again is first


def test_who_cannot_have_a_connection_is_told() -> None:
    with Pool("127.0.0.1:1", size=1, wait=0) as pool, pool.take():
        with pytest.raises(roost.Busy, match="none of 1 connections became free within 0 s") as caught, pool.take():
            pass
        assert caught.value.retry

    async def main() -> None:
        async with AsyncPool("127.0.0.1:1", size=1, wait=0.01) as pool, pool.take():
            with pytest.raises(roost.Busy, match="none of 1 connections"):
                async with pool.take():
                    pass

    asyncio.run(main())


def test_a_caller_that_fails_gives_its_connection_back() -> None:
    with Pool("127.0.0.1:1", size=1, wait=0) as pool:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), pool.take():
                raise ZeroDivisionError
