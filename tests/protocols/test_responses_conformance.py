from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite
from vllm_mlx_protocols.responses.frontend import ResponsesFrontend


class TestResponses(ProtocolSuite):
    frontend = ResponsesFrontend
    whole = Exchange("/v1/responses", {"model": "default", "input": "Hi"})
    streamed = Exchange("/v1/responses", {"model": "default", "input": "Hi", "stream": True})

    def check_error(self, response):
        super().check_error(response)
        assert list(response.json()) == ["error"]
        assert list(response.json()["error"]) == ["message", "type", "param", "code"]
