"""Tiny models with random weights, complete with tokenizer and chat template: half a megabyte, written in milliseconds.

    path = write_tiny_model("qwen3", tmp_path / "model")

or, from a shell, ``python -m vllm_mlx_core.testing.tiny qwen3 OUT``. The folder holds what a real checkpoint's
does. The same seed gives the same weights. Greedy decoding never picks the end token: every run reaches its limit.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._tiny_configs import CONFIGS, EOS
from ._tiny_tokenizer import VOCAB_SIZE, tokenizer_files

TINY_ARCHITECTURES: tuple[str, ...] = tuple(CONFIGS)
"""What ``write_tiny_model`` can write. All but ``llama4`` can be batched."""

_GROUP_SIZE = 32


def write_tiny_model(
    architecture: str, path: Path, *, seed: int = 0, dtype: str = "float32", bits: int | None = None
) -> Path:
    """Write a tiny model into the folder ``path``, which is made if need be, and return ``path``.

    ``dtype`` is float32, float16 or bfloat16 (on a CPU only float32 is fast). ``bits`` 4 or 8 quantises. Raises
    ValueError for an unknown architecture, dtype or number of bits. Uses MLX on the calling thread and
    seeds its global generator.
    """
    if architecture not in CONFIGS:
        raise ValueError(f"There is no tiny {architecture!r}. Known: {', '.join(TINY_ARCHITECTURES)}.")
    if dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"dtype must be float32, float16 or bfloat16, not {dtype!r}.")
    if bits not in (None, 4, 8):
        raise ValueError(f"bits must be 4 or 8, not {bits!r}.")

    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map

    config = copy.deepcopy(CONFIGS[architecture])
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)  # some layers draw their start values
    model = module.Model(module.ModelArgs.from_dict(config))
    _randomize(model, seed)
    target = getattr(mx, dtype)
    model.update(tree_map(lambda a: a.astype(target) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters()))
    config["torch_dtype"] = dtype
    if bits is not None:
        config["quantization"] = config["quantization_config"] = _quantize(model, bits)

    weights = dict(tree_flatten(model.parameters()))
    if config.get("tie_word_embeddings"):  # as in published checkpoints, tied models carry no head
        weights = {name: value for name, value in weights.items() if not name.startswith("lm_head.")}
    path.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path / "model.safetensors"), weights, metadata={"format": "mlx"})
    for name, content in ({"config.json": config} | tokenizer_files()).items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)
        (path / name).write_text(text, encoding="utf-8")
    return path


def _randomize(model: Any, seed: int) -> None:
    """Give the model weights of enough spread that logits differ clearly from token to token."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten

    keys = iter(mx.random.split(mx.random.key(seed), 4096))

    def fresh(path: str, value: Any) -> Any:
        if not mx.issubdtype(value.dtype, mx.floating):
            return value
        leaf = path.rsplit(".", 1)[-1]
        if value.ndim >= 2 and leaf.endswith("weight"):
            # A small embedding lets the layers, not the last token itself, decide the next one: else a model with tied
            # embeddings repeats a single token for ever.
            scale = 0.02 if "embed" in path else 1.5 / math.sqrt(math.prod(value.shape[1:]))
            value = mx.random.normal(value.shape, scale=scale, key=next(keys))
            if value.shape[0] == VOCAB_SIZE:
                value[EOS] = 0  # a logit of zero is never the largest
            return value
        if leaf in ("bias", "sinks", "e_score_correction_bias"):
            return mx.random.normal(value.shape, scale=0.1, key=next(keys))
        return value  # norms, decay rates and the like: the library's own start values

    flat = [(path, fresh(path, value)) for path, value in tree_flatten(model.parameters())]
    model.update(tree_unflatten(flat))


def _quantize(model: Any, bits: int) -> dict[str, Any]:
    import mlx.nn as nn

    def fits(_: str, module: Any) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % _GROUP_SIZE == 0

    nn.quantize(model, group_size=_GROUP_SIZE, bits=bits, class_predicate=fits)
    return {"group_size": _GROUP_SIZE, "bits": bits, "mode": "affine"}


def main(argv: Sequence[str] | None = None) -> int:
    """Write one model from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m vllm_mlx_core.testing.tiny", description="Write a tiny model with random weights."
    )
    parser.add_argument("architecture", choices=TINY_ARCHITECTURES, metavar="ARCH", help=", ".join(TINY_ARCHITECTURES))
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--bits", type=int, choices=[4, 8])
    args = parser.parse_args(argv)
    print(write_tiny_model(args.architecture, args.out, seed=args.seed, dtype=args.dtype, bits=args.bits))
    return 0


if __name__ == "__main__":
    sys.exit(main())
