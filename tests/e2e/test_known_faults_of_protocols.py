"""Faults of other servers in how protocols are spoken, none of which may happen here: in any of the chat protocols."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from vllm_mlx_core.api import EventStream
from vllm_mlx_core.host import Host

from .conftest import ARGUMENTS, CALL, WEATHER
from .dialects import DIALECTS, EVERY_DIALECT, Chat, Dialect, Messages, Ollama, Responses
from .serving import load, serving

TOOL = ("get_weather", WEATHER["function"]["parameters"])
EMOJI = "👩‍👩‍👧 日本語 é 🇨🇭"
TEMPLATE = "Qwen3.5-4B"
"""A published template that refuses system messages which are not the first."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a server with the scripted model."""
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    with serving(host, load(host, "scripted", "scripted", "hermes", "qwen3"), path="") as client:
        yield client


@pytest.fixture(scope="module")
def strict(real_templates, tiny_model, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of a server with a tiny model under a strict template, which has advice on how to sample."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path_factory.mktemp("strict") / "model")
    (folder / "chat_template.jinja").write_text(real_templates[TEMPLATE])
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 1.5, "top_k": 1}))
    host = Host()
    host.load([])
    with serving(host, load(host, str(folder), "strict", "none", "none"), path="") as client:
        yield client


def prompt_tokens(client: httpx.Client, dialect: Dialect, body: dict[str, Any]) -> int:
    """Return how long the prompt of a request was."""
    answer = client.post(dialect.path, json={**body, "stream": False})
    assert answer.status_code == 200, answer.text
    answered = answer.json()
    if dialect.name == "ollama":
        return int(answered["prompt_eval_count"])
    usage = answered["usage"]
    if dialect.name == "anthropic":
        return int(usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])
    return int(usage["prompt_tokens" if dialect.name == "openai" else "input_tokens"])


# -- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "role"),
    [(each, "system") for each in DIALECTS] + [(Chat(), "developer"), (Responses(), "developer")],
    ids=lambda value: getattr(value, "name", value),
)
def test_instructions_in_the_middle_reach_a_prompt_whose_template_wants_them_first(strict, dialect, role):
    few = dialect.option(dialect.limit, 1)

    def count(reminder):
        turns = [
            {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."},
            {"role": role, "content": reminder}, {"role": "user", "content": "And?"},
        ]  # fmt: skip
        return prompt_tokens(strict, dialect, dialect.body(turns, "strict", **few))

    assert count("~" * 150) == count("~" * 50) + 100  # a character is a token


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Messages()], ids=lambda dialect: dialect.name)
def test_texts_in_parts_are_all_read_in_their_order(client, dialect):
    parts = [dialect.text_part("First"), dialect.text_part("Second")]
    text = dialect.ask(client, dialect.body([{"role": "user", "content": parts}])).text
    assert "".join(text.split()) == "FirstSecond"


@EVERY_DIALECT
def test_a_part_of_an_unknown_kind_is_refused_and_not_dropped(client, dialect):
    parts = [dialect.text_part("First"), {"type": "hologram", "hologram": "x"}]
    answer = client.post(dialect.path, json=dialect.body([{"role": "user", "content": parts}]))
    assert answer.status_code == 400
    dialect.message(answer.json())


ODD_ARGUMENTS = ['{"city": "Paris"}', "", "{}", '{"city": ', "[1]", "null", "no JSON"]


