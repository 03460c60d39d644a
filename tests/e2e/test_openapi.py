"""Whatever a client makes of the server's OpenAPI document, it is answered in time and in the protocol's own form."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from .clients import await_idle
from .processes import process

TIMEOUT_S = 20
MODEL = "scripted"
SMALL = [
    *("--max-tokens", "16", "--max-request-tokens", "16", "--max-completions", "2", "--timeout", str(TIMEOUT_S)),
    *("--enable-metrics", "--enforce-eager", "--skip-self-test"),
]
NOT_FETCHED = ("/api/pull", 501)
"""What is right to be said of a model that is not served."""
TEXT = [{"role": "user", "content": "Hello"}]
PLAIN: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": TEXT},
    "/v1/completions": {"model": MODEL, "prompt": "Hello"},
    "/v1/tokenize": {"model": MODEL, "prompt": "Hello"},
    "/v1/detokenize": {"model": MODEL, "tokens": [40, 41]},
    "/v1/responses": {"model": MODEL, "input": "Hello"},
    "/v1/responses/input_tokens": {"model": MODEL, "input": "Hello"},
    "/v1/messages": {"model": MODEL, "messages": TEXT, "max_tokens": 8},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": TEXT},
    "/api/chat": {"model": MODEL, "messages": TEXT},
    "/api/generate": {"model": MODEL, "prompt": "Hello"},
    "/api/show": {"model": MODEL},
    "/api/pull": {"model": MODEL},
}
"""Requests that are answered with 200."""
NO_JSON_OBJECT = {
    "nothing": b"",
    "an open brace": b"{",
    "a list": b"[]",
    "a text": b'"model"',
    "null": b"null",
    "no UTF-8": b'{"model": "\xff"}',
    "many lists": b'{"model": ' + b"[" * 100_000,
    "a huge number": b'{"model": ' + b"9" * 10_000 + b"}",
    "a comma too many": b'{"model": "scripted",}',
}


# -- a server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of this module's own, which generates little."""
    with process(tmp_path_factory.mktemp("openapi"), *SMALL) as running:
        yield running.url
    assert "Traceback" not in running.log.read_text()


@pytest.fixture(scope="module")
def document(server):
    return httpx.get(f"{server}/openapi.json").raise_for_status().json()


@pytest.fixture(scope="module")
def schema(server, document):
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=server)
    schema.config.generation.allow_extra_parameters = False  # unknown parameters are ignored, as unknown fields are
    schema.config.max_stream_events = 1_000  # far more than SMALL allows: streams are read to their ends
    return schema


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """After every test: no request runs on, and the next client is answered."""
    yield
    await_idle(server)
    assert httpx.get(f"{server}/v1/status").json()["requests"] == []
    answer = httpx.post(f"{server}/v1/chat/completions", json={"messages": TEXT}, timeout=TIMEOUT_S)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"


# -- asking ----------------------------------------------------------------------------------------------------------


def operations(schema):
    """Return the operations of the document. Raises what is wrong with one of them."""
    return [result.ok() for result in schema.get_all_operations()]


def has_body(operation):
    return "requestBody" in operation.definition.raw


def ask(case):
    """Return the answer to a request, read to its end; fails if it takes too long."""
    answer = case.call(timeout=TIMEOUT_S + 10)
    assert not answer.stream_cut_short
    return answer


def try_out(cases, num_cases, judge):
    """Send requests, the same in each run, and have each judged with its answer."""

    @settings(
        max_examples=num_cases,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def run(case):
        judge(case, ask(case))

    run()


@st.composite
def plain_but_for_two_fields(draw, cases):
    """A request that would be answered with 200, but for two of its fields at most, which come from ``cases``."""
    case = draw(cases)
    names = draw(st.lists(st.sampled_from(sorted(case.body)), max_size=2)) if case.body else []
    case.body = PLAIN[case.operation.path] | {name: case.body[name] for name in names}
    return case


# -- judging ---------------------------------------------------------------------------------------------------------


def check(case, answer):
    """Check an answer against what its path's protocol says of statuses, content types and bodies."""
    said = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:2000]}"
    if answer.status_code >= 400:
        path = case.operation.path
        assert answer.status_code < 500 or (path, answer.status_code) == NOT_FETCHED, said
        assert answer.headers["content-type"] == ["application/json"], said
        if case.method != "HEAD":
            assert is_error(path, answer.json()), said
        return
    assert answer.status_code == 200, said
    check_content(answer, said)


