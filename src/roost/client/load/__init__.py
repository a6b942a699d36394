"""A load generator for HandlerSocket servers: `roost bench`."""

from roost.client.load.plan import WORKS, Plan, Report
from roost.client.load.processes import drive

__all__ = ["WORKS", "Plan", "Report", "drive"]
