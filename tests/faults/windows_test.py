"""What Windows lacks is taken away from a process: what it can do all the same, and what it is told."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roost.client.sockets import is_ready
from tests import servers

# What Python itself imports on Linux only is imported first.
WITHOUT = """
import asyncio, functools, multiprocessing, multiprocessing.connection, os, select, signal, socket, subprocess, sys
import tempfile
socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
GONE = {
    os: "fork forkpty register_at_fork getuid geteuid getgid fchmod fchown chown mkfifo O_CLOEXEC memfd_create",
    socket: "AF_UNIX SO_REUSEPORT",
    select: "poll epoll",
    signal: "SIGHUP SIGUSR1 SIGUSR2 SIGPIPE SIGKILL SIGALRM pthread_sigmask",
}
for module, names in GONE.items():
    for name in names.split():
        delattr(module, name)
"""

USED = """
import roost
hits = roost.Counter("hits")
with roost.Store({url!r}) as store:
    store.create(hits)
    store.run_all(hits.add("/home"), hits.add("/home", 2))

async def main():
    async with roost.AsyncStore({url!r}) as store:
        await asyncio.gather(*[store.run(hits.add("/home")) for _ in range(10)])
        return await store.run(hits.total("/home"))

print(asyncio.run(main()))
"""

COMMAND = """
import roost.cli
roost.cli.main({words!r})
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOST_")}
    command = [sys.executable, "-c", WITHOUT + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def done(program: str) -> str:
    ran = run(program)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_f63_a_store_of_a_server_works(server_url: str) -> None:
    assert done(USED.format(url=server_url)) == "13\n"


def test_f63_so_does_the_command_line(server_url: str) -> None:
    done(COMMAND.format(words=["--store", server_url, "create", "counter", "hits"]))
    found = done(COMMAND.format(words=["--store", server_url, "--json", "list"]))
    assert [each["name"] for each in json.loads(found)] == ["hits"]


def test_f63_a_store_of_memcached_works() -> None:
    url = servers.memcached()
    likes = f"""
import roost
likes = roost.MemcachedSet("windows_{servers.RUN}")
with roost.Store({url!r}) as store:
    print(store.run_all(likes.add("7", "ada"))[0], store.run(likes.members("7")))
"""
    assert done(likes) == "None {'ada'}\n"


def test_f63_a_database_in_memory_works() -> None:
    assert done(USED.format(url="sqlite://").partition("async def")[0] + "print('fine')") == "fine\n"


def test_f63_a_file_of_sqlite_is_refused_in_words_and_nothing_is_made(tmp_path: Path) -> None:
    ran = run(USED.format(url=f"sqlite:///{tmp_path}/app.db"))
    assert ran.stderr.splitlines()[-1].startswith("roost.errors.CannotOpen: ")
    assert "this system (Windows, say) has no flock" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "counter", "hits"], "this system (Windows, say) has no flock"),
        (["serve"], "roost serve needs a system with forks and flock"),
    ],
    ids=["create", "serve"],
)
def test_f63_so_it_is_by_the_command_line(tmp_path: Path, words: list[str], message: str) -> None:
    ran = run(COMMAND.format(words=["--store", f"sqlite:///{tmp_path}/app.db", *words]))
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
    assert message in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_f63_every_module_for_applications_can_be_imported() -> None:
    done("import roost, roost.client, roost.cli, roost.contrib.alembic, roost.contrib.django.address")


@pytest.mark.parametrize("polls", [True, False], ids=["poll", "select"])
def test_f63_a_client_waits_for_its_socket_with_and_without_poll(polls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not polls:
        monkeypatch.delattr(select, "poll")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_ready(ours, 0)
        assert is_ready(ours, None, to_write=True)
        theirs.send(b"0")
        assert is_ready(ours, None)
        assert is_ready(ours.fileno(), 0)