@pytest.mark.parametrize("dialect", [Chat(), Responses()], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("arguments", ODD_ARGUMENTS)
def test_arguments_of_the_past_are_text_of_any_kind_and_render(strict, dialect, arguments):
    if dialect.name == "openai":
        call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        past = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "sun"}]
    else:
        past = [
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": arguments},
            {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        ]
    body = dialect.body([{"role": "user", "content": "Weather?"}, *past], "strict", **{dialect.limit: 16})
    answer = strict.post(dialect.path, json=body | {"tools": [dialect.tool(*TOOL)]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("dialect", [Chat(), Ollama()], ids=lambda dialect: dialect.name)
def test_content_that_is_missing_or_null_beside_calls_is_empty_in_the_prompt(strict, dialect):
    arguments: Any = {"city": "Paris"} if dialect.name == "ollama" else '{"city": "Paris"}'
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}

    def count(**content):
        turns = [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [call], **content},
            {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        ]
        body = dialect.body(turns, "strict", tools=[dialect.tool(*TOOL)])
        return prompt_tokens(strict, dialect, {**body, **dialect.option(dialect.limit, 1)})

    assert count() == count(content=None) == count(content="")


def test_a_line_of_coding_agents_that_changes_with_every_request_does_not_stop_reuse(client):
    def ask(cch):
        line = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"}
        system = [line, {"type": "text", "text": "You change files. " * 50}]
        body = Messages().body("Hello", system=system, tools=[Messages().tool(*TOOL)])
        return client.post("/v1/messages", json=body).json()

    first, second = ask("0a1b2"), ask("fffff")
    assert first["content"] == second["content"]
    read, fresh = (second["usage"][name] for name in ("cache_read_input_tokens", "input_tokens"))
    assert read > 10 * fresh


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"content": ""}, {"content": []}, {"content": "gone", "is_error": True},
        {"content": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}]},
        {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
    ],
)  # fmt: skip
def test_results_of_tools_are_taken_without_content_with_empty_blocks_and_with_images(strict, fields):
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **fields}]},
    ]
    body = Messages().body(turns, "strict", max_tokens=1, tools=[Messages().tool(*TOOL)])
    assert strict.post("/v1/messages", json=body).status_code == 200


# -- answers ---------------------------------------------------------------------------------------------------------


@EVERY_DIALECT
def test_an_answer_says_why_it_ended_once_and_rightly(client, dialect):
    said = dialect.ask(client, dialect.body("Hello"))
    assert (said.text, said.finish) == ("Hello", dialect.natural)
    said = dialect.ask(client, dialect.body("Hello", **dialect.option(dialect.limit, 3)))
    assert (said.text, said.finish) == ("Hel", dialect.too_long)
    said = dialect.ask(client, dialect.body(CALL, tools=[dialect.tool(*TOOL)]))
    assert (said.text, said.calls, said.finish) == ("", [("get_weather", ARGUMENTS)], dialect.for_calls)
    said = dialect.ask(client, dialect.body("Hello", tools=[dialect.tool(*TOOL)]))
    assert (said.text, said.calls, said.finish) == ("Hello", [], dialect.natural)
    if dialect.stop:
        said = dialect.ask(client, dialect.body("So STOP it", **dialect.option(dialect.stop, ["STOP"])))
        assert (said.text, said.finish) == ("So ", dialect.stopped)


def test_characters_of_several_tokens_are_whole_in_every_stream_even_at_the_limit():
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    with serving(host, load(host, "scripted", "scripted", "hermes", "qwen3"), path="") as client:
        others = "".join(map(chr, range(0xAC00, 0xAC00 + 8200)))  # with these its vocabulary is full
        assert client.post("/v1/tokenize", json={"model": "scripted", "prompt": others}).status_code == 200
        (count,) = {client.post("/v1/tokenize", json={"model": "scripted", "prompt": EMOJI}).json()["count"]}
        assert count > 30, "its characters are not split"
        for dialect in DIALECTS:
            assert dialect.ask(client, dialect.body(EMOJI)).text == EMOJI
            for limit in range(1, count, 3):
                text = dialect.ask(client, dialect.body(EMOJI, **dialect.option(dialect.limit, limit))).text
                assert EMOJI.startswith(text)


@EVERY_DIALECT
def test_who_names_no_limit_gets_a_long_answer_whole(client, dialect):
    long = "All of this is said. " * 150  # much more tokens than the limits that servers are wont to set
    assert dialect.ask(client, dialect.body(long)).text == long


def test_of_two_limits_the_newer_field_counts(client):
    said = Chat().ask(client, Chat().body("Hello", max_tokens=2, max_completion_tokens=4))
    assert (said.text, said.finish) == ("Hell", "length")


def test_a_limit_of_minus_one_is_none_and_other_limits_below_one_are_refused(client):
    assert Chat().ask(client, Chat().body("Hello", max_tokens=-1)).text == "Hello"
    for dialect in (Chat(), Responses()):
        for wrong in (0, -2):
            body = {**dialect.body("Hello"), dialect.limit: wrong}
            assert client.post(dialect.path, json=body).status_code == 400


def test_a_client_that_waits_hears_something_at_least_every_fifteen_seconds():
    assert inspect.signature(EventStream).parameters["keep_alive_s"].default <= 15


