"""Serves a live page: to this machine alone, or to whoever has the token.

What is served is read-only.  The answers forbid the browser to load anything from elsewhere, to run
anything except the page's own script, to keep a copy, and to show the page inside another one.  The
``Host`` of every request is checked, so that no foreign name can be made to lead here (DNS
rebinding).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from fedforget.cli.live_page import LivePage
from fedforget.errors import FedforgetError
from fedforget.pages.templates import render
from fedforget.text import visible

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types fedforget"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


IDLE_SECONDS = 15.0
"""A connection on which nothing new was asked for so long is ended."""


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Guard:
    """Who may look.

    Attributes
    ----------
    address : where the page is served.
    names : names of this machine under which it may be asked for, beside its addresses.
    token : what a browser has to show; None if none is needed.
    """

    address: str
    names: tuple[str, ...] = ()
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        return _address(self.address).is_loopback

    def knows(self, host: str) -> bool:
        """Whether a request may name this host.

        A foreign name that leads here, by somebody else's name server, is never known.  An address
        is one that the browser's user has typed.
        """
        name = _without_port(host).rstrip(".").lower()
        if name == "localhost" or name in self.names:
            return True
        try:
            found = ip_address(name)
        except ValueError:
            return False
        return found.is_loopback or not self.is_loopback

    def admits(self, authorization: str) -> bool:
        """Whether the token is right; compared in constant time."""
        if self.token is None:
            return True
        shown = authorization.removeprefix("Bearer ")
        return hmac.compare_digest(shown.encode(), self.token.encode())


def _address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise FedforgetError(
            f"{visible(text)} is not an address: give one of this machine, such as 127.0.0.1"
        ) from None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class _Guarded:
    """Refuses foreign hosts, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        app: ASGIApp = self._app
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._guard.knows(hosts[0].decode("latin-1")):
            text = "this page is not served under this name; see --name\n"
            app = PlainTextResponse(text, status_code=421)
        await app(scope, receive, sent)


def make_app(live: LivePage, guard: Guard) -> ASGIApp:
    """The page, its style and its script, as an application."""

    def shell(request: Request) -> Response:
        return Response(render("live.html"), media_type="text/html")

    def content(request: Request) -> Response:
        if _asked_by_another_page(request):
            return PlainTextResponse("a page from elsewhere asked for this\n", 403)
        if not guard.admits(request.headers.get("Authorization", "")):
            # Not 401: the browser must not ask for a name and a password of its own accord.
            return PlainTextResponse("a token is needed\n", 403, {"X-Token": "needed"})
        try:
            found = live.content()
        except FedforgetError as error:
            return _problem(503, str(error))
        headers = {"ETag": f'"{found.version}"'}
        if found.problem:
            headers["X-Problem"] = quote(found.problem)
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(found.html, media_type="text/html", headers=headers)

    own = files("fedforget.pages") / "html"
    kept = {
        "/page.css": ("text/css", (own / "report.css").read_bytes()),
        "/live.js": ("text/javascript", (own / "live.js").read_bytes()),
        "/icon.svg": ("image/svg+xml", (own / "icon.svg").read_bytes()),
    }

    def file(request: Request) -> Response:
        media_type, data = kept[request.url.path]
        return Response(data, media_type=media_type)

    routes = [Route("/", shell), Route("/content", content)]
    routes += [Route(path, file) for path in kept]
    return _Guarded(Starlette(routes=routes), guard)


def _asked_by_another_page(request: Request) -> bool:
    """Whether a browser says that a page from elsewhere wants this.

    That page could not read the answer; it need not be made, either.
    """
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers["Host"]:
        return True
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


class _Impatient(H11Protocol):
    """Ends a connection on which nothing is asked, or whose answer is not taken.

    There is room for a limited number of connections, and nobody may keep the others out by opening
    some and saying nothing.
    """

    _seen: RequestResponseCycle | None = None
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._next_look = self.loop.call_later(IDLE_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        being_made = cycle is not None and not cycle.response_started
        if cycle is self._seen and not being_made:
            # Closing would wait until what was written is taken.
            self.transport.abort()
            return
        self._seen = cycle
        self._next_look = self.loop.call_later(IDLE_SECONDS, self._look)


def _problem(status: int, text: str) -> Response:
    shown = visible(text)
    return PlainTextResponse(f"{shown}\n", status, {"X-Problem": quote(shown)})


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens; 0 takes any port that is free."""
    family = socket.AF_INET6 if _address(address).version == 6 else socket.AF_INET
    place = "127.0.0.1" if address == "localhost" else address
    try:
        return socket.create_server((place, port), family=family, backlog=64)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FedforgetError(f"{visible(address)}, port {port}, cannot be used: {reason}") from None


def serve(live: LivePage, guard: Guard, where: Sequence[socket.socket]) -> None:
    """Serve until the process is told to stop (Ctrl-C, or SIGTERM)."""
    live.follow()
    server_of(live, guard).run(sockets=list(where))


def server_of(live: LivePage, guard: Guard) -> uvicorn.Server:
    """What answers the requests."""
    config = uvicorn.Config(
        make_app(live, guard),
        # No log of requests: whoever looks is nobody's business, and a token must be in no log.
        access_log=False,
        log_level="warning",
        lifespan="off",
        loop="asyncio",
        http=_Impatient,
        ws="none",
        interface="asgi3",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=64,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)
