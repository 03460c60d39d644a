"""What published chat templates make of tools, calls, results and reasoning. The templates come from ``real_data``."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from vllm_mlx_core.api import Chat, Checkpoint, LoadOptions, Tool
from vllm_mlx_models.processor import CheckpointProcessor
from vllm_mlx_models.rendering import ChatRenderer
from vllm_mlx_models.template import ChatTemplate

WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "note": {"type": "string", "description": "Anything else"},
            "nested": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}},
        },
        "required": ["city"],
    },
)
CLOCK = Tool("get_time")
TOOLS = (WEATHER, CLOCK)

NOTE = 'say "hi" <now>\nthen 你好'
ARGUMENTS = {"city": "Zürich", "note": NOTE, "nested": {"list": [17, 18]}}
CALLS = [
    {"id": "call_a1", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}},
    {"id": "call_b2", "type": "function", "function": {"name": "get_time", "arguments": ""}},
    {"id": "call_c3", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}},
]
RESULTS = ["sunny, 23 °C", "half past nine", "rain again"]

WITHOUT_TOOLS = {
    "HuggingFaceTB-SmolLM3-3B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "google-gemma-2-2b-it",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}
"""Templates that say nothing of tools."""
WRITE_CALLS_OF_THEIR_OWN = {name for name in WITHOUT_TOOLS if "DeepSeek" in name}
"""Those of them that know calls all the same."""


@pytest.fixture(scope="session")
def renderers(real_templates):
    tokens = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
    return {name: ChatRenderer(ChatTemplate(source, tokens)) for name, source in real_templates.items()}


def conversation(calls=CALLS[:1], content=None, **assistant):
    """A system message, a question, calls, their results, and the next thing the user says."""
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": RESULTS[CALLS.index(call)] if call in CALLS else "ok"}
        for call in calls
    ]
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is it outside?"},
        {"role": "assistant", "content": content, "tool_calls": calls, **assistant},
        *answers,
        {"role": "assistant", "content": "It is fine."},
        {"role": "user", "content": "And tomorrow?"},
    ]


def render(renderer, messages, tools=TOOLS):
    return renderer.render(Chat(messages=messages, tools=tools))


def holds(text, value):
    """Whether a text holds a value as it is, or as templates quote it: as JSON, ASCII or not, or as in Python."""
    quoted = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return any(form in text for form in (value, *quoted))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_calls_and_results_reach_every_prompt_once_and_in_order(renderers, count):
    assert len(renderers) == 70
    for name, renderer in renderers.items():
        text = render(renderer, conversation(CALLS[:count]))
        before, _, history = text.partition("How is it outside?")
        assert "Be brief." in before or "Be brief." in history, name
        # Llama 3 and Mistral's older templates put the tools into a user turn, so they may stand in the history.
        for wanted in ("Zürich", NOTE, "17", "18", *RESULTS[:count], "It is fine.", "And tomorrow?"):
            assert holds(history, wanted), (name, wanted)
        assert history.count("get_weather") >= 1, name
        assert count < 2 or "get_time" in history, name
        assert count < 3 or "Oslo" in history, name
        places = [history.index(result) for result in RESULTS[:count]]
        assert places == sorted(places), name
        assert all(history.count(result) == 1 for result in RESULTS[:count]), name


def test_no_prompt_holds_arguments_that_were_encoded_twice(renderers):
    for name, renderer in renderers.items():
        text = render(renderer, conversation(CALLS))
        assert '{\\"' not in text, name
        assert '\\\\"hi' not in text, name
        assert "&#34;" not in text, name
        assert "&quot;" not in text, name


@pytest.mark.parametrize("calls", [CALLS[:1], CALLS[:2]])
def test_missing_content_beside_calls_is_empty_content(renderers, real_templates, calls):
    for name, renderer in renderers.items():
        messages = conversation(calls, content="")
        without = [{key: value for key, value in m.items() if key != "content" or value} for m in messages]
        texts = {render(renderer, messages), render(renderer, conversation(calls)), render(renderer, without)}
        assert len(texts) == 1, name
        if "None" not in real_templates[name]:
            assert "None" not in texts.pop(), name


CALLS_OR_TEXT = {"mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506"}
"""They show a message's calls or its text, and take no two messages of the assistant in a row."""