# -- sampling --------------------------------------------------------------------------------------------------------


def test_requests_side_by_side_are_sampled_each_by_its_own_fields(strict):
    def ask(fields):
        body = Chat().body("Tell me.", "strict", max_tokens=24, ignore_eos=True, **fields)
        return strict.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]

    hot = {"temperature": 1.5, "top_k": -1}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0}, {**hot, "seed": 7}, {"temperature": 1.5, "top_k": 1}, {**hot, "seed": 8},
    ]  # fmt: skip
    alone = [ask(fields) for fields in kinds]
    assert alone[0] == alone[2] != alone[1] != alone[3]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, kinds * 4)) == alone * 4
        assert len(set(pool.map(ask, [hot] * 5))) > 1, "unseeded answers are all the same"
    assert ask({}) == ask({"temperature": None, "top_k": None}) == alone[0], "the checkpoint's advice is not followed"


def test_log_probabilities_are_those_of_the_tokens_of_the_answer(strict):
    fields = {"logprobs": True, "top_logprobs": 3, "max_tokens": 12, "ignore_eos": True}
    body = Chat().body("Tell me.", "strict", **fields)
    choice = strict.post("/v1/chat/completions", json=body).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 12
    joined = b"".join(bytes(entry["bytes"] or ()) for entry in entries)
    assert joined.decode(errors="replace").startswith(choice["message"]["content"])
    for entry in entries:
        likely = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(likely) == 3
        assert likely == sorted(likely, reverse=True)
        assert entry["logprob"] == likely[0] <= 0, "it is the likeliest, for the checkpoint advises so"
    with strict.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        chunks = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"]]
    assert [entry["token"] for part in parts if part for entry in part["content"]] == [e["token"] for e in entries]
    assert strict.post("/v1/chat/completions", json=body | {"top_logprobs": 21}).status_code == 400


# -- tools -----------------------------------------------------------------------------------------------------------


@EVERY_DIALECT
@pytest.mark.parametrize("tools", [[], None])
def test_an_empty_list_of_tools_is_as_good_as_none(client, dialect, tools):
    assert dialect.ask(client, dialect.body("Hello", tools=tools)).text == "Hello"


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d.forced], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("tools", [{}, {"tools": []}, {"tools": None}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_must_come_without_tools_is_refused_before_the_stream_begins(client, dialect, tools, stream):
    body = dialect.body("Hello", tool_choice=dialect.forced, stream=stream, **tools)
    answer = client.post(dialect.path, json=body)
    assert answer.status_code == 400
    assert "tool_choice" in dialect.message(answer.json())


# -- errors ----------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[int, Any]] = {
    "broken JSON": (400, b'{"model": '),
    "no object": (400, b"[]"),
    "no messages": (400, None),
    "messages of a wrong type": (400, 7),
    "an unknown model": (404, "Hello"),
}


@EVERY_DIALECT
@pytest.mark.parametrize("case", WRONG)
def test_every_wrong_request_has_its_status_and_the_errors_of_its_protocol(client, dialect, case):
    status, wrong = WRONG[case]
    body = dialect.body("Hello") | {dialect.conversation: wrong}
    if wrong is None:
        del body[dialect.conversation]
        if dialect.name == "ollama":  # without messages it loads the model; these are of no role
            body["messages"] = [{"content": "Hello"}]
    if status == 404:
        body = dialect.body("Hello", "no-such-model")
    content = wrong if isinstance(wrong, bytes) else json.dumps(body).encode()
    for stream in (b"", b', "stream": true}'):
        sent = content[:-1] + stream if stream and content.endswith(b"}") else content
        answer = client.post(dialect.path, content=sent, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert dialect.message(answer.json())
        assert "detail" not in answer.json()
    if (status, dialect.name) in [(404, "openai"), (404, "responses")]:
        assert answer.json()["error"]["code"] == "model_not_found"


@EVERY_DIALECT
@pytest.mark.parametrize(("method", "suffix", "status"), [("DELETE", "", 405), ("POST", "/no/such/path", 404)])
def test_a_wrong_method_or_path_is_told_in_the_errors_of_its_protocol(client, dialect, method, suffix, status):
    answer = client.request(method, dialect.path + suffix, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert dialect.message(answer.json())
