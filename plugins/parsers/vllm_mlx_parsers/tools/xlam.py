"""xLAM's calls: a JSON list, in whatever the model wraps it."""

from __future__ import annotations

from .bare_json import BareJSONParser


class XLAMToolParser(BareJSONParser):
    """``[{"name": …, "arguments": {…}}, …]`` as it stands, in a code fence, in ``<tool_call>`` or after a marker.

    Without a marker a call must name a declared tool and have arguments. ``{"tool_calls": […]}`` is read as well.
    """

    families = "xLAM 1 and 2"
    sample = '[{"name": "get_weather", "arguments": {"city": "Paris"}}]'
    starts = (*BareJSONParser.starts, "[TOOL_CALLS]", "<tool_call>")
    ends = ("</tool_call>",)
    special_tokens = ("[TOOL_CALLS]", "<tool_call>", *ends)
    fenced = True
