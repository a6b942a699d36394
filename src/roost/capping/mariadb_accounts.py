"""With whose rights a cap's triggers and event run on MariaDB.

They name tables, and who may create views in the database may put one in a table's place: what it calls runs with the
rights of the definer. So that is an account with no more rights than needed, or else the account that caps the table.
"""

from __future__ import annotations

import re

from roost.capping.age import Age
from roost.capping.cap import read
from roost.capping.foreign_keys import Asking
from roost.capping.mariadb_sql import MariaDBWords
from roost.dialects.mariadb import MARIADB
from roost.dialects.mariadb_definers import mighty, powerless
from roost.errors import Invalid

ACCOUNT = "roostcap@localhost"  # proposed as the definer


def dangerous(words: MariaDBWords) -> Asking:
    """Return what is dangerous about the account with whose rights triggers and event would run; "" if nothing."""
    me, is_mighty, _ = yield from mighty()
    if not is_mighty or (yield from definer(words)) or me in (yield from definers(words)):  # that was agreed to
        return ""
    return (
        f"{words.cap.table}: what keeps it short would run with the rights that {me} has on the whole server, and who "
        "may put a view in a table's place in this database could have code of their own run with them. Better: "
        f"{yield from _made(ACCOUNT)}; then --definer {ACCOUNT}"
    )


def definers(words: MariaDBWords) -> Asking:
    """Return the definers of the triggers and the event that there are."""
    found = yield read(
        "SELECT DEFINER FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() AND EVENT_NAME = %s\n"
        "UNION SELECT DEFINER FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()\n"
        "  AND EVENT_OBJECT_TABLE = %s AND TRIGGER_NAME IN (%s, %s)",
        *(words.cap.index_name, words.cap.table, *(list(words.bodies) or ["", ""])),
    )
    return [each for (each,) in found[0]]


def definer(words: MariaDBWords) -> Asking:
    """Return the account named for a cap, or the one that it has, unless that cannot be named; "" for the own one."""
    cap = words.cap
    rights = [("*", "EVENT"), *[(cap.table, right) for right in ("SELECT", "DELETE", "TRIGGER")]]
    if not isinstance(cap, Age):
        rights += [(words.grown, right) for right in ("SELECT", "INSERT", "DELETE")]
    me, _, names_others = yield from mighty()
    if cap.definer:
        if not names_others and cap.definer != me:
            raise Invalid(f"{me} may name no other definer: run this as an account with the right SET USER")
        if (yield from powerless({cap.table: (cap.definer, rights)})):
            raise Invalid(f"{cap.definer} is no account that has the rights: {yield from _made(cap.definer)}")
        return cap.definer
    there = yield from definers(words)
    if not names_others or me in there:
        return ""
    lost = yield from powerless({each: (each, rights) for each in there})
    return next((each for each in there if each not in lost), "")


def _made(account: str) -> Asking:
    # The statements that make an account that has no other rights, and that nobody can log in to.
    found = yield read("SELECT DATABASE()")
    user, _, host = account.rpartition("@")
    named = f"{MARIADB.quoted(user)}@{MARIADB.quoted(host)}"
    place = MARIADB.quoted(re.sub(r"([_%\\])", r"\\\1", found[0][0][0]))
    return (
        f"CREATE USER IF NOT EXISTS {named} ACCOUNT LOCK; "
        f"GRANT SELECT, INSERT, DELETE, TRIGGER, EVENT ON {place}.* TO {named}"
    )
