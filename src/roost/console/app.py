"""The pages: which there are, and what each is made of."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from jinja2 import Environment, PackageLoader, StrictUndefined
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

import roost
from roost.cli.values import key_from_text, text_parser
from roost.console import pictures, wording
from roost.console.guard import Guard
from roost.console.reading import SECONDS, Looker, Samples, aged, expiring, key_of, keys_of
from roost.contrib.prometheus import StructureCollector
from roost.databases.addresses import Address
from roost.structures.registry import console_of
from roost.structures.structure import Structure

ALLOWED = ("clear", "forget", "remove")
LONGEST = 2**16  # bytes of a form
PATIENCE = 5.0  # seconds for which a connection may ask nothing
MOST = 128  # connections at once; further ones are closed


@dataclass(frozen=True)
class Options:
    """What the console shows and lets change.

    token: what the link has to have; None: nothing.
    names: host names by which it is reached, besides addresses and localhost.
    seconds: for all that a page reads.
    """

    show_values: bool = False
    allow: frozenset[str] = frozenset()
    token: str | None = None
    names: Sequence[str] = ()
    seconds: float = SECONDS


@dataclass
class Pages:
    """The pages of one store."""

    store: roost.Store
    options: Options
    checking: threading.Lock = field(default_factory=threading.Lock)  # a check reads everything: one at a time

    def __post_init__(self) -> None:
        self.samples = Samples()
        self.guard = Guard(self.routes(), self.options.token, self.options.names)
        self.registry = CollectorRegistry()
        self.registry.register(StructureCollector(self.store))
        loader = PackageLoader("roost.console")
        self.templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        self.templates.globals.update(
            csrf=self.guard.csrf,
            allow=self.options.allow,
            show_values=self.options.show_values,
            place=self.store.url,
            pictures=pictures,
            wording=wording,
        )
        names = ("shown", "key_shown", "key_json", "count", "number", "size", "span", "link")
        self.templates.filters.update({name: getattr(wording, name) for name in names})

    def routes(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/", self.index),
                Route("/structure", self.structure),
                Route("/check", self.check, methods=["GET", "POST"]),
                Route("/doctor", self.doctor),
                Route("/act", self.act, methods=["POST"]),
                Route("/metrics", self.metrics),
                Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
            ],
            exception_handlers=dict.fromkeys((HTTPException, roost.Error, ClientDisconnect), self.told),
        )

    def looker(self) -> Looker:
        return Looker(self.store, self.samples, self.options.seconds)

    def page(self, template: str, /, *, status: int = 200, **facts: Any) -> HTMLResponse:
        return HTMLResponse(self.templates.get_template(template).render(facts), status)

    def told(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return self.page("message.html", status=error.status_code, title="Not here", text=error.detail)
        status = 404 if isinstance(error, roost.Missing) else 400 if isinstance(error, roost.Invalid) else 503
        return self.page("message.html", status=status, title="That did not work", text=wording.shown(str(error)).text)

    # --- looking --------------------------------------------------------------------------------------------------

    def index(self, request: Request) -> Response:
        """All structures: how full they are, and what is written."""
        looker = self.looker()
        return self.page("index.html", found=[looker.measured(entry) for entry in looker.catalog()])

    def structure(self, request: Request) -> Response:
        """A structure; with `key`, one key of it."""
        query = request.query_params
        looker = self.looker()
        entry = looker.entry(query.get("name", ""))
        structure: Any = entry.structure
        plan = looker.plan(structure)
        facts: dict[str, Any] = {
            "structure": structure,
            "rules": console_of(structure).listed(),
            "sql": wording.sql_of(plan),
            "removes": wording.columns_of(structure),
            "writable": not console_of(structure).read_only,
            "done": query.get("done", "") if query.get("done") in ALLOWED else "",
            "n": query.get("n", "") if query.get("n", "").isdecimal() else "",
        }
        if "key" in query:
            key = key_from_text(structure, query["key"])
            structure.key.check(key)
            return self.page("key.html", **facts, key=key, page=looker.ask(key_of, structure, key))
        after = key_from_text(structure, query["after"]) if query.get("after") else None
        measured = looker.measured(entry)
        by_age = structure.kind == "adopted" and bool(plan.cap.older_than)
        facts["keys"], facts["more"] = ([], False) if by_age else looker.ask(keys_of, structure, after)
        facts["expiring"] = looker.ask(expiring, structure) if isinstance(structure, roost.Cache) else None
        facts["aged"] = looker.ask(aged, structure) if by_age else None
        return self.page("structure.html", **facts, after=after, measured=measured)

    def doctor(self, request: Request) -> Response:
        return self.page("doctor.html", found=self.store.doctor())

    async def check(self, request: Request) -> Response:
        """Every promise, verified on demand: it reads all rows."""
        if request.method != "POST":
            return self.page("check.html", kept=None, broken=None)
        await self._form(request)
        return await run_in_threadpool(self._checked)

    def _checked(self) -> Response:
        if not self.checking.acquire(blocking=False):
            return self.page("message.html", status=409, title="A check is running", text="Wait until it has ended.")
        try:
            broken = self.store.check()
        finally:
            self.checking.release()
        wrong = {each.structure for each in broken}
        return self.page(
            "check.html", kept=[each.name for each in self.looker().catalog() if each.name not in wrong], broken=broken
        )

    def metrics(self, request: Request) -> Response:
        return PlainTextResponse(generate_latest(self.registry))

    # --- changing -------------------------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        """Clear or forget a key, or remove what has an identity, where that is allowed."""
        form = await self._form(request)
        return await run_in_threadpool(self._acted, form)

    def _acted(self, form: Mapping[str, str]) -> Response:
        verb = form.get("verb", "")
        if verb not in self.options.allow:
            raise HTTPException(403, f"`roost console` was started without --allow {verb or '…'}")
        structure: Any = self.looker().entry(form.get("name", "")).structure
        if why := console_of(structure).read_only:
            raise roost.Invalid(why.format(name=structure.name))
        key = key_from_text(structure, wording.key_of(form.get("key", "")))
        done = self.store.run(wording.acts(structure, verb, key, _member(structure, form, verb)))
        return RedirectResponse(f"{wording.link(structure, key=key)}&done={verb}&n={int(done)}", 303)

    async def _form(self, request: Request) -> dict[str, str]:
        # The fields of a form of these pages.
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST:
                raise HTTPException(413, "the form is too long")
        form = {name: values[0] for name, values in parse_qs(body.decode("latin-1"), keep_blank_values=True).items()}
        if not hmac.compare_digest(form.get("csrf", "").encode(), self.guard.csrf.encode()):
            raise HTTPException(403, "the form is not of this page; open the page again")
        return form


def _member(structure: Structure, form: Mapping[str, str], verb: str) -> Any:
    columns = wording.columns_of(structure) if verb == "remove" else ()
    if not columns:
        return None
    values = [text_parser(structure.name, each)(form.get(f"member-{each.name}", "")) for each in columns]
    return values[0] if len(values) == 1 else tuple(values)


def allowed(text: str) -> frozenset[str]:
    """Return what `--allow` names; `Invalid` for what it does not know."""
    found = frozenset(each.strip() for each in text.split(",") if each.strip())
    unknown = sorted(found - {*ALLOWED})
    if unknown:
        raise roost.Invalid(f"--allow takes {', '.join(ALLOWED)}, not {json.dumps(unknown[0])}")
    return found


class Connection(H11Protocol):
    """A connection, of `MOST` at once, closed when it asks nothing, or half, for a while; uvicorn waits for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.close()
        else:
            self._wait()

    def _wait(self) -> None:
        self.loop.call_later(PATIENCE, self._look, self.cycle)

    def _look(self, last: RequestResponseCycle | None) -> None:
        # last: the newest request when the waiting began.
        if self.cycle is last and (last is None or last.response_complete or last.more_body):
            self.transport.close()
        elif not self.transport.is_closing():
            self._wait()


