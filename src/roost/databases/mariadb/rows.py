"""PyMySQL's connection, whose answers are read with less work per packet and per value.

PyMySQL is written in Python: it takes 6 µs for a row of four numbers, mostly for calls per packet and per value; this
takes 1.5 µs. Parsing a result's column descriptions takes 10 µs per column; it is done once and cached. A single read
of a counter takes 73 µs of processor time in place of 105, a batch of 100 such reads 1.3 ms in place of 1.66.
"""

from __future__ import annotations

import functools
import io
import os
import socket
import ssl
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pymysql.connections import MAX_PACKET_LEN, Connection, MySQLResult
from pymysql.err import OperationalError
from pymysql.protocol import MysqlPacket

from roost.databases.engine import left_unread
from roost.databases.mariadb.address import unverified
from roost.databases.waits import READ, WRITE, Watch, Watched

NULL, TWO, THREE, EIGHT = 251, 252, 253, 254  # first bytes of a value: NULL, or the length follows in more bytes
END, ERROR = 254, 255  # first bytes of a packet that is not a row; a packet longer than LONGEST_END may be a row
LAST = b"\xfe\0\0\0\0"  # such an end
LONGEST_END = 8  # bytes
GONE, LOST = 2006, 2013  # the client's own errors: writing to the server failed, or reading
OK, INFILE = 0, 251  # first bytes of an answer that are not a number of columns
MORE = 8  # a flag of the server's status: another result follows

SENT_AT_ONCE = 2**14  # bytes that a writable socket accepts at once

MOST_COLUMNS = 1000  # descriptions of results that a connection remembers

Convert = Callable[[bytes], Any]

_shared = functools.cache(unverified)  # by all connections of the process that verify nobody


class Columns(NamedTuple):
    """What columns a result has: as PEP 249 describes them, and how the values of each are read."""

    description: Any
    converts: Sequence[Convert]


