"""A structure of one's own, declared as any structure is: the latest value of each key.

docs/own-structure.md is written from it.
"""

from roost.structures.registry import register
from tests.latest.console import LatestConsole
from tests.latest.declaration import Latest
from tests.latest.plan import LatestPlan

register(Latest, LatestPlan, LatestConsole)

__all__ = ["Latest"]