def test_text_beside_calls_is_kept(renderers):
    for name, renderer in renderers.items():
        text = render(renderer, conversation(CALLS[:2], content="Let me look outside.")[:-2])
        assert "get_time" in text, name
        assert ("Let me look outside." in text) != (name in CALLS_OR_TEXT), name


@pytest.mark.parametrize(("arguments", "shown"), [("", None), ("{}", None), ('{"city": "Zü', "Zü"), ("[1]", "[1]")])
def test_odd_arguments_render_everywhere(renderers, arguments, shown):
    call = {"id": "x", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    for name, renderer in renderers.items():
        text = render(renderer, conversation([call]))
        assert "And tomorrow?" in text, name
        assert shown is None or holds(text, shown), name


def test_calls_of_an_earlier_time_render_where_no_tools_are_sent_any_more(renderers):
    for name, renderer in renderers.items():
        text = render(renderer, conversation(), tools=())
        assert "get_weather" in text, name
        assert holds(text, NOTE), name
        assert RESULTS[0] in text, name


def test_the_loop_goes_on_after_a_result(renderers):
    for name, renderer in renderers.items():
        text = render(renderer, conversation(CALLS[:2])[:-2])
        assert RESULTS[1] in text, name


def test_every_prompt_tells_the_model_of_the_tools(renderers):
    for name, renderer in renderers.items():
        text = render(renderer, [{"role": "user", "content": "Hi"}])
        assert "get_weather" in text, name
        assert "Weather of a city" in text, name
        assert "get_time" in text, name


def test_templates_without_tools_are_told_of_them_in_the_system_message(renderers):
    described = {
        name
        for name, renderer in renderers.items()
        if "You can call the functions" in render(renderer, [{"role": "user", "content": "Hi"}])
    }
    assert described == WITHOUT_TOOLS
    for name in described - WRITE_CALLS_OF_THEIR_OWN:
        text = render(renderers[name], conversation(CALLS[:2]))
        call = f'<tool_call>\n{{"name": "get_weather", "arguments": {json.dumps(ARGUMENTS, ensure_ascii=False)}}}'
        assert call in text, name
        results = "\n".join(f"<tool_response>\n{result}\n</tool_response>" for result in RESULTS[:2])
        assert results in text, name
    for name in WRITE_CALLS_OF_THEIR_OWN:
        text = render(renderers[name], conversation(CALLS[:2]))
        assert "<tool_call>" not in text, name
        assert text.count("<｜tool▁calls▁begin｜>") == 2, name  # the sample and the history


def test_nothing_is_said_of_tools_where_there_are_none(renderers):
    for name in WITHOUT_TOOLS:
        text = render(renderers[name], [{"role": "user", "content": "Hi"}], tools=())
        assert "function" not in text, name
        assert "tool" not in text, name


NATIVE = {
    "LFM2-8B-A1B": "<|tool_call_start|>[get_weather(city='Oslo')]<|tool_call_end|>",
    "LFM2.5-Instruct": "<|tool_call_start|>[get_weather(city='Oslo')]<|tool_call_end|>",
    "ibm-granite-granite-3.3-2B-Instruct": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
    "fireworks-ai-llama-3-firefunction-v2": 'functools[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
    "Qwen3-Coder": "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>",
    "meetkai-functionary-medium-v3.1": '<function=get_weather>{"city": "Oslo"}</function>',
    "openai-gpt-oss-120b": ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>',
    "Kimi-K2-Instruct": "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>",
}


@pytest.mark.parametrize("name", NATIVE)
def test_calls_are_written_in_the_form_of_the_family(renderers, name):
    assert NATIVE[name] in render(renderers[name], conversation(CALLS[2:]))


@pytest.mark.parametrize("name", ["mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506"])
def test_mistral_ids_are_nine_letters_and_digits_alike_in_call_and_result(renderers, name):
    text = render(renderers[name], conversation(CALLS))
    ids = re.findall(r'(?:"id": "|\[CALL_ID\]|"call_id": "|\[TOOL_RESULTS\](?=[^{]))([A-Za-z0-9]+)', text)
    assert [len(found) for found in ids] == [9] * 6
    assert ids[:3] == ids[3:]


KIMIS = ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"]


@pytest.mark.parametrize("name", KIMIS)
def test_kimi_s_own_ids_stay_and_others_take_its_style(renderers, name):
    text = render(renderers[name], conversation(CALLS))
    ids = ["functions.get_weather:0", "functions.get_time:1", "functions.get_weather:2"]
    assert [text.count(call_id) for call_id in ids] == [2, 2, 2]
    own = [{**call, "id": call_id} for call, call_id in zip(CALLS, ids, strict=True)]
    answers = [{"role": "tool", "tool_call_id": ids[i], "content": RESULTS[i]} for i in range(3)]
    assert render(renderers[name], [*conversation(own)[:3], *answers, *conversation()[-2:]]) == text


def test_reasoning_of_the_current_loop_reaches_the_templates_that_read_it(renderers, real_templates):
    shown = set()
    for name, renderer in renderers.items():
        for kwargs in ({}, {"enable_thinking": True}, {"thinking": True}, {"add_thoughts": True}):
            messages = conversation(CALLS[:1], reasoning_content="Outside is weather.")[:-2]
            chat = Chat(messages=messages, tools=TOOLS, template_kwargs=kwargs)
            if "Outside is weather." in renderer.render(chat):
                shown.add(name)
    readers = {
        name
        for name, source in real_templates.items()
        if re.search(
            r"reasoning_content|message\.(?:reasoning|thinking)\b|\['(?:reasoning|thinking|thought)'\]", source
        )
    }
    assert shown == readers - {"Apriel-1.6-15b-Thinker-fixed"}  # which reads that of a final message only
    assert len(shown) > 30


def test_harmony_keeps_the_analysis_of_the_loop_and_drops_it_after_the_answer(renderers):
    renderer = renderers["openai-gpt-oss-120b"]
    messages = conversation(CALLS[:2], reasoning_content="Outside is weather.", content="One moment.")
    text = render(renderer, messages[:-2])
    assert "<|channel|>analysis<|message|>Outside is weather.\n\nOne moment.<|end|>" in text
    assert "Outside is weather." not in render(renderer, messages)


@pytest.mark.parametrize(
    ("tokenizer", "template", "single"),
    [
        ("qwen3", "Qwen-Qwen3-0.6B", ["<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]),
        ("qwen3", "Qwen3-Coder", ["<|im_start|>", "<tool_call>"]),
        ("llama3_1", "meta-llama-Llama-3.1-8B-Instruct", ["<|start_header_id|>", "<|eot_id|>"]),
        ("deepseek_v3", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ["<｜User｜>", "<｜tool▁calls▁begin｜>"]),
        ("gptoss", "openai-gpt-oss-120b", ["<|start|>", "<|channel|>", "<|message|>", "<|call|>"]),
        ("gemma3", "google-gemma-2-2b-it", ["<start_of_turn>", "<end_of_turn>"]),
    ],
)
def test_with_the_model_s_tokenizer_markers_are_single_tokens_and_the_prompt_is_kept(
    real_tokenizer_folder, real_templates, tokenizer, template, single
):
    options = LoadOptions(chat_template=real_templates[template])
    processor = CheckpointProcessor(Checkpoint(path=real_tokenizer_folder(tokenizer)), options)
    messages = conversation(CALLS[:2], reasoning_content="Outside is weather.")[:-2]
    prompt = processor.render(Chat(messages=messages, tools=TOOLS))
    assert processor.tokenizer.decode(prompt.token_ids) == prompt.text
    for marker in single:
        token_id = processor.tokenizer.token_id(marker)
        assert prompt.token_ids.count(token_id) == prompt.text.count(marker) > 0, marker


INTERRUPTIONS = {
    "a user message after results": [*conversation(CALLS[:2])[:5], {"role": "user", "content": "Stop that."}],
    "a call without a result": [*conversation(CALLS[:1])[:3], {"role": "user", "content": "Stop that."}],
    "two user messages": [{"role": "user", "content": "Stop"}, {"role": "user", "content": "Stop that."}],
    "an empty answer": [
        {"role": "user", "content": "Hm"},
        {"role": "assistant"},
        {"role": "user", "content": "Go on."},
    ],
    "results whose call is gone": [*conversation(CALLS[:1])[3:], *conversation(CALLS[2:])],
    "a result with an unknown id": [
        *conversation(CALLS[:1])[:3],
        {"role": "tool", "tool_call_id": "?", "content": "sunny"},
    ],
    "no ids": [
        {"role": "user", "content": "Hm"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "get_time"}}]},
        {"role": "tool", "content": "noon"},
    ],
    "calls first": conversation(CALLS[2:])[2:],
    "system messages all over": [
        *conversation(CALLS[:2])[:4],
        {"role": "system", "content": "Hurry."},
        *conversation(CALLS[:2])[4:],
        {"role": "system", "content": "Hurry up."},
    ],
}


