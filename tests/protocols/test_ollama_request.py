from __future__ import annotations

import pytest
from pydantic import ValidationError

from vllm_mlx_core.api import Chat, Infill, InvalidRequest, ModelInfo, Settings
from vllm_mlx_protocols.http import Caller
from vllm_mlx_protocols.ollama.request import load_reason, to_generate
from vllm_mlx_protocols.ollama.schema import ChatRequest, GenerateRequest

MODEL = ModelInfo(id="m", created=0, context_length=9, family="f")
PLAIN = ModelInfo(id="m", created=0, context_length=9, family="f", capabilities={"reasoning": False})
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(model=MODEL, settings=None, **fields):
    body = ChatRequest.model_validate({"model": "m", "messages": HI, **fields})
    return to_generate(body, model, settings or Settings(), request_id="r", caller=Caller("u", "t"))


def generate(**fields):
    body = GenerateRequest.model_validate({"model": "m", "prompt": "Hi", **fields})
    return to_generate(body, MODEL, Settings(), request_id="r", caller=Caller(None, None))


def test_a_conversation():
    request = chat()
    assert (request.request_id, request.model, request.user, request.trace_id) == ("r", "m", "u", "t")
    assert request.prompt == Chat(messages=HI)
    assert request.sampling.max_tokens is None


def test_calls_and_their_results_reach_the_template():
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        *HI,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [{"id": "c", **call}, call]},
        {"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "c"},
        {"role": "tool", "content": "2", "tool_name": "f"},
    ]
    prompt = chat(messages=messages, tools=[TOOL, {"function": {"name": "g"}}]).prompt
    assert prompt.messages[1:] == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", **call}, {"type": "function", **call}],
        },
        {"role": "tool", "content": "1", "name": "f", "tool_call_id": "c"},
        {"role": "tool", "content": "2", "name": "f"},
    ]
    assert [tool.name for tool in prompt.tools] == ["f", "g"]
    assert prompt.add_generation_prompt


@pytest.mark.parametrize(
    ("last", "continued"),
    [
        ({"role": "assistant", "content": "It is"}, True),
        ({"role": "assistant", "content": ""}, False),
        ({"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}, False),
        ({"role": "user", "content": "x"}, False),
    ],
)
def test_the_text_of_a_last_assistant_is_continued(last, continued):
    prompt = chat(messages=[*HI, last]).prompt
    assert prompt.continue_final_message is continued
    assert prompt.add_generation_prompt is not continued


@pytest.mark.parametrize(
    ("think", "variables"),
    [
        (None, {}),
        (True, {"enable_thinking": True, "thinking": True, "reasoning": True}),
        (False, {"enable_thinking": False, "thinking": False, "reasoning": False}),
        ("low", {"enable_thinking": True, "thinking": True, "reasoning": True, "reasoning_effort": "low"}),
    ],
)
def test_think_becomes_template_variables(think, variables):
    assert chat(think=think).prompt.template_kwargs == variables
    assert generate(think=think).prompt.template_kwargs == variables


def test_thinking_is_refused_for_a_model_that_does_not():
    with pytest.raises(InvalidRequest, match="does not support thinking"):
        chat(PLAIN, think=True)
    assert chat(PLAIN, think=False).prompt.template_kwargs["thinking"] is False


def test_all_options_that_are_honoured():
    sampling = chat(
        options={
            "temperature": 0.5,
            "top_k": 3,
            "top_p": 0.9,
            "min_p": 0.1,
            "seed": 7,
            "num_predict": 5,
            "stop": ["a", "b"],
            "repeat_penalty": 1.1,
            "presence_penalty": 0.2,
            "frequency_penalty": 0.3,
        }
    ).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 3, 0.9, 0.1)
    assert (sampling.seed, sampling.max_tokens, sampling.stop) == (7, 5, ("a", "b"))
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.1, 0.2, 0.3)


@pytest.mark.parametrize("num_predict", [0, -1, -2])
def test_no_limit(num_predict):
    assert chat(options={"num_predict": num_predict}).sampling.max_tokens is None


