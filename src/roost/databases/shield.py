"""Awaiting what must not be cancelled half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def whole(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Await work to its end; return its result, and the cancellation that came meanwhile, for the caller to raise.

    If the work fails after a cancellation, the cancellation is raised.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not task.cancelled() and (failed := task.exception()) is not None:
        raise cancelled from failed
    return task.result(), cancelled
