"""Where messages end in a prompt, with published templates and the tokenizers that go with them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from vllm_mlx_core.api import Chat, Checkpoint, LoadOptions, RenderedPrompt, Tool
from vllm_mlx_models.processor import CheckpointProcessor

DIALECTS = [
    ("qwen3", "Qwen-Qwen3-0.6B"),
    ("qwen3", "Qwen3.5-4B"),
    ("qwen3", "Qwen3-Coder"),
    ("llama3_1", "meta-llama-Llama-3.1-8B-Instruct"),
    ("deepseek_v3", "deepseek-ai-DeepSeek-V3.1"),
    ("deepseek_v3", "deepseek-ai-DeepSeek-V3.2"),
    ("gptoss", "openai-gpt-oss-120b"),
    ("gemma3", "google-gemma-2-2b-it"),
]
TOOL = Tool("get_weather", "Weather of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = {"id": "call00000", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
LOOP: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How is it in Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00000", "content": "snow and wind"},
    {"role": "assistant", "content": "It snows."},
    {"role": "user", "content": "And tomorrow?"},
]
TALK = [message for message in LOOP if message["role"] != "tool" and not message.get("tool_calls")]


@pytest.fixture
def processor(real_tokenizer_folder, real_templates):
    def make(tokenizer: str, template: str) -> CheckpointProcessor:
        folder = real_tokenizer_folder(tokenizer)
        return CheckpointProcessor(Checkpoint(path=folder), LoadOptions(chat_template=real_templates[template]))

    return make


def beginnings(processor: CheckpointProcessor, prompt: RenderedPrompt) -> list[str]:
    assert list(prompt.boundaries) == sorted(set(prompt.boundaries))
    return [processor.tokenizer.decode(prompt.token_ids[:boundary]) for boundary in prompt.boundaries]


@pytest.mark.parametrize(("tokenizer", "template"), DIALECTS)
def test_a_boundary_lies_between_any_two_messages(tokenizer, template, processor):
    text_half = processor(tokenizer, template)
    found = beginnings(text_half, text_half.render(Chat(messages=TALK)))
    contents = [message["content"] for message in TALK]
    if template.startswith("google-gemma-2"):  # which has no system messages: it stands in the user's
        del contents[0]
    for before, after in pairwise(contents):
        assert any(before in text and after not in text for text in found), (before, found)


@pytest.mark.parametrize(("tokenizer", "template"), DIALECTS[:-1])
def test_the_end_of_the_system_prompt_with_tools_and_of_each_result_is_a_boundary(tokenizer, template, processor):
    text_half = processor(tokenizer, template)
    found = beginnings(text_half, text_half.render(Chat(messages=LOOP, tools=(TOOL,))))
    if "Llama" not in template:  # which describes tools in the first user message
        assert any("Weather of a city" in text and "How is it in Oslo?" not in text for text in found)
    assert any("How is it in Oslo?" in text and "snow" not in text for text in found)
    if "V3.2" not in template:  # in which ordinary text is all that ends results
        assert any("snow and wind" in text and "It snows." not in text for text in found)


@pytest.mark.parametrize(("tokenizer", "template"), DIALECTS)
@pytest.mark.parametrize(("messages", "tools"), [(TALK, ()), (LOOP, (TOOL,))])
def test_an_edited_last_message_leaves_what_is_before_the_boundary_as_it_was(
    tokenizer, template, messages, tools, processor
):
    text_half = processor(tokenizer, template)
    prompt = text_half.render(Chat(messages=messages, tools=tools))
    edited = text_half.render(Chat(messages=[*messages[:-1], {"role": "user", "content": "Never mind."}], tools=tools))
    kept = max(b for b in prompt.boundaries if "tomorrow" not in text_half.tokenizer.decode(prompt.token_ids[:b]))
    assert edited.token_ids[:kept] == prompt.token_ids[:kept]
    assert kept in edited.boundaries
    assert "It snows." in text_half.tokenizer.decode(prompt.token_ids[:kept])


def test_the_tiny_models_template_ends_messages_with_one_token(tiny_model):
    text_half = CheckpointProcessor(Checkpoint(path=tiny_model("mamba2")), LoadOptions())
    prompt = text_half.render(Chat(messages=LOOP, tools=(TOOL,)))
    ends = [match.end() for match in re.finditer(re.escape("<|im_end|>"), prompt.text)]
    assert [len(text) for text in beginnings(text_half, prompt)] == ends
    assert len(ends) == len(LOOP)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
        "{{ raise_exception('nothing pleases me') }}",
        "{{ messages[0].content }}",
        "{{ messages[0].content }}<|im_end|>{% if messages | length > 1 %}{{ 1 / 0 }}{% endif %}",
    ],
    ids=["turns are ordinary text", "refuses everything", "shows one message", "fails at two messages"],
)
def test_a_template_that_tells_nothing_gives_no_boundaries(template, with_template):
    text_half = with_template(template)
    assert text_half.tokenize("Hi<|im_end|>\n").boundaries == []


def test_what_looks_like_an_end_is_one_wherever_it_stands(tiny_model):
    text_half = CheckpointProcessor(Checkpoint(path=tiny_model("mamba2")), LoadOptions())
    prompt = text_half.render(Chat(messages=[{"role": "user", "content": "What is <|im_end|> for?"}]))
    assert [text[-10:] for text in beginnings(text_half, prompt)] == ["<|im_end|>", "<|im_end|>"]
    raw = text_half.tokenize("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert beginnings(text_half, raw) == ["<|im_start|>user\nHi<|im_end|>"]
