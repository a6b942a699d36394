"""The settings of `roost serve`: from a TOML file, the environment and the command line; later sources win.

Every setting is one field of `Settings`, with its type, default and help text. The command line's options, the names
in the environment (`ROOST_SERVE_…`) and the keys of the file are generated from the fields.
"""

# ruff: noqa: RUF009 - `_setting` makes fields

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from roost.databases.addresses import Address
from roost.databases.urls import parse_file
from roost.errors import Invalid

Role = Literal["read", "write"]
Service = Literal["read", "write", "memcached"]  # the purpose of an address; write workers serve memcached's protocol
SERVICES: tuple[Service, ...] = ("read", "write", "memcached")


def protocol_of(service: Service) -> str:
    return "memcached" if service == "memcached" else "handlersocket"


ROLES: tuple[Role, Role] = ("read", "write")
SCHEMES = ("sqlite", "mysql", "mariadb", "postgresql", "postgres")
PREFIX = "ROOST_SERVE_"
STORE = "ROOST_STORE"  # the environment variable from which every command takes its URL
SECRET_BYTES = 64 * 1024  # the maximum size of a file with a secret
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Invalid(f"{value!r} is not a text")
    return value


def _secret(value: object) -> str:
    # No message contains the value: a mistyped secret is close to the right one.
    if not isinstance(value, str) or not value:
        raise Invalid("a secret is a text of at least one character")
    if min(value) < "\x10":  # a request's tokens escape these characters or cannot contain them
        raise Invalid("a secret with a TAB, an end of line or another of the characters 00 to 0F cannot be sent")
    return value


def _whole(value: object) -> int:
    found = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value, re.ASCII) else value
    if type(found) is not int or found < 1:
        raise Invalid(f"{value!r} is not a whole number of at least 1")
    return found


def _bytes(value: object) -> int:
    found = value
    if isinstance(value, str):
        size = re.fullmatch("([0-9]{1,15})([KMG]?)(iB)?", value, re.ASCII)
        found = int(size[1]) * _SIZES[size[2]] if size else None
    if type(found) is not int or found < 1:
        raise Invalid(f"{value!r} is not a number of bytes: 1048576, 1024K or 1MiB")
    return found


def _seconds(value: object) -> float:
    try:
        found = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except ValueError:
        found = math.nan
    if not 0 <= found < 10**9:
        raise Invalid(f"{value!r} is not a number of seconds")
    return found


def _limit(value: object) -> float:
    found = _seconds(value)
    return found if found < 10**6 else 0.0  # servers refuse longer ones


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    found = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(str(value).lower())
    if found is None:
        raise Invalid(f"{value!r} is neither true nor false")
    return found


def _list(value: object) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all([isinstance(part, str) for part in parts]):
        raise Invalid(f"{value!r} is not a list of texts")
    return [part.strip() for part in parts if part.strip()]


def _addresses(value: object) -> tuple[Address, ...]:
    parts = _list(value)
    return () if parts == ["none"] else tuple(map(Address.parse, parts))


def _address(value: object) -> Address | None:
    return None if value == "none" else Address.parse(_text(value))


def _name(value: object) -> str | None:
    return None if value == "none" else _text(value)


def _patterns(value: object) -> tuple[str, ...]:
    found = _list(value)
    if not found:
        raise Invalid("no table could be opened; '*' allows all of them")
    return tuple(found)


# The types of settings: what a value becomes, how it is read, and what it is called in the help.
Text = Annotated[str, _text, "URL"]
Path = Annotated[str | None, _text, "TEXT"]
Secret = Annotated[str | None, _secret, "TEXT"]
Whole = Annotated[int, _whole, "N"]
Bytes = Annotated[int, _bytes, "BYTES"]
Seconds = Annotated[float, _seconds, "SECONDS"]
Limit = Annotated[float, _limit, "SECONDS"]
Flag = Annotated[bool, _flag, "BOOL"]
Addresses = Annotated[tuple[Address, ...], _addresses, "ADDRESS,…"]
OneAddress = Annotated[Address | None, _address, "ADDRESS"]
Name = Annotated[str | None, _name, "NAME"]
Patterns = Annotated[tuple[str, ...], _patterns, "NAME,…"]


