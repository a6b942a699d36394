"""What stands between a client and a real server, and disturbs what they say."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType


class Middle:
    """Forwards connections to a server, chunk by chunk; `rules` say, one per chunk of a client, what becomes of it.

    pass: it is forwarded, and so is the answer. drop: it never arrives, the client is closed. lose: it is answered,
    and the client is closed without the answer. hold: the answer is kept back. bytes: come in place of the answer.
    What is behind the last rule is passed.
    """

    def __init__(self, port: int, *, path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._tls = port, tls
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(path)
            self._listener.listen()
            self.address = f"unix:{path}"
        self.rules: list[str | bytes] = []
        self.chunks: list[bytes] = []  # chunks of clients
        self.connections = 0
        self.on_chunk: Callable[[], object] = lambda: None  # called when the chunk is with the server
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Middle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_all()
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def close_all(self) -> None:
        """Close what is open, as a server does that restarts; returns when the clients could know."""
        for each in self._open:
            _shut(each)

    def say(self, unasked: bytes) -> None:
        """Send the clients what they did not ask for."""
        for each in self._open[::2]:
            each.sendall(unasked)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            if self._tls is not None:
                try:
                    client = self._tls.wrap_socket(client, server_side=True)
                except OSError:
                    client.close()
                    server.close()
                    continue
            self.connections += 1
            self._open += [client, server]
            thread = threading.Thread(target=self._forward, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while True:
                ready = [client] if isinstance(client, ssl.SSLSocket) and client.pending() else []
                for each in ready or select.select([client, server], [], [])[0]:
                    if each is client:
                        chunk = client.recv(1 << 20)
                        if not chunk or not self._told(client, server, chunk):
                            return
                    else:
                        came = server.recv(1 << 20)
                        if not came:
                            return
                        client.sendall(came)
        except OSError:
            return
        finally:
            _shut(client)
            _shut(server)

    def _told(self, client: socket.socket, server: socket.socket, chunk: bytes) -> bool:
        """Do with a chunk of the client what its rule says; whether the connection goes on."""
        self.chunks.append(chunk)
        rule = self.rules.pop(0) if self.rules else "pass"
        if rule == "drop":
            return False
        server.sendall(chunk)
        if rule == "pass":
            self.on_chunk()
            return True
        came = b""
        while came.count(b"\n") < chunk.count(b"\n"):
            came += server.recv(1 << 20)
        self.on_chunk()
        if isinstance(rule, bytes):
            client.sendall(rule)
        return rule != "lose"


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
