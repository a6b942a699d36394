"""The applications of the pages on libraries, as processes run them: it imports little, since each process does."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL))


def application(url: str, page: str) -> dict[str, Any]:
    """Run a page's program; return its names."""
    os.environ["DATABASE_URL"] = url
    found: dict[str, Any] = {"__name__": "application"}
    # The machine of the tests may do much else.
    patient = code_of(page).replace("strategy=", 'storage_options={"timeout": 60.0}, strategy=')
    exec(compile(patient, f"{page}.md", "exec", dont_inherit=True), found)
    return found


def codes(url: str, n: int) -> tuple[list[int], list[int]]:
    """What the applications of FastAPI and Flask answer, in a process of its own."""
    import httpx

    found = application(url, "limits")
    client = found["app"].test_client()

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(found["api"], client=("10.0.0.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return [answer.status_code for answer in await asyncio.gather(*[client.get("/search") for _ in range(n)])]

    return asyncio.run(ask()), [client.get("/find").status_code for _ in range(n)]
