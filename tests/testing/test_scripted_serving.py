"""The scripted model behind the real engine, scheduler and sampler."""

import pytest

from vllm_mlx_core import LLM, SamplingParams


@pytest.fixture(scope="module")
def llm():
    with LLM("scripted", plugins=["vllm_mlx_core.testing.scripted"]) as llm:
        yield llm


def test_a_crowd_of_scripts_is_said_word_for_word_at_any_temperature(llm):
    scripts = [f"{number}: " + "naïve 日本語 🦊 " * (number % 5) for number in range(24)]
    completions = llm.generate(scripts, SamplingParams(temperature=1.5, max_tokens=500))
    assert [completion.text for completion in completions] == scripts
    assert {completion.finish_reason for completion in completions} == {"stop"}


def test_a_reply_is_cut_at_the_limit(llm):
    completion = llm.chat([{"role": "user", "content": "#chunk=3\nabcdefghi"}], SamplingParams(max_tokens=2))
    assert (completion.text, completion.finish_reason) == ("abcdef", "length")


def test_a_conversation_that_goes_on_reuses_the_turn_before(llm):
    first = {"role": "user", "content": "a script that is long enough to be worth keeping"}
    answer = llm.chat([first], SamplingParams(max_tokens=200))
    following = llm.chat(
        [first, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "next"}],
        SamplingParams(max_tokens=200),
    )
    assert following.text == "next"
    assert following.usage.cached_tokens >= len(first["content"])