@pytest.mark.parametrize("name", INTERRUPTIONS)
@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["tools", "no tools"])
def test_no_template_refuses_or_loses_what_agents_send(renderers, name, tools):
    messages = INTERRUPTIONS[name]
    for model, renderer in renderers.items():
        text = render(renderer, messages, tools)
        for message in messages:
            assert (message.get("content") or "") in text, (model, message)
            for call in message.get("tool_calls", ()):
                assert call["function"]["name"] in text, (model, message)


NULLABLE = {
    "type": "object",
    "properties": {
        "path": {"type": ["string", "null"], "description": None},
        "any": True,
        "pair": {"type": "array", "items": [{"type": "string"}]},
        "options": {"type": ["object", "null"], "properties": {"deep": {"type": "array"}}, "required": None},
    },
    "required": None,
}


@pytest.mark.parametrize("schema", [NULLABLE, {"type": "object"}, {"properties": None}, {"anyOf": [{}]}])
def test_no_template_refuses_a_schema_or_prints_none(renderers, real_templates, schema):
    tools = (Tool("mcp.srv-1.read_file", None, schema), Tool("other", "", {}))
    for name, renderer in renderers.items():
        text = render(renderer, [{"role": "user", "content": "Hi"}], tools)
        assert "mcp.srv-1.read_file" in text, name
        assert "None" not in text or "None" in real_templates[name], name


