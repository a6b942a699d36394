"""A session store: sessions of two weeks, read and renewed on each request.

The talk that inspired Roost moved sessions out of SQL, to another server. Here they stay in the database: a session
expires by itself, `touch` writes it once in 21 hours, and a session is changed in one transaction with other data.

    python examples/sessions.py sqlite:///app.db
"""

from __future__ import annotations

import json
import secrets
import sys
from datetime import timedelta
from typing import Any

import roost

sessions = roost.Cache("sessions", value=bytes)
visits = roost.Counter("visits")
LASTS = timedelta(weeks=2)


def log_in(store: roost.Store, user: str) -> str:
    """Begin a session and count the visit, both or none; return the value of the browser's cookie."""
    cookie = secrets.token_urlsafe(32)
    store.run_all(sessions.add(cookie, _stored({"user": user}), LASTS), visits.add(user))
    return cookie


def request(store: roost.Store, cookie: str) -> dict[str, Any] | None:
    """Return the session of a request, and renew it; None if the user has to log in."""
    found = store.run(sessions.get(cookie))
    if found is None:
        return None
    store.run(sessions.touch(cookie, LASTS))  # usually only a read: it writes after a sixteenth of the time
    session: dict[str, Any] = json.loads(found)
    return session


def put_into_basket(store: roost.Store, cookie: str, article: str) -> bool:
    """Change a session; a change that another request has made in the meantime is not lost."""
    while (item := store.run(sessions.gets(cookie))) is not None:
        session = json.loads(item.value)
        session.setdefault("basket", []).append(article)
        if store.run(sessions.cas(cookie, _stored(session), item.token, LASTS)):
            return True
    return False


def log_out(store: roost.Store, cookie: str) -> None:
    """End a session."""
    store.run(sessions.delete(cookie))


def _stored(session: dict[str, Any]) -> bytes:
    return json.dumps(session).encode()


def main(url: str) -> None:
    """Show it at work."""
    with roost.Store(url) as store:
        store.create(sessions, visits)
        cookie = log_in(store, "ada")
        put_into_basket(store, cookie, "bicycle")
        put_into_basket(store, cookie, "bell")
        print(request(store, cookie))
        log_out(store, cookie)
        print(request(store, cookie), store.run(visits.total("ada")))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///app.db")
