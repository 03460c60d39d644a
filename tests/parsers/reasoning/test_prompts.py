"""Whether thinking is open or off, read from what published chat templates render."""

from __future__ import annotations

import pytest

from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_parsers.reasoning.cohere import CohereReasoningParser
from vllm_mlx_parsers.reasoning.deepseek_r1 import DeepSeekR1ReasoningParser
from vllm_mlx_parsers.reasoning.deepseek_v4 import DeepSeekV4ReasoningParser
from vllm_mlx_parsers.reasoning.gemma4 import Gemma4ReasoningParser
from vllm_mlx_parsers.reasoning.glm4 import GLM4ReasoningParser
from vllm_mlx_parsers.reasoning.granite import GraniteReasoningParser
from vllm_mlx_parsers.reasoning.hunyuan import HunyuanReasoningParser
from vllm_mlx_parsers.reasoning.kimi_k2 import KimiK2ReasoningParser
from vllm_mlx_parsers.reasoning.kimi_k3 import KimiK3ReasoningParser
from vllm_mlx_parsers.reasoning.minimax_m2 import MiniMaxM2ReasoningParser
from vllm_mlx_parsers.reasoning.minimax_m3 import MiniMaxM3ReasoningParser
from vllm_mlx_parsers.reasoning.mistral import MistralReasoningParser
from vllm_mlx_parsers.reasoning.nemotron import NemotronReasoningParser
from vllm_mlx_parsers.reasoning.poolside_v1 import PoolsideV1ReasoningParser
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.reasoning.seed_oss import SeedOSSReasoningParser
from vllm_mlx_parsers.reasoning.step3p5 import Step3p5ReasoningParser

OPEN, OFF, UNSAID = (True, False), (False, True), (False, False)
"""The block is open, thinking is off, or the prompt leaves it to the model."""
ON_REQUEST = {"enable_thinking": True}
OFF_REQUEST = {"enable_thinking": False}