def _setting(default: Any, help_text: str, *, fixed: bool = False) -> Any:
    """Make a field. fixed: a change needs a restart."""
    return dataclasses.field(default=default, metadata={"help_text": help_text, "fixed": fixed})


@dataclass(frozen=True)
class Settings:
    """The settings of `roost serve`. `Invalid` when they are inconsistent or unsafe.

    >>> settings = Settings("sqlite:///app.db", tables=("users", "log_*"))
    >>> settings.workers_of("write"), settings.allows("log_2026"), settings.allows("salaries")
    (1, True, False)
    """

    url: Text = _setting(
        "sqlite:///roost.db",
        "The database: mysql://user:password@host/database, postgresql://…, or a SQLite file: sqlite:///relative.db or "
        "sqlite:////absolute.db; with ?synchronous=normal an answered write may be lost when the power fails.",
        fixed=True,
    )
    read: Addresses = _setting(
        (Address("127.0.0.1", 9998),),
        "Where reads are served, separated by commas: host:port, [v6]:port, unix:/path, or none.",
        fixed=True,
    )
    write: Addresses = _setting(
        (Address("127.0.0.1", 9999),), "Where reads and writes are served, in the same form.", fixed=True
    )
    workers: Whole = _setting(
        os.cpu_count() or 1,
        "Processes that serve reads; writes are served by one more on a SQLite file, else by as many more.",
        fixed=True,
    )
    read_secret: Secret = _setting(None, "The secret that a client of a read address must send.")
    write_secret: Secret = _setting(None, "The secret that a client of a write address must send.")
    tls_cert: Path = _setting(None, "The certificate chain, PEM: every TCP address speaks TLS.")
    tls_key: Path = _setting(None, "Its private key, PEM, if it is not in the same file.")
    tables: Patterns = _setting(
        ("*",), "The tables that may be opened, separated by commas; * stands for any characters."
    )
    http: OneAddress = _setting(None, "Where /metrics (Prometheus) and /healthz are served, or none.", fixed=True)
    slow: Seconds = _setting(1.0, "Requests that take longer are logged; 0: none.")
    log_values: Flag = _setting(False, "Log the values of slow and failed requests too.")
    max_line: Bytes = _setting(16 * 2**20, "The longest request, in bytes.")
    max_connections: Whole = _setting(
        2**14, "Connections of one process; each further one gets `2 1 limit` and is closed."
    )
    max_indexes: Whole = _setting(1024, "Indexes that one connection may open.")
    max_unanswered: Bytes = _setting(2**20, "Bytes of unread answers beyond which nothing more is read from a client.")
    max_answer: Bytes = _setting(64 * 2**20, "The largest answer to one request, and the longest value, in bytes.")
    timeout: Limit = _setting(5.0, "How long one request may take in the database; 0: no limit.")
    auth_timeout: Seconds = _setting(
        60.0, "How long a connection may take to send the secret, if there is one; 0: no limit."
    )
    idle: Seconds = _setting(0.0, "A connection that is silent for longer is closed; 0: never.")
    auth_delay: Seconds = _setting(1.0, "How long the answer to a wrong secret is delayed.")
    drain: Seconds = _setting(10.0, "How long clients may take to read their answers after SIGTERM.")
    connections: Whole = _setting(
        8, "Connections to MariaDB or PostgreSQL, of all processes together; each process has at least one.", fixed=True
    )
    memcached: Addresses = _setting(
        (), "Where memcached's protocol is served over the cache of --cache, in the same form.", fixed=True
    )
    cache: Name = _setting(None, "The cache that memcached's clients read and write.", fixed=True)
    memcached_secret: Secret = _setting(None, "The user:password that a client of memcached's protocol must send.")
    memcached_once: Seconds = _setting(
        0.0,
        "Seconds for which the opaque of a modifying meta command is its token: a command with the same opaque does "
        "nothing and gets the first answer; 0: opaques are not tokens.",
        fixed=True,
    )
    console: OneAddress = _setting(
        None, "Where pages for the browser are served (`roost console`), values hidden, or none.", fixed=True
    )
    console_secret: Secret = _setting(None, "The token of their link; without it one is made, and printed.")

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name, each in SETTINGS.items() if not each.secret]
        return f"Settings({', '.join(shown)})"

    def __post_init__(self) -> None:
        scheme = self.url.partition(":")[0]
        if scheme.partition("+")[0] not in SCHEMES:  # the message omits the rest, which may contain a password
            raise Invalid(f"roost serve works on {', '.join(SCHEMES)}, and not on {scheme}:")
        if self.is_file and self._parsed[0] is None:
            raise Invalid(f"{self.url} is in memory, where every process would have its own: name a file")
        if not any([self.listeners(service) for service in SERVICES]):
            raise Invalid("neither read nor write has an address: there is nothing to serve")
        if self.write and self.read_only:
            raise Invalid(f"{self.url} is read only: set write = none")
        if self.memcached and self.read_only:
            raise Invalid(f"{self.url} is read only, and memcached's clients write")
        if bool(self.memcached) != bool(self.cache):
            raise Invalid("memcached and cache go together: an address, and the name of the cache that is served there")
        if self.http is not None and self.http.path:
            raise Invalid(f"http {self.http}: /metrics and /healthz take a port")
        if self.console is not None and self.console.path:
            raise Invalid(f"console {self.console}: the pages take a port")
        if self.console is not None and self.console_secret is None and not self.console.loopback:
            raise Invalid(f"console {self.console} can be reached from other machines: it takes console_secret")
        if self.tls_key and not self.tls_cert:
            raise Invalid("tls_key is of no use without tls_cert")
        for service in SERVICES:
            guarded = self.secret(service) is not None or self.tls_cert is not None
            could = "write" if service == "memcached" else service
            for address in self.listeners(service):
                if not guarded and not address.loopback:
                    raise Invalid(
                        f"{service} {address} can be reached from other machines, and anybody could {could}: it takes "
                        f"{service}_secret, or tls_cert; 127.0.0.1 is for this machine alone"
                    )
        named = [*self.read, *self.write, *self.memcached, *filter(None, [self.http, self.console])]
        for address in named:
            if named.count(address) > 1 and (address.path or address.port):
                raise Invalid(f"{address} is named twice")

    @cached_property
    def _parsed(self) -> tuple[str | None, dict[str, Any]]:
        return parse_file(self.url)

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite:")

    def workers_of(self, role: Role) -> int:
        """Return how many processes serve a role: a file has one writer."""
        return self.workers if role == "read" or not self.is_file else 1

    @property
    def connections_of_one(self) -> int:
        processes = sum([self.workers_of(role) for role in ROLES if self.services(role)])
        return max(1, self.connections // processes)

    @property
    def read_only(self) -> bool:
        return self.is_file and self._parsed[1]["mode"] == "ro"

    def services(self, role: Role) -> list[Service]:
        """Return the services of a role's workers that have an address."""
        found: list[Service] = ["read"] if role == "read" else ["write", "memcached"]
        return [service for service in found if self.listeners(service)]

    def listeners(self, service: Service) -> tuple[Address, ...]:
        found: tuple[Address, ...] = getattr(self, service)
        return found

    def secret(self, service: Service) -> bytes | None:
        """Return the secret that a client has to send, in UTF-8; None if it need not send one."""
        found: str | None = getattr(self, f"{service}_secret")
        return None if found is None else found.encode()

    def allows(self, table: str, *, any_case: bool = True) -> bool:
        """Whether a table may be opened, by its name or by `schema.name`.

        any_case: ignore the case of the letters A to Z.
        """
        return self._patterns[any_case].fullmatch(table) is not None

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        text = "|".join([".*".join(map(re.escape, each.split("*"))) for each in self.tables])
        return re.compile(text, re.DOTALL), re.compile(text, re.ASCII | re.IGNORECASE | re.DOTALL)

    def to_json(self) -> str:
        """Return all settings, secrets included, for the control connection to a worker."""
        found = {name: getattr(self, name) for name in SETTINGS}
        return json.dumps({name: value for name, value in found.items() if value is not None}, default=str)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**{name: SETTINGS[name].read(value) for name, value in json.loads(text).items()})

    def changed(self, other: Settings) -> list[str]:
        return [name for name in SETTINGS if getattr(self, name) != getattr(other, name)]


