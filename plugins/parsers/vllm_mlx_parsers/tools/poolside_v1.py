"""The calls of Poolside's Laguna."""

from __future__ import annotations

from vllm_mlx_parsers.grammar import Malformed, Reading

from .glm45 import START, GLMToolParser

END_TURN = "</assistant>"


class PoolsideV1ToolParser(GLMToolParser):
    """As GLM writes them. ``</assistant>`` ends the completion, and at the end of a text it is no content."""

    families = "Poolside Laguna"
    sample = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
    starts = (START, END_TURN)
    special_tokens = (*GLMToolParser.special_tokens, END_TURN)
    stop_tokens = (END_TURN,)

    def calls(self, marker: str) -> Reading[None]:
        """Read one call, or the end of the turn."""
        if marker == END_TURN:
            yield from self.spaces()
            if (yield from self.peek()):
                raise Malformed
            return
        yield from super().calls(marker)
