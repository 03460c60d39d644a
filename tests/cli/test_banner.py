import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import ModelInfo
from vllm_mlx_core.cli.banner import Banner, client_url
from vllm_mlx_core.engine.amounts import format_bytes


def banner(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "model": ModelInfo(
            id="org/model",
            created=0,
            context_length=8192,
            family="text",
            aliases=["default"],
            tool_parser="hermes",
            reasoning_parser=None,
        ),
        "weights_bytes": 538_090_368,
        "parsers_reason": "markers in the chat template",
        "cache": "lru",
        "batching": "batched (self-test passed)",
        "url": "http://127.0.0.1:8000",
        "needs_key": False,
        "open_to_network": False,
        "chat_path": "/v1/chat/completions",
        "demonstration": False,
    }
    return Banner(**{**facts, **changes}).render()


def test_it_tells_what_is_served_and_why():
    text = " ".join(banner().split())
    for fact in (
        "model org/model, default",
        "family text",
        "weights 538 MB",
        "context 8192 tokens",
        "tool calls hermes",
        "reasoning not parsed",
        "parsers markers in the chat template",
        "cache lru",
        "batching batched (self-test passed)",
        "address http://127.0.0.1:8000",
    ):
        assert fact in text


def test_the_curl_line_is_a_valid_request():
    text = banner()
    words = shlex.split(text[text.index("curl ") :].replace("\\\n", " "))
    assert words[1] == "http://127.0.0.1:8000/v1/chat/completions"
    assert json.loads(words[words.index("-d") + 1])["messages"][0]["role"] == "user"


def test_the_curl_line_names_the_key_without_showing_one():
    assert '-H "Authorization: Bearer $VLLM_MLX_API_KEY"' in banner(needs_key=True)
    assert "Authorization" not in banner()


def test_a_unix_socket_is_named_and_the_curl_line_goes_through_it():
    text = banner(url="http://localhost", socket_path=Path("/run/a b.sock"))
    assert "  address    http://localhost on the Unix socket /run/a b.sock" in text.splitlines()
    words = shlex.split(text[text.index("curl ") :].replace("\\\n", " "))
    assert words[1:4] == ["--unix-socket", "/run/a b.sock", "http://localhost/v1/chat/completions"]


def test_there_is_no_curl_line_without_a_chat_route():
    assert "curl" not in banner(chat_path=None)


def test_the_demonstration_model_is_called_one():
    assert "demonstration model" in banner(demonstration=True)
    assert "demonstration model" not in banner()


def test_a_server_that_is_open_to_everyone_warns():
    assert "--api-key" in banner(open_to_network=True)
    assert "--api-key" not in banner(open_to_network=True, needs_key=True)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
        ("192.168.0.7", "http://192.168.0.7:80"),
    ],
)
def test_the_address_is_one_that_a_client_here_can_use(host, url):
    assert client_url(host, 80) == url


def test_with_a_certificate_the_address_says_so():
    assert client_url("::", 443, "https") == "https://[::1]:443"
    assert client_url("localhost", 443, "https") == "https://localhost:443"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (538_090_368, "538 MB"), (999_999_999, "1 GB"), (10**15, "1e+03 TB")],
)
def test_bytes_are_rounded_to_three_digits(count, text):
    assert format_bytes(count) == text


@given(st.integers(0, 10**15))
def test_rounded_bytes_are_within_half_a_percent(count):
    value, unit = format_bytes(count).split()
    assert float(value) * 1000 ** ["B", "KB", "MB", "GB", "TB"].index(unit) == pytest.approx(count, rel=0.005)
