from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite
from vllm_mlx_protocols.openai import OpenAIFrontend

CHAT = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}


class OpenAISuite(ProtocolSuite):
    frontend = OpenAIFrontend

    def check_error(self, response):
        super().check_error(response)
        assert list(response.json()) == ["error"]
        assert list(response.json()["error"]) == ["message", "type", "param", "code"]


class TestChat(OpenAISuite):
    whole = Exchange("/v1/chat/completions", CHAT)
    streamed = Exchange("/v1/chat/completions", {**CHAT, "stream": True})


class TestChatWithACallDemanded(OpenAISuite):
    tools = ({"type": "function", "function": {"name": "ping"}},)
    whole = Exchange("/v1/chat/completions", {**CHAT, "tools": tools, "tool_choice": "required"})


class TestCompletions(OpenAISuite):
    whole = Exchange("/v1/completions", {"prompt": "Once"})
    streamed = Exchange("/v1/completions", {"prompt": ["Once", "Twice"], "stream": True})
