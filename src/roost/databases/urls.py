"""URLs of databases: shown without a password, and taken apart where `urllib` and libpq disagree about one."""

from __future__ import annotations

import re
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


def parse_file(url: str) -> tuple[str | None, dict[str, str]]:
    """Return the path that a URL names, None in memory, and its options; `Invalid` says what is wrong with it."""
    shown = redacted(url)  # somebody has perhaps written a server's with the wrong scheme
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SQLITE_SCHEMES:
        raise Invalid(f"{shown!r} is not the URL of a SQLite file: {SQLITE_URLS}")
    path, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, strict_parsing=True) if query else []
    except ValueError:
        raise Invalid(f"{shown!r}: what follows ? is not a list of options") from None
    options = {}
    for name, value in pairs:
        choices = {"synchronous": ("full", "normal", "off", "extra"), "mode": ("ro", "rw")}.get(name)
        if choices is None or value.lower() not in choices:
            raise Invalid(f"{shown!r}: {name}={value} is not an option; use synchronous=full|normal, mode=ro")
        options[name] = value.upper() if name == "synchronous" else value.lower()
    if path in ("", "/", "/:memory:"):
        return None, options
    if not path.startswith("/"):
        raise Invalid(f"{shown!r}: a file takes three slashes, or four when its path is absolute")
    return unquote(path[1:]), options
