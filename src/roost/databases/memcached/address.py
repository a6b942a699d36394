"""What the URL of memcached servers says."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from roost.errors import Invalid

PORT = 11211


def read(url: str) -> tuple[str, list[tuple[str, int]]]:
    """Return the place in words, and the hosts with their ports."""
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        asked = "a password" if "@" in url else parts.path.strip("/") or parse_qsl(parts.query) or parts.fragment
        raise Invalid(f"memcached://host:port,host:port takes no path and no options, not {asked!r}")
    found = []
    for each in parts.netloc.split(","):
        host, colon, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, port = each, str(PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise Invalid(f"{each!r} is not a memcached server; write memcached://host:port,host:port")
        found.append((host.strip("[]"), int(port)))
    if len(set(found)) < len(found):
        raise Invalid(f"{url} names a server twice")
    return f"memcached://{parts.netloc}", found
