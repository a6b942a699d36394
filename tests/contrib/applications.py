"""The applications of the pages on libraries, as processes run them: it imports little, since each process does."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/doors.md"


def code_of(library: str) -> str:
    """The program in the library's section of the page."""
    (section,) = re.findall(rf"^## {library}\b[^\n]*(.*?)(?=^## )", PAGE.read_text(), re.M | re.S | re.I)
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


def application(url: str, library: str) -> dict[str, Any]:
    """Run a library's program; return its names."""
    os.environ["DATABASE_URL"] = url
    found: dict[str, Any] = {"__name__": "application"}
    # The machine of the tests may do much else.
    patient = code_of(library).replace("strategy=", 'storage_options={"timeout": 60.0}, strategy=')
    exec(compile(patient, f"{library} of doors.md", "exec", dont_inherit=True), found)
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
