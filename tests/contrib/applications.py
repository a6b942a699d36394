"""The applications of the page on doors, as processes run them: it imports little, since each process does."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

CODE = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/doors.md").read_text(), re.DOTALL)


def application(url: str, *texts: str) -> dict[str, Any]:
    """Run the first block of the page, and those that have one of these texts; return its names."""
    os.environ["DATABASE_URL"] = url
    found: dict[str, Any] = {"__name__": "application"}
    for each in (CODE[0], *(code for code in CODE[1:] if any(text in code for text in texts))):
        exec(compile(each, "doors.md", "exec", dont_inherit=True), found)
    return found


def codes(url: str, n: int) -> tuple[list[int], list[int]]:
    """What the applications of FastAPI and Flask answer, in a process of its own."""
    import httpx

    found = application(url, "app = ")
    client = found["app"].test_client()

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(found["api"], client=("10.0.0.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return [answer.status_code for answer in await asyncio.gather(*[client.get("/search") for _ in range(n)])]

    return asyncio.run(ask()), [client.get("/visits").status_code for _ in range(n)]
