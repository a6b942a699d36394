"""PyMySQL's connection, reading results from the bytes that have arrived instead of packet by packet.

PyMySQL is written in Python: it takes 6 µs for a row of four numbers, mostly for calls per packet and per value; this
takes 1.5 µs. Parsing a result's column descriptions takes 10 µs per column; it is done once and cached. A single read
of a counter takes 73 µs of processor time in place of 105, a batch of 100 such reads 1.26 ms in place of 1.66; without
the cached columns a single read would gain nothing. Unusual cases (an error, an incomplete packet) are left to PyMySQL.
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

from roost.databases.engine import left_unread
from roost.databases.mariadb.address import unverified
from roost.databases.waits import READ, WRITE, Watch, Watched

NULL, TWO, THREE, EIGHT = 251, 252, 253, 254  # first bytes of a value: NULL, or the length follows in more bytes
END, ERROR = 254, 255  # first bytes of a packet that is not a row; a packet longer than LONGEST_END may be a row
LONGEST_END = 8  # bytes
GONE = 2006  # the client's own error: writing to the server failed
OK, INFILE = 0, 251  # first bytes of an answer that are not a number of columns
MORE = 8  # a flag of the server's status: another result follows

SENT_AT_ONCE = 2**14  # bytes that a writable socket accepts at once

MOST_COLUMNS = 1000  # descriptions of results that a connection remembers

Convert = Callable[[bytes], Any]

_shared = functools.cache(unverified)  # by all connections of the process that verify nobody


class Columns(NamedTuple):
    """What columns a result has."""

    number: int
    description: Any  # as PEP 249 has it
    converters: Any  # as PyMySQL has them
    converts: Sequence[Convert]


class Reading(Watched, Connection):
    """A connection whose results are `Result`, and whose waits have a limit that may change."""

    packet = 2**24  # bytes of a text that the server takes
    sync_wait = "DEFAULT"  # wsrep_sync_wait of a Galera node

    def __init__(self, **options: Any) -> None:
        self.columns: dict[bytes, Columns] = {}  # by what the server says of them
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

    def count(self, size: int) -> None:
        """Count the bytes read of an answer; if they exceed the limit, close the connection."""
        self.received += size
        if self.received > self.most:
            connection: Any = self
            connection._force_close()
            raise left_unread(self.most)

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
            left = left[sock.send(left[:SENT_AT_ONCE]) :]
        return bytes(left)

    def _read_bytes(self, num_bytes: int) -> bytes:
        self.count(num_bytes)
        connection: Any = super()
        arrived: bytes = connection._read_bytes(num_bytes)
        return arrived

    def results(self, text: str) -> list[list[Any]]:
        """Send a text; return the rows of each of its results that have any. (A cursor takes longer.)"""
        return [rows for rows, _ in self.answers(text) if rows is not None]

    def _force_close(self) -> None:
        self.unwatch()
        connection: Any = super()
        connection._force_close()

    def fileno(self) -> int:
        sock: socket.socket | None = getattr(self, "_sock", None)
        if sock is None:
            raise OSError("the connection is closed")
        return sock.fileno()

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


class Result(MySQLResult):
    """A result, read at once."""

    unbuffered_active = False  # PyMySQL's finalizer asks for it, also where an interrupt came before it was set
    _columns: Columns | None = None
    _said = b""  # by the server, of columns that are not known yet

    def read(self) -> None:
        """Read all of it: what is used here has been the same since PyMySQL 0.7, but is in no type stubs."""
        try:
            if not self._read_first(self.connection):
                super().read()
            elif self._columns is not None:
                self._read_rowdata_packet()
        finally:
            self.connection = None

    def _read_first(self, connection: Any) -> bool:
        # What comes before the rows, where all of it has arrived.
        if not _is_known(connection):
            return False
        arrived = _arrived(connection)
        number: int = connection._next_seq_id
        end = _end(arrived, 0, number)
        if not end or arrived[4] == ERROR:
            return False
        if arrived[4] == OK:
            self._read_ok(arrived[5:end])
        elif arrived[4] == INFILE or end > 5:
            return False
        else:
            for _ in range(arrived[4] + 1):  # and the packet behind the columns
                number = (number + 1) % 256
                end = _end(arrived, end, number)
                if not end:
                    return False
            said = arrived[:end]
            self._columns = connection.columns.get(said)
            if self._columns is None:
                self._said = said
                return False
            self.field_count, self.description, self.converters, _ = self._columns
        connection._rfile.read(end)
        connection._next_seq_id = (number + 1) % 256
        return True

    def _read_ok(self, packet: bytes) -> None:
        self.affected_rows, place = _number(packet, 0)
        self.insert_id, place = _number(packet, place)
        status = packet[place] | packet[place + 1] << 8
        self.server_status = status
        self.warning_count = packet[place + 2] | packet[place + 3] << 8
        self.has_next = bool(status & MORE)

    def _get_descriptions(self) -> None:
        result: Any = self
        super()._get_descriptions()  # type: ignore[misc]
        converts = [_convert(*each) for each in result.converters]
        self._columns = Columns(result.field_count, result.description, result.converters, converts)
        if self._said:
            known = result.connection.columns
            if len(known) >= MOST_COLUMNS:
                known.clear()
            known[self._said] = self._columns

    def _read_rowdata_packet(self) -> None:
        result: Any = self
        connection = result.connection
        if self._columns is None or not _is_known(connection):
            super()._read_rowdata_packet()  # type: ignore[misc]
            return
        rows: list[Any] = []
        while True:
            arrived = _arrived(connection)  # waits where nothing has
            size, number = _read(arrived, self._columns.converts, connection._next_seq_id, rows)
            end = _end(arrived, size, number)
            if size:
                connection.count(size)
            if end and arrived[size + 4] == END and end - size - 4 <= LONGEST_END:
                connection._rfile.read(end)
                connection._next_seq_id = (number + 1) % 256
                self.warning_count = arrived[size + 5] | arrived[size + 6] << 8
                self.has_next = bool(arrived[size + 7] & MORE)
                break
            if size:
                connection._rfile.read(size)
                connection._next_seq_id = number
                continue
            packet = connection._read_packet()
            if result._check_packet_is_eof(packet):
                break
            rows.append(result._read_row_from_packet(packet))
        result.connection = None
        result.affected_rows = len(rows)
        result.rows = tuple(rows)


def _is_known(connection: Any) -> bool:
    return hasattr(connection, "_rfile") and hasattr(connection, "_next_seq_id")  # another PyMySQL's is slower


def _arrived(connection: Any) -> bytes:
    try:
        arrived: bytes = connection._rfile.peek()
        return arrived
    except OSError:
        return b""  # PyMySQL meets it again, and knows what to say


def _end(arrived: bytes, place: int, number: int) -> int:
    # Where the packet that begins there ends; 0 where it is not whole, or not the one that is expected.
    if place + 4 >= len(arrived) or arrived[place + 3] != number:
        return 0
    size = arrived[place] | arrived[place + 1] << 8 | arrived[place + 2] << 16
    end = place + 4 + size
    return end if size > 0 and end <= len(arrived) else 0


def _number(packet: bytes, place: int) -> tuple[int, int]:
    # One whose length is told by its first byte, and the place behind it.
    first = packet[place]
    place += 1
    if first < NULL:
        return first, place
    width = 2 if first == TWO else 3 if first == THREE else 8
    return int.from_bytes(packet[place : place + width], "little"), place + width


def _read(arrived: bytes, converts: Sequence[Convert], number: int, rows: list[Any]) -> tuple[int, int]:
    # Appends the rows that are whole; returns how many bytes they had, and the number of the next packet.
    place, length = 0, len(arrived)
    while place + 4 < length:
        size = arrived[place] | arrived[place + 1] << 8 | arrived[place + 2] << 16
        at = place + 4
        end = at + size
        if end > length or not 0 < size < MAX_PACKET_LEN or arrived[place + 3] != number:
            break
        first = arrived[at]
        if first == ERROR or (first == END and size <= LONGEST_END):
            break
        row: list[Any] = []
        for convert in converts:
            n = arrived[at]
            at += 1
            if n >= NULL:
                if n == NULL:
                    row.append(None)
                    continue
                width = 2 if n == TWO else 3 if n == THREE else 8
                n = int.from_bytes(arrived[at : at + width], "little")
                at += width
            row.append(convert(arrived[at : at + n]))
            at += n
        rows.append(tuple(row))
        place = end
        number = (number + 1) % 256
    return place, number


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
