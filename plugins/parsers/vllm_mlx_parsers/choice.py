"""Which of the built-in parsers fit a checkpoint: a table of model families, and how it is read.

What a chat template teaches decides over the model type, because fine-tunes keep the type and change the template:

1. calls: the first family of the table whose mark the template shows, or the model type's family if it has the same
   mark. A template that offers tools in another form gets ``auto``, one that knows nothing of tools ``hermes``,
   because tools are then described to the model in that form;
2. reasoning: that of the family found, else of the model type's family, if the template shows one of its tags; else
   the first kind whose tags it shows. A template that shows none gets no reasoning parser, so all its model writes is
   content;
3. without a template the model type decides alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from vllm_mlx_core.api import ParserChoice


class Family(NamedTuple):
    """Models with one way of writing. ``mark`` is a regular expression for what only their templates hold."""

    tool: str
    mark: str
    reasoning: str | None = None
    model_types: str = ""


def _all(*marks: str) -> str:
    """Return a pattern for templates that hold all of these, in any order. Its time grows no faster than the text."""
    return r"\A" + "".join(rf"(?=[\s\S]*?(?:{mark}))" for mark in marks)


_JSON_IN_TAGS = r"""<tool_call>[\s\S]{0,400}?\{\s*\\?["']name\\?["']\s*:"""
_LIST_IN_TAGS = r"""<tool_calls>(?:\s|\\n)*(?:\[|\{"name")"""
_XML_PARAMETERS = _all("<function=", "<parameter=")
_ARG_KEYS = _all("<tool_call>", "<arg_key>")

FAMILIES = (
    # Markers that nothing else holds come first, then those that several families share.
    Family("harmony", r"<\|channel\|>", "harmony", "gpt_oss"),
    Family("gemma4", r"<\|tool_call>", "gemma4", "gemma4 gemma4_text gemma4_unified gemma4_assistant"),
    Family("functiongemma", r"<start_function_call>"),
    Family("deepseek_v32", r"｜DSML｜", "deepseek_v4", "deepseek_v32 deepseek_v4 deepseek_v41"),
    Family("deepseek_v3", r"<｜tool▁sep｜>[\s\S]{0,300}?```json", "deepseek_r1", "deepseek_v2 deepseek_v3"),
    Family("deepseek_v31", r"<｜tool▁sep｜>", "deepseek_v4"),
    Family("kimi_k2", r"<\|tool_calls_section_begin\|>", "kimi_k2", "kimi_k2 kimi_k25 kimi_linear kimi_vl"),
    Family("kimi_k3", r"<\|open\|>", "kimi_k3", "kimi_k3"),
    Family("minimax_m3", r"\]<\]minimax\[>\[", "minimax_m3", "minimax_m3 minimax_m3_vl"),
    Family("minimax_m2", r"<minimax:tool_call>", "minimax_m2", "minimax minimax_m2"),
    Family("seed_oss", r"<seed:tool_call>", "seed_oss", "seed_oss"),
    Family("step3", r"<steptml:invoke", "step3p5", "step3 step3_vl step3_text"),
    Family("cohere", r"<\|START_ACTION\|>", "cohere", "cohere cohere2 cohere2_moe cohere2_vision"),
    Family("apertus", r"<\|tools_prefix\|>", "apertus", "apertus"),
    Family("longcat", r"<longcat_tool_call>", "qwen3", "longcat_flash longcat_flash_ngram"),
    Family("nemotron", r"<TOOLCALL>", "nemotron", "nemotron nemotron-nas"),
    Family("functionary", r">>>\$\{recipient\}|>>>all|start_tag => `<function`"),
    Family("mistral", r"\[TOOL_CALLS\]", "mistral", "mistral ministral ministral3 mistral3 mistral4 mixtral pixtral"),
    Family("phi4_mini", r"functools|<\|/tool\|>", "deepseek_r1", "phi3 phi4mm phi4_multimodal phimoe"),
    Family("granite", r"<\|tool_call\|>|<function_call>", "granite", "granite granitemoe granitemoeshared"),
    Family("pythonic", r"<\|tool_call_start\|>|<\|tool_list_start\|>", "qwen3", "lfm2 lfm2_moe lfm2_vl lfm2-vl"),
    Family("pythonic", r"List of tools: \[", "qwen3"),
    Family("pythonic", r"<function_calls>", "qwen3", "olmo3 olmo_hybrid"),
    Family("pythonic", r"func_name1\(params_name1", None, "llama4 llama4_text"),
    Family("xlam", r"single JSON array"),
    Family("llama3_json", r'\{"name": function name, "parameters":|<\|python_tag\|>', None, "llama mllama"),
    Family("minicpm5", _all('<function name="', '<param name="'), "qwen3", "minicpm5"),
    Family("step3p5", _all("<parameter=", r"<\|im_start\|>tool_response"), "step3p5", "step3p5"),
    Family("qwen3_coder", _XML_PARAMETERS, "qwen3", "qwen3_5 qwen3_5_moe mimo_v2_flash"),
    Family("nemotron", _XML_PARAMETERS, "nemotron", "nemotron_h"),
    Family("poolside_v1", _all("<arg_key>", "</assistant>"), "poolside_v1", "laguna"),
    Family("glm47", _all("<tool_call>", "</arg_key><arg_value>"), "glm4", "glm4_moe_lite glm_moe_dsa glm5 spark2_5"),
    Family("glm45", _ARG_KEYS, "glm4", "glm4 glm4_moe glm4v glm4v_moe"),
    Family("hunyuan", r"<tool_sep\{\}>", "hunyuan", "hy_v3"),
    Family("hunyuan", _all("<tool_calls>", "<answer>"), "hunyuan"),
    Family("jamba", _LIST_IN_TAGS, None, "jamba"),
    Family("hunyuan", _LIST_IN_TAGS, "hunyuan", "hunyuan hunyuan_v1_dense hunyuan_v1_moe"),
    Family("ernie45", _all(_JSON_IN_TAGS, "<response>"), "ernie45", "ernie4_5 ernie4_5_moe ernie4_5_moe_vl"),
    Family(
        "hermes",
        _JSON_IN_TAGS,
        "qwen3",
        "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen3 qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe "
        "qwen3_omni_moe smollm3 mimo afmoe exaone4 bailing_moe bailing_hybrid bailing_moe_linear granitemoehybrid",
    ),
)

THINK_TAGS = ("<think>", "</think>")
"""A template that only cuts the reasoning out of earlier turns knows the closing tag alone."""
TAGS: Mapping[str, tuple[str, ...]] = {
    "harmony": ("<|channel|>",),
    "gemma4": ("<|channel>",),
    "mistral": ("[THINK]",),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "cohere": ("<|START_THINKING|>",),
    "minimax_m3": ("<mm:think>",),
    "kimi_k3": ("<|open|>",),
    "apertus": ("<|inner_prefix|>",),
    "qwen3": THINK_TAGS,
    "hunyuan": (*THINK_TAGS, "<think{}>"),
    "deepseek_r1": ("<think>",),  # this one takes text for thinking unless told otherwise, so a prompt must open it
}
"""Kinds of reasoning and their tags; every other kind has the tags of ``qwen3``."""

_BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types.split()}
_OPENING = re.compile(r"\{[{%]")
_STRING = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_TOOLS = re.compile(r"\b(?:tools|functions|xml_tools|available_tools)\b")
_CLASS_SUFFIX = re.compile(r"(?:For\w+|LMHeadModel|Model)$")


def choose(config: Mapping[str, Any], template: str) -> ParserChoice | None:
    """Choose for a model with this config.json and chat template; None if neither says anything. Pure."""
    by_type, type_reason = _family_by_type(config)
    if not template:
        if by_type is None:
            return None
        return ParserChoice(by_type.tool, by_type.reasoning, type_reason)
    reading = _Template(template)
    reasons: list[str] = []

    taught = reading.family(by_type)
    if taught is not None:
        tool = taught.tool
        reasons.append(type_reason if taught is by_type else f"chat template teaches {tool} calls")
    elif not reading.writes_calls and not reading.reads_tools:
        tool = "hermes"
        reasons.append("chat template has no tools, so they are described in Hermes form")
    else:
        tool = "auto"
        reasons.append("chat template has tools in a form of its own")

    reasoning: str | None = None
    for family in (taught, by_type):
        kind = family.reasoning if family is not None else None
        if kind is not None and reasoning is None and reading.tag(kind):
            reasoning = kind
            if family is by_type and type_reason not in reasons:
                reasons.append(type_reason)
    if reasoning is None:
        reasoning = next((kind for kind in TAGS if reading.tag(kind)), None)
        if reasoning is not None:
            reasons.append(f"chat template holds {reading.tag(reasoning)}")
    return ParserChoice(tool, reasoning, ", ".join(reasons))


class _Template:
    """What a chat template's source shows, without rendering it."""

    def __init__(self, source: str) -> None:
        self._source = source

    def family(self, by_type: Family | None) -> Family | None:
        """Return the first family whose mark this template shows, or that of the type if it has the same mark."""
        found = next((family for family in FAMILIES if re.search(family.mark, self._source)), None)
        same = found is not None and by_type is not None and by_type.mark == found.mark
        return by_type if same else found

    def tag(self, kind: str) -> str:
        """Return the first tag of this kind of reasoning that the template holds, or the empty string."""
        return next((tag for tag in TAGS.get(kind, THINK_TAGS) if tag in self._source), "")

    @cached_property
    def _code(self) -> str:
        """The code between the delimiters, all in one."""
        pieces: list[str] = []
        end = 0
        while opening := _OPENING.search(self._source, end):
            closing = "%}" if opening[0] == "{%" else "}}"
            end = self._source.find(closing, opening.end())
            pieces.append(self._source[opening.end() : end if end >= 0 else None])
            if end < 0:
                break
        return "\n".join(pieces)

    @property
    def writes_calls(self) -> bool:
        """Whether the code reads the calls of earlier messages."""
        return "tool_calls" in self._code

    @property
    def reads_tools(self) -> bool:
        """Whether the code reads what tools there are."""
        return bool(_TOOLS.search(_STRING.sub("", self._code)))


def _family_by_type(config: Mapping[str, Any]) -> tuple[Family | None, str]:
    """Return the family of the config's model type, or that of its text part or architecture; and the reason."""
    part = config.get("text_config")
    inner = part.get("model_type") if isinstance(part, Mapping) else None
    for model_type in (config.get("model_type"), inner):
        if isinstance(model_type, str) and model_type in _BY_TYPE:
            return _BY_TYPE[model_type], f"model_type {model_type}"
    architectures = config.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        plain = _CLASS_SUFFIX.sub("", str(name)).lower()
        for model_type, family in _BY_TYPE.items():
            if model_type.replace("_", "") == plain:
                return family, f"architecture {name}"
    return None, ""
