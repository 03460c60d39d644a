"""Reads one dictionary of a request as a model, and says what is wrong under the name the client wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vllm_mlx_core.api import InvalidRequest

M = TypeVar("M", bound=BaseModel)


class Fields(BaseModel):
    """Base of what is read: strict types, unknown fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


def read(model: type[M], value: Mapping[str, Any], where: str) -> M:
    """Return ``value`` as a ``model``. Raises InvalidRequest naming the field, to which ``where`` leads.

    An empty ``where`` is the request itself.
    """
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        paths = [_path(error["loc"], value) for error in failure.errors()]
        deepest = max(range(len(paths)), key=lambda number: len(paths[number]))
        error = failure.errors()[deepest]
        param = (where + "".join(paths[deepest])).removeprefix(".")[:200]
        reason = "this field is required" if error["type"] == "missing" else error["msg"][:1].lower() + error["msg"][1:]
        raise InvalidRequest(f"{param}: {reason}.", param=param) from failure


def _path(location: tuple[int | str, ...], value: Any) -> list[str]:
    """Return the parts that exist in ``value``: pydantic adds the names of the types that it tried."""
    path: list[str] = []
    here = value
    for number, part in enumerate(location, 1):
        if isinstance(here, Mapping) and isinstance(part, str) and (part in here or number == len(location)):
            path.append(f".{part}")
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(f"[{part}]")
            here = here[part]
    return path
