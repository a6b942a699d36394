"""URLs of databases: shown without a password, and taken apart where `urllib` and libpq disagree about one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from roost.errors import Invalid

# Options whose values are secrets, as libpq and PyMySQL call them.
_SECRET = re.compile(r"(?i)([?&](?:password|passwd|sslpassword|ssl_password|oauth_client_secret)=)[^&#]*")
_AUTHORITY = re.compile(r"(?s)([^:/?#]*://)([^/?#]*)(.*)")
_SERVER = re.compile(r"[^:@]*(:\d*)?(,[^:@]*(:\d*)?)*\Z|\[")  # names, ports and addresses, and nothing of an account

# With the drivers that SQLAlchemy's URLs name; a store has Python's own.
SQLITE_SCHEMES = ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite")
SQLITE_URLS = "sqlite:///relative.db, sqlite:////absolute.db, or sqlite:// in memory"


def redacted(url: str) -> str:
    """Return a URL with `***` in place of each password.

    A password ends at the last @ of the authority. Where a / or ? in it cuts the authority short, it ends at the last @
    of all: rather too much is hidden than a part of it shown.

    >>> redacted("postgresql://ada:p@ss:word@host/app?password=x&sslmode=require")
    'postgresql://ada:***@host/app?password=***&sslmode=require'
    >>> redacted("mysql://ada:a/b@host/app")
    'mysql://ada:***@host/app'
    >>> redacted("mysql://ada:p@ss/word@host/app")
    'mysql://ada:***@host/app'
    """
    found = _AUTHORITY.match(url)
    if found:
        scheme, authority, rest = found.groups()
        if "@" in authority:
            cut = _has_at(rest)
        else:
            cut = "@" in rest and authority != "" and not _is_only_server(authority, rest)
        if cut:
            authority, rest = authority + rest, ""
        account, at, server = authority.rpartition("@")
        user, colon, _ = account.partition(":")
        url = f"{scheme}{user}{colon and ':***'}{at}{server}{rest}"
    return _SECRET.sub(r"\1***", url)


def take_apart(url: str) -> tuple[str, str | None, str, str]:
    """Return user, password (None: there is none), servers, and the rest of a URL, as they are written.

    `Invalid` where a password that is not quoted has made something else of it.
    """
    found = _AUTHORITY.match(url)
    if not found:
        raise Invalid(f"{redacted(url)!r} is not a database URL")
    _, authority, rest = found.groups()
    account, _, servers = authority.rpartition("@")
    if account and _has_at(rest):
        raise Invalid(
            f"{redacted(url)!r} is not a database URL: an @ follows the host. In a password, write %2F for /, %3F for "
            "? and %23 for #; in the name of a database, %40 for @"
        )
    if not _is_only_server(servers, "" if account else rest):
        raise Invalid(
            f"{redacted(url)!r} is not a database URL: no port follows the last colon. In a password, write %2F "
            "for /, %3F for ? and %23 for #"
        )
    user, colon, password = account.partition(":")
    return user, password if colon else None, servers, rest


def _is_only_server(authority: str, rest: str) -> bool:
    return bool(_SERVER.match(authority)) and not (":" in authority and _has_at(rest))


def _has_at(rest: str) -> bool:
    return "@" in rest.partition("?")[0]


class Option(NamedTuple):
    """One option of a URL.

    wanted: what it may be, in words.
    read: makes the value of its text, or raises KeyError or ValueError.
    default: the value where the URL does not have it.
    """

    name: str
    wanted: str = "a text"
    read: Callable[[str], Any] = str
    default: Any = None


def number(least: float, most: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """Return what reads a number within limits."""

    def read(text: str) -> Any:
        value = kind(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return read


def chosen(*names: str) -> Callable[[str], str]:
    """Return what reads one of several words, however it is written."""
    return lambda text: {name.lower(): name for name in names}[text.lower()]


# Of servers.
SHARED = (
    Option("prepared", "on or off", {"on": True, "off": False}.__getitem__, True),
    Option("reads", "primary or replica", {"primary": "primary", "replica": "replica"}.__getitem__, "primary"),
    Option("staleness", "a number of seconds", number(0, 10**6, float)),
)
OF_FILES = (
    Option("synchronous", "full, normal, extra or off", chosen("FULL", "NORMAL", "EXTRA", "OFF"), "FULL"),
    Option("mode", "ro or rw", chosen("ro", "rw"), "rw"),
)
STALENESS = 1.0  # seconds, unless the URL says otherwise


def options_of(given: Mapping[str, str], options: Sequence[Option], place: str) -> dict[str, Any]:
    """Return the value of each option; `Invalid` if the URL has another one, or another value."""
    if unknown := sorted(given.keys() - {each.name for each in options}):
        names = ", ".join([each.name for each in options])
        raise Invalid(f"{place}: {', '.join(unknown)} is not an option; the options are {names}")
    found = {}
    for each in options:
        text = given.get(each.name)
        try:
            found[each.name] = each.default if text is None else each.read(text)
        except (KeyError, ValueError):
            raise Invalid(f"{place}: {each.name} is {each.wanted}; not {text!r}") from None
    return found


def staleness_of(options: Mapping[str, Any], place: str, hosts: int) -> float | None:
    """Return how many seconds old a read from a replica may be; None if reads go to the primary."""
    staleness: float | None = options["staleness"]
    if options["reads"] == "primary":
        if staleness is not None:
            raise Invalid(f"{place}: staleness is of reads=replica")
        return None
    if hosts < 2:
        raise Invalid(f"{place}: reads=replica takes several hosts, host1,host2")
    return STALENESS if staleness is None else staleness


def parse_file(url: str) -> tuple[str | None, dict[str, Any]]:
    """Return the path that a URL names, None in memory, and its options; `Invalid` says what is wrong with it."""
    shown = redacted(url)  # somebody has perhaps written a server's with the wrong scheme
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SQLITE_SCHEMES:
        raise Invalid(f"{shown!r} is not the URL of a SQLite file: {SQLITE_URLS}")
    path, _, query = rest.partition("?")
    try:
        given = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    except ValueError:
        raise Invalid(f"{shown!r}: what follows ? is not a list of options") from None
    options = options_of(given, OF_FILES, repr(shown))
    if path in ("", "/", "/:memory:"):
        return None, options
    if not path.startswith("/"):
        raise Invalid(f"{shown!r}: a file takes three slashes, or four when its path is absolute")
    return unquote(path[1:]), options
