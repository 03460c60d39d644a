"""JSON that does not say so, for protocols whose users write ``curl -d`` without a header."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import ProtocolFrontend

from .paths import is_under

_UNSAID = (b"", b"application/x-www-form-urlencoded")
"""Types of what has none: nothing, and what curl says of any ``-d``."""


class AssumeJSON:
    """Calls bodies JSON under the paths of the front-ends that want it so, before anyone looks at their type.

    A browser names the page's origin with every such request, and keeps its type: a page of any site could send one
    without asking, were it taken for JSON.
    """

    def __init__(self, app: ASGIApp, paths: Sequence[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and any(is_under(scope["path"], path) for path in self._paths):
            headers = dict(scope["headers"])
            if headers.get(b"content-type", b"") in _UNSAID and b"origin" not in headers:
                said = [header for header in scope["headers"] if header[0] != b"content-type"]
                scope = {**scope, "headers": [*said, (b"content-type", b"application/json")]}
        await self._app(scope, receive, send)


def paths_of(frontends: Sequence[ProtocolFrontend]) -> list[str]:
    """Return the paths of the front-ends that assume JSON."""
    return [path for each in frontends if each.assumes_json for path in each.paths]
