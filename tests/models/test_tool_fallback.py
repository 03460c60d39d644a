"""Tools, calls and results with templates that do not support them, or only in part."""

from __future__ import annotations

import json
import shutil

import pytest

from vllm_mlx_core.api import Chat, LoadOptions, Settings, Tool
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model
from vllm_mlx_core.residency.pool import ModelPool
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import connect
from vllm_mlx_models.template import ChatTemplate
from vllm_mlx_protocols.openai import OpenAIFrontend

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
STRICT = """\
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) or message.role not in ['user', 'assistant'] %}
{{- raise_exception('Only user and assistant, in turns') }}
{%- endif %}
{{- '[' + message.role + ']' + message.content }}
{%- endfor %}
"""
OFFERS_ONLY = "{{ tools | tojson }}{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
CALLS_ONLY = """\
{%- for m in messages %}{{ '[' + m.role + ']' + m.content }}
{%- for c in m.tool_calls %}{{ '@' + c.function.name + c.function.arguments }}{% endfor %}{{ '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}
"""

TOOLS = (Tool("get_weather", "Weather", {"type": "object", "properties": {"city": {"type": "string"}}}), Tool("now"))
CALLS = [
    {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}},
    {"id": "2", "type": "function", "function": {"name": "now", "arguments": ""}},
]
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "One moment.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "2", "content": "noon"},
    {"role": "user", "content": "And tomorrow?"},
]
WRITTEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
WRITTEN += '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
RESULTS = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"


@pytest.fixture
def render(with_template):
    def run(template, messages=CONVERSATION, tools=TOOLS):
        return with_template(template).render(Chat(messages=messages, tools=tools)).text

    return run


def test_tools_are_described_in_the_system_message_with_the_way_to_call_them(render):
    text = render(CHATML)
    system = text[: text.index("<|im_end|>")]
    assert system.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    listed = system[system.index("<tools>\n") + 8 : system.index("\n</tools>")]
    assert [json.loads(line)["name"] for line in listed.splitlines()] == ["get_weather", "now"]
    assert '<tool_call>\n{"name": ' in system


def test_without_a_system_message_there_is_one_now(render):
    assert render(CHATML, CONVERSATION[1:2]).startswith("<|im_start|>system\n# Tools")


def test_without_tools_nothing_is_added(render):
    assert render(CHATML, CONVERSATION[:2], ()) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["tools", "no tools any more"])
def test_calls_are_written_into_the_answer_and_results_come_from_the_user(render, tools):
    text = render(CHATML, tools=tools)
    assert f"<|im_start|>assistant\nOne moment.\n{WRITTEN}<|im_end|>\n" in text
    assert f"<|im_start|>user\n{RESULTS}<|im_end|>\n<|im_start|>user\nAnd tomorrow?<|im_end|>" in text


def test_they_keep_turns_where_roles_must_alternate(render):
    text = render(STRICT)
    assert text.startswith("[user]Be brief.\n\n# Tools")
    assert text.endswith(f"Weather?[assistant]One moment.\n{WRITTEN}[user]{RESULTS}\n\nAnd tomorrow?")


def test_a_template_that_offers_tools_but_drops_calls_shows_them_as_text(render):
    text = render(OFFERS_ONLY)
    assert "# Tools" not in text
    assert f"[assistant]One moment.\n{WRITTEN}[tool]sunny[tool]noon[user]" in text


@pytest.mark.parametrize(
    ("mark", "written"),
    [
        ("<|tool_list_start|>", "<|tool_call_start|>[get_weather(city='Zürich'), now()]<|tool_call_end|>"),
        (
            "<|tool_call|>",
            '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Zürich"}}, {"name": "now", "arguments": {}}]',
        ),
    ],
)
def test_calls_take_the_form_the_template_hints_at(render, mark, written):
    assert f"[assistant]One moment.\n{written}[tool]" in render(mark + OFFERS_ONLY)


def test_a_template_that_writes_calls_but_offers_no_tools_teaches_its_own_form(render):
    text = render(CALLS_ONLY)
    system = text[: text.index("[user]Weather?")]
    assert "<tools>" in system
    assert '@FIRST_FUNCTION{"ARGUMENT_NAME": "ARGUMENT_VALUE"}@SECOND_FUNCTION' in system
    assert "<tool_call>" not in text
    assert '[assistant]One moment.@get_weather{"city": "Zürich"}@now{}<end>[tool]sunny' in text


