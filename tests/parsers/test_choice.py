"""Which parsers are chosen: for published chat templates, for templates in the manner of others, for model types."""

from __future__ import annotations

import re

import pytest

from vllm_mlx_parsers.choice import FAMILIES, choose

PUBLISHED = {
    # name: (model type, tool parser, reasoning parser)
    "Apertus-8B-Instruct": ("apertus", "apertus", "apertus"),
    "Apriel-1.6-15b-Thinker-fixed": ("pixtral", "jamba", None),
    "Bielik-11B-v3.0-Instruct": ("llama", "hermes", "qwen3"),
    "ByteDance-Seed-OSS": ("seed_oss", "seed_oss", "seed_oss"),
    "Cohere2MoE": ("cohere2_moe", "cohere", "cohere"),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("cohere", "auto", None),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("cohere2", "cohere", "cohere"),
    "GLM-4.6": ("glm4_moe", "glm45", "glm4"),
    "GLM-4.7-Flash": ("glm4_moe_lite", "glm47", "glm4"),
    "GigaChat3-10B-A1.8B": ("deepseek_v3", "auto", None),
    "GigaChat3.1-10B-A1.8B": ("deepseek_v3", "auto", None),
    "HuggingFaceTB-SmolLM3-3B": ("smollm3", "hermes", "qwen3"),
    "Kimi-K2-Instruct": ("kimi_k2", "kimi_k2", None),
    "Kimi-K2-Thinking": ("kimi_k2", "kimi_k2", "kimi_k2"),
    "Kimi-K3": ("kimi_k3", "kimi_k3", "kimi_k3"),
    "LFM2-8B-A1B": ("lfm2_moe", "pythonic", None),
    "LFM2.5-8B-A1B": ("lfm2_moe", "pythonic", "qwen3"),
    "LFM2.5-Instruct": ("lfm2", "pythonic", "qwen3"),
    "MiMo-VL": ("qwen2_5_vl", "hermes", None),
    "MiniMax-M1": ("minimax_m1", "jamba", None),
    "MiniMax-M2": ("minimax_m2", "minimax_m2", "minimax_m2"),
    "MiniMax-M3": ("minimax_m3_vl", "minimax_m3", "minimax_m3"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral3", "mistral", None),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("nemotron_h", "nemotron", "nemotron"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron_h", "nemotron", "nemotron"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("llama", "hermes", None),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("llama", "hermes", None),
    "Qwen-QwQ-32B": ("qwen2", "hermes", "qwen3"),
    "Qwen-Qwen2.5-7B-Instruct": ("qwen2", "hermes", None),
    "Qwen-Qwen3-0.6B": ("qwen3", "hermes", "qwen3"),
    "Qwen3-Coder": ("qwen3_moe", "qwen3_coder", None),
    "Qwen3.5-4B": ("qwen3_5", "qwen3_coder", "qwen3"),
    "Reka-Edge": ("reka_edge", "hermes", "qwen3"),
    "Spark2.5": ("spark2_5", "glm47", "glm4"),
    "StepFun3.5-Flash": ("step3p5", "step3p5", "step3p5"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("llama", "deepseek_v3", "deepseek_r1"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("qwen2", "deepseek_v3", "deepseek_r1"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v3", "deepseek_v31", "deepseek_v4"),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v32", "deepseek_v32", "deepseek_v4"),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", "deepseek_v32", "deepseek_v4"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("deepseek_v4", "deepseek_v32", "deepseek_v4"),
    "fireworks-ai-llama-3-firefunction-v2": ("llama", "phi4_mini", None),
    "google-gemma-2-2b-it": ("gemma2", "hermes", None),
    "google-gemma-4-31B-it": ("gemma4", "gemma4", "gemma4"),
    "google-gemma-4-31B-it-interleaved": ("gemma4", "gemma4", "gemma4"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "granite", "granite"),
    "ibm-granite-granite-4.0": ("granitemoehybrid", "hermes", None),
    "ibm-granite-granite-4.1": ("granite", "hermes", None),
    "inclusionai-ling-3.0-flash": ("bailing_hybrid", "glm45", "glm4"),
    "llama-cpp-deepseek-r1": ("deepseek_v3", "deepseek_v3", "deepseek_r1"),
    "llama-cpp-rwkv-world": ("rwkv7", "hermes", "qwen3"),
    "meetkai-functionary-medium-v3.1": ("llama", "functionary", None),
    "meetkai-functionary-medium-v3.2": ("llama", "functionary", None),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama", "llama3_json", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama", "llama3_json", None),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama", "llama3_json", None),
    "microsoft-Phi-3.5-mini-instruct": ("phi3", "hermes", None),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("ministral3", "mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "mistral", None),
    "moonshotai-Kimi-K2": ("kimi_k2", "kimi_k2", None),
    "muse-glimmer": ("muse_glimmer", "auto", None),
    "openai-gpt-oss-120b": ("gpt_oss", "harmony", "harmony"),
    "openbmb-MiniCPM5-1B": ("llama", "minicpm5", "qwen3"),
    "poolside-Laguna-S-2.1": ("laguna", "poolside_v1", "poolside_v1"),
    "poolside-Laguna-XS-2.1": ("laguna", "poolside_v1", "poolside_v1"),
    "poolside-Laguna-XS.2": ("laguna", "poolside_v1", "poolside_v1"),
    "tencent-Hy3": ("hy_v3", "hunyuan", "hunyuan"),
    "unsloth-Apriel-1.5": ("pixtral", "jamba", None),
    "unsloth-mistral-Devstral-Small-2507": ("mistral", "mistral", None),
    "upstage-Solar-Open-100B": ("solar_open", "auto", None),
}
NEED_THEIR_TYPE = {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"}
"""Calls are written as in another family; without the type, that family's parsers serve."""


def test_every_published_template_gets_what_it_teaches(real_templates):
    chosen = {name: choose({"model_type": PUBLISHED[name][0]}, source) for name, source in real_templates.items()}
    assert {name: choice and (choice.tool, choice.reasoning) for name, choice in chosen.items()} == {
        name: expected[1:] for name, expected in PUBLISHED.items()
    }


def test_the_template_alone_tells_as_much(real_templates):
    chosen = {name: choose({}, source) for name, source in real_templates.items()}
    different = {name for name, choice in chosen.items() if choice is None or choice[:2] != PUBLISHED[name][1:]}
    assert different == NEED_THEIR_TYPE


def test_a_template_decides_over_whatever_model_type(real_templates):
    """A fine-tune keeps its base's type: no type may change which format a template teaches."""
    for name in PUBLISHED.keys() - NEED_THEIR_TYPE:
        for model_type in ("llama", "qwen2", "qwen3_moe", "mistral", "deepseek_v3", "gemma3", "glm4_moe"):
            choice = choose({"model_type": model_type}, real_templates[name])
            assert choice is not None
            assert choice.tool == PUBLISHED[name][1], (name, model_type)


# -- families without a published template at hand: templates in their manner ------------------------------------------

OFFER = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
HISTORY = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}%s{% endfor %}{% endfor %}"


def offering(call: str, before: str = "") -> str:
    return before + OFFER + HISTORY.replace("%s", call)


IN_THE_MANNER_OF = {
    "functiongemma": (
        "gemma3_text",
        offering("<start_function_call>call:{{ c.function.name }}{x:<escape>1<escape>}<end_function_call>"),
        ("functiongemma", None),
    ),
    "functionary v3.1": (
        "llama",
        offering("<function={{ c.function.name }}>{}</function>", "start_tag => `<function`\nend_tag => `</function>`"),
        ("functionary", None),
    ),
    "xLAM 2": (
        "llama",
        "You have access to tools. Make calls in a single JSON array:\n"
        + '[{"name": "tool_call_name", "arguments": {"arg1": "value1"}}]'
        + OFFER,
        ("xlam", None),
    ),
    "Phi-4-mini": (
        "phi3",
        "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}"
        "{{ m['content'] + '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}{% endfor %}",
        ("phi4_mini", None),
    ),
    "Jamba 1.5": (
        "jamba",
        offering('<tool_calls>[{"name": "{{ c.function.name }}"}]</tool_calls>'),
        ("jamba", None),
    ),
    "Hunyuan A13B": (
        "hunyuan_v1_moe",
        offering("<tool_calls>[{{ c.function | tojson }}]</tool_calls>", "<think>\n</think>\n<answer>\n</answer>"),
        ("hunyuan", "hunyuan"),
    ),
    "Step-3": (
        "step3_vl",
        offering('<｜tool_calls_begin｜><steptml:invoke name="{{ c.function.name }}"></steptml:invoke>', "<think>\n"),
        ("step3", "step3p5"),
    ),
    "ERNIE 4.5 thinking": (
        "ernie4_5_moe",
        offering('<tool_call>\n{"name": "x"}\n</tool_call>', "<think>\n</think>\n<response>\n</response>")
        + "<response>",
        ("ernie45", "ernie45"),
    ),
    "LongCat": (
        "longcat_flash",
        offering('<longcat_tool_call>\n{"name": "x", "arguments": {}}\n</longcat_tool_call>'),
        ("longcat", None),
    ),
    "granite-20b-functioncalling": ("", offering("<function_call> {{ c | tojson }}"), ("granite", None)),
    "Llama 3.2 pythonic": (
        "llama",
        offering("x", "[func_name1(params_name1=params_value1, params_name2=params_value2...)]"),
        ("pythonic", None),
    ),
    "Olmo 3": ("olmo3", offering("<function_calls>{{ c.function.name }}()</function_calls>"), ("pythonic", None)),
    "Magistral": ("mistral3", offering("[TOOL_CALLS]x[ARGS]{}", "[THINK]thoughts[/THINK]"), ("mistral", "mistral")),
    "InternLM 2.5": (
        "internlm2",
        offering("<|action_start|><|plugin|>{{ c.function | tojson }}<|action_end|>"),
        ("auto", None),
    ),
    "GLM-4-0414": ("glm4", "# 可用工具\n" + OFFER + "{{ messages[0].metadata }}", ("auto", None)),
    "ChatML": (
        "qwen3",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content }}{% endfor %}",
        ("hermes", None),
    ),
    "own calls, no tools": ("acme", HISTORY.replace("%s", "@{{ c }}"), ("auto", None)),
}


@pytest.mark.parametrize("name", IN_THE_MANNER_OF)
@pytest.mark.parametrize("typed", [True, False])
def test_a_template_in_the_manner_of_a_family_gets_its_parsers(name, typed):
    model_type, template, expected = IN_THE_MANNER_OF[name]
    choice = choose({"model_type": model_type} if typed else {}, template)
    assert choice is not None
    assert choice[:2] == expected


# -- rules -------------------------------------------------------------------------------------------------------------

CHATML = IN_THE_MANNER_OF["ChatML"][1]
HERMES = offering('<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {}}\n</tool_call>')


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "qwen3"}, ("hermes", "qwen3", "model_type qwen3")),
        ({"model_type": "llama"}, ("llama3_json", None, "model_type llama")),
        (
            {"model_type": "kimi_vl", "text_config": {"model_type": "deepseek_v3"}},
            ("kimi_k2", "kimi_k2", "model_type kimi_vl"),
        ),
        (
            {"model_type": "acme_vl", "text_config": {"model_type": "glm4_moe"}},
            ("glm45", "glm4", "model_type glm4_moe"),
        ),
        (
            {"architectures": ["Glm4MoeForCausalLM"]},
            ("glm45", "glm4", "architecture Glm4MoeForCausalLM"),
        ),
        (
            {"model_type": "", "architectures": ["GptOssForCausalLM"]},
            ("harmony", "harmony", "architecture GptOssForCausalLM"),
        ),
    ],
)
def test_without_a_template_the_config_decides_and_is_named(config, expected):
    assert choose(config, "") == expected


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "acme"},
        {"model_type": 7, "architectures": "Qwen3"},
        {"architectures": [None], "text_config": 1},
    ],
)
def test_nothing_known_is_no_choice(config):
    assert choose(config, "") is None


