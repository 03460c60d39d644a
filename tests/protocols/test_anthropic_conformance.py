from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite
from vllm_mlx_protocols.anthropic import AnthropicFrontend

BODY = {"model": "default", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}


class TestMessages(ProtocolSuite):
    frontend = AnthropicFrontend
    whole = Exchange("/v1/messages", BODY)
    streamed = Exchange("/v1/messages", {**BODY, "stream": True})

    def check_error(self, response):
        super().check_error(response)
        body = response.json()
        if "x-request-id" in response.headers:  # as everything has that went through a server
            assert body.pop("request_id") == response.headers["request-id"] == response.headers["x-request-id"]
        assert list(body) == ["type", "error"]
        assert body["type"] == "error"
        assert list(body["error"]) == ["type", "message"]
