"""The compute half of a language model: weights and forward pass. Engine thread only."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from vllm_mlx_core.api import LoadOptions, ModelError

from . import mlx_lm_bridge
from .weight_files import check_memory, check_weight_files

_DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


class TextGenerator:
    """An mlx-lm model, in memory, behind the api's interface."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._nbytes: int = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        # The graph of one step tells the width of the logits, and costs nothing as it is never evaluated.
        self._vocab_size: int = self.forward(mx.array([[0]], dtype=mx.int32), self.make_cache()).shape[-1]

    @property
    def nbytes(self) -> int:
        """Memory held by the weights, in bytes."""
        return self._nbytes

    @property
    def is_pure(self) -> bool:
        """Whether decode steps may be captured: mlx-lm's layers are pure, who knows about a checkpoint's own code."""
        return all(type(module).__module__.startswith(("mlx_lm.", "mlx.")) for module in self._model.modules())

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._vocab_size

    @property
    def architecture(self) -> str:
        """The model's class and configuration, those of mlx-lm as text."""
        kind = type(self._model)
        return f"{kind.__module__}.{kind.__qualname__} {getattr(self._model, 'args', None)!r}"

    def weights(self) -> Iterable[tuple[str, mx.array]]:
        """Yield all weights by name, those of adapters included, in the order of names."""
        yield from sorted(tree_flatten(self._model.parameters()), key=itemgetter(0))

    def make_cache(self) -> list[Any]:
        """Return an empty state for one sequence: one mlx-lm cache object per layer."""
        layers: list[Any] = mlx_lm_bridge.make_prompt_cache(self._model)
        return layers

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        """Read ``tokens`` (int32, [rows, length]) and return logits [rows, length, vocab]. Mutates ``layers``."""
        logits: mx.array = self._model(tokens, cache=layers)
        return logits


def load_generator(folder: Path, options: LoadOptions) -> TextGenerator:
    """Load the weights in ``folder`` onto the default device. Raises ModelError."""
    dtype = _target_dtype(options.dtype)
    sizes = check_weight_files(folder)
    check_memory(sizes.as_loaded(None if dtype is None else dtype.size))
    options.progress("loading weights", 0.0)
    model = mlx_lm_bridge.load_lazily(folder, trust_remote_code=options.trust_remote_code)
    if dtype is not None:
        _cast(model, dtype)
    try:
        mx.eval(model.parameters())
        generator = TextGenerator(model)
    except Exception as error:  # the first forward pass runs model code on whatever config.json says
        if isinstance(error, MemoryError) or "alloc" in str(error).lower() or "memory" in str(error).lower():
            raise ModelError(
                f"Not enough memory for the weights in {folder} ({sizes.as_loaded(None) / 1e9:.1f} GB on disk)."
            ) from error
        raise ModelError(f"The weights in {folder} cannot be loaded: {error}") from error
    options.progress("loading weights", 1.0)
    return generator


def _target_dtype(asked: str | None) -> mx.Dtype | None:
    """Return the type of all floating-point weights, quantised ones' scales included; None leaves them as stored."""
    if asked is not None:
        if asked not in _DTYPES:
            raise ModelError(f"Unknown dtype {asked!r}; choose one of {', '.join(_DTYPES)}.")
        return _DTYPES[asked]
    # On the CPU half precision is many times slower than float32, quantised layers with half scales most of all.
    return mx.float32 if mx.default_device().type == mx.DeviceType.cpu else None


def _cast(model: Any, dtype: mx.Dtype) -> None:
    """Make the floating-point weights ``dtype``; nothing is read yet. Mutates the model."""
    may_cast = mlx_lm_bridge.cast_predicate(model)
    changed = [
        (name, array.astype(dtype))
        for name, array in tree_flatten(model.parameters())
        if mx.issubdtype(array.dtype, mx.floating) and array.dtype != dtype and (dtype == mx.float32 or may_cast(name))
    ]
    model.load_weights(changed, strict=False)
