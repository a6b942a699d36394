"""Stores: run operations from threads and asyncio, and create, alter and check structures."""

from roost.capping.aged_plan import AgedPlan
from roost.capping.plan import AdoptedPlan
from roost.store.store import AsyncStore, Store
from roost.structures.adopted.console import AdoptedConsole
from roost.structures.adopted.declaration import Adopted
from roost.structures.aged.console import AgedConsole
from roost.structures.aged.declaration import Aged
from roost.structures.registry import register

__all__ = ["AsyncStore", "Store"]

register(Adopted, AdoptedPlan, AdoptedConsole)
register(Aged, AgedPlan, AgedConsole)
