"""Django's sessions in a `Cache`: `SESSION_ENGINE = "roost.contrib.django.sessions"`.

`touch` renews an unchanged session; it writes only if the stored expiry time is early by a sixteenth of the age. So a
site with SESSION_SAVE_EVERY_REQUEST writes little. `clearsessions` is not needed: each write deletes some expired
sessions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.db import DEFAULT_DB_ALIAS, connections

from roost.contrib.django.cache import shared_store
from roost.contrib.django.store import in_transaction
from roost.errors import Invalid
from roost.structures.cache.declaration import Cache
from roost.structures.operation import Operation


class SessionStore(SessionBase):
    """A session. For another database or structure, set SESSION_ENGINE to a module with a subclass."""

    using: ClassVar[str] = DEFAULT_DB_ALIAS
    structure: ClassVar[Cache[str, str]] = Cache("django_sessions", value=str)

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self._loaded: tuple[str, bytes] | None = None  # the key, and the value that is stored for it

    @classmethod
    def run(cls, operation: Operation[Any]) -> Any:
        """Run an operation on the structure."""
        return shared_store(cls.using, joins=True).run(operation)

    def load(self) -> dict[str, Any]:
        """Return the stored data; if there is none, the session loses its key."""
        key = self.session_key
        found = None if key is None else self.run(self.structure.get(key))
        if key is None or found is None:
            self._session_key = None
            return {}
        session = self.decode(found)
        self._loaded = (key, self._serialized(session))
        return session

    def exists(self, session_key: str) -> bool:
        return bool(self._validate_session_key(session_key)) and self.run(self.structure.get(session_key)) is not None

    def create(self) -> None:
        while True:
            self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:
        """Store the session, or renew it if it is unchanged.

        `CreateError` if must_create is set and the key is taken; otherwise `UpdateError` if the session is gone.
        """
        key = self.session_key
        if key is None:
            self.create()
            return
        session = self._get_session(no_load=must_create)  # type: ignore[attr-defined]
        serialized = self._serialized(session)
        unchanged = not must_create and self._loaded == (key, serialized)
        age = self.get_expiry_age()
        if must_create:
            stored = age <= 0 or self.run(self.structure.add(key, self.encode(session), age))
        elif age <= 0:
            stored = self.run(self.structure.delete(key))
        elif unchanged and isinstance(session.get("_session_expiry"), str):  # a fixed expiry time, which is stored
            stored = self.exists(key)
        elif unchanged:
            stored = self.run(self.structure.touch(key, age))
        else:
            stored = self.run(self.structure.replace(key, self.encode(session), age))
        if not stored:
            raise CreateError if must_create else UpdateError
        if not unchanged:  # what is written in a transaction may be rolled back
            self._loaded = None if in_transaction(connections[self.using]) else (key, serialized)

    def delete(self, session_key: str | None = None) -> None:
        key = self.session_key if session_key is None else session_key
        if key is not None:
            self.run(self.structure.delete(key))

    @classmethod
    def clear_expired(cls) -> None:
        """Do nothing: each write deletes some expired sessions."""

    def _serialized(self, session: dict[str, Any]) -> bytes:
        return bytes(self.serializer().dumps(session))

    def _validate_session_key(self, key: str) -> bool:
        # The key comes from a cookie, which the client may forge: it may be a text that the database does not accept.
        try:
            return bool(super()._validate_session_key(key) and "\0" not in key and self.structure.get(key))  # type: ignore[misc]
        except Invalid:
            return False
