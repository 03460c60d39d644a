"""A tokenizer of bytes, and what pipelines make of its tokens."""

from __future__ import annotations

from typing import ClassVar

from vllm_mlx_core.api import ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.engine.messages import Logprobs


class ByteTokenizer:
    """One token per byte, and a few special ones."""

    specials: ClassVar = {
        256: "<eos>",
        257: "<think>",
        258: "</think>",
        259: "<tool_call>",
        260: "</tool_call>",
        261: "<|call|>",
    }
    vocab_size = 262

    def encode(self, text, *, add_special_tokens=False):
        return list(text.encode())

    def decode(self, token_ids):
        return b"".join(self.specials[i].encode() if i in self.specials else bytes([i]) for i in token_ids).decode()

    def token_bytes(self, token_id):
        return bytes([token_id])

    def special_token(self, token_id):
        return self.specials.get(token_id)

    def token_id(self, token):
        return {text: i for i, text in self.specials.items()}.get(token)


TOKENIZER = ByteTokenizer()
EOS, THINK, END_THINK, CALL_END = 256, 257, 258, 261


def logprobs_for(tokens):
    return [Logprobs(-0.5, [token, 97], [-0.5, -1.5]) for token in tokens]


def run(pipeline, tokens, finish="stop", *, step=1, cached=0, stop_token=EOS):
    """Push tokens ``step`` at a time as an engine would until the pipeline is done; return the outputs."""
    tokens = list(tokens.encode() if isinstance(tokens, str) else tokens)
    if finish == "stop":
        tokens.append(stop_token)
    outputs = []
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        ended = finish if start + step >= len(tokens) else None
        outputs.append(pipeline.push(part, logprobs_for(part), ended, cached if start == 0 else 0))
        if pipeline.done:
            break
    assert pipeline.done
    assert pipeline.push([97], logprobs_for([97]), None, 0) is None
    return [output for output in outputs if output is not None]


def content(outputs):
    return "".join(e.text for o in outputs for e in o.events if isinstance(e, TextDelta))


def reasoning(outputs):
    return "".join(e.text for o in outputs for e in o.events if isinstance(e, ReasoningDelta))


def calls(outputs):
    """Return (name, arguments text, whether it is complete) of each call."""
    found: list[list[object]] = []
    for event in (e for o in outputs for e in o.events):
        if isinstance(event, ToolCallStart):
            found.append([event.name, "", False])
        elif isinstance(event, ToolCallArguments):
            found[event.index][1] = f"{found[event.index][1]}{event.json}"
        elif isinstance(event, ToolCallEnd):
            found[event.index][2] = True
    return [tuple(call) for call in found]


def logprob_bytes(outputs):
    return b"".join(entry.chosen.text for o in outputs for entry in o.logprobs)
