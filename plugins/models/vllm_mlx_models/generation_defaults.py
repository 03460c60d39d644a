"""What a checkpoint's generation_config.json says: sampling defaults, tokens that end a turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_mlx_core.api import SamplingParams

_IN_RANGE: Mapping[str, Callable[[float], bool]] = {
    "temperature": lambda value: value >= 0,
    "top_p": lambda value: 0 < value <= 1,
    "top_k": lambda value: value >= 0,
    "min_p": lambda value: 0 <= value <= 1,
    "repetition_penalty": lambda value: value > 0,
}


def read_generation_config(folder: Path) -> Mapping[str, Any]:
    """Return generation_config.json; empty if it is missing or broken, for it only holds advice."""
    try:
        content = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def sampling_defaults(config: Mapping[str, Any]) -> SamplingParams:
    """Return the sampling the authors advise; nothing if they advise not to sample. Odd values are left out."""
    if config.get("do_sample") is False:
        return SamplingParams()
    found: dict[str, Any] = {}
    for name, in_range in _IN_RANGE.items():
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and in_range(value):
            found[name] = int(value) if name == "top_k" else float(value)
    return SamplingParams(**found)


def end_token_ids(*configs: Mapping[str, Any]) -> Iterator[int]:
    """Yield every ``eos_token_id`` of the configs and their text parts, be it one id or a list."""
    for config in configs:
        for part in (config, config.get("text_config")):
            if isinstance(part, Mapping):
                ids = part.get("eos_token_id")
                for token_id in ids if isinstance(ids, list) else [ids]:
                    if isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0:
                        yield token_id
