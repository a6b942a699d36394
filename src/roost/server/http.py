"""/metrics for Prometheus and /healthz, served by a thread of the supervisor, so they cost the workers no time."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import accumulate
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from roost.errors import CannotOpen
from roost.server.addresses import Address
from roost.server.counters import BOUNDS
from roost.server.slots import Slot

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds within which a client must send its request, and the workers must answer a ping
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
        """Yield each metric, with a sample per worker."""
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

    def __init__(self, server: WSGIServer) -> None:
        host, port = server.server_address[:2]
        self.address = str(Address(str(host), int(port)))
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingWSGIServer):
    def server_bind(self) -> None:
        # HTTPServer.server_bind is skipped: it looks up the address's name in the DNS.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = map(str, self.server_address[:2])  # type: ignore[assignment]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a client of /metrics or /healthz broke off", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def serve(address: Address, slots: Sequence[Slot], silent: Callable[[], Coroutine[Any, Any, list[str]]]) -> Http:
    """Serve /metrics and /healthz; `CannotOpen` if the address is in use. Call it in the supervisor's event loop.

    silent: returns the names of the workers that do not answer.
    """
    family, place = address.resolve()[0]
    server = type("_Server", (_Server,), {"address_family": family})
    try:
        made: WSGIServer = server(place, _Handler)
    except OSError as error:
        raise CannotOpen(f"cannot listen at {address}: {error.strerror}") from error
    made.set_app(_app(slots, silent, asyncio.get_running_loop()))
    return Http(made)


def _app(
    slots: Sequence[Slot],
    silent: Callable[[], Coroutine[Any, Any, list[str]]],
    loop: asyncio.AbstractEventLoop,
) -> WSGIApplication:
    registry = CollectorRegistry()
    registry.register(Metrics(slots))
    metrics = make_wsgi_app(registry)

    def health() -> tuple[str, str]:
        try:
            names = asyncio.run_coroutine_threadsafe(silent(), loop).result(PATIENCE)
        except TimeoutError:
            names = ["the supervisor"]
        if names:
            return "503 Service Unavailable", "".join([f"{name} does not answer\n" for name in names])
        return "200 OK", "ok\n"

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        status, body = health() if path == "/healthz" else ("404 Not Found", "there are /metrics and /healthz\n")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [body.encode()]

    return app
