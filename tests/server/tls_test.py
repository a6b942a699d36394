"""TLS: every TCP address speaks it, and SIGHUP brings another certificate or keeps the old one."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from roost import Invalid
from roost.server.listeners import tls_context
from roost.server.settings import Settings
from tests.campaigns.processes import until
from tests.server.conftest import Serve
from tests.server.serving import Client, Serving, connected


class Authority:
    """An authority that writes certificates for this machine into a folder, and the clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self._authority = trustme.CA()
        self.issue()

    def issue(self, kind: trustme.KeyType = trustme.KeyType.ECDSA) -> None:
        """Write another certificate with its key."""
        made = self._authority.issue_cert("127.0.0.1", "localhost", key_type=kind)
        self.key.write_bytes(made.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))

    def connect(self, served: Serving, role: str = "read") -> tuple[Client, int]:
        """Connect, and return the serial number of the certificate too."""
        trusting = ssl.create_default_context()
        self._authority.configure_trust(trusting)
        host, _, port = served.addresses[role][0].rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=60)
        wrapped = trusting.wrap_socket(plain, server_hostname="localhost")
        found = wrapped.getpeercert()
        assert found is not None
        return Client("", wrapped), int(str(found["serialNumber"]), 16)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


TLS = ("--workers", "1", "--tls-cert", "cert.pem", "--tls-key", "key.pem")


def test_connections_over_tls_and_a_unix_socket_that_is_plain(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    places = ("--read", f"127.0.0.1:0,unix:{tmp_path}/s", "--write", "127.0.0.1:0")
    served = serve(*TLS, "--drain", "0.5", *places, listeners=3)
    with served.connect(which=1) as plain:
        assert plain.ask("a") == ["0\t1"]
    (reader, _), (writer, _) = (authority.connect(served, role) for role in ("read", "write"))
    with reader, writer:
        for client in (reader, writer):
            assert client.ask("a", "b" * 100_000) == ["0\t1", "0\t1"]
            client.send("slowly", "slow")
            assert client.answer() == "slowly"
        assert served.stop() == 0
        for client in (reader, writer):
            assert [client.answer(), client.answer()] == ["0\t1", ""]


def test_who_does_not_speak_it_is_disconnected_and_costs_nobody_else(serve: Serve, authority: Authority) -> None:
    served = serve(*TLS)
    client, _ = authority.connect(served)
    with client, served.connect() as plain:
        plain.send("P\t1\tmain\tt\tPRIMARY\tid")
        while plain.socket.recv(1000):  # an alert of TLS
            pass
        assert client.ask("a") == ["0\t1"]
    assert "Traceback" not in served.log


def test_connections_beyond_the_limit_are_told_over_tls_too(serve: Serve, authority: Authority) -> None:
    served = serve(*TLS, "--max-connections", "1")
    client, _ = authority.connect(served)
    refused, _ = authority.connect(served)
    with client, refused:
        assert [refused.answer(), refused.answer()] == ["2\t1\tlimit", ""]
        assert client.ask("a") == ["0\t1"]


def test_f137_handshakes_count(serve: Serve, authority: Authority) -> None:
    served = serve(*TLS, "--max-connections", "5")
    files = Path(f"/proc/{served.pids('read')[0]}/fd")
    before = len(list(files.iterdir()))
    silent = [connected(served.addresses["read"][0]) for _ in range(300)]
    served.logged(r"connections beyond 5 are refused \(\d+ have not completed the TLS handshake\)")
    until(lambda: is_closed(silent[-1]), "a connection beyond the limit is closed")
    assert len(list(files.iterdir())) < before + 100
    for each in silent:
        each.close()

    def is_served() -> bool:
        try:
            client, _ = authority.connect(served)
        except OSError:
            return False
        with client:
            return client.ask("a") == ["0\t1"]

    until(is_served, "the silent ones count no more")


def is_closed(silent: socket.socket) -> bool:
    try:
        return silent.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("kind", trustme.KeyType)
def test_sighup_brings_another_certificate_to_the_connections_to_come(
    serve: Serve, authority: Authority, kind: trustme.KeyType
) -> None:
    served = serve(*TLS)
    old, first = authority.connect(served)
    with old:
        authority.issue(kind)
        served.send(signal.SIGHUP)
        served.logged("settings and certificates were read again")
        assert old.ask("a") == ["0\t1"]
        new, second = authority.connect(served)
        with new:
            assert second != first
            assert new.ask("a") == ["0\t1"]


def test_a_bad_certificate_keeps_the_old_one(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    served = serve(*TLS)
    before = authority.certificate.read_bytes()
    client, first = authority.connect(served)
    client.close()
    authority.certificate.write_bytes(b"nonsense")
    served.send(signal.SIGHUP)
    served.logged(r"the settings stay as they were: TLS: cert\.pem with key\.pem is not a PEM certificate")
    client, second = authority.connect(served)
    client.close()
    assert first == second
    authority.issue()
    authority.certificate.write_bytes(before)  # which does not belong to the new key
    served.send(signal.SIGHUP)
    served.logged("the settings stay as they were: TLS", 2)
    client, third = authority.connect(served)
    client.close()
    assert first == third


def test_what_is_wrong_with_a_certificate_is_told(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    url, good, bad = "sqlite:///app.db", str(authority.certificate), str(tmp_path / "bad.pem")
    key = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"password")
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    Path(bad).write_bytes(key.private_bytes(pem, form, locked))
    with pytest.raises(Invalid, match="the private key is encrypted"):
        tls_context(Settings(url, tls_cert=good, tls_key=bad))
    with pytest.raises(Invalid, match=r"nowhere\.pem cannot be read: No such file"):
        tls_context(Settings(url, tls_cert=good, tls_key="nowhere.pem"))
    assert tls_context(Settings(url)) is None
    context = tls_context(Settings(url, tls_cert=good, tls_key=str(authority.key)))
    assert context is not None
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
