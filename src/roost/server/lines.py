"""A connection of HandlerSocket: bytes become lines of text."""

from __future__ import annotations

from itertools import takewhile

from roost.protocols.codec import Codec
from roost.protocols.handlersocket.session import Session
from roost.server.client import Client, Server


class LineClient(Client):
    """One connection."""

    __slots__ = ("_buffer", "_size")

    def __init__(self, server: Server, codec: Codec) -> None:
        super().__init__(server, codec)
        self.session = Session(server.settings.secret(server.role), server.settings.max_indexes)
        self._buffer: list[bytes] = []  # of a line that has no end yet
        self._size = 0

    def data_received(self, data: bytes) -> None:
        """Keep what is no whole line yet, and hand on the rest."""
        if self.gone or self._farewell:
            return
        server = self.server
        self.counters.bytes_in += len(data)
        end = data.rfind(b"\n")
        if end < 0 or end != len(data) - 1 or self._buffer or self._held:
            data, enough = self._gather(data, end)
            if not enough:
                return
        else:
            data = data[:end]
        too_long = False
        if len(data) > server.settings.max_line:
            lines = data.split(b"\n")
            fit = list(takewhile(lambda line: len(line) <= server.settings.max_line, lines))
            too_long = len(fit) < len(lines)
            data = b"\n".join(fit)
            if not fit:
                self._too_long()
                return
        if b"\r" in data:
            data = (data + b"\n").replace(b"\r\n", b"\n")[:-1]
        text = data.decode("utf-8", "surrogateescape")
        self._hand_on(text)
        if too_long:
            self._too_long()

    def _gather(self, data: bytes, end: int) -> tuple[bytes, bool]:
        # Returns all complete lines, and whether there are any to be played now.
        if self._held or end < 0:
            self._buffer.append(data)
            self._size += len(data)
            self._hold("lines", self._size)
            if self._size > self.server.settings.max_line and not self._held:
                self._too_long()
            return b"", False
        whole = b"".join([*self._buffer, data[:end]])
        rest = data[end + 1 :]
        self._buffer = [rest] if rest else []
        self._size = len(rest)
        self._hold("lines", self._size)
        return whole, True

    def _drop(self) -> None:
        self._buffer, self._size = [], 0

    def _again(self) -> None:
        if self._buffer:
            data, self._buffer, self._size = b"".join(self._buffer), [], 0
            self._hold("lines", 0)
            self.data_received(data)
