"""What a prompt says of thinking, and how its tokens are counted."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, ReasoningDelta, ReasoningParser, TextDelta
from vllm_mlx_core.engine.thinking import ThinkingCounter, thinking_in_prompt
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser


class NoMarkers(ReasoningParser):
    """Says that all is thinking and never minds ``thinking``."""

    def feed(self, chunk):
        return [ReasoningDelta(chunk.text)]

    def finish(self):
        return ()


class FailingOnPrompts(NoMarkers):
    @classmethod
    def thinking_in_prompt(cls, prompt):
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("prompt", "state"),
    [
        ("<|user|>hi<|assistant|><think>\n", (True, False)),
        ("<|user|>hi<|assistant|><think>", (True, False)),
        ("<|user|>hi<|assistant|><think>\n\n</think>\n\n", (False, True)),
        ("<|user|>hi<|assistant|><think></think>", (False, True)),
        ("<|user|>hi<|assistant|>", (False, False)),
        ("<|user|>what is <think>?<|assistant|>\n", (False, False)),
        ("<|assistant|><think>old</think>yes<|user|>more<|assistant|>\n", (False, False)),
        ("<|assistant|><think>old</think>yes<|user|>more<|assistant|><think>\n", (True, False)),
        ("<|assistant|><think>thought</think>", (False, True)),
        ("", (False, False)),
    ],
)
def test_only_the_end_of_the_prompt_tells_whether_thinking_is_open_or_off(prompt, state):
    assert thinking_in_prompt(Qwen3ReasoningParser, prompt) == state


def test_a_parser_without_markers_learns_nothing_from_the_prompt():
    assert thinking_in_prompt(NoMarkers, "anything") == (False, False)


def test_a_parser_that_fails_on_the_prompt_learns_nothing_and_is_reported(caplog):
    assert thinking_in_prompt(FailingOnPrompts, "anything") == (False, False)
    assert len(caplog.records) == 1


def counted(parser, *tokens):
    """Return the count after each token; a token is what it does to ``thinking``, and the events it gives."""
    counter = ThinkingCounter(parser)
    counts = []
    for thinking, *events in tokens:
        if thinking is not None:
            parser.thinking = thinking
        counter.note(events)
        counts.append(counter.num_tokens)
    return counts


def test_a_token_counts_if_thinking_was_open_before_or_after_it():
    parser = NoMarkers(ParserContext())
    opens, thought, closes, answer = (True,), (None, ReasoningDelta("a")), (False,), (None, TextDelta("b"))
    assert counted(parser, answer, opens, thought, closes, answer, opens, closes, answer) == [0, 1, 2, 3, 3, 4, 5, 5]


def test_of_a_parser_that_never_says_it_only_tokens_that_give_thinking_count():
    thought, answer, held = (None, ReasoningDelta("a")), (None, TextDelta("b")), (None,)
    assert counted(NoMarkers(ParserContext()), held, thought, held, answer, held) == [0, 1, 1, 1, 1]


def test_a_parser_that_leaves_thinking_true_in_its_answer_is_not_believed():
    parser = NoMarkers(ParserContext(thinking_open=True))
    thought, answer, held = (None, ReasoningDelta("a")), (None, TextDelta("b")), (None,)
    assert counted(parser, held, thought, answer, held, answer, thought) == [1, 2, 2, 2, 2, 3]
