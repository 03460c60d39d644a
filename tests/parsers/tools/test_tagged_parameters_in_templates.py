"""What the published chat templates write for a call is read back as that call."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool, ToolParser
from vllm_mlx_core.testing.events import fold
from vllm_mlx_models.template import compile_template
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.kimi_k3 import KimiK3ToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.minimax_m3 import MiniMaxM3ToolParser
from vllm_mlx_parsers.tools.poolside_v1 import PoolsideV1ToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser
from vllm_mlx_parsers.tools.step3p5 import Step3p5ToolParser

PARSERS: dict[str, type[ToolParser]] = {
    "Qwen3-Coder": Qwen3CoderToolParser,
    "Qwen3.5-4B": Qwen3CoderToolParser,
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": Qwen3CoderToolParser,
    "ByteDance-Seed-OSS": SeedOSSToolParser,
    "StepFun3.5-Flash": Step3p5ToolParser,
    "GLM-4.6": GLMToolParser,
    "GLM-4.7-Flash": GLMToolParser,
    "Spark2.5": GLMToolParser,
    "poolside-Laguna-S-2.1": PoolsideV1ToolParser,
    "poolside-Laguna-XS-2.1": PoolsideV1ToolParser,
    "MiniMax-M2": MiniMaxM2ToolParser,
    "MiniMax-M3": MiniMaxM3ToolParser,
    "deepseek-ai-DeepSeek-V3.2": DeepSeekV32ToolParser,
    "deepseek-ai-DeepSeek-V4": DeepSeekV32ToolParser,
    "deepseek-ai-DeepSeek-V4-Flash-0731": DeepSeekV32ToolParser,
    "Kimi-K3": KimiK3ToolParser,
}
TURN_ENDS = ("<|im_end|>", "[e~[", "<seed:eos>", "<｜end▁of▁sentence｜>")

SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"$ref": "#/$defs/Point"},
    },
    "$defs": {"Point": {"properties": {"x": {"type": "number"}, "name": {"type": "string"}}}},
}
CALLS = [
    {"q": 'Line 1\n\n  "é" \\ <b>{x}</b> 北京 🎉 ', "n": 5, "on": True},
    {},
    {"tags": ["a", "b c"], "at": {"x": 1.5, "name": "null"}, "q": "null"},
    {"q": "5", "on": False},
]


@pytest.mark.parametrize("name", PARSERS)
def test_calls_that_a_template_writes_are_read_back(run, width, real_templates, name):
    calls = [
        {"type": "function", "id": f"call_{i}", "function": {"name": f"f_{i}", "arguments": arguments}}
        for i, arguments in enumerate(CALLS)
    ]
    prompt = compile_template(real_templates[name]).render(
        messages=[{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Hello.", "tool_calls": calls}],
        tools=[{"type": "function", "function": {"name": "f_0", "description": "", "parameters": SCHEMA}}],
        bos_token="",
        eos_token="",
    )
    completion = prompt[prompt.rindex("Hello.") :]
    for end in TURN_ENDS:
        completion = completion.partition(end)[0]
    tools = [Tool(f"f_{i}", parameters=SCHEMA) for i in range(len(CALLS))]
    folded = fold(run(PARSERS[name](ParserContext(tools=tools)), completion, width))
    assert folded.content.rstrip() == "Hello."
    assert folded.calls == [(f"f_{i}", arguments) for i, arguments in enumerate(CALLS)]
