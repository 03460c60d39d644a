"""Every error that crosses a boundary of this system.

    VllmMlxError
    ├── UsageError             the operator's command line or configuration is wrong: one line, exit code 2
    ├── PluginError            a plugin could not be found, loaded or used
    ├── ModelError             a model cannot be served
    │   ├── ModelNotFound      no such path, hub id or name
    │   ├── UnsupportedModel   nothing installed can load this checkpoint
    │   └── MissingExtra       an optional dependency is not installed
    └── RequestError           one request failed; a front-end renders it in its own protocol
        ├── InvalidRequest     400
        │   └── ContextLengthExceeded
        ├── AuthenticationFailed 401
        ├── NotFound           404
        ├── PayloadTooLarge    413
        ├── RateLimited        429
        ├── RequestCancelled   499
        ├── EngineFailed       500
        ├── Unsupported        501
        ├── Overloaded         503
        ├── InsufficientMemory 503
        └── RequestTimedOut    504

The text of a ``RequestError`` is shown to clients: it must hold no path, secret or traceback.
"""

from __future__ import annotations

from typing import ClassVar


class VllmMlxError(Exception):
    """Base of all errors this project raises on purpose."""


class UsageError(VllmMlxError):
    """The command line or the configuration is wrong; the text says how to put it right."""


class PluginError(VllmMlxError):
    """A plugin could not be found, loaded or used."""


class ModelError(VllmMlxError):
    """A model cannot be served."""


class ModelNotFound(ModelError):
    """No model is known under this path, hub id or name."""


class UnsupportedModel(ModelError):
    """Nothing that is installed can load this checkpoint."""


class MissingExtra(ModelError):
    """An optional dependency is missing; the text names the extra to install."""


class RequestError(VllmMlxError):
    """One request failed.

    ``param`` names the offending field of the client's request, ``code`` is a short machine-readable reason,
    ``retry_after_s`` becomes the Retry-After header. ``request_id`` is the X-Request-Id of the request that failed: the
    server sets it before a front-end renders the error.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        self.request_id: str | None = None


class InvalidRequest(RequestError):
    """The request is malformed, or asks for something that this model or build cannot honour."""

    status = 400
    kind = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    """Prompt and requested output do not fit the model's context."""

    def __init__(self, message: str, *, param: str | None = "messages") -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class AuthenticationFailed(RequestError):
    """The API key is missing or wrong."""

    status = 401
    kind = "authentication_error"


class NotFound(RequestError):
    """No such model, route or object."""

    status = 404
    kind = "not_found_error"


class PayloadTooLarge(RequestError):
    """The request body is larger than the server accepts."""

    status = 413
    kind = "invalid_request_error"


class RateLimited(RequestError):
    """The client sends more than it may."""

    status = 429
    kind = "rate_limit_error"


class RequestCancelled(RequestError):
    """Somebody cancelled the request. The status is one after which clients do not try again by themselves."""

    status = 499
    kind = "cancelled_error"


class EngineFailed(RequestError):
    """The engine could not finish this request."""


class Unsupported(RequestError):
    """The route exists in the protocol, but this build does not serve it."""

    status = 501
    kind = "not_implemented_error"


class Overloaded(RequestError):
    """The queue is full or the server is shutting down: try again later."""

    status = 503
    kind = "overloaded_error"


class InsufficientMemory(RequestError):
    """The memory that the server may use does not hold this request: alone, unless ``retry_after_s`` is set."""

    status = 503
    kind = "overloaded_error"

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message, code="insufficient_memory", retry_after_s=retry_after_s)


class RequestTimedOut(RequestError):
    """The request took longer than the operator allows."""

    status = 504
    kind = "timeout_error"
