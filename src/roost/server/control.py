"""The control connection between the supervisor and a worker: JSON documents, one per line, over a socket pair.

The supervisor sends `start`, `reload`, `ping` and `stop`; a worker answers `ready`, `failed`, `reloaded`, `kept` and
`pong`. End of file means that the other process is dead: neither side closes the connection otherwise.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

LONGEST = 2**24  # bytes of a line: settings with many patterns of tables


class Channel:
    """One end of the control connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """Make a channel from a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=LONGEST))

    def say(self, word: str, **facts: Any) -> None:
        """Send a word; do nothing if the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"word": word, **facts}).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """Receive the next word with its facts; None if the other process is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    async def flush(self) -> None:
        """Let the transport send what it has buffered."""
        try:
            await self._writer.drain()
        except ConnectionError:
            pass

    def close(self) -> None:
        """Close the connection; the other process sees the end of file."""
        self._writer.close()
