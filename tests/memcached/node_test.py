"""node-memcached: its usual calls give the same from Roost as from memcached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.memcached.conftest import Serve, on, place

PACKAGES = ["memcached@2.2.2"]


def usual(address: tuple[str, int], modules: Path) -> list[Any]:
    """Run the usual calls, and return what the client tells."""
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, str(Path(__file__).with_name("usual.js")), f"{address[0]}:{address[1]}"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NODE_PATH": str(modules)},
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@on("sqlite")
def test_node_memcached(serve: Serve, address: tuple[str, int], pytestconfig: pytest.Config) -> None:
    modules = npm.modules(pytestconfig, PACKAGES)
    theirs, ours = (usual(each, modules) for each in (address, place(serve())))
    assert len(ours) > 20
    assert ["get", "é\r\nthe end"] in ours
    assert ours == theirs
