"""TLS that a server offers is spoken, and one that cannot be verified is refused where that is asked for."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

import roost
from roost.databases import open_engine
from roost.databases.mariadb.engine import MariaDBEngine
from tests import servers
from tests.suite.shapes import pageviews

CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, servers.Server]]:
    made = trustme.CA()
    folder = servers.folder_for(servers.account("mysql"))
    certificate = made.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for number, each in enumerate(certificate.cert_chain_pems):
        each.write_to_path(folder / "cert.pem", append=number > 0)
    (folder / "key.pem").chmod(0o644)
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    made.cert_pem.write_to_path(path)
    try:
        daemon = servers.mariadb_daemon(f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem")
    except servers.NotHere as error:
        servers.not_run(error)
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
