"""A client for HandlerSocket servers (Roost's, and MariaDB's plugin), for threads and for asyncio."""

from roost.client.requests import BytesIndex, Index, Request
from roost.client.sockets import AsyncHandlerSocket, AsyncPool, HandlerSocket, Pool
from roost.structures.index.declaration import Where, While

__all__ = [
    "AsyncHandlerSocket",
    "AsyncPool",
    "BytesIndex",
    "HandlerSocket",
    "Index",
    "Pool",
    "Request",
    "Where",
    "While",
]
