from __future__ import annotations

import pytest
from pydantic import ValidationError

from vllm_mlx_core.api import Chat, InvalidRequest, Settings, Tool
from vllm_mlx_protocols.openai.chat_request import echo, to_generate
from vllm_mlx_protocols.openai.ignored import IgnoredChatFields
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
        ("frequency_penalty", -2.5), ("repetition_penalty", 0), ("repetition_penalty", 1e-10),
        ("seed", 2**63), ("seed", 1.5), ("stop", 3),
        ("stop_token_ids", [-1]), ("logit_bias", {"1": 101}), ("logit_bias", {str(k): 1 for k in range(1025)}),
        ("top_logprobs", 21), ("min_tokens", -1), ("max_tokens", "5"), ("max_tokens", True), ("stream", "yes"),
        ("messages", []), ("messages", "Hi"), ("tools", [{"type": "custom"}]), ("tools", [WEATHER] * 1025),
        ("metadata", {str(k): "" for k in range(17)}), ("cache_salt", ""), ("cache_salt", "x" * 1025),
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


PING = {"type": "function", "function": {"name": "ping"}}
NAMED = {"type": "function", "function": {"name": "ping"}}


def allowed(mode, *tools):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("choice", "offered", "required"),
    [
        ("auto", ["get_weather", "ping"], False),
        (None, ["get_weather", "ping"], False),
        ("required", ["get_weather", "ping"], True),
        (NAMED, ["ping"], True),
        (allowed("auto", NAMED), ["ping"], False),
        (allowed("required", NAMED), ["ping"], True),
        (allowed("auto"), [], False),
    ],
)
def test_a_choice_says_what_is_offered_and_whether_a_call_must_come(choice, offered, required):
    request = generate(tools=[WEATHER, PING], tool_choice=choice)
    assert [tool.name for tool in request.prompt.tools] == offered
    assert request.call_required is required
    assert request.tools_enabled


@pytest.mark.parametrize(
    "choice",
    ["any", "", {"type": "function"}, {}, {"type": "function", "function": {"name": "nope"}}, {"type": "custom"},
     allowed("required"), allowed("sometimes", NAMED), allowed("auto", {"type": "function"}), allowed("auto", 5),
     allowed("auto", {"type": "function", "function": {"name": "nope"}})],
)  # fmt: skip
def test_a_choice_that_means_nothing_is_refused(choice):
    assert refused(tools=[WEATHER, PING], tool_choice=choice) == "tool_choice"


@pytest.mark.parametrize("choice", ["required", NAMED, allowed("required", NAMED), allowed("required")])
@pytest.mark.parametrize("tools", [None, []])
def test_a_call_cannot_be_demanded_without_tools(tools, choice):
    assert refused(tools=tools, tool_choice=choice) == "tool_choice"


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "a\n", "\x00", "\x1f", "a\x7f", "a\u2003b", "x" * 257])
def test_a_tool_name_that_no_format_can_hold_is_refused(name):
    with pytest.raises(ValidationError) as info:
        generate(tools=[{"type": "function", "function": {"name": name}}])
    assert [error["loc"] for error in info.value.errors()] == [("tools", 0, "function", "name")]


def test_tool_names_may_be_in_any_script():
    tools = [{"type": "function", "function": {"name": name}} for name in ("天気", "a.b-c:d/e", "x" * 256)]
    assert [tool.name for tool in generate(tools=tools).prompt.tools] == ["天気", "a.b-c:d/e", "x" * 256]


def test_a_schema_is_bounded():
    def tool(size):
        return {"type": "function", "function": {"name": "f", "parameters": {"description": "x" * size}}}

    frame = len('{"description":""}')
    assert generate(tools=[tool(256 * 1024 - frame)])
    assert refused(tools=[PING, tool(256 * 1024 - frame + 1)]) == "tools[1].function.parameters"


def test_echo_is_the_text_of_the_message_that_is_continued():
    def echoed(**fields):
        return echo(ChatCompletionRequest.model_validate({"messages": [USER], **fields}))

    begun = [USER, {"role": "assistant", "content": [{"type": "text", "text": "Once "}, {"type": "text", "text": "u"}]}]
    assert echoed(messages=begun, echo=True, continue_final_message=True) == "Once u"
    assert echoed(echo=True, continue_final_message=True) == "Hi"
    assert echoed(messages=begun, continue_final_message=True) == ""
    assert refused(messages=begun, echo=True) == "echo"
    assert generate(echo=False) == generate()


def test_salt_special_tokens_and_the_caller_reach_the_engine():
    body = ChatCompletionRequest.model_validate({"messages": [USER], "cache_salt": "s", "skip_special_tokens": False})
    request = to_generate(body, Settings(), request_id="r1", user="key-1", trace_id="t")
    assert (request.cache_salt, request.user, request.trace_id) == ("s", "key-1", "t")
    assert not request.sampling.skip_special_tokens
    assert generate().sampling.skip_special_tokens
    assert generate().cache_salt == ""
    assert refused(add_special_tokens=True) == "add_special_tokens"
    assert generate(add_special_tokens=False) == generate()


def test_usage_comes_once_in_a_stream():
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert refused(stream=True, stream_options=options) == "stream_options.continuous_usage_stats"
    assert generate(stream=True, stream_options={"include_obfuscation": True}) == generate(stream=True)


def test_two_tools_of_one_name_are_refused():
    assert refused(tools=[WEATHER, WEATHER]) == "tools[1].function.name"


def test_response_format_text_only():
    assert generate(response_format={"type": "text"}) == generate()
    assert refused(response_format={"type": "json_object"}) == "response_format"
    assert refused(response_format={"type": "json_schema", "json_schema": {}}) == "response_format"


@pytest.mark.parametrize("field", ["functions", "guided_json", "chat_template", "prompt_logprobs", "use_beam_search",
                                   "thinking_token_budget", "moderation", "return_token_ids"])  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(field):
    assert refused(**{field: "x"}) == field
    assert generate(**{field: None}) == generate()
    assert generate(**{field: False}) == generate()


def test_unknown_fields_are_ignored():
    assert generate(whatever=1) == generate()


def test_what_is_declared_as_ignored_changes_nothing():
    ignored = {
        "prediction": {"type": "content", "content": "x"}, "verbosity": "low", "prompt_cache_key": "x",
        "prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "auto"}, "safety_identifier": "x",
        "user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "request_id": "x",
        "spaces_between_special_tokens": True,
    }  # fmt: skip
    assert set(ignored) == set(IgnoredChatFields.model_fields)
    assert generate(**ignored) == generate()


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
