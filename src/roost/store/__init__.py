"""Stores: run operations from threads and asyncio, and create, alter and check structures."""

from roost.capping.plan import AdoptedPlan
from roost.store.store import AsyncStore, Store
from roost.structures.adopted import Adopted, AdoptedConsole
from roost.structures.registry import register

__all__ = ["AsyncStore", "Store"]

register(Adopted, AdoptedPlan, AdoptedConsole)
