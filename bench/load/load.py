"""A load on a server, and the report of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

WORKLOADS = ("get", "range", "update", "insert", "increment", "wide", "fill")

TOP = 10_000_000  # microseconds; longer times count as this


@dataclass(frozen=True)
class Load:
    """The requests to send, and the server; the same for every process of the generator.

    address: `host:port` or `unix:/path`, with the port that the work needs. pipeline: requests per chunk; a connection
    sends its next chunk when it has all answers to the last one. idle: further connections that send nothing.
    """

    work: str
    address: str
    secret: str = ""
    database: str = "bench"
    table: str = "bench"
    rows: int = 1_000_000
    hot: int = 10
    limit: int = 50
    connections: int = 100
    pipeline: int = 1
    idle: int = 0
    seconds: float = 5.0
    warmup: float = 0.5
    zipf: float = 0.0  # the exponent; 0: all keys equally often
    pace: float = 0.0  # requests per second, all processes together; 0: as fast as answers come
    seed: int = 1
    first: int = 0  # the id of the first row that is inserted


@dataclass
class Report:
    """The measurements. `latencies` counts chunks by the microseconds from sending them to their last answer."""

    requests: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    example: str = ""  # of an error
    lost: int = 0  # connections
    latencies: Counter[int] = field(default_factory=Counter)
    user: float = 0.0  # CPU seconds of the generator
    system: float = 0.0
    busiest: float = 0.0  # share of a core that the busiest process took
    answered: int = 0  # good answers, warm-up and end included
    counted: int | None = None  # increments: the growth of the rows, which must equal `answered`

    def add(self, other: Report) -> None:
        """Add the measurements of another process of the same run."""
        self.requests += other.requests
        self.seconds = max(self.seconds, other.seconds)
        self.errors += other.errors
        self.example = self.example or other.example
        self.lost += other.lost
        self.latencies += other.latencies
        self.user += other.user
        self.system += other.system
        self.busiest = max(self.busiest, other.busiest)
        self.answered += other.answered

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def cost(self) -> tuple[float, float]:
        """The generator's CPU microseconds per request: in its own code, and in the kernel."""
        number = max(self.requests, 1)
        return self.user * 1e6 / number, self.system * 1e6 / number

    @property
    def is_bottleneck(self) -> bool:
        """Whether the generator was so busy that it could not have measured a faster server."""
        return self.busiest > 0.9

    def percentile(self, share: float) -> float:
        """Microseconds within which this share of the chunks was answered.

        >>> Report(latencies=Counter({100: 98, 500: 2})).percentile(0.99)
        500
        """
        left = share * self.latencies.total()
        for micros in sorted(self.latencies):
            left -= self.latencies[micros]
            if left <= 0:
                return micros
        return 0
