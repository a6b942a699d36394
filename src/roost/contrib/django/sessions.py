"""Django's sessions in a `Cache`: `SESSION_ENGINE = "roost.contrib.django.sessions"`.

What has not changed is renewed by `touch`, which writes only where the stored end is early by a sixteenth of the age: a
site with SESSION_SAVE_EVERY_REQUEST writes little. Nothing needs `clearsessions`: each write removes some of what is
over.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.db import DEFAULT_DB_ALIAS

from roost.contrib.django.cache import shared_store
from roost.errors import Invalid
from roost.structures.cache.declaration import Cache
from roost.structures.operation import Operation


class SessionStore(SessionBase):
    """A session, under its key. Another alias or another structure: a module with a subclass, as SESSION_ENGINE."""

    using: ClassVar[str] = DEFAULT_DB_ALIAS
    structure: ClassVar[Cache[str, str]] = Cache("django_sessions", value=str)

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self._loaded: tuple[str, bytes] | None = None  # the key, and what it had

    @classmethod
    def run(cls, operation: Operation[Any]) -> Any:
        """Run an operation on the structure."""
        return shared_store(cls.using, joins=True).run(operation)

    def load(self) -> dict[str, Any]:
        """Return what is stored; where nothing is, the session has no key any more."""
        key = self.session_key
        found = None if key is None else self.run(self.structure.get(key))
        if key is None or found is None:
            self._session_key = None
            return {}
        session = self.decode(found)
        self._loaded = (key, self._serialized(session))
        return session

    def exists(self, session_key: str) -> bool:
        """Return whether there is such a session, and not over."""
        return bool(self._validate_session_key(session_key)) and self.run(self.structure.get(session_key)) is not None

    def create(self) -> None:
        """Begin a session with a key of its own."""
        while True:
            self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:
        """Store the session, or renew it where nothing has changed.

        `CreateError` where must_create is set and the key is taken; else `UpdateError` where the session has gone.
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
        elif unchanged and isinstance(session.get("_session_expiry"), str):  # a fixed end, which is stored
            stored = self.exists(key)
        elif unchanged:
            stored = self.run(self.structure.touch(key, age))
        else:
            stored = self.run(self.structure.replace(key, self.encode(session), age))
        if not stored:
            raise CreateError if must_create else UpdateError
        self._loaded = (key, serialized)

    def delete(self, session_key: str | None = None) -> None:
        """Remove a session, this one where no key is named."""
        key = self.session_key if session_key is None else session_key
        if key is not None:
            self.run(self.structure.delete(key))

    @classmethod
    def clear_expired(cls) -> None:
        """Do nothing: each write removes what is over."""

    def _serialized(self, session: dict[str, Any]) -> bytes:
        serialized: bytes = self.serializer().dumps(session)
        return serialized

    def _validate_session_key(self, key: str) -> bool:
        # A cookie is whatever somebody has made up: the database may not take it.
        try:
            return bool(super()._validate_session_key(key) and "\0" not in key and self.structure.get(key))  # type: ignore[misc]
        except Invalid:
            return False
