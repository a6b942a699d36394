"""A load generator for HandlerSocket servers: `python -m bench.load`."""

from bench.load.load import WORKLOADS, Load, Report
from bench.load.processes import drive

__all__ = ["WORKLOADS", "Load", "Report", "drive"]
