from __future__ import annotations

import pytest
from pydantic import ValidationError

from vllm_mlx_core.api import Chat, InvalidRequest, Settings, Tool
from vllm_mlx_protocols.openai.chat_request import to_generate
from vllm_mlx_protocols.openai.schema import ChatCompletionRequest

USER = {"role": "user", "content": "Hi"}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Look out", "parameters": {"type": "object"}, "strict": True},
}


def generate(settings=None, **fields):
    body = ChatCompletionRequest.model_validate({"messages": [USER], **fields})
    return to_generate(body, settings or Settings(), request_id="r1")


def refused(settings=None, **fields):
    with pytest.raises(InvalidRequest) as info:
        generate(settings, **fields)
    assert info.value.param is not None
    assert info.value.param.split("[")[0].split(".")[0] in info.value.message
    return info.value.param


def messages(*given):
    return generate(messages=list(given)).prompt.messages


def test_nothing_said_leaves_every_default_to_the_model():
    request = generate()
    assert request.model == "default"
    assert request.n == 1
    assert request.tools_enabled
    assert request.parallel_tool_calls
    assert request.prompt == Chat(messages=[USER])
    sampling = request.sampling
    assert sampling.max_tokens is None
    assert sampling.temperature is None
    assert sampling.seed is None
    assert sampling.logprobs is None


def test_null_means_not_said():
    nulls = {name: None for name in ChatCompletionRequest.model_fields if name not in ("model", "messages")}
    assert generate(**nulls) == generate()


def test_zero_is_said():
    sampling = generate(temperature=0, top_k=0, seed=0, presence_penalty=0).sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed, sampling.presence_penalty) == (0, 0, 0, 0)


def test_every_sampling_field_arrives():
    sampling = generate(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, presence_penalty=-2, frequency_penalty=2,
        repetition_penalty=1.1, seed=-7, stop=["a", "b"], stop_token_ids=[5], logit_bias={"12": -100, "0": 1.5},
        ignore_eos=True, min_tokens=2, max_tokens=9, logprobs=True, top_logprobs=20,
    ).sampling  # fmt: skip
    assert sampling.temperature == 0.5
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (0.9, 40, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (-2, 2, 1.1)
    assert sampling.seed == -7
    assert sampling.stop == ("a", "b")
    assert sampling.stop_token_ids == (5,)
    assert sampling.logit_bias == {12: -100, 0: 1.5}
    assert sampling.ignore_eos
    assert (sampling.min_tokens, sampling.max_tokens) == (2, 9)
    assert sampling.logprobs == 20


def test_max_completion_tokens_wins():
    assert generate(max_tokens=5, max_completion_tokens=7).sampling.max_tokens == 7
    assert generate(max_tokens=5, max_completion_tokens=None).sampling.max_tokens == 5


def test_minus_one_is_no_limit_and_other_non_positive_values_are_refused():
    assert generate(max_tokens=-1).sampling.max_tokens is None
    assert refused(max_tokens=0) == "max_tokens"
    assert refused(max_tokens=-2) == "max_tokens"
    assert refused(max_completion_tokens=0, max_tokens=5) == "max_completion_tokens"


def test_the_operator_bounds_tokens_and_completions():
    settings = Settings(max_request_tokens=10, max_completions=4)
    assert generate(settings, max_tokens=10, n=4).n == 4
    assert refused(settings, max_tokens=11) == "max_tokens"
    assert refused(settings, n=5) == "n"


def test_stops_are_bounded():
    assert generate(stop="x").sampling.stop == ("x",)
    assert len(generate(stop=["x"] * 64).sampling.stop) == 64
    assert refused(stop=["x"] * 65) == "stop"
    assert refused(stop=["x", ""]) == "stop"
    assert refused(stop="x" * 1025) == "stop"


@pytest.mark.parametrize("key", ["", "-1", "1.5", "x", "١", "9" * 11])
def test_logit_bias_keys_are_token_ids(key):
    assert refused(logit_bias={key: 1}) == "logit_bias"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0), ("temperature", 2.1), ("temperature", -0.1), ("temperature", "0.5"), ("temperature", float("nan")),
        ("top_p", 0), ("top_p", 1.1), ("top_k", -2), ("min_p", 1.5), ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5), ("repetition_penalty", 0), ("seed", 2**63), ("seed", 1.5), ("stop", 3),
        ("stop_token_ids", [-1]), ("logit_bias", {"1": 101}), ("logit_bias", {str(k): 1 for k in range(1025)}),
        ("top_logprobs", 21), ("min_tokens", -1), ("max_tokens", "5"), ("max_tokens", True), ("stream", "yes"),
        ("messages", []), ("messages", "Hi"), ("tools", [{"type": "custom"}]), ("tools", [WEATHER] * 1025),
    ],
)  # fmt: skip
def test_wrong_values_are_found_in_their_field(field, value):
    with pytest.raises(ValidationError) as info:
        generate(**{field: value})
    assert all(error["loc"][0] == field for error in info.value.errors())


