"""What the URL of a PostgreSQL says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg

from roost.databases.urls import SHARED, options_of, staleness_of, take_apart
from roost.errors import Invalid


def read(url: str) -> tuple[str, str, bool, float | None]:
    """Return a URL as libpq takes it, the place without a password, whether statements are prepared, and the staleness
    of reads (None: none)."""
    user, password, servers, rest = take_apart(url)
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    place = f"postgresql://{servers or options.get('host', '')}{path}"
    ours = options_of({each.name: options.pop(each.name) for each in SHARED if each.name in options}, SHARED, place)
    staleness = staleness_of(ours, place, (servers or options.get("host", "")).count(",") + 1)
    if "ssl" in options:  # asyncpg's name for it
        options["sslmode"] = {"true": "require", "false": "disable"}.get(options["ssl"], options["ssl"])
        del options["ssl"]
    # libpq ends a password at the first @, and takes a + as it is; it knows several servers.
    account = ":".join([_quoted(each) for each in (user, password) if each is not None])
    made = f"postgresql://{account}{'@' if account else ''}{servers}{path}?{urlencode(options, quote_via=quote)}"
    made = made.rstrip("?")
    try:
        psycopg.conninfo.conninfo_to_dict(made)
    except psycopg.ProgrammingError as error:
        raise Invalid(f"{place}: {error}") from error
    return made, place, ours["prepared"], staleness


def each_host(known: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what libpq is to be told to connect to each of a URL's hosts alone.

    >>> each_host({"host": "a,b", "port": "5432,5433"})
    [{'host': 'a', 'port': '5432'}, {'host': 'b', 'port': '5433'}]
    """
    named = {name: str(known[name]).split(",") for name in ("host", "hostaddr", "port") if known.get(name)}
    hosts = len(named.get("host", ""))
    return [{name: texts[place if len(texts) > 1 else 0] for name, texts in named.items()} for place in range(hosts)]


def _quoted(part: str) -> str:
    # What is quoted already stays as it is.
    return re.sub("%(?![0-9A-Fa-f]{2})", "%25", quote(part, safe="%"))