def test_no_model_type_belongs_to_two_families():
    types = [model_type for family in FAMILIES for model_type in family.model_types.split()]
    assert len(types) == len(set(types))


def test_a_template_that_never_thinks_gets_no_reasoning_parser():
    assert choose({"model_type": "qwen3_moe"}, HERMES) == ("hermes", None, "model_type qwen3_moe")


def test_a_template_that_only_cuts_reasoning_out_of_the_history_thinks():
    choice = choose({"model_type": "qwen3"}, HERMES + "{{ content.split('</think>')[-1] }}")
    assert choice == ("hermes", "qwen3", "model_type qwen3")


@pytest.mark.parametrize(
    ("model_type", "reasoning"),
    [("glm4_moe", "glm4"), ("nemotron_h", "nemotron"), ("minimax_m2", "minimax_m2"), ("acme", "qwen3")],
)
def test_what_the_tags_share_the_family_decides(model_type, reasoning):
    choice = choose({"model_type": model_type}, CHATML + "<think>")
    assert choice is not None
    assert choice[:2] == ("hermes", reasoning)


def test_a_deepseek_template_that_never_opens_a_block_is_not_taken_to_think_always():
    choice = choose({"model_type": "deepseek_v3"}, offering("<｜tool▁sep｜>{{ c }}```json", "</think>"))
    assert choice is not None
    assert choice[:2] == ("deepseek_v3", "qwen3")


