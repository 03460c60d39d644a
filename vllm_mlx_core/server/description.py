"""The OpenAPI document, as far as it is not made from the routes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
"""The two ways to send an API key."""


def describe_keys(app: FastAPI) -> None:
    """Say in the document that every route but ``/health`` needs a key. Mutates ``app``."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        document.setdefault("components", {})["securitySchemes"] = _KEYS
        document["security"] = [{name: []} for name in _KEYS]
        document["paths"]["/health"]["get"]["security"] = []
        return document

    app.openapi = openapi  # type: ignore[method-assign]