class Reading(Watched, Connection):
    """A connection whose results are `Result`, and whose waits have a limit that may change."""

    packet = 2**24  # bytes of a text that the server takes
    sync_wait = "DEFAULT"  # wsrep_sync_wait of a Galera node

    def __init__(self, **options: Any) -> None:
        self._columns: dict[tuple[bytes, ...], Columns] = {}  # by what the server says of them
        super().__init__(**options)

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect, and read by `_Arriving` from then on: nothing has arrived that was not asked for."""
        super().connect(sock)
        connection: Any = self
        connection._rfile = io.BufferedReader(_Arriving(self))

    def _create_ssl_ctx(self, wanted: Any) -> ssl.SSLContext:
        # TLS that is only preferred verifies nobody. PyMySQL 1.2 reads all of the system's certificates for each
        # connection then, whether the server speaks TLS or not: 64 ms of processor time.
        connection: Any = super()
        made: ssl.SSLContext = connection._create_ssl_ctx(wanted) if wanted else _shared()
        return made

    def limit(self, seconds: float) -> None:
        connection: Any = self
        connection._read_timeout = connection._write_timeout = seconds

    def next_packet(self, behind: bool = False) -> bytes:
        """Return the next packet of an answer; raise the server's error if it is one.

        behind: it is what follows of a packet that is longer than one may be.
        """
        connection: Any = self
        number, read = connection._next_seq_id, connection._rfile.read
        try:
            head = read(4)
            size = head[0] | head[1] << 8 | head[2] << 16
            packet: bytes = read(size)
            why = None if len(packet) == size and head[3] == number else "an answer ended, or another began"
        except IndexError:
            why = "the server has closed it"
        except OSError as error:
            why = str(error)
        if why is not None:
            connection._force_close()
            raise OperationalError(LOST, f"Lost connection to MySQL server during query ({why})")
        connection._next_seq_id = (number + 1) % 256
        self.received = received = self.received + size
        if received > self.most:
            connection._force_close()
            raise left_unread(self.most)
        if not behind and packet[0] == ERROR:
            MysqlPacket(packet, connection.encoding).raise_for_error()
        return packet + self.next_packet(True) if size == MAX_PACKET_LEN else packet

    def columns(self, said: tuple[bytes, ...]) -> Columns:
        """Return what the descriptions of a result's columns say."""
        found = self._columns.get(said)
        if found is None:
            described: Any = _Described(self, said)
            result: Any = MySQLResult(described)
            result.field_count = len(said)
            result._get_descriptions()
            found = Columns(result.description, [_convert(*each) for each in result.converters])
            if len(self._columns) >= MOST_COLUMNS:
                self._columns.clear()
            self._columns[said] = found
        return found

    def _write_bytes(self, data: bytes) -> None:
        connection: Any = super()
        watch = self.watch
        if len(data) > SENT_AT_ONCE and watch is not None and watch.waits():
            data = self._send_most(data, watch)
        connection._write_bytes(data)

    def _send_most(self, data: bytes, watch: Watch) -> bytes:
        # Returns the rest, which the socket accepts at once.
        connection: Any = self
        sock: socket.socket = connection._sock
        left = memoryview(data)
        while len(left) > SENT_AT_ONCE:
            if not watch.until(WRITE, connection._write_timeout):
                connection._force_close()
                raise OperationalError(GONE, "the server has taken nothing for too long")
            try:
                left = left[sock.send(left[:SENT_AT_ONCE]) :]
            except OSError as error:
                connection._force_close()
                raise OperationalError(GONE, f"the server has closed it ({error})") from error
        return bytes(left)

    def results(self, text: str) -> list[list[Any]]:
        """Send a text; return the rows of each of its results that have any. (A cursor takes longer.)"""
        return [rows for rows, _ in self.answers(text) if rows is not None]

    def _force_close(self) -> None:
        self.unwatch()
        connection: Any = super()
        sock = getattr(self, "_sock", None)
        connection._force_close()
        if isinstance(sock, ssl.SSLSocket):
            # Python leaves EPIPE among OpenSSL's errors of this thread, where the next one that waits for TLS takes it
            # for its own: by making anything for TLS they are removed.
            sock.context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=sock.server_hostname)

    def fileno(self) -> int:
        sock: socket.socket | None = getattr(self, "_sock", None)
        if sock is None:
            raise OSError("the connection is closed")
        return sock.fileno()

    @property
    def warned(self) -> bool:
        """Whether there is a warning about the rows of the last result."""
        result: Any = self._result
        return result is not None and bool(result.warning_count)

    def answers(self, text: str) -> Iterator[tuple[list[Any] | None, int]]:
        """Send a text; yield the rows of each statement, None where it has none, and how many it has changed."""
        connection: Any = self
        connection.query(text)
        while True:
            result = connection._result
            yield list(result.rows) if result.description else None, result.affected_rows
            if not result.has_next:
                return
            connection.next_result()

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        if unbuffered:
            return super()._read_query_result(unbuffered)  # type: ignore[misc]
        self._result = None
        result = Result(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


class _Arriving(io.RawIOBase):
    """The bytes that arrive on a connection. Not the socket's own file, which is unusable after its first timeout."""

    def __init__(self, connection: Reading) -> None:
        super().__init__()
        self._connection: Any = weakref.proxy(connection)  # no reference cycle: PyMySQL closes unreferenced connections
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._over:
            connection = self._connection
            sock: socket.socket = connection._sock
            try:
                watch: Watch | None = connection.watch
                if watch is not None and watch.waits():
                    return _read_when_ready(sock, buffer, watch, connection._read_timeout)
                return sock.recv_into(buffer)
            except TimeoutError:
                more = connection.patience() if connection.patience is not None else 0.0
                if more:
                    connection.limit(more)
                    sock.settimeout(more)
                self._over = not more
        raise TimeoutError("the server has said nothing for too long")


def _read_when_ready(sock: socket.socket, buffer: Any, watch: Watch, seconds: float) -> int:
    if not isinstance(sock, ssl.SSLSocket):
        if not watch.until(READ, seconds):
            raise TimeoutError
        return os.readv(sock.fileno(), [buffer])  # the socket's own method would ask once more whether it is ready
    sock.settimeout(0.0)  # a record may have arrived in part
    try:
        while True:
            try:
                return sock.recv_into(buffer)
            except ssl.SSLWantReadError:
                if not watch.until(READ, seconds):
                    raise TimeoutError from None
    finally:
        sock.settimeout(seconds)


class _Described:
    """A connection from which PyMySQL reads descriptions of columns that have been read."""

    def __init__(self, connection: Any, said: tuple[bytes, ...]) -> None:
        self.use_unicode, self.decoders = connection.use_unicode, connection.decoders
        self.encoding = connection.encoding
        self._packets = iter([*said, LAST])

    def _read_packet(self, kind: Any = MysqlPacket) -> Any:
        return kind(next(self._packets), self.encoding)


class Result(MySQLResult):
    """A result, read at once."""

    unbuffered_active = False  # PyMySQL's finalizer asks for it, also where an interrupt came before it was set

    def read(self) -> None:
        """Read all of it: what is used here has been the same since PyMySQL 0.7, but is in no type stubs."""
        connection: Any = self.connection
        try:
            first = connection.next_packet()
            if first[0] == OK:
                self._read_ok(first)
            elif first[0] == INFILE:
                super()._read_load_local_packet(MysqlPacket(first, connection.encoding))  # type: ignore[misc]
            else:
                self._read_rows(connection, _number(first, 0)[0])
        finally:
            self.connection = None

    def _read_ok(self, packet: bytes) -> None:
        self.affected_rows, place = _number(packet, 1)
        self.insert_id, place = _number(packet, place)
        self.server_status = packet[place] | packet[place + 1] << 8
        self.has_next = bool(self.server_status & MORE)

    def _read_rows(self, connection: Reading, columns: int) -> None:
        read = connection.next_packet
        said = tuple([read() for _ in range(columns)])
        read()  # the end of the columns
        self.description, converts = connection.columns(said)
        rows = []
        packet = read()
        while packet[0] != END or len(packet) > LONGEST_END:
            rows.append(_row(packet, converts))
            packet = read()
        self.has_next, self.warning_count = bool(packet[3] & MORE), packet[1]
        self.affected_rows, self.rows = len(rows), tuple(rows)


def _number(packet: bytes, place: int) -> tuple[int, int]:
    # One whose length is told by its first byte, and the place behind it.
    first = packet[place]
    place += 1
    if first < NULL:
        return first, place
    width = 2 if first == TWO else 3 if first == THREE else 8
    return int.from_bytes(packet[place : place + width], "little"), place + width


def _row(packet: bytes, converts: Sequence[Convert]) -> tuple[Any, ...]:
    row: list[Any] = []
    at = 0
    for convert in converts:
        n = packet[at]
        at += 1
        if n >= NULL:
            if n == NULL:
                row.append(None)
                continue
            width = 2 if n == TWO else 3 if n == THREE else 8
            n = int.from_bytes(packet[at : at + width], "little")
            at += width
        row.append(convert(packet[at : at + n]))
        at += n
    return tuple(row)


def _convert(encoding: str | None, converter: Callable[[Any], Any] | None) -> Convert:
    if encoding is None:
        return converter or _same
    if converter is None:
        return lambda data: data.decode(encoding)
    if converter is int:
        return int  # takes ASCII
    return lambda data: converter(data.decode(encoding))


def _same(data: bytes) -> bytes:
    return data
