"""GTIDs of MariaDB: whether a replica follows the server that writes, or has what was lost with a former one."""

from __future__ import annotations


def follows(applied: str, position: str, server: str) -> bool:
    """Return whether a replica that has applied these GTIDs has none that the server that writes does not have.

    position, server: the GTIDs that the server that writes had, and its number: what came since has that number.

    A replica that was not made anew after a failover may be ahead of it, with what was lost: GTIDs are waited for by
    their numbers alone, whichever server gave them.

    >>> follows("0-2-20", "0-1-17", "2"), follows("0-1-17", "0-1-17", "2"), follows("0-1-20", "0-1-17", "2")
    (True, True, False)
    """
    known = _by_domain(position)
    for domain, (origin, number) in _by_domain(applied).items():
        origin_then, number_then = known.get(domain, (origin, number))
        if number > number_then and origin != server:
            return False
        if number == number_then and origin != origin_then:
            return False
    return True


def _by_domain(gtids: str) -> dict[str, tuple[str, int]]:
    found = {}
    for each in gtids.split(",") if gtids else ():
        domain, origin, number = each.strip().split("-")
        found[domain] = origin, int(number)
    return found
