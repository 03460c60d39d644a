"""Whatever goes wrong becomes one RequestError, and the front-end that owns the path says it in its own protocol."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_mlx_core.api import (
    AuthenticationFailed,
    EngineFailed,
    InvalidRequest,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    ProtocolFrontend,
    RateLimited,
    RequestError,
    RequestTimedOut,
    Unsupported,
)

from .paths import is_under
from .shutdown import is_shutdown
from .validation import describe

log = logging.getLogger(__name__)


class MethodNotAllowed(InvalidRequest):
    """The path exists, but not for this method."""

    status = 405


class Renderer:
    """Chooses who renders an error: the front-end with the longest of its ``paths`` that leads to the request's."""

    def __init__(self, frontends: Sequence[ProtocolFrontend]) -> None:
        owners = [(path, frontend) for frontend in frontends for path in frontend.paths]
        self._owners = sorted(owners, key=lambda owner: len(owner[0]), reverse=True)

    def render(self, scope: Scope, error: RequestError) -> Response:
        """Return the response for ``error`` on the path of a request. Never raises."""
        error.request_id = _request_id(scope) or None
        try:
            response = self._render(scope["path"], error)
        except Exception:
            log.exception("A front-end could not render %s", type(error).__name__)
            response = plain(error)
        if error.retry_after_s is not None:
            response.headers["retry-after"] = str(error.retry_after_s)
        if isinstance(error, AuthenticationFailed):
            response.headers["www-authenticate"] = "Bearer"
        return response

    def _render(self, path: str, error: RequestError) -> Response:
        for prefix, frontend in self._owners:
            if is_under(path, prefix):
                return frontend.render_error(error)
        return plain(error)


def plain(error: RequestError) -> Response:
    """Return ``error`` as JSON that belongs to no protocol, for paths that no front-end owns."""
    body = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return JSONResponse({"error": body}, error.status)


class ErrorBoundary:
    """Outermost but for the request's identity: no exception passes it while a response can still be sent."""

    def __init__(self, app: ASGIApp, renderer: Renderer) -> None:
        self._app = app
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer for whoever fails."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
            return
        except BaseException as failure:
            if is_shutdown(failure):
                error: RequestError = Overloaded("The server is shutting down.")
            elif not isinstance(failure, Exception):
                raise
            elif isinstance(failure, RequestError):
                error = failure
            else:
                log.exception("Request %s failed", _request_id(scope))
                error = EngineFailed("The server failed on this request.")
            if started:
                if is_shutdown(failure):
                    return
                if isinstance(failure, RequestError):  # it can only be cut off, which clients notice
                    log.warning("Request %s is cut off: %s", _request_id(scope), error.message)
                    return
                raise
        await self._renderer.render(scope, error)(scope, receive, send)


def _request_id(scope: Scope) -> str:
    return str(scope.get("state", {}).get("request_id", ""))


def install(app: FastAPI, renderer: Renderer, routes: Sequence[Route]) -> None:
    """Replace the framework's own error bodies. ``routes`` are those that ``app`` has. Mutates ``app``."""

    async def on_http(request: Request, failure: Exception) -> Response:
        assert isinstance(failure, HTTPException)
        response = renderer.render(request.scope, _from_http(request, failure))
        for name, value in (failure.headers or {}).items():
            response.headers.setdefault(name, value)
        if failure.status_code == 405 and (methods := _methods(routes, request.scope["path"])):
            response.headers["allow"] = ", ".join(sorted(methods))
        return response

    async def on_validation(request: Request, failure: Exception) -> Response:
        assert isinstance(failure, RequestValidationError)
        return renderer.render(request.scope, describe(failure))

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)


_KINDS: dict[int, type[RequestError]] = {
    kind.status: kind
    for kind in (
        AuthenticationFailed,
        NotFound,
        MethodNotAllowed,
        PayloadTooLarge,
        RateLimited,
        Unsupported,
        Overloaded,
        RequestTimedOut,
    )
}


def _methods(routes: Sequence[Route], path: str) -> set[str]:
    """Return what may be done with a path: the framework names the methods of the first of its routes only."""
    return {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}


def _from_http(request: Request, failure: HTTPException) -> RequestError:
    where = f"{request.method} {request.scope['path'][:200]}"
    if failure.status_code == 404 and failure.detail == "Not Found":
        return NotFound(f"There is no route {where}.")
    if failure.status_code == 405:
        return MethodNotAllowed(f"There is no {where}.")
    if failure.status_code == 400 and failure.detail == "There was an error parsing the body":
        return InvalidRequest("The request body cannot be read: it holds a number with too many digits, for instance.")
    fallback = InvalidRequest if failure.status_code < 500 else EngineFailed
    return _KINDS.get(failure.status_code, fallback)(str(failure.detail))
