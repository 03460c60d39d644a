from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite
from vllm_mlx_protocols.anthropic import AnthropicFrontend

BODY = {"model": "default", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}


class TestMessages(ProtocolSuite):
    frontend = AnthropicFrontend
    whole = Exchange("/v1/messages", BODY)
    streamed = Exchange("/v1/messages", {**BODY, "stream": True})

    def check_error(self, response):
        super().check_error(response)
        assert list(response.json()) == ["type", "error"]
        assert response.json()["type"] == "error"
        assert list(response.json()["error"]) == ["type", "message"]
