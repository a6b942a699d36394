"""GTIDs of MariaDB: whether a replica follows the primary, or has transactions that a failover lost."""

from __future__ import annotations


def follows(applied: str, position: str, server: str) -> bool:
    """Return whether a replica that has applied these GTIDs has no transaction that the primary lacks.

    position, server: the primary's GTIDs at some time, and its server id, which all later transactions have.

    A replica that was not rebuilt after a failover may be ahead of the primary, with transactions that were lost:
    waiting for a GTID compares sequence numbers only, whichever server assigned them.

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
