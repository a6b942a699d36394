"""The opaque of a meta command as the token of what is done once, where the settings say so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import roost
from tests.memcached.conftest import DATABASES, Common, Serve, on, pages, running, with_cache
from tests.memcached.server_test import raw

ONCE = ("--memcached-once", "60")


@pytest.fixture(scope="module", params=DATABASES)
def made_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Common]:
    """Servers that do things once, which the tests share; each has opaques of its own."""
    folder = tmp_path_factory.mktemp("once")
    with with_cache(request.param, folder) as db, running(db, folder, *ONCE) as served:
        yield Common(db, served)


@pytest.fixture
def once(made_once: Common) -> Common:
    with roost.Store(made_once.db.url) as store:
        store.run(pages.clear())
    return made_once


def test_a_request_is_done_once_for_its_opaque_and_answered_as_before(once: Common) -> None:
    with raw(once.served) as one, raw(once.served) as other:
        assert one.ask(b"ma n N0 J1 D5 O7 v\r\n", 2) == b"VA 1 O7\r\n1\r\n"
        assert one.ask(b"ma n N0 J1 D5 O8 v\r\n", 2) == b"VA 1 O8\r\n6\r\n"
        assert other.ask(b"ma n N0 J1 D5 O7 v\r\n", 2) == b"VA 1 O7\r\n1\r\n"
        assert one.ask(b"ms log 2 Oa\r\nab\r\n") == b"HD Oa\r\n"
        for client in (one, other, one):
            assert client.ask(b"ms log 2 MA Ob k\r\ncd\r\n") == b"HD Ob klog\r\n"
        assert one.ask(b"mg log v\r\n", 2) == b"VA 4\r\nabcd\r\n"
        assert one.ask(b"md log Oc\r\n") == b"HD Oc\r\n"
        assert other.ask(b"md log Oc\r\n") == b"HD Oc\r\n"
        assert other.ask(b"md log Od\r\n") == b"NF Od\r\n"
    with roost.Store(once.db.url) as store:
        assert store.run(pages.get("n")) == b"6"


@on("mariadb")
def test_it_is_so_after_the_server_was_started_anew(serve: Serve) -> None:
    for _ in range(2):
        with raw(serve(*ONCE)) as client:
            assert client.ask(b"ma n N0 J1 Oabcdefghijklmnopqrstuvwxyz012345 v\r\n", 2).endswith(b"\r\n1\r\n")


@on("sqlite", fixture="made_once")
def test_requests_that_arrive_together_keep_their_order(once: Common) -> None:
    with raw(once.served) as client:
        sent = (
            b"ms n 1 Ot1\r\n1\r\n"
            + b"ma n Ot2 v\r\n" * 2
            + b"mg n v Ot2\r\nincr n 10\r\nma n Ot3 v\r\nget n\r\nma n Ot2 v\r\n"
        )
        assert client.ask(sent, 15) == (
            b"HD Ot1\r\n" + b"VA 1 Ot2\r\n2\r\n" * 2 + b"VA 1 Ot2\r\n2\r\n12\r\nVA 2 Ot3\r\n13\r\n"
            b"VALUE n 0 2\r\n13\r\nEND\r\nVA 1 Ot2\r\n2\r\n"
        )


@on("postgresql", fixture="made_once")
def test_the_same_one_of_many_clients_at_once_is_done_once(once: Common) -> None:
    served = once.served
    with ThreadPoolExecutor(8) as threads, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(raw(served)) for _ in range(8)]
        for number in range(20):
            asked = b"ma n N0 J1 Om%d v\r\n" % number
            answers = set(threads.map(lambda client, asked=asked: client.ask(asked, 2), clients))
            assert answers == {b"VA %d Om%d\r\n%d\r\n" % (len(str(number + 1)), number, number + 1)}


@on("mariadb", fixture="made_once")
def test_what_was_refused_was_not_done_and_its_opaque_is_free(once: Common) -> None:
    with raw(once.served) as client:
        assert client.ask(b"set n 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert client.ask(b"ma n Or1 v\r\n").startswith(b"CLIENT_ERROR cannot increment")
        assert client.ask(b"ma n Or1 q\r\nset n 0 0 1\r\n4\r\n", 2).endswith(b"STORED\r\n")
        assert client.ask(b"ma n Or1 v\r\n", 2) == b"VA 1 Or1\r\n5\r\n"
        assert client.ask(b"ma n Or1 v\r\n", 2) == b"VA 1 Or1\r\n5\r\n"


@on("sqlite")
def test_unless_the_settings_say_so_an_opaque_comes_back_and_means_nothing(serve: Serve) -> None:
    with raw(serve()) as client:
        assert client.ask(b"ma n N0 J1 O7 v\r\n" * 2, 4) == b"VA 1 O7\r\n1\r\nVA 1 O7\r\n2\r\n"
