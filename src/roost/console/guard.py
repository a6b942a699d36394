"""Who may see the pages: an ASGI layer around them.

- Host: an address or a known name, else a page of somebody else's could read these through a name of its own that it
  lets point here (DNS rebinding). An address cannot be made to point elsewhere.
- A token in the link, as in Jupyter's; then a cookie, which the browser sends with no other site's requests. The link
  answers with a page that goes on, not with a redirect: after a click elsewhere that would still be the other site's.
- A POST has a token that only these pages know, and comes from their origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send the Origin "null" with the pages' own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ENTER = (
    '<!doctype html><title>Roost</title><link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0;url=/"><a href="/">Roost</a>'
)


class Guard:
    """Lets requests pass that may see the pages, and sets the headers of all answers.

    token: None: everybody who can connect may see them.
    names: host names, besides addresses, by which the console is reached.
    """

    def __init__(self, app: ASGIApp, token: str | None = None, names: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = {"localhost", *[name.lower() for name in names]}
        self._session = secrets.token_urlsafe(32)
        self._once: set[str] = set()
        self.csrf = secrets.token_urlsafe(32)

    def ticket(self) -> str:
        """Return a token that is good for one request: the process list shows the link that a browser is given."""
        made = secrets.token_urlsafe(32)
        self._once.add(made)
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no WebSockets; uvicorn closes them

        answer = self._refused(scope)
        headers = HEADERS if answer is None else {**HEADERS, "Connection": "close"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await (answer or self._app)(scope, receive, sent)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        try:
            name, port = urlsplit(f"//{host}").hostname or "", urlsplit(f"//{host}").port or 80
        except ValueError:
            name, port = "", 0
        if not self._is_known(name):
            return PlainTextResponse("unknown Host\n", 421)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        cookie = f"roost-console-{port}"  # the cookies of a host are those of all its ports
        if self._token is not None:
            if given and self._is_token(given[0]):
                answer = HTMLResponse(ENTER)
                answer.set_cookie(cookie, self._session, httponly=True, samesite="strict", path="/")
                return answer
            bearer = headers.get("authorization", "").removeprefix("Bearer ")
            came = cookie_parser(headers.get("cookie", "")).get(cookie, "")
            if not _same(came, self._session) and not _same(bearer, self._token):
                return PlainTextResponse("open the link that `roost console` printed: it has the token\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            origin, site = headers.get("origin"), headers.get("sec-fetch-site")
            if (origin is not None and origin.partition("//")[2] != host) or site not in (None, "same-origin", "none"):
                return PlainTextResponse("a request of another site\n", 403)
        return None

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_token(self, given: str) -> bool:
        ticket = next((each for each in self._once if _same(each, given)), None)
        if ticket is not None:
            self._once.discard(ticket)
            return True
        return self._token is not None and _same(given, self._token)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
