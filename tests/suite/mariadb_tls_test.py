"""TLS that a server offers is spoken, and one that cannot be verified is refused where that is asked for."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
import trustme

import roost
from roost.databases import open_engine
from roost.databases.mariadb.address import arguments
from roost.databases.mariadb.engine import MariaDBEngine
from tests import servers
from tests.campaigns.processes import until
from tests.server.serving import serving
from tests.suite.shapes import pageviews

CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


def issue(folder: Path, ca: Path) -> None:
    """Write an authority's certificate, and a server's into a folder, or renew both."""
    made = trustme.CA()
    certificate = made.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for number, each in enumerate(certificate.cert_chain_pems):
        each.write_to_path(folder / "cert.pem", append=number > 0)
    (folder / "key.pem").chmod(0o644)
    made.cert_pem.write_to_path(ca)


def test_f108_certificates_that_were_renewed_are_read_again(tmp_path: Path) -> None:
    folder = servers.folder_for(servers.account("mysql"))
    issue(folder, tmp_path / "ca.pem")
    daemon = servers.mariadb_daemon(f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem")
    with daemon:
        url = servers.mariadb_server(daemon.url).database("renewed")
        with roost.Store(f"{url}?ssl_ca={tmp_path}/ca.pem", timeout=60) as store:
            store.create(pageviews)
            store.run(pageviews.add("/"))
            daemon.kill()
            issue(folder, tmp_path / "ca.pem")
            daemon.start()
            store.run(pageviews.add("/"))
            assert store.run(pageviews.total("/")) == 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, servers.Server]]:
    folder = servers.folder_for(servers.account("mysql"))
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    issue(folder, path)
    daemon = servers.mariadb_daemon(f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem")
    with daemon:
        yield path, servers.mariadb_server(daemon.url)


def cipher(url: str) -> str:
    """Return what a connection of Roost's own is encrypted by, in the middle of its work."""
    engine = open_engine(url, timeout=60.0, trace=None, random=Random(1))
    assert isinstance(engine, MariaDBEngine)
    raw = engine.open(60.0)
    found: str = raw.results(CIPHER)[0][0][1]
    raw.close()
    return found


def test_tls_is_spoken_where_the_server_does_and_certificates_are_not_read(
    authority: tuple[Path, servers.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = authority[1].database("preferred")

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("64 ms for each connection, to verify nobody")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    assert cipher(url).startswith("TLS_")
    assert cipher(f"{url}?ssl_mode=DISABLED") == ""
    with roost.Store(url) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
        assert store.run(pageviews.total("/")) == 1


def test_a_server_is_verified_where_that_is_asked_for(authority: tuple[Path, servers.Server]) -> None:
    ca, server = authority
    url = server.database("verified")
    for mode in ("VERIFY_CA", "VERIFY_IDENTITY"):
        assert cipher(f"{url}?ssl_mode={mode}&ssl_ca={ca}").startswith("TLS_")
        with pytest.raises(roost.Error, match=r"(?i)certificate verify failed"):
            cipher(f"{url}?ssl_mode={mode}")
    assert cipher(f"{url}?ssl_mode=REQUIRED").startswith("TLS_")


class Ready:
    """What a task of `roost serve` waits by, of a socket that is always ready."""

    def waits(self) -> bool:
        return True

    def until(self, events: int, _: float) -> int:
        return events

    def received(self) -> int:
        return 0

    def close(self) -> None: ...


@pytest.mark.parametrize("size", [1, 2**20])  # what is sent at once, and what is not
def test_a_connection_that_breaks_leaves_no_error_to_others_of_its_thread(
    authority: tuple[Path, servers.Server], size: int
) -> None:
    """On Python 3.14 `roost serve` took every new connection for broken then: `unavailable`, `unknown`."""
    engine = open_engine(authority[1].database(f"broken_{size}"), timeout=60.0, trace=None, random=Random(1))
    assert isinstance(engine, MariaDBEngine)
    broken, sound = engine.open(60.0), engine.open(60.0)
    number = broken.thread_id()  # type: ignore[no-untyped-call]
    sound.results(f"KILL {number}")
    until(lambda: not sound.results(f"SELECT 1 FROM information_schema.processlist WHERE id = {number}")[0], "its end")
    broken.watch = Ready()
    with pytest.raises(pymysql.OperationalError):
        broken.results(f"SELECT '{'x' * size}'")
    sock: Any = sound._sock  # type: ignore[attr-defined]
    sock.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        sock.recv(1)
    sound.close()


def test_serve_waits_for_what_is_encrypted_as_for_what_is_not(
    authority: tuple[Path, servers.Server], tmp_path: Path
) -> None:
    path, server = authority
    url = server.database("served")
    with roost.Store(f"{url}?ssl_ca={path}") as store:
        store.create(pageviews)
    with contextlib.closing(pymysql.connect(**arguments(url)[0])) as connection:
        connection.cursor().execute("CREATE TABLE long_ones (id INT PRIMARY KEY, v LONGTEXT CHARACTER SET utf8mb4)")
    name = url.rpartition("/")[2]
    opening = f"P\t1\t{name}\tlong_ones\tPRIMARY\tid,v"
    long = ["a" * 300_000, "b" * 70_000, "c"]
    with serving(
        tmp_path, f"{url}?ssl_ca={path}", "--workers", "1", "--connections", "4", module="roost.cli"
    ) as served:
        with contextlib.closing(served.connect("write")) as client:
            added = client.ask(opening, *[f"1\t+\t2\t{number}\t{value}" for number, value in enumerate(long)])
            assert added == ["0\t1"] * 4
        readers = [served.connect("read") for _ in range(8)]
        for each in readers:
            each.send(opening, *[f"1\t=\t1\t{number}" for number in range(3)])
        for each in readers:
            assert [each.answer() for _ in range(4)] == [
                "0\t1",
                *[f"0\t2\t{number}\t{value}" for number, value in enumerate(long)],
            ]
            each.close()
