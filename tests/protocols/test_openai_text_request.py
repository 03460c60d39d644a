from __future__ import annotations

import pytest

from vllm_mlx_core.api import Infill, InvalidRequest, Settings
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


def test_neutral_values_change_nothing():
    assert generate(prompt="a", best_of=1, suffix="", echo=False, stream=False) == generate(prompt="a")
    assert refused(prompt="a", response_format={"type": "json_object"}) == "response_format"


def test_best_of_generates_more_and_needs_their_probabilities():
    (request,) = generate(prompt="a", n=2, best_of=5)
    assert (request.n, request.sampling.logprobs) == (5, 0)
    assert generate(prompt="a", best_of=5, logprobs=3)[0].sampling.logprobs == 3
    assert generate(prompt="a", n=2, best_of=2, stream=True)[0].sampling.logprobs is None


def test_best_of_that_cannot_be_is_refused():
    assert refused(prompt="a", n=3, best_of=2) == "best_of"
    assert refused(prompt="a", best_of=2, stream=True) == "best_of"
    assert refused(Settings(max_completions=4), prompt=["a", "b"], best_of=3) == "best_of"


def test_a_suffix_makes_a_gap_of_a_text():
    assert [request.prompt for request in generate(prompt=["a", "b"], suffix="z")] == [
        Infill(prefix="a", suffix="z"),
        Infill(prefix="b", suffix="z"),
    ]
    assert refused(prompt=[1, 2], suffix="z") == "suffix"


def test_salt_special_tokens_and_the_caller_reach_the_engine():
    body = CompletionRequest(prompt="a", cache_salt="s", add_special_tokens=False, skip_special_tokens=False)
    (request,) = to_generate(body, Settings(), request_id="r", user="key-1", trace_id="t")
    assert (request.cache_salt, request.user, request.trace_id) == ("s", "key-1", "t")
    assert not request.add_special_tokens
    assert not request.sampling.skip_special_tokens
    assert generate(prompt="a")[0].add_special_tokens


def test_echo_gives_each_choice_its_prompt():
    def text(token_ids):
        return "".join(map(chr, token_ids))

    assert echoes(CompletionRequest(prompt=["a", "b"], n=2, echo=True), text) == ["a", "a", "b", "b"]
    assert echoes(CompletionRequest(prompt=["a", "b"]), text) == ["", ""]
    assert echoes(CompletionRequest(prompt=[[97], [98, 99]], echo=True), text) == ["a", "bc"]
    assert echoes(CompletionRequest(prompt=[97], n=1, best_of=3, echo=True), text) == ["a"]


def test_an_echo_with_logprobs_asks_for_those_of_the_prompt():
    def asked(**fields):
        sampling = generate(prompt="a", **fields)[0].sampling
        return sampling.logprobs, sampling.prompt_logprobs, sampling.max_tokens

    assert asked(echo=True) == (None, None, None)
    assert asked(logprobs=2, max_tokens=3) == (2, None, 3)
    assert asked(echo=True, logprobs=2, max_tokens=3) == (2, 2, 3)
    assert asked(echo=True, logprobs=0) == (0, 0, None)
    assert asked(echo=True, logprobs=1, max_tokens=0) == (1, 1, 0)
    assert asked(echo=True, max_tokens=0) == (None, 0, 0)
    assert asked(echo=True, best_of=3) == (0, None, None)


def test_nothing_may_be_asked_for_with_an_echo_only():
    assert refused(prompt="a", max_tokens=0) == "max_tokens"
    assert refused(prompt="a", max_tokens=0, logprobs=1) == "max_tokens"
    assert refused(prompt="a", max_tokens=-2, echo=True) == "max_tokens"
    assert refused(prompt="a", max_tokens=0, echo=True, min_tokens=1) == "min_tokens"
    assert refused(prompt="a", suffix="b", echo=True, logprobs=1) == "suffix"
    assert refused(prompt="a", suffix="b", echo=True, max_tokens=0) == "suffix"
    assert generate(prompt="a", suffix="b", echo=True)[0].sampling.prompt_logprobs is None
