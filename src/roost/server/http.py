"""/metrics for Prometheus and /healthz, served by the supervisor, so they cost the workers no time.

The supervisor must be able to replace workers, so that connections here are few, and short: each has one request, with
a deadline for reading it and one for taking the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from roost.databases.addresses import Address
from roost.server.counters import BOUNDS
from roost.server.processes import Slot

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds within which a client must send its request, and as many in which it must take the answer
MOST = 32  # connections at once; further ones are closed
LONGEST = 2**13  # bytes of a request
TEXT = "text/plain; charset=utf-8"

Silent = Callable[[], Coroutine[Any, Any, list[str]]]
LABELS = ["role", "worker"]

METRICS = {
    "connections": ("roost_connections", "Connections that were accepted."),
    "refused": ("roost_refused_connections", "Connections beyond max_connections."),
    "requests": ("roost_requests", "Requests that were answered, errors included."),
    "errors": ("roost_request_errors", "Requests that were answered with an error."),
    "unavailable": ("roost_unavailable", "Requests that were answered with an error while the database was away."),
    "rows": ("roost_rows", "Rows that were found or modified."),
    "bytes_in": ("roost_received_bytes", "Bytes of requests."),
    "bytes_out": ("roost_sent_bytes", "Bytes of answers."),
    "slow": ("roost_slow_requests", "Requests or batches that took longer than the setting slow."),
}


class Metrics(Collector):
    """The counters of all workers, read from the memory that they share with the supervisor."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    def collect(self) -> Iterator[Metric]:
        found = [
            ([slot.role if place == 0 else protocol, str(slot.number)], slot, slot.totals(protocol))
            for slot in self._slots
            for place, protocol in enumerate(slot.protocols)
        ]
        for name, (metric, help_text) in METRICS.items():
            counter = CounterMetricFamily(metric, help_text, labels=LABELS)
            for labels, _, totals in found:
                counter.add_metric(labels, totals.numbers[name])
            yield counter
        restarts = CounterMetricFamily("roost_worker_restarts", "Processes that had to be replaced.", labels=LABELS)
        connected = GaugeMetricFamily("roost_open_connections", "Connections now.", labels=LABELS)
        up = GaugeMetricFamily("roost_worker_ready", "1 when the worker has started.", labels=LABELS)
        batches = HistogramMetricFamily("roost_batch_seconds", "Durations of batches, commit included.", labels=LABELS)
        bounds = [*map(str, BOUNDS), "+Inf"]
        for labels, slot, totals in found:
            connected.add_metric(labels, totals.numbers["open"])
            if labels[0] == slot.role:  # these two are per process, not per protocol
                restarts.add_metric(labels, max(0, slot.starts - 1))
                up.add_metric(labels, int(slot.ready.is_set()))
            buckets = list(zip(bounds, map(float, accumulate(totals.durations)), strict=True))
            batches.add_metric(labels, buckets, sum_value=totals.numbers["nanoseconds"] / 1e9)
        yield from (restarts, connected, up, batches)


class Http:
    """A running HTTP server."""

    def __init__(self, slots: Sequence[Slot], silent: Silent) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Metrics(slots))
        self._silent = silent
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def listen(self, address: Address) -> None:
        """Serve at an address. Raises: CannotOpen if it is in use."""
        made, found = address.listen()
        self.address = str(found)
        self._server = await asyncio.start_server(self._connected, sock=made, limit=LONGEST)

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._tasks) <= MOST:
                async with asyncio.timeout(PATIENCE):
                    request = await _request(reader)
                status, kind, body = await self._answer(*request)
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode())
                writer.write(b"" if request[0] == "HEAD" else body)
                writer.transport.set_write_buffer_limits(0)
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
        except (TimeoutError, OSError, EOFError, ValueError):
            log.debug("a client of /metrics or /healthz broke off", exc_info=True)
        finally:
            writer.transport.abort()  # the answer, if there is one, has been taken

    async def _answer(self, method: str, path: str, accept: str) -> tuple[str, str, bytes]:
        # The status, the content's type and the content.
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", TEXT, b"there are GET and HEAD\n"
        if path == "/metrics":
            try:
                encode, kind = choose_encoder(accept)
            except TypeError as error:  # it compares the version of a type with numbers
                raise ValueError(f"{accept!r} names a type without a version") from error
            return "200 OK", kind, encode(self._registry)
        if path != "/healthz":
            return "404 Not Found", TEXT, b"there are /metrics and /healthz\n"
        names = await self._silent()
        if names:
            return "503 Service Unavailable", TEXT, "".join([f"{name} does not answer\n" for name in names]).encode()
        return "200 OK", TEXT, b"ok\n"


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, str]:
    # Read a request; return its method, its path, and what it accepts. Raises: EOFError, ValueError.
    lines: list[str] = []
    size = 0
    while not lines or lines[-1]:
        line = await reader.readline()
        size += len(line)
        if not line.endswith(b"\n"):
            raise EOFError
        if size > LONGEST:
            raise ValueError(f"a request of more than {LONGEST} bytes")
        lines.append(line.decode("latin-1").rstrip())
    method, path, *_ = lines[0].split()
    headers = [line.partition(":") for line in lines[1:]]
    accept = ",".join([value.strip() for name, _, value in headers if name.lower() == "accept"])
    return method, path.partition("?")[0], accept