def test_text_that_a_template_would_show_after_the_calls_is_put_before_them(render):
    template = """{%- for m in messages %}[{{ m.role }}]
    {%- for c in m.tool_calls %}{{ '@' ~ c.function.name ~ c.function.arguments }}{% endfor %}
    {%- if m.content is not none %}{{ m.content ~ '<end>' }}{% endif %}{% endfor %}"""
    text = render(template)
    assert "[assistant]One moment.<end>[assistant]@get_weather" in text


def test_a_sample_call_ends_where_the_calls_end(render):
    template = """{%- for m in messages %}{% if m.tool_calls %}{{ '[assistant]' }}
    {%- for c in m.tool_calls %}{{ '@' ~ c.function.name ~ c.function.arguments }}{% endfor %}{{ '<end>' }}{% endif %}
    {%- if m.content is not none %}{{ '[' ~ m.role ~ ']' ~ m.content ~ '<end>' }}{% endif %}{% endfor %}
    {%- if add_generation_prompt %}[assistant]<think>{% endif %}"""
    sample = render(template, CONVERSATION[1:2]).split("once for each call:\n")[1].split("\nThe results")[0]
    calls = [
        '@FIRST_FUNCTION{"ARGUMENT_NAME": "ARGUMENT_VALUE"}',
        '@SECOND_FUNCTION{"ARGUMENT_NAME": "ARGUMENT_VALUE"}',
    ]
    assert sample == "".join(calls)


def test_calls_that_show_only_beside_null_are_given_so_and_their_text_before_them(render):
    template = CALLS_ONLY.replace(
        "{{ '[' + m.role + ']' + m.content }}", "[{{ m.role }}]{{ m.content or '' }}"
    ).replace("m.tool_calls", "(m.tool_calls if m.content is none else [])")
    assert '[assistant]One moment.<end>[assistant]@get_weather{"city": "Zürich"}@now{}<end>' in render(template)


def test_a_template_that_refuses_results_gets_them_from_the_user(render):
    template = "{% for m in messages if m.role == 'tool' %}{{ raise_exception('no') }}{% endfor %}" + CALLS_ONLY
    assert f"@now{{}}<end>[user]{RESULTS}<end>[user]And" in render(template)


def test_tools_reach_templates_that_read_them_from_the_system_message(render):
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
        "{% if m['tools'] %}{{ '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}{% endfor %}"
    )
    for messages in (CONVERSATION, CONVERSATION[1:]):
        text = render(template, messages)
        listed = text[text.index("<|tool|>") + 8 : text.index("<|/tool|>")]
        assert [tool["name"] for tool in json.loads(listed)] == ["get_weather", "now"]
        assert "# Tools" not in text
    assert "<|tool|>" not in render(template, tools=())


def test_tools_and_the_time_reach_templates_that_call_them_functions(render):
    template = "{{ 'F: ' + functions + ' at ' + datetime }}{% for m in messages %}{{ m.content }}{% endfor %}"
    text = render(template, CONVERSATION[:2])
    assert text.startswith('F: [{"type": "function", "function": {"name": "get_weather"')
    assert render(template, CONVERSATION[:2], ()).startswith("F: [] at 2")


def test_a_template_that_needs_descriptions_of_all_parameters_gets_empty_ones(render):
    template = (
        "{% for t in tools %}{% for name, p in t.function.parameters.properties | items %}"
        "{{ name + ': ' + p.description + ' ' }}{% endfor %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}"
    )
    assert render(template, CONVERSATION[:1]) == "city:  get_weathernowBe brief."


def test_filters_give_plain_text():
    template = ChatTemplate("{{ 'a'|safe + '\"<b>' }}{{ messages | map(attribute='role') | tojson }}", {})
    assert template.render({"messages": [{"role": "user"}]}) == 'a"<b>["user"]'


@pytest.mark.anyio
async def test_over_http_a_request_with_tools_renders_them(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "model")
    (folder / "chat_template.jinja").write_text(CHATML)
    host, settings = Host(), Settings()
    host.load([])
    loaded = load_model(str(folder), host, settings, LoadOptions())
    pool = ModelPool([loaded])
    try:
        assert loaded.parsers.tool == "hermes"
        app = assemble(pool, [OpenAIFrontend(pool, settings)], settings)
        tools = [{"type": "function", "function": {"name": t.name, "parameters": t.parameters}} for t in TOOLS]
        sizes = []
        async with connect(app) as client:
            for more in ({}, {"tools": tools}):
                body = {"model": "default", "messages": CONVERSATION, "max_tokens": 1, **more}
                answer = await client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                sizes.append(answer.json()["usage"]["prompt_tokens"])
        assert sizes[1] > sizes[0] + 100
    finally:
        pool.close()