PREFIX_CHANGES_BY_DESIGN = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "instructions at the end",
    "Mistral-Small-3.2-24B-Instruct-2506": "tools before the last user message",
    "mistralai-Mistral-Nemo-Instruct-2407": "tools before the last user message",
    "Qwen3.5-4B": "an empty thinking block in the current turn only",
    "StepFun3.5-Flash": "an empty thinking block in the current turn only",
    "deepseek-ai-DeepSeek-V3.1": "system messages are gathered at the start",
    "deepseek-ai-DeepSeek-V3.2": "system messages are gathered at the start",
    "deepseek-ai-DeepSeek-V4": "system messages are gathered at the start",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "system messages are gathered at the start",
    "openai-gpt-oss-120b": "text beside calls is thinking, which goes when the turn ends",
    "tencent-Hy3": "system messages are gathered at the start",
    "upstage-Solar-Open-100B": "system messages are gathered at the start",
}
CLOSES_LATE = 30
"""Characters at the end that may change: some close a run of results, or the whole prompt, only at the end."""


def test_every_turn_of_an_agent_adds_to_the_prompt_before(renderers):
    messages = conversation([])[:2]
    turns = [len(messages)]
    for i in range(6):
        calls = [{**CALLS[j], "id": f"call_{i}{j}"} for j in range(1 + i % 3)]
        messages.append({"role": "assistant", "content": f"Step {i}." if i % 2 else None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"result {call['id']}"} for call in calls]
        if i == 2:
            messages.append({"role": "user", "content": "Not so fast."})
        if i == 3:
            messages += [{"role": "assistant", "content": "Done."}, {"role": "system", "content": "Be quick."}]
            messages.append({"role": "user", "content": "Next."})
        turns.append(len(messages))
    changed = set()
    for name, renderer in renderers.items():
        texts = [
            renderer.render(Chat(messages=messages[:turn], tools=TOOLS, add_generation_prompt=False)) for turn in turns
        ]
        for shorter, longer in itertools.pairwise(texts):
            if not longer.startswith(shorter[:-CLOSES_LATE]):
                changed.add(name)
    assert changed == PREFIX_CHANGES_BY_DESIGN.keys()
