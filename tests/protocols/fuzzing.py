"""What clients may send that nobody thought of, and who is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi.testclient import TestClient
from hypothesis import strategies as st

from vllm_mlx_core.api import ProtocolFrontend, Settings
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, text_reply

TEXT = st.text(st.characters(codec=None), max_size=8)  # surrogates included
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BYTES = st.binary(max_size=40) | st.text('{}[]":,\\ud8', max_size=40).map(str.encode)


@contextmanager
def client_of(frontend: type[ProtocolFrontend]) -> Iterator[TestClient]:
    """Yield a client of a server that has this front-end only, and says "ok"."""
    engine = ScriptedEngine(text_reply("ok"))
    chosen = Settings()
    app = assemble(engine, [frontend(engine, chosen)], chosen)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=True) as client:
        yield client


def post(client, path, body):
    """Return the answer to a body, which may be anything; fails if it is the server's fault."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code < 500, response.text
    return response


def check_openai(response):
    """Check that an answer is text, or an error in OpenAI's shape."""
    if response.status_code < 400:
        response.content.decode()
        return
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