def test_tags_of_another_kind_decide_over_the_family():
    choice = choose({"model_type": "mistral"}, offering("[TOOL_CALLS]", "<think></think>"))
    assert choice is not None
    assert choice[:2] == ("mistral", "qwen3")


def test_every_choice_says_why():
    assert choose({}, CHATML) == ("hermes", None, "chat template has no tools, so they are described in Hermes form")
    assert choose({}, offering("@")) == ("auto", None, "chat template has tools in a form of its own")
    assert choose({}, HERMES + "<think>") == ("hermes", "qwen3", "chat template teaches hermes calls")
    own = choose({}, offering("@", "<think>"))
    assert own == ("auto", "qwen3", "chat template has tools in a form of its own, chat template holds <think>")
    mixed = choose({"model_type": "qwen3"}, offering("[TOOL_CALLS]", "<think>"))
    assert mixed == ("mistral", "qwen3", "chat template teaches mistral calls, model_type qwen3")


@pytest.mark.parametrize("part", ["<function=", "<tool_call>{", "<tool_call>", "{% tools %}", "{{ '", "<tool_calls>"])
def test_an_endless_template_is_read_in_the_end(part):
    assert choose({}, part * (200_000 // len(part))) is not None


def test_words_in_text_are_not_taken_for_code():
    text = "{# tools #}Use your tools.{{ 'tools' }}" + CHATML
    assert choose({}, text) == choose({}, CHATML)


def test_how_lines_end_and_are_indented_does_not_matter(real_templates):
    for name, source in real_templates.items():
        forms = {source, source.replace("\n", "\r\n"), "\ufeff" + source, re.sub(r"\s*\n\s*", " ", source)}
        assert len({choose({}, form) for form in forms}) == 1, name