def configured(app: ASGIApp) -> uvicorn.Config:
    """Return how uvicorn serves the pages."""
    return uvicorn.Config(
        app, http=Connection, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
    )


def link(base: str, token: str | None) -> str:
    """Return the address that lets somebody in; a token may have any characters, as base64 has a +."""
    return base if token is None else f"{base}?{urlencode({'token': token})}"


def serve(
    store: roost.Store,
    options: Options,
    address: Address,
    announce: Callable[[str], None],
    *,
    browser: bool,
    attended: bool = False,
) -> None:
    """Serve until a signal; `Invalid` where anybody could look, `CannotOpen` if the address is in use.

    announce: called with the link when it can be opened.
    attended: end also when standard input does, as that of a process whose parent has ended.
    """
    if address.path:
        raise roost.Invalid(f"{address}: the pages take a port")
    if options.token is None and not address.loopback:
        raise roost.Invalid(f"{address} can be reached from other machines: without a token anybody could look")
    listener, found = address.listen()
    pages = Pages(store, options)
    server = uvicorn.Server(configured(pages.guard))
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found.host, found.host)
    base = f"http://{Address(reached, found.port)}/"
    announce(link(base, options.token))
    if browser:
        webbrowser.open(link(base, options.token and pages.guard.ticket()))
    if attended:

        def attend() -> None:
            sys.stdin.read()
            server.should_exit = True

        threading.Thread(target=attend, daemon=True).start()
    with listener:
        server.run(sockets=[listener])
