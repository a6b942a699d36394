"""A real MySQL beside the machine's MariaDB: out of Debian's unstable suite, unpacked into a cache, not installed.

`python -m tests.mysql_server` fetches it where it is not there yet (48 MB, unpacked 270 MB) and says where it is;
`ROOST_TEST_CACHE` names another folder than the user's cache. Debian's stable suite has no MySQL, and the unstable one
moves, so tests of MySQL are not run where this fails. It runs by its own loader: its libc is newer than the machine's.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PACKAGE = "mysql-server-core"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
LINKS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")  # not followed
PATIENCE = 600.0  # seconds for each command


class Unavailable(Exception):
    """MySQL is not here, or cannot be had."""


def cache() -> Path:
    """Return the folder for what the tests fetch, which outlives checkouts."""
    named = os.environ.get("ROOST_TEST_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "roost-tests")


def program() -> list[str]:
    """Return the command that runs mysqld, without options of its own but where its files are."""
    root = cache() / "mysql"
    loaders = sorted(root.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise Unavailable(f"there is no MySQL in {root}; `python -m tests.mysql_server` fetches it")
    return [
        *(str(loaders[0]), "--library-path", str(loaders[0].parent), str(root / "usr/sbin/mysqld"), "--no-defaults"),
        *(f"--basedir={root / 'usr'}", f"--lc-messages-dir={root / 'usr/share/mysql'}", "--secure-file-priv="),
    ]


def fetched(name: str, make: Callable[[Path], Path]) -> Path:
    """Return what `make` has made in a folder, once: one process at a time, and whole or not at all."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache() / name).exists():
            folder = Path(tempfile.mkdtemp(dir=cache()))
            try:
                make(folder).rename(cache() / name)
            except (OSError, subprocess.SubprocessError) as error:
                told = getattr(error, "stderr", None) or ""
                raise Unavailable(f"{name} cannot be had: {error}\n{told[-2000:]}".rstrip()) from error
            finally:
                shutil.rmtree(folder)
    return cache() / name


def _unpacked(folder: Path) -> Path:
    # apt with lists of its own: nothing of the machine's changes.
    for name in ("lists/partial", "cache/archives/partial", "packages", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {_mirror()} sid main\n")
    own = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Get::List-Cleanup": 0,
        "APT::Sandbox::User": "root",  # the folder may be one that only this account reads
        "Acquire::Languages": "none",
    }
    options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
    _run("apt-get", *options, "update", "-q")
    links = [f"--no-{each}" for each in LINKS]
    listed = _run("apt-cache", *options, "depends", "--recurse", *links, PACKAGE).splitlines()
    names = [each for each in listed if each[:1].isalnum() and not each.startswith("perl")]
    _run("apt-get", *options, "download", *names, cwd=folder / "packages")
    for each in (folder / "packages").iterdir():
        _run("dpkg", "-x", str(each), str(folder / "root"))
    return folder / "root"


def _mirror() -> str:
    # Where the machine's own packages of Debian come from.
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    shown = _run("apt-get", "indextargets", "Created-By: Packages", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)")
    for line in shown.splitlines():
        suite, component, mirror = line.split(" ", 2)
        if suite in (release, "stable") and component == "main":
            return mirror
    raise Unavailable("MySQL cannot be fetched: this machine's packages do not come from a mirror of Debian")


def _run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, timeout=PATIENCE).stdout


if __name__ == "__main__":
    try:
        fetched("mysql", _unpacked)
        print(subprocess.run([*program(), "--version"], check=True, capture_output=True, text=True).stdout.rstrip())
    except (Unavailable, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"NOT RUN: the tests of MySQL. {error}")
