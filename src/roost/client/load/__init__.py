"""A load generator for HandlerSocket servers: `roost bench`."""

from roost.client.load.load import WORKLOADS, Load, Report
from roost.client.load.processes import drive

__all__ = ["WORKLOADS", "Load", "Report", "drive"]
