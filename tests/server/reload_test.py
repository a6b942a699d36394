"""SIGHUP: settings are read again, a bad file changes nothing, and what waits for a restart is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.server.conftest import Serve


def test_settings_are_read_again(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "roost.toml"
    config.write_text("slow = 1.5\nworkers = 1\n")
    served = serve("--config", "roost.toml")
    with served.connect() as reader, served.connect("write") as writer:
        assert reader.ask("setting") == writer.ask("setting") == ["1.5"]
        config.write_text("slow = 2.5\nworkers = 1\n")
        served.send(signal.SIGHUP)
        served.logged("settings and certificates were read again")
        assert reader.ask("setting") == writer.ask("setting") == ["2.5"]
        config.write_text("slow = 3.5\nworker = 1\n")
        served.send(signal.SIGHUP)
        served.logged(r"the settings stay as they were: roost.toml: worker is not a setting; the nearest is workers")
        assert reader.ask("setting") == writer.ask("setting") == ["2.5"]
        config.write_text('slow = 4.5\nworkers = 3\nhttp = "127.0.0.1:0"\ntls_cert = "cert.pem"\n')
        served.send(signal.SIGHUP)
        served.logged("the settings stay as they were: TLS: cert.pem cannot be read")
        config.write_text('slow = 4.5\nworkers = 3\nhttp = "127.0.0.1:0"\n')
        served.send(signal.SIGHUP)
        served.logged("a restart is needed to change workers, http")
        assert reader.ask("setting") == writer.ask("setting") == ["4.5"]
        assert len(served.pids("read")) == 1


def test_a_worker_that_comes_later_has_the_new_settings(serve: Serve, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old\n")
    served = serve("--workers", "1", "--read-secret-file", "secret")
    with served.connect() as client:
        assert client.ask("secret") == ["old"]
    secret.write_text("new\n")
    served.send(signal.SIGHUP)
    served.logged("settings and certificates were read again")
    os.kill(served.pids("read")[0], signal.SIGKILL)
    served.logged("another takes its place")
    with served.connect() as client:
        assert client.ask("secret") == ["new"]
    secret.unlink()
    served.send(signal.SIGHUP)
    served.logged("the settings stay as they were: --read-secret-file: secret cannot be read")
    with served.connect() as client:
        assert client.ask("secret") == ["new"]
