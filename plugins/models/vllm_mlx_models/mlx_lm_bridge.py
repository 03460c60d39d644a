"""The one module that imports mlx-lm's loading side. Everything we use of it is here, and a contract test holds it.

Importing this module takes a second; import it on the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_mlx_core.api import ModelError, UnsupportedModel

from .architectures import mlx_lm_version
from .file_limit import file_limit_kept

with file_limit_kept():
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

__all__ = ["cast_predicate", "load_lazily", "make_prompt_cache"]


def load_lazily(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Return the model in ``folder`` with its weights mapped, not yet read.

    Raises UnsupportedModel for an architecture that the installed mlx-lm does not have, ModelError for weights that
    are missing, do not fit the config or cannot be read.
    """
    try:
        model, _ = load_model(folder, lazy=True, strict=True, trust_remote_code=trust_remote_code)
    except FileNotFoundError as error:
        raise ModelError(f"There are no weights (model*.safetensors) in {folder}.") from error
    except ValueError as error:
        text = str(error)
        if "not supported" in text and isinstance(error.__cause__, ImportError):
            raise UnsupportedModel(
                f"{text} The installed mlx-lm is {mlx_lm_version()}; a newer one may have it, or a plugin."
            ) from error
        if "parameters" in text:
            raise ModelError(f"The weights in {folder} do not fit its config.json: {_shorten(text)}") from error
        raise ModelError(f"The model in {folder} cannot be loaded: {_shorten(text)}") from error
    except RuntimeError as error:
        raise ModelError(f"The weights in {folder} cannot be read: {_shorten(str(error))}") from error
    except Exception as error:  # model code does arithmetic on what config.json says, and raises whatever that provokes
        raise ModelError(
            f"The config.json in {folder} is not what mlx-lm {mlx_lm_version()} expects of this architecture: "
            f"{type(error).__name__}: {_shorten(str(error))}"
        ) from error
    return model


def cast_predicate(model: Any) -> Callable[[str], bool]:
    """Return which parameters may change their type; some architectures keep a few in float32."""
    predicate: Callable[[str], bool] = getattr(model, "cast_predicate", lambda _: True)
    return predicate


def _shorten(text: str, length: int = 400) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[:length]} …"
