"""The line between the supervisor and a worker: one JSON document per line, both ways, over a socket pair.

The supervisor says `start`, `reload`, `ping` and `stop`; a worker answers `ready`, `failed`, `reloaded`, `kept` and
`pong`. The end of the line is the death of the other: it is never closed otherwise.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

LONGEST = 2**24  # bytes of a line: settings with many patterns of tables


class Channel:
    """One end of the line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """Use a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=LONGEST))

    def say(self, word: str, **facts: Any) -> None:
        """Send a word; in vain where the other is gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"word": word, **facts}).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """Return the next word with its facts, None when the other is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    async def flush(self) -> None:
        """Return when all that was said is on its way."""
        try:
            await self._writer.drain()
        except ConnectionError:
            pass

    def close(self) -> None:
        """Be gone for the other."""
        self._writer.close()