def test_the_operators_limit_holds():
    with pytest.raises(InvalidRequest, match=r"options\.num_predict must be at most 10"):
        chat(settings=Settings(max_request_tokens=10), options={"num_predict": 11})


def test_a_random_seed_is_none():
    assert chat(options={"seed": -1}).sampling.seed is None


def test_options_of_the_hardware_unknown_and_neutral_ones_change_nothing():
    options = {
        "num_ctx": 8192,
        "num_gpu": "all",
        "use_mmap": None,
        "numa": [],
        "x": 1,
        "mirostat": 0,
        "typical_p": 1.0,
        "tfs_z": 1,
    }
    assert chat(options=options) == chat()


@pytest.mark.parametrize("option", [{"mirostat": 2}, {"typical_p": 0.5}, {"tfs_z": 0.9}])
def test_samplers_that_are_not_there_are_refused(option):
    with pytest.raises(InvalidRequest) as refused:
        chat(options=option)
    assert refused.value.param == f"options.{next(iter(option))}"


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"num_predict": -3}, {"num_predict": "5"}, {"stop": [""]}, {"stop": ["a"] * 65}],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"model": "m", "messages": HI, "options": options})


@pytest.mark.parametrize("format", ["json", {"type": "object"}])
def test_structured_output_is_refused(format):
    for ask in (chat, generate):
        with pytest.raises(InvalidRequest) as refused:
            ask(format=format)
        assert refused.value.param == "format"
        assert ask(format="").request_id == "r"


def test_images_are_refused_and_empty_lists_are_none():
    for images in (["aaaa"], [None]):
        with pytest.raises(InvalidRequest, match=r"messages\[0\]\.images"):
            chat(messages=[{**HI[0], "images": images}])
        with pytest.raises(InvalidRequest, match="images"):
            generate(images=images)
    assert chat(messages=[{**HI[0], "images": []}]) == chat()


def test_logprobs():
    assert chat().sampling.logprobs is None
    assert chat(logprobs=True).sampling.logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).sampling.logprobs == 4
    with pytest.raises(InvalidRequest, match="top_logprobs"):
        chat(top_logprobs=4)


def test_a_prompt_is_a_message_of_the_user():
    assert generate().prompt == Chat(messages=HI)
    assert generate(system="S").prompt == Chat(messages=[{"role": "system", "content": "S"}, *HI])


def test_a_raw_prompt_and_a_gap():
    assert generate(raw=True).prompt == "Hi"
    assert generate(suffix="end").prompt == Infill(prefix="Hi", suffix="end")
    assert generate(prompt=None, suffix="end").prompt == Infill(prefix="", suffix="end")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1]}, "context"),
        ({"raw": True, "system": "S"}, "system"),
        ({"raw": True, "think": True}, "think"),
        ({"suffix": "x", "system": "S"}, "system"),
        ({"suffix": "x", "raw": True}, "raw"),
        ({"suffix": "x", "think": "high"}, "think"),
    ],
)
def test_what_a_prompt_cannot_have_is_refused_by_name(fields, param):
    with pytest.raises(InvalidRequest) as refused:
        generate(**fields)
    assert refused.value.param == param
    assert param in refused.value.message


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"messages": HI}, None),
        ({"messages": HI, "keep_alive": 0}, None),
        ({"messages": []}, "load"),
        ({}, "load"),
        ({"keep_alive": "5m"}, "load"),
        ({"keep_alive": -1}, "load"),
        ({"keep_alive": 0}, "unload"),
        ({"keep_alive": "0s"}, "unload"),
    ],
)
def test_without_messages_a_model_is_loaded_or_unloaded(fields, reason):
    assert load_reason(ChatRequest.model_validate({"model": "m", **fields})) == reason


@pytest.mark.parametrize(
    ("fields", "reason"), [({"prompt": "x"}, None), ({"suffix": "x"}, None), ({"prompt": ""}, "load"), ({}, "load")]
)
def test_without_a_prompt_as_well(fields, reason):
    assert load_reason(GenerateRequest.model_validate({"model": "m", **fields})) == reason


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match=r"tools\[1\]"):
        chat(tools=[TOOL, TOOL])
