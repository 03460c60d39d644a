"""Acme's models call a tool in a line of its own: `CALL name {"argument": value}`."""

import json
import re
from collections.abc import Iterator
from uuid import uuid4

from vllm_mlx_core.api import Chunk, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart, ToolEvent, ToolParser


class AcmeToolParser(ToolParser):
    """Text streams; only a line that may be a call is held back, and what turns out to be none is text."""

    held, in_text, count = "", False, 0

    def feed(self, chunk: Chunk) -> Iterator[ToolEvent]:
        """Take the next chunk."""
        for part in re.findall(r"[^\n]*\n|[^\n]+", chunk.text):
            self.held += part
            self.in_text = self.in_text or not "CALL ".startswith(self.held[:5])
            if self.in_text or part.endswith("\n"):
                yield from self.finish()
            self.in_text = self.in_text and not part.endswith("\n")

    def finish(self) -> Iterator[ToolEvent]:
        """Decide what is held back: a call, or text."""
        held, self.held = self.held, ""
        call = None if self.in_text else re.fullmatch(r"CALL (\S+) (\{.*\})\n?", held)
        try:
            arguments = json.dumps(json.loads(call[2]), allow_nan=False) if call else ""
        except (ValueError, RecursionError):
            arguments = ""
        if call and arguments:
            yield ToolCallStart(self.count, f"call_{uuid4().hex}", call[1])
            yield from (ToolCallArguments(self.count, arguments), ToolCallEnd(self.count))
            self.count += 1
        elif held:
            yield TextDelta(held)