class Setting(NamedTuple):
    """One setting. secret: it is never shown, and a file of its own may hold it."""

    read: Callable[[object], Any]
    metavar: str
    help_text: str
    default: Any
    fixed: bool
    secret: bool


def _described() -> Iterator[tuple[str, Setting]]:
    types = get_type_hints(Settings, include_extras=True)
    for field in dataclasses.fields(Settings):
        read, metavar = types[field.name].__metadata__
        yield field.name, Setting(read, metavar, **field.metadata, default=field.default, secret=read is _secret)


SETTINGS = dict(_described())
FILES = {f"{name}_file": name for name, setting in SETTINGS.items() if setting.secret}
KEYS = [*SETTINGS, *FILES]


def load(config: str | None, environ: Mapping[str, str], options: Mapping[str, object]) -> Settings:
    """Load the settings; later sources win, and a secret wins over its file in the same source.

    options: from the command line, by the names of the settings; None: not given.
    """
    found: dict[str, object] = {}
    sources = [("", _environment(environ)), ("--", {name: each for name, each in options.items() if each is not None})]
    if config is not None:
        sources.insert(0, (f"{config}: ", _file(config)))
    for where, source in sources:
        for name, value in source.items():
            if name in FILES and FILES[name] not in source:
                found[FILES[name]] = _read(where, name, value, secret_of)
            elif name in SETTINGS:
                found[name] = _read(where, name, value, SETTINGS[name].read)
    return Settings(**found)  # type: ignore[arg-type]


