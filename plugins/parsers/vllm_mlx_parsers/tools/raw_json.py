"""Calls of models that were told to write plain JSON."""

from __future__ import annotations

from .bare_json import BareJSONParser


class JSONToolParser(BareJSONParser):
    """``{"name": …, "arguments": {…}}`` or a list of such objects: the whole reply, in a code fence, or in the text.

    A call must name a declared tool and have arguments (or ``parameters``), with no other members but an id and a type.
    """

    families = "any model that was told to write plain JSON, Qwen2.5-Coder"
    sample = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    fenced = True
