from __future__ import annotations

import pytest

from vllm_mlx_core.api import InvalidRequest, Settings
from vllm_mlx_protocols.openai.schema import CompletionRequest
from vllm_mlx_protocols.openai.text_request import echoes, to_generate


def generate(settings=None, **fields):
    return to_generate(CompletionRequest.model_validate(fields), settings or Settings(), request_id="r")


def refused(settings=None, **fields):
    with pytest.raises(InvalidRequest) as info:
        generate(settings, **fields)
    return info.value.param


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ("", [""])],
)
def test_every_form_of_prompt(prompt, prompts):
    requests = generate(prompt=prompt, n=2)
    assert [request.prompt for request in requests] == prompts
    assert {request.n for request in requests} == {2}
    assert len({request.request_id for request in requests}) == len(prompts)


def test_prompts_and_completions_multiply():
    assert refused(Settings(max_completions=4), prompt=["a", "b", "c"], n=2) == "n"


def test_logprobs_is_a_number_of_alternatives():
    assert generate(prompt="a", logprobs=0)[0].sampling.logprobs == 0
    assert generate(prompt="a")[0].sampling.logprobs is None


def test_what_is_not_implemented_is_refused_and_its_neutral_value_is_not():
    assert generate(prompt="a", best_of=1, suffix="", echo=False) == generate(prompt="a")
    assert refused(prompt="a", best_of=2) == "best_of"
    assert refused(prompt="a", suffix="end") == "suffix"
    assert refused(prompt="a", response_format={"type": "json_object"}) == "response_format"


def test_echo_gives_each_choice_its_prompt():
    assert echoes(CompletionRequest(prompt=["a", "b"], n=2, echo=True)) == ["a", "a", "b", "b"]
    assert echoes(CompletionRequest(prompt=["a", "b"])) == ["", ""]
    assert refused(prompt=[1, 2], echo=True) == "echo"
    assert refused(prompt="a", echo=True, logprobs=1) == "echo"