def reloaded(before: Settings, after: Settings) -> tuple[Settings, list[str]]:
    """Return the settings after a reload, and the names of changed settings that need a restart."""
    fixed = [name for name in before.changed(after) if SETTINGS[name].fixed]
    if (before.tls_cert is None) != (after.tls_cert is None):
        fixed += ["tls_cert", *(["tls_key"] if before.tls_key != after.tls_key else [])]
    kept = {name: getattr(before, name) for name in fixed}
    return dataclasses.replace(after, **kept), fixed


def _read(where: str, name: str, value: object, read: Callable[[object], Any]) -> Any:
    shown = name.replace("_", "-") if where == "--" else name
    try:
        return read(value)
    except Invalid as error:
        raise Invalid(f"{where}{shown}: {error}") from None


def _environment(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {"url": environ[STORE]} if environ.get(STORE) else {}
    for variable, value in environ.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            _must_be_known(name, variable, lambda near: f"{PREFIX}{near.upper()}", [*KEYS, "config"])
            found[name] = value
    return found


def _file(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from error
    for name in found:
        _must_be_known(name, f"{path}: {name}", str, KEYS)
    return found


def _must_be_known(name: str, shown: str, spelt: Callable[[str], str], known: list[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise Invalid(f"{shown} is not a setting; the nearest is {spelt(near)}")


def secret_of(path: object) -> str:
    try:
        with open(_text(path), encoding="utf-8") as file:
            text = file.read(SECRET_BYTES)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not in UTF-8") from None
    return _secret(text.removesuffix("\n").removesuffix("\r"))
