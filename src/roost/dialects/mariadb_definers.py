"""Checks the definers of MariaDB's views, triggers, procedures and events, with whose rights these run.

The server does not report that a definer was dropped or has lost a privilege; every use simply fails from then on.
Privileges come from the account, from PUBLIC, and from accounts with the same name (or none) whose host also matches;
not from roles. An account that may not see others' privileges gets no findings, rather than false ones.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import Any

from roost.dialects.dialect import Statement, fetch

Right = tuple[str, str]  # a table of this database, or "*" for all of them, and a privilege
Defined = Mapping[str, tuple[str | None, Collection[Right]]]  # by an object's name: its definer, and what it needs

# Under EMPTY_STRING_IS_NULL an empty literal is NULL, but one in hexadecimal is not.
SEEN = """\
SELECT CURRENT_USER(), EXISTS (
  SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE REPLACE(GRANTEE, '''', _utf8mb4 X'') <> CURRENT_USER())"""
ACCOUNT = "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE REPLACE(GRANTEE, '''', _utf8mb4 X'') = %s"
OF = "(LOCATE(%s, GRANTEE) = 1 OR LOCATE('''''@', GRANTEE) = 1 OR GRANTEE = '''PUBLIC''@''''')"
# The rights to name other definers: MariaDB's, and MySQL's.
NAMING = "('SUPER', 'SET USER', 'SET_USER_ID', 'SET_ANY_DEFINER')"
# Rights on the whole server, which the owner of a database has not.
MIGHTY = f"""\
SELECT CURRENT_USER(), COUNT(*), COALESCE(SUM(PRIVILEGE_TYPE IN {NAMING}), 0)
  FROM information_schema.USER_PRIVILEGES
  WHERE REPLACE(GRANTEE, '''', _utf8mb4 X'') = CURRENT_USER() AND PRIVILEGE_TYPE <> 'USAGE'"""
# A column's right counts as the table's, and the database may be a pattern, in which a backslash hides what is none.
RIGHTS = f"""\
SELECT '*', PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE {OF}
UNION SELECT '*', PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
  WHERE {OF} AND (DATABASE() LIKE TABLE_SCHEMA OR DATABASE() = REPLACE(TABLE_SCHEMA, X'5C', _utf8mb4 X''))
UNION SELECT TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
  WHERE {OF} AND TABLE_SCHEMA = DATABASE()
UNION SELECT TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.COLUMN_PRIVILEGES
  WHERE {OF} AND TABLE_SCHEMA = DATABASE()"""


def powerless(objects: Defined) -> Generator[Statement, Any, set[str]]:
    """Return the names of the objects whose definer is gone, or has not the rights that they need any more."""
    if not objects:
        return set()
    me, sees = (yield from fetch(SEEN))[0]
    lost: set[str] = set()
    for definer in {definer for definer, _ in objects.values()}:
        user, _, host = (definer or "").rpartition("@")
        if not definer or not host or not (sees or definer == me):
            continue  # a role, or somebody who is not shown, or whose rights are not
        there = yield from fetch(ACCOUNT, definer)
        granted = yield from _granted(user)
        for name, (of, rights) in objects.items():
            has = all(("*", right) in granted or (table.lower(), right) in granted for table, right in rights)
            if of == definer and not (there[0][0] and has):
                lost.add(name)
    return lost


def may(right: str, table: str = "*") -> Generator[Statement, Any, bool]:
    """Return whether the current account has a right on the whole database, or on a table."""
    ((me, _),) = yield from fetch(SEEN)
    return not {("*", right), (table.lower(), right)}.isdisjoint((yield from _granted(me.rpartition("@")[0])))


def _granted(user: str) -> Generator[Statement, Any, set[Right]]:
    found = yield from fetch(RIGHTS, *[f"'{user}'@"] * 4)
    return {(table.lower(), right) for table, right in found}


def mighty() -> Generator[Statement, Any, tuple[str, bool, bool]]:
    """Return the current account, whether it has rights on the whole server, and whether it may name other definers.

    What it makes runs with these rights, and the SQL in it names tables that others may replace: by a view, whose
    functions then run with them too.
    """
    me, rights, names_others = (yield from fetch(MIGHTY))[0]
    return me, bool(rights), bool(names_others)