CASES = [
    (Qwen3ReasoningParser, "Qwen-Qwen3-0.6B", ON_REQUEST, UNSAID),
    (Qwen3ReasoningParser, "Qwen-Qwen3-0.6B", OFF_REQUEST, OFF),
    (Qwen3ReasoningParser, "Qwen3.5-4B", ON_REQUEST, OPEN),
    (Qwen3ReasoningParser, "Qwen3.5-4B", OFF_REQUEST, OFF),
    (Qwen3ReasoningParser, "Qwen-QwQ-32B", ON_REQUEST, OPEN),
    (Qwen3ReasoningParser, "Qwen-QwQ-32B", OFF_REQUEST, OFF),
    (Qwen3ReasoningParser, "HuggingFaceTB-SmolLM3-3B", OFF_REQUEST, OFF),
    (Qwen3ReasoningParser, "inclusionai-ling-3.0-flash", ON_REQUEST, OPEN),
    (Qwen3ReasoningParser, "inclusionai-ling-3.0-flash", OFF_REQUEST, OFF),
    (Qwen3ReasoningParser, "openbmb-MiniCPM5-1B", ON_REQUEST, OPEN),
    (Qwen3ReasoningParser, "openbmb-MiniCPM5-1B", OFF_REQUEST, OFF),
    (DeepSeekR1ReasoningParser, "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ON_REQUEST, OPEN),
    (DeepSeekR1ReasoningParser, "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", OFF_REQUEST, OFF),
    (DeepSeekR1ReasoningParser, "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {}, OPEN),
    (DeepSeekR1ReasoningParser, "llama-cpp-deepseek-r1", {}, OPEN),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.1", ON_REQUEST, OPEN),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.1", OFF_REQUEST, OFF),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.2", ON_REQUEST, OPEN),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.2", OFF_REQUEST, OFF),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V4", ON_REQUEST, OPEN),
    (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V4", OFF_REQUEST, OFF),
    (GLM4ReasoningParser, "GLM-4.6", ON_REQUEST, UNSAID),
    (GLM4ReasoningParser, "GLM-4.6", OFF_REQUEST, OFF),
    (GLM4ReasoningParser, "GLM-4.7-Flash", ON_REQUEST, OPEN),
    (GLM4ReasoningParser, "GLM-4.7-Flash", OFF_REQUEST, OFF),
    (NemotronReasoningParser, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ON_REQUEST, OPEN),
    (NemotronReasoningParser, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", OFF_REQUEST, OFF),
    (NemotronReasoningParser, "NVIDIA-Nemotron-Nano-v2", {}, OPEN),
    (MiniMaxM2ReasoningParser, "MiniMax-M2", {}, OPEN),
    (MiniMaxM3ReasoningParser, "MiniMax-M3", {"thinking_mode": "enabled"}, OPEN),
    (MiniMaxM3ReasoningParser, "MiniMax-M3", {"thinking_mode": "disabled"}, OFF),
    (MiniMaxM3ReasoningParser, "MiniMax-M3", {}, UNSAID),
    (Step3p5ReasoningParser, "StepFun3.5-Flash", {}, OPEN),
    (HunyuanReasoningParser, "tencent-Hy3", {"reasoning_effort": "high"}, OPEN),
    (HunyuanReasoningParser, "tencent-Hy3", {"reasoning_effort": "no_think"}, OFF),
    (KimiK2ReasoningParser, "Kimi-K2-Thinking", {}, UNSAID),
    (KimiK3ReasoningParser, "Kimi-K3", {"thinking": True}, OPEN),
    (KimiK3ReasoningParser, "Kimi-K3", {"thinking": False}, OFF),
    (MistralReasoningParser, "mistralai-Ministral-3-14B-Reasoning-2512", {}, UNSAID),
    (Gemma4ReasoningParser, "google-gemma-4-31B-it", ON_REQUEST, UNSAID),
    (Gemma4ReasoningParser, "google-gemma-4-31B-it", OFF_REQUEST, OFF),
    (Gemma4ReasoningParser, "google-gemma-4-31B-it-interleaved", OFF_REQUEST, OFF),
    (SeedOSSReasoningParser, "ByteDance-Seed-OSS", {}, UNSAID),
    (SeedOSSReasoningParser, "ByteDance-Seed-OSS", {"thinking_budget": 512}, UNSAID),
    (SeedOSSReasoningParser, "ByteDance-Seed-OSS", {"thinking_budget": 0}, OFF),
    (GraniteReasoningParser, "ibm-granite-granite-3.3-2B-Instruct", {"thinking": True}, UNSAID),
    (GraniteReasoningParser, "ibm-granite-granite-3.3-2B-Instruct", {"thinking": False}, OFF),
    (CohereReasoningParser, "CohereForAI-c4ai-command-r7b-12-2024-tool_use", ON_REQUEST, UNSAID),
    (CohereReasoningParser, "CohereForAI-c4ai-command-r7b-12-2024-tool_use", OFF_REQUEST, OFF),
    (CohereReasoningParser, "Cohere2MoE", {"reasoning": True}, OPEN),
    (CohereReasoningParser, "Cohere2MoE", {"reasoning": False}, OFF),
    (PoolsideV1ReasoningParser, "poolside-Laguna-S-2.1", ON_REQUEST, OPEN),
    (PoolsideV1ReasoningParser, "poolside-Laguna-S-2.1", OFF_REQUEST, OFF),
    (PoolsideV1ReasoningParser, "poolside-Laguna-XS-2.1", ON_REQUEST, OPEN),
    (PoolsideV1ReasoningParser, "poolside-Laguna-XS-2.1", OFF_REQUEST, OFF),
]

USER = {"role": "user", "content": "What is the </think> tag?"}
CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL_TURN = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": CALL["id"], "name": "f", "content": "4"},
]


@pytest.fixture
def read_prompt(real_templates):
    """Render a template and return what a parser reads in the prompt."""

    def read(parser, template, variables, messages=(USER,)):
        special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        rendered = ChatTemplate(real_templates[template], special_tokens).render(
            {"messages": list(messages), "add_generation_prompt": True, **variables}
        )
        return parser.thinking_in_prompt(rendered)

    return read


@pytest.mark.parametrize(("parser", "template", "variables", "state"), CASES)
def test_the_rendered_prompt_tells_whether_thinking_is_open_or_off(read_prompt, parser, template, variables, state):
    assert read_prompt(parser, template, variables) == state


@pytest.mark.parametrize(
    ("parser", "template", "variables", "state"),
    [
        (Qwen3ReasoningParser, "Qwen3.5-4B", ON_REQUEST, OPEN),
        (Qwen3ReasoningParser, "Qwen3.5-4B", OFF_REQUEST, OFF),
        (DeepSeekR1ReasoningParser, "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {}, OFF),
        (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.1", OFF_REQUEST, UNSAID),
        (DeepSeekV4ReasoningParser, "deepseek-ai-DeepSeek-V3.2", ON_REQUEST, OPEN),
        (GLM4ReasoningParser, "GLM-4.7-Flash", ON_REQUEST, OPEN),
        (Gemma4ReasoningParser, "google-gemma-4-31B-it", OFF_REQUEST, UNSAID),
        (PoolsideV1ReasoningParser, "poolside-Laguna-S-2.1", OFF_REQUEST, OFF),
    ],
)
def test_after_the_result_of_a_tool_the_prompt_tells_it_too(read_prompt, parser, template, variables, state):
    assert read_prompt(parser, template, variables, TOOL_TURN) == state
