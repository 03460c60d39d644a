from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite
from vllm_mlx_protocols.ollama import OllamaFrontend


class OllamaSuite(ProtocolSuite):
    """Streams are not server-sent events: test_ollama_stream tests them."""

    frontend = OllamaFrontend

    def check_error(self, response):
        super().check_error(response)
        assert list(response.json()) == ["error"]
        assert isinstance(response.json()["error"], str)


class TestChat(OllamaSuite):
    whole = Exchange(
        "/api/chat", {"model": "default", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    )


class TestGenerate(OllamaSuite):
    whole = Exchange("/api/generate", {"model": "default", "prompt": "Hi", "stream": False})
