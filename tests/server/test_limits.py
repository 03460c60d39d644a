from __future__ import annotations

import gzip
import json
import logging

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import InvalidRequest, PayloadTooLarge
from vllm_mlx_core.server.json_body import MAX_VALUES, check_structure, sanitise
from vllm_mlx_core.server.limits import BodyLimit
from vllm_mlx_core.testing.protocols import connect, text_reply

JSON = st.recursive(
    st.none() | st.integers() | st.text('ab"\\[]{}é😀', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\[{', max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth(value):
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 0


def count(value):
    if isinstance(value, list | dict):
        inside = value.values() if isinstance(value, dict) else value
        return 1 + sum(map(count, inside))
    return 1


def passes(body, **limits):
    try:
        check_structure(body, **limits)
    except InvalidRequest:
        return False
    return True


@given(JSON, st.integers(0, 6), st.booleans())
def test_depth_is_what_a_parser_would_find(value, limit, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert passes(body, max_depth=limit) == (depth(value) <= limit)


@given(JSON, st.integers(1, 12), st.booleans())
def test_more_values_than_allowed_are_refused(value, limit, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    if count(value) > limit:
        assert not passes(body, max_values=limit)
    elif count(value) <= limit // 2:  # an empty list may count as two
        assert passes(body, max_values=limit)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * MAX_VALUES,
        b"[" + b"{}," * MAX_VALUES + b"{}]",
        b'["' + rb"\ud83d" * 200_000 + b'"' + b'""' * 3 * MAX_VALUES + b"]" + b"[" * 101,
    ],
    ids=["brackets", "objects", "strings"],
)
def test_a_body_that_is_all_structure_is_refused(body):
    with pytest.raises(InvalidRequest):
        sanitise(body)


def test_brackets_and_commas_in_a_text_are_only_text():
    body = json.dumps({"text": '[[[{,\\",' * 300_000}).encode()
    assert sanitise(body) == body


@given(JSON, st.booleans())
def test_good_json_passes_unchanged(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert sanitise(body) == body


@given(st.lists(st.sampled_from(["a", "\\", "\ud83d", "\ude00", "\\ud83d", "é"])))
def test_half_characters_are_replaced_and_nothing_else(parts):
    text = "".join(parts)
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert json.loads(sanitise(json.dumps(text).encode())) == expected


def test_what_is_not_utf8_is_refused():
    for body in (b"\xff", '"\ud800"'.encode("utf-8", "surrogatepass"), '"x"'.encode("utf-16")):
        with pytest.raises(InvalidRequest):
            sanitise(body)


@pytest.mark.anyio
async def test_a_body_that_says_it_is_too_large_is_not_read(make_app, engine):
    async with connect(make_app(max_body_bytes=100)) as client:
        response = await client.post("/plain/whole", json={"text": "x" * 100})
    assert response.status_code == 413
    assert "100 bytes" in response.json()["plain"]
    assert not engine.requests


@pytest.mark.anyio
async def test_a_body_of_unknown_length_is_counted_while_it_comes():
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 10

    async def app(scope, receive, send):
        pytest.fail("the request must not get here")

    async def send(message):
        pytest.fail("whoever catches the error answers")

    pieces = endless()

    async def receive():
        return {"type": "http.request", "body": await anext(pieces), "more_body": True}

    with pytest.raises(PayloadTooLarge):
        await BodyLimit(app, 100)({"type": "http", "headers": []}, receive, send)
    assert sent == 11


@pytest.mark.anyio
async def test_a_body_that_does_not_go_on_is_given_up():
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def app(scope, receive, send):
        pytest.fail("the request must not get here")

    async def send(message):
        pytest.fail("whoever catches the error answers")

    async def receive():
        if pieces:
            return pieces.pop()
        return await anyio.sleep_forever()

    with pytest.raises(InvalidRequest) as info:
        await BodyLimit(app, 100, idle_s=0.01)({"type": "http", "headers": []}, receive, send)
    assert info.value.status == 408


@pytest.mark.anyio
@pytest.mark.parametrize("types", [["application/json", "text/plain"], ["text/plain", "application/json"]])
async def test_a_second_content_type_hides_no_json(make_app, types):
    headers = [("content-type", each) for each in types]
    async with connect(make_app()) as client:
        deep = await client.post("/plain/whole", content=b"[" * 5000, headers=headers)
    assert deep.status_code == 400
    assert "deep" in deep.json()["plain"]


@pytest.mark.anyio
async def test_a_number_that_python_does_not_read_is_explained(make_app):
    headers = {"content-type": "application/json"}
    async with connect(make_app()) as client:
        response = await client.post("/plain/whole", content=b'{"text": %s}' % (b"9" * 5000), headers=headers)
    assert response.status_code == 400
    assert "too many digits" in response.json()["plain"]


@pytest.mark.anyio
async def test_a_body_at_the_limit_passes(make_app, engine):
    engine.reply = text_reply("ok")
    body = json.dumps({"text": "x"}).encode()
    async with connect(make_app(max_body_bytes=len(body))) as client:
        response = await client.post("/plain/whole", content=body, headers={"content-type": "application/json"})
    assert response.json() == {"text": "ok"}


@pytest.mark.anyio
async def test_a_deep_body_is_refused(make_app):
    body = '{"text": ' + "[" * 5000 + "]" * 5000 + "}"
    async with connect(make_app()) as client:
        response = await client.post("/plain/whole", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "deep" in response.json()["plain"]


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["abc-1.2:3_x", "x" * 128])
async def test_a_clients_request_id_comes_back(make_app, given):
    async with connect(make_app()) as client:
        assert (await client.get("/health", headers={"x-request-id": given})).headers["x-request-id"] == given


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "<b>", "é".encode()])
async def test_an_unsafe_request_id_is_replaced(make_app, given):
    async with connect(make_app()) as client:
        ids = [(await client.get("/nowhere", headers={"x-request-id": given})).headers["x-request-id"] for _ in "ab"]
    assert ids[0] != ids[1]
    assert all(len(each) == 32 for each in ids)


@pytest.mark.anyio
async def test_the_access_log_has_the_path_and_neither_query_nor_body(make_app, engine, caplog):
    engine.reply = text_reply("ok")
    caplog.set_level(logging.INFO, "vllm_mlx_core")
    async with connect(make_app()) as client:
        await client.post("/plain/whole?key=secret", json={"text": "my prompt"}, headers={"x-request-id": "id-1"})
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith(".access")]
    assert line.startswith("POST /plain/whole 200 id-1 ")
    assert "secret" not in caplog.text
    assert "my prompt" not in caplog.text


@pytest.mark.anyio
async def test_an_unexpected_exception_is_logged_and_not_told(make_app, caplog):
    async with connect(make_app()) as client:
        response = await client.get("/plain/crash")
    assert response.status_code == 500
    assert response.headers["x-request-id"]
    assert "secret" not in response.text
    assert "secret /path" in caplog.text


@pytest.mark.anyio
async def test_validation_names_the_field(make_app):
    async with connect(make_app()) as client:
        response = await client.post("/plain/whole", json={})
    assert (response.status_code, response.json()) == (400, {"plain": "text: this field is required.", "param": "text"})


@pytest.mark.anyio
async def test_a_compressed_body_is_refused_as_such(make_app):
    async with connect(make_app()) as client:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        response = await client.post("/plain/whole", content=gzip.compress(b'{"text": "x"}'), headers=headers)
    assert response.status_code == 415
    assert "compressed" in response.text


@pytest.mark.anyio
async def test_a_wrong_method_is_405_and_says_which_are_right(make_app):
    async with connect(make_app()) as client:
        response = await client.get("/plain/whole")
        health = await client.put("/health")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert "plain" in response.json()
    assert (health.status_code, health.headers["allow"]) == (405, "GET, HEAD"), "of all routes of the path"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000"])
@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "::1"])
async def test_loopback_names_are_answered(make_app, listen, name):
    async with connect(make_app(host=listen)) as client:
        assert (await client.get("/health", headers={"host": name})).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8000", "", "x@localhost"])
async def test_other_names_are_refused_on_loopback_and_fine_elsewhere(make_app, name):
    async with connect(make_app()) as client:
        assert (await client.get("/health", headers={"host": name})).status_code == 400
    async with connect(make_app(host="0.0.0.0")) as client:
        assert (await client.get("/health", headers={"host": name})).status_code == 200


@pytest.mark.anyio
async def test_other_origins_may_not_read_answers(make_app):
    async with connect(make_app()) as client:
        response = await client.get("/health", headers={"origin": "https://evil.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]