def check_refusal(case, answer):
    """Check an answer to a request that the document forbids; what is not there is not looked into any further."""
    assert answer.status_code in (400, 404), f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:2000]}"
    check(case, answer)


def check_content(answer, said):
    """Check that the body is what its content type says."""
    (content_type,) = answer.headers["content-type"]
    match content_type.partition(";")[0]:
        case "application/json":
            json.loads(answer.content)
        case "application/x-ndjson":
            for line in answer.content.splitlines():
                assert isinstance(json.loads(line), dict), said
        case "text/event-stream":
            *events, rest = answer.content.decode().split("\n\n")
            assert events, said
            assert rest == "", said
            for event in events:
                data = event.removeprefix("data: ") if event.startswith("data: ") else event.split("\ndata: ", 1)[1]
                assert data == "[DONE]" or isinstance(json.loads(data), dict), said
        case "text/plain":
            assert answer.text.startswith(("# HELP", "Ollama is running")), said
        case _:
            pytest.fail(said)


def is_error(path, body):
    """Return whether ``body`` is the error of the protocol that owns ``path``."""
    match body:
        case {"error": str(text), **others} if path.startswith("/api/"):
            return bool(text) and not others
        case {"type": "error", "error": {"type": str(), "message": str(text)}}:
            return path.startswith("/v1/messages") and bool(text)
        case {"error": {"message": str(text), "type": str(), "param": str() | None, "code": str() | None}, **others}:
            return bool(text) and not others and not path.startswith(("/api/", "/v1/messages"))
    return False


# -- tests -----------------------------------------------------------------------------------------------------------


def test_the_document_is_valid(schema):
    schema.validate()
    assert operations(schema)


def test_the_document_declares_the_parameters_in_its_paths(document):
    for path, described in document["paths"].items():
        for method, operation in described.items():
            declared = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), f"{method} {path}"


def test_operations_of_the_document_have_ids_of_their_own(document):
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)


def test_a_request_of_the_document_is_answered_in_its_protocols_form(schema, subtests):
    for operation in operations(schema):
        with subtests.test(operation.label):
            try_out(operation.as_strategy(GenerationMode.POSITIVE), 8, check)


def test_a_request_against_the_document_is_refused(schema, subtests):
    for operation in operations(schema):
        if has_body(operation) or operation.query:
            with subtests.test(operation.label):
                try_out(operation.as_strategy(GenerationMode.NEGATIVE), 8, check_refusal)


def test_a_plain_request_with_odd_fields_is_answered_in_its_protocols_form(server, schema, subtests):
    for operation in operations(schema):
        if operation.path not in PLAIN:
            continue
        with subtests.test(operation.label):
            plain = httpx.post(f"{server}{operation.path}", json=PLAIN[operation.path], timeout=TIMEOUT_S)
            assert plain.status_code == 200, plain.text
            try_out(plain_but_for_two_fields(operation.as_strategy(GenerationMode.POSITIVE)), 20, check)


@pytest.mark.parametrize("body", NO_JSON_OBJECT.values(), ids=NO_JSON_OBJECT)
def test_a_body_that_is_no_json_object_is_refused_in_the_protocols_form(server, schema, body):
    for operation in filter(has_body, operations(schema)):
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"{server}{operation.path}", content=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.status_code == 400, operation.path
        assert is_error(operation.path, answer.json()), answer.text
