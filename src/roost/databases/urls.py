"""URLs of databases: shown without a password, and taken apart where `urllib` and libpq disagree about one."""

from __future__ import annotations

import re

from roost.errors import Invalid

# Options whose values are secrets, as libpq and PyMySQL call them.
_SECRET = re.compile(r"(?i)([?&](?:password|passwd|sslpassword|ssl_password|oauth_client_secret)=)[^&#]*")
_AUTHORITY = re.compile(r"(?s)([^:/?#]*://)([^/?#]*)(.*)")
_SERVER = re.compile(r"[^:@]*(:\d*)?(,[^:@]*(:\d*)?)*\Z|\[")  # names, ports and addresses, and nothing of an account


def redacted(url: str) -> str:
    """Return a URL with `***` in place of each password.

    A password ends at the last @ of the authority. Where a / or ? in it cuts the authority short, it ends at the last @
    of all: rather too much is hidden than a part of it shown.

    >>> redacted("postgresql://ada:p@ss:word@host/app?password=x&sslmode=require")
    'postgresql://ada:***@host/app?password=***&sslmode=require'
    >>> redacted("mysql://ada:a/b@host/app")
    'mysql://ada:***@host/app'
    """
    found = _AUTHORITY.match(url)
    if found:
        scheme, authority, rest = found.groups()
        if "@" not in authority and "@" in rest and authority and not _is_only_server(authority, rest):
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
        raise Invalid(f"{redacted(url)!r} is no URL of a database")
    _, authority, rest = found.groups()
    account, _, servers = authority.rpartition("@")
    if not _is_only_server(servers, "" if account else rest):
        raise Invalid(
            f"{redacted(url)!r} is no URL of a database: behind the last : stands no port. In a password / is written "
            "as %2F, ? as %3F, # as %23"
        )
    user, colon, password = account.partition(":")
    return user, password if colon else None, servers, rest


def _is_only_server(authority: str, rest: str) -> bool:
    return bool(_SERVER.match(authority)) and not (":" in authority and "@" in rest.partition("?")[0])
