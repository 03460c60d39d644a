"""Granite reasoning."""

from __future__ import annotations

from .wrapped import WrappedAnswerParser

_TEXT_STARTS = ("Here is my thought process:", "Here's my thought process:")
_TEXT_ENDS = ("Here is my response:", "Here's my response:")


class GraniteReasoningParser(WrappedAnswerParser):
    """``<think>reasoning</think><response>answer</response>`` (Granite 3.3), or the same in words.

    Granite 3.2 writes ``Here is my thought process: reasoning Here is my response: answer``. Both think only if they
    are told to, and the system message then shows them how; so thinking is off where a prompt in Granite's form
    mentions none of the opening marks. A space behind the words is no part of the answer.
    """

    start = "<think>"
    end = "</think>"
    other_tags = dict.fromkeys(_TEXT_STARTS, _TEXT_ENDS)
    answer_start = "<response>"
    answer_end = "</response>"
    families = "Granite 3.2, Granite 3.3"
    sample = "<think>A greeting.</think><response>Hello!</response>"

    @classmethod
    def thinking_in_prompt(cls, prompt: str) -> tuple[bool, bool]:
        """Return whether a rendered prompt leaves thinking open, and whether it switches it off. Pure."""
        is_open, is_off = super().thinking_in_prompt(prompt)
        says_nothing = prompt.rstrip().endswith("<|end_of_role|>") and not any(
            mark in prompt for mark in (cls.start, *_TEXT_STARTS)
        )
        return is_open, is_off or says_nothing

    def indentation(self, space: str) -> str:
        """Return what is kept of the white space that was read between a tag and the answer."""
        return super().indentation(space) if "\n" in space else ""
