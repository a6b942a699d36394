"""`roost serve` as a process of its own, for tests and campaigns; and plain connections to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.processes import PATIENCE, until

ROOT = Path(__file__).parents[2]


class Client:
    """A connection that sends and reads lines."""

    def __init__(self, address: str, sock: socket.socket | None = None) -> None:
        self.socket = sock or connected(address)
        self._file = self.socket.makefile("rb")

    def ask(self, *lines: str) -> list[str]:
        """Send requests, and return their answers."""
        self.send(*lines)
        return [self.answer() for _ in lines]

    def send(self, *lines: str) -> None:
        """Send requests, in one piece."""
        self.socket.sendall("".join([f"{line}\n" for line in lines]).encode("utf-8", "surrogateescape"))

    def answer(self) -> str:
        """Return the next answer; empty at the end of the connection."""
        return self._file.readline().decode("utf-8", "surrogateescape").removesuffix("\n")

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer at the end of the connection."""
        return self._file.read(size)

    def rest(self) -> bytes:
        """Return what comes until the server closes."""
        return self._file.read()

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connected(address: str) -> socket.socket:
    """Connect to `host:port` or `unix:/path`."""
    if address.startswith("unix:"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(PATIENCE)
        made.connect(address.removeprefix("unix:"))
        return made
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE)


class Serving:
    """A running `roost serve`: where it listens, its processes and its log."""

    def __init__(self, folder: Path, *arguments: str, env: Mapping[str, str] | None = None, module: str) -> None:
        self.log_path = folder / "serve.log"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ROOST_")}
        environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "serve", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environ | dict(env or {}),
                cwd=folder,
                text=True,
            )
        self.addresses: dict[str, list[str]] = {"read": [], "write": [], "memcached": [], "http": [], "console": []}

    def ready(self, listeners: int) -> Serving:
        """Return when so many addresses were announced."""
        assert self.process.stdout is not None
        for _ in range(listeners):
            what, _, address = self.process.stdout.readline().rstrip("\n").partition(" ")
            assert what in self.addresses, self.log
            self.addresses[what].append(address)
        return self

    def connect(self, role: str = "read", which: int = 0) -> Client:
        """Connect to an address of a role."""
        return Client(self.addresses[role][which])

    @property
    def log(self) -> str:
        """What was logged so far."""
        return self.log_path.read_text()

    def logged(self, pattern: str, times: int = 1) -> None:
        """Return when something was logged, so often."""
        until(lambda: len(re.findall(pattern, self.log)) >= times, lambda: f"{pattern} in the log {self.log}")

    def pids(self, role: str) -> list[int]:
        """Return the processes of a role, by their numbers."""
        found = {}
        for pid in self.children():
            words = called(pid)
            if words[:2] == ["roost", role]:
                found[int(words[2])] = pid
        return [found[number] for number in sorted(found)]

    def standby(self) -> list[int]:
        """Return the process that waits for a place, when it is ready for one."""
        return [pid for pid in self.children() if called(pid) == ["roost", "standby"]]

    def children(self) -> list[int]:
        """Return all processes that it has started and not buried."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def all(self) -> list[int]:
        """Return the processes of all workers."""
        return [*self.pids("read"), *self.pids("write")]

    def send(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it politely, and return its exit code."""
        self.send(number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    module: str = "tests.server.standin",
    listeners: int | None = None,
) -> Iterator[Serving]:
    """Run `roost serve`, with free ports unless told otherwise; killed at the end if it is still there."""
    if listeners is None:
        arguments, listeners = (*arguments, "--read", "127.0.0.1:0", "--write", "127.0.0.1:0"), 2
    made = Serving(folder, *arguments, env=env, module=module)
    try:
        yield made.ready(listeners)
    finally:
        orphans = made.children() if made.process.poll() is None else []
        made.process.kill()
        made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()
        for pid in orphans:
            until(lambda pid=pid: not alive(pid), "a worker is still there")  # type: ignore[misc]


def called(pid: int) -> list[str]:
    """Return the words of a process's name; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def alive(pid: int) -> bool:
    """Return whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
