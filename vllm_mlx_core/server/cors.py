"""Web pages of other origins: none may read the answers unless the operator names its origin."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
EXPOSED = ("X-Request-Id", "Retry-After")


class CORS(CORSMiddleware):
    """Answers preflight requests itself, as browsers send them without a key, and marks every other answer.

    Keys travel in a header that the page sets, so browsers need not send cookies, and are not asked to.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(app, origins, METHODS, ("*",), expose_headers=EXPOSED)