def test_min_tokens_cannot_exceed_max_tokens():
    assert refused(min_tokens=5, max_tokens=4) == "min_tokens"


def test_logprobs():
    assert generate(logprobs=True).sampling.logprobs == 0
    assert generate(logprobs=False).sampling.logprobs is None
    assert refused(top_logprobs=3) == "top_logprobs"
    assert refused(top_logprobs=3, logprobs=False) == "top_logprobs"


def test_tools_arrive_as_structs():
    request = generate(tools=[WEATHER], tool_choice="auto", parallel_tool_calls=False)
    assert request.prompt.tools == (Tool("get_weather", "Look out", {"type": "object"}, True),)
    assert request.tools_enabled
    assert not request.parallel_tool_calls


def test_an_empty_tool_list_is_none():
    assert generate(tools=[]) == generate(tools=[], tool_choice="auto") == generate()


def test_tool_choice_none_hides_the_tools_and_forbids_calls():
    request = generate(tools=[WEATHER], tool_choice="none")
    assert request.prompt.tools == ()
    assert not request.tools_enabled


@pytest.mark.parametrize(
    "choice",
    ["required", "any", {"type": "function", "function": {"name": "get_weather"}}, {"type": "function"}, {}],
)
@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_a_forced_call_is_refused_before_anything_is_generated(tools, choice):
    assert refused(tools=tools, tool_choice=choice) == "tool_choice"


def test_two_tools_of_one_name_are_refused():
    assert refused(tools=[WEATHER, WEATHER]) == "tools[1].function.name"


def test_response_format_text_only():
    assert generate(response_format={"type": "text"}) == generate()
    assert refused(response_format={"type": "json_object"}) == "response_format"
    assert refused(response_format={"type": "json_schema", "json_schema": {}}) == "response_format"


@pytest.mark.parametrize("field", ["functions", "guided_json", "chat_template", "prompt_logprobs", "use_beam_search"])
def test_what_cannot_be_honoured_is_refused_by_name(field):
    assert refused(**{field: "x"}) == field
    assert generate(**{field: None}) == generate()
    assert generate(**{field: False}) == generate()


def test_unknown_fields_are_ignored():
    assert (
        generate(whatever=1, prompt_cache_key="x", metadata={"a": "b"}, store=True, service_tier="auto") == generate()
    )


def test_thinking_reaches_the_template():
    def kwargs(**fields):
        return generate(**fields).prompt.template_kwargs

    switches = ("enable_thinking", "thinking", "reasoning")  # Qwen's name, DeepSeek's and Kimi's, Cohere's
    off = dict.fromkeys(switches, False)
    assert kwargs(enable_thinking=False) == kwargs(reasoning_effort="none") == off
    assert kwargs(enable_thinking=True) == kwargs(enable_thinking=True, reasoning_effort="none")
    assert kwargs(enable_thinking=True) == dict.fromkeys(switches, True)
    assert kwargs(reasoning_effort="high") == {"reasoning_effort": "high"}
    assert kwargs(enable_thinking=False, chat_template_kwargs={"enable_thinking": True, "x": [1]}) == {
        **off,
        "enable_thinking": True,
        "x": [1],
    }
    assert refused(chat_template_kwargs={"chat_template": "{{ x }}"}) == "chat_template_kwargs.chat_template"


def test_the_last_message_can_be_continued():
    prompt = generate(continue_final_message=True).prompt
    assert prompt.continue_final_message
    assert not prompt.add_generation_prompt
    assert refused(continue_final_message=True, add_generation_prompt=True) == "continue_final_message"


def test_messages_become_plain_dictionaries_with_known_keys():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert messages(
        {"role": "developer", "content": "Be brief", "extra": 1},
        {
            "role": "user",
            "content": [{"type": "text", "text": "A", "cache_control": {}}, {"type": "text", "text": "B"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "reasoning": "Hm"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
        {"role": "assistant", "tool_calls": None},
    ) == [
        {"role": "developer", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "text": "42"}], "tool_call_id": "c1"},
        {"role": "assistant", "content": None},
    ]


def test_arguments_of_past_calls_may_be_objects_or_missing():
    def sent(arguments):
        function = {"name": "f", "arguments": arguments}
        (message,) = messages({"role": "assistant", "tool_calls": [{"function": function}]})
        return message["tool_calls"][0]["function"]["arguments"]

    assert sent({"a": 1}) == {"a": 1}
    assert sent("") == sent(None) == "{}"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[1].content"),
        ({"role": "system", "content": None}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "?"}]}, "messages[1].content[1].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[1].function_call"),
    ],
)
def test_a_message_that_cannot_be_used_is_named(message, param):
    assert refused(messages=[USER, message]) == param
