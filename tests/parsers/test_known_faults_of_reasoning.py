"""Faults of other servers in telling thinking from answers, none of which may happen here.

``read`` takes each completion in steps of every length, and with markers as tokens and spelled out.
"""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import Tool

from .completions import Reply, called, read

THINK_TAGS = ["qwen3", "deepseek_r1", "glm4", "nemotron", "minimax_m2", "step3p5", "kimi_k2", "deepseek_v4", "ernie45"]
OTHER_TAGS = {
    "qwen3": ("<think>", "</think>"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
}
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("parser", THINK_TAGS)
def test_a_block_that_the_prompt_opened_is_thinking_and_its_end_is_not_shown(parser):
    text = "plan it\n</think>\n\nThe answer."
    assert read(text, None, parser, prompt="<|im_start|>assistant\n<think>\n") == Reply("The answer.", "plan it")
    assert read(f"<think>\n{text}", None, parser, prompt="<|im_start|>assistant\n") == Reply("The answer.", "plan it")


@pytest.mark.parametrize(("parser", "tags"), OTHER_TAGS.items())
def test_the_end_of_the_prompt_decides_whatever_the_tags(parser, tags):
    start, end = tags
    assert read(f"plan it\n{end}\n\nHi.", None, parser, prompt=f"user{start}") == Reply("Hi.", "plan it")
    assert read("Hi.", None, parser, prompt=f"user{start}{end}") == Reply("Hi.")
    assert read(f"Use {start} and {end}.", None, parser, prompt=f"user{start}\n\n{end}\n\n").reasoning == ""
    earlier = f"assistant{start}Hm.{end}Hi.user"
    assert read("Hi.", None, parser, prompt=earlier) == Reply("Hi.")


@pytest.mark.parametrize("parser", THINK_TAGS)
@pytest.mark.parametrize("prompt", ["<think>\n\n</think>\n\n", "<think></think>", "<think>\n</think>"])
def test_with_thinking_off_all_of_the_completion_is_the_answer(parser, prompt):
    assert read("Hello.", None, parser, prompt=f"<|im_start|>assistant\n{prompt}") == Reply("Hello.")
    assert read(f"Hello.\n{CALL}", "hermes", parser, prompt=prompt, tools=["f"]) == called(("f", {}), content="Hello.")


@pytest.mark.parametrize("parser", ["qwen3", "glm4", "kimi_k2", "gemma4", "mistral", "seed_oss", "granite", "hunyuan"])
def test_a_model_that_does_not_think_only_answers(parser):
    assert read("Hello.", None, parser, prompt="<|im_start|>assistant\n") == Reply("Hello.")


def test_the_thought_channel_of_gemma_is_thinking_and_an_empty_one_is_nothing():
    def reply(text):
        return read(text, "gemma4", "gemma4", tools=["f"])

    assert reply("<|channel>thought\nplan<channel|>Hi") == Reply("Hi", "plan")
    for empty in ("<|channel>thought\n<channel|>", "<|channel>thought<channel|>", "<|channel>thought\n\n<channel|>"):
        assert reply(f"{empty}Hi") == Reply("Hi")
    call = '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>'
    assert reply(f"<|channel>thought\nplan<channel|>{call}") == called(("f", {"a": "x"}), reasoning="plan")
    assert reply(f"<|channel>thought\nplan<channel|>Hi\n{call}") == called(
        ("f", {"a": "x"}), reasoning="plan", content="Hi"
    )


@pytest.mark.parametrize("parser", ["qwen3", "deepseek_r1", "glm4", "nemotron", "minimax_m2", "kimi_k2"])
def test_a_closing_tag_that_comes_first_ends_an_empty_block_unless_the_thinking_goes_on(parser):
    prompt = "<think>\n"
    assert read("</think>\n\nHi", None, parser, prompt=prompt) == Reply("Hi")
    reply = read("</think>private planning</think>visible", None, parser, prompt=prompt)
    assert reply == Reply("visible", "private planning")


@pytest.mark.parametrize(
    "answer",
    [
        "Use the </think> tag and <think> too.",
        "In code: `</think>` and `<think>`.",
        "```xml\n<think>\nHm.\n</think>\n```",
        "<think>",
    ],
)
@pytest.mark.parametrize("parser", THINK_TAGS)
def test_after_the_thinking_tags_are_text(parser, answer):
    assert read(f"Hm.</think>{answer}", None, parser, prompt="<think>\n") == Reply(answer, "Hm.")
    assert read(f"<think>Hm.</think>\n\n{answer}", "hermes", parser, tools=["f"]) == Reply(answer, "Hm.")


def test_stop_strings_apply_to_the_answer_only():
    text = "<think>First.\n\nSecond.</think>Answer.\n\nMore."
    assert read(text, None, "qwen3", stop=["\n\n"]) == Reply("Answer.", "First.\n\nSecond.")
    assert read("First.\n\nSecond.</think>A.\n\nB.", None, "qwen3", stop=["\n\n"], prompt="<think>\n") == Reply(
        "A.", "First.\n\nSecond."
    )
    assert read("<think>stop</think>go", None, "qwen3", stop=["stop", "</think>"]) == Reply("go", "stop")


@pytest.mark.parametrize("parser", ["qwen3", "seed_oss", "mistral", "gemma4", "harmony", "cohere"])
def test_thinking_that_the_limit_cuts_off_is_thinking_and_ends_for_its_length(parser):
    start = {
        "harmony": "<|channel|>analysis<|message|>",
        "gemma4": "<|channel>thought\n",
    }.get(parser) or OTHER_TAGS[parser][0]
    assert read(f"{start}a plan", None, parser, finish="length") == Reply(reasoning="a plan", finish="length")


@pytest.mark.parametrize("prompt", ["", "<think>\n"])
@pytest.mark.parametrize("tools", [["f"], [Tool("g")]])
def test_a_call_after_the_thinking_is_a_call(prompt, tools):
    text = f"{'' if prompt else '<think>'}Hm.\n</think>\n\n{CALL}"
    assert read(text, "hermes", "qwen3", prompt=prompt, tools=tools) == called(("f", {}), reasoning="Hm.")
