"""From a completion's tokens to its events: detokenizer, reasoning parser, stop strings, tool parser, checks.

Everything here is plain Python on the event-loop thread, one pipeline for each completion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import structs

from vllm_mlx_core.api import (
    Chunk,
    Event,
    FinishReason,
    Output,
    PromptToken,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)

from .content_logprobs import AllLogprobs, ContentLogprobs
from .detokenizer import Detokenizer, token_text
from .event_buffer import EventBuffer
from .half_characters import HalfCharacters
from .stopper import StopStrings
from .thinking import ThinkingCounter
from .token_logprobs import prompt_tokens, token_logprobs

if TYPE_CHECKING:
    from vllm_mlx_core.api import ReasoningParser, Tokenizer, ToolParser

    from .call_checks import CallChecks
    from .calls_in_thinking import CallsInThinking
    from .messages import Logprobs

E = TypeVar("E")

log = logging.getLogger(__name__)


class CompletionPipeline:
    """Turns what the engine adds to one completion into outputs for a front-end. Event-loop thread only.

    ``stop_token_ids`` are the request's own, to be named in the output when one of them ends it; ``stops`` apply to the
    answer, not to reasoning. With ``parallel_tool_calls`` false the completion ends with its first complete call; with
    ``drop_calls`` calls are parsed and left out, so that neither they nor their markers reach a client that forbade
    them. A parser that raises is left out from then on: the text that comes after is passed through.
    ``calls_in_thinking`` looks for calls in thinking that is never closed, ``checks`` at all calls. ``scored_prompt``
    is the prompt, if its log-probabilities are wanted; then every token of the completion has its entry as well. One
    that is not shown has no text there, but for the one that ended the completion.
    """

    def __init__(
        self,
        choice: int,
        tokenizer: Tokenizer,
        *,
        reasoning: ReasoningParser | None = None,
        tools: ToolParser | None = None,
        calls_in_thinking: CallsInThinking | None = None,
        checks: CallChecks | None = None,
        stops: Sequence[str] = (),
        stop_token_ids: Collection[int] = (),
        skip_special_tokens: bool = True,
        parallel_tool_calls: bool = True,
        drop_calls: bool = False,
        wants_logprobs: bool = False,
        scored_prompt: Sequence[int] | None = None,
        prompt_tokens: int = 0,
    ) -> None:
        self.done = False
        """Whether the last output was given. If the engine has not finished the sequence by then, it must be told."""
        self._choice = choice
        self._tokenizer = tokenizer
        self._reasoning = reasoning
        self._thinking = ThinkingCounter(reasoning) if reasoning is not None else None
        self._tools = tools
        self._drafts = calls_in_thinking
        self._checks = checks
        self._stops = StopStrings(stops) if stops else None
        self._stop_token_ids = frozenset(stop_token_ids)
        self._one_call = not parallel_tool_calls
        self._drop_calls = drop_calls
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = 0
        self._num_tokens = 0
        self._num_started = 0  # calls, finished or not
        self._num_calls = 0
        self._newest = 0  # length of what the tool parser was fed last
        self._stop: str | int | None = None
        self._events = EventBuffer()
        self._token_ids: list[int] = []  # read, but not delivered yet
        self._chunk_ids: list[int] = []  # tokens whose text is still to come
        parsers = [parser for parser in (reasoning, tools) if parser is not None]
        markers = {token for parser in parsers for token in parser.special_tokens}
        self._halves = HalfCharacters()
        self._all_tokens = scored_prompt is not None  # have their entries
        entries = AllLogprobs() if self._all_tokens else ContentLogprobs(markers)
        self._content_logprobs = entries if wants_logprobs else None
        self._scored_prompt = scored_prompt
        self._prompt_logprobs: list[PromptToken] = []  # made, but not delivered yet
        self._detokenizer = Detokenizer(tokenizer, markers if skip_special_tokens else None)
        self._plain = not (parsers or stops or wants_logprobs or scored_prompt is not None)

    @property
    def num_invalid_calls(self) -> int:
        """How many calls so far did not fit their tool's schema."""
        return self._checks.num_invalid if self._checks is not None else 0

    @property
    def num_tokens(self) -> int:
        """How many tokens it has read."""
        return self._num_tokens

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt came from the prefix cache, as far as is known."""
        return self._cached_tokens

    def push(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[Logprobs],
        finish: Literal["stop", "length"] | None,
        cached_tokens: int,
        prompt_logprobs: Sequence[Logprobs] = (),
    ) -> Output | None:
        """Take one engine update; return what it adds, or None if there is nothing to say yet. Mutates.

        ``logprobs`` has one entry per token if the completion was made with ``wants_logprobs``. With ``finish ==
        "stop"`` the last token is the stop token, which is counted but not shown. ``prompt_logprobs`` come with the
        first update, one for each token of ``scored_prompt`` but the first. Once ``done``, returns None.
        """
        if self.done:
            return None
        if cached_tokens:
            self._cached_tokens = cached_tokens
        if self._scored_prompt is not None:
            self._prompt_logprobs = prompt_tokens(self._tokenizer, self._scored_prompt, prompt_logprobs)
            self._scored_prompt = None
        if self._plain and finish is None:
            return self._push_plain(tokens)
        num_shown = len(tokens) - 1 if finish == "stop" else len(tokens)
        for i in range(num_shown):
            self._read(tokens[i], logprobs[i] if logprobs else None)
            if self.done:  # a stop string, or the one allowed call
                return self._output("stop")
        if finish is None:
            return self._output(None) if self._events or self._prompt_logprobs else None
        if finish == "stop":
            self._count(tokens[-1])
            if self._content_logprobs is not None and self._all_tokens and logprobs:
                text = token_text(self._tokenizer, tokens[-1])
                self._content_logprobs.add(token_logprobs(self._tokenizer, tokens[-1], text, logprobs[-1]), "")
            if tokens[-1] in self._stop_token_ids:
                self._stop = tokens[-1]
        self._flush(tokens[-1] if finish == "stop" else None)
        stopped_by_text = isinstance(self._stop, str)
        self.done = True
        return self._output("stop" if stopped_by_text else finish)

    def _push_plain(self, tokens: Sequence[int]) -> Output | None:
        self._num_tokens += len(tokens)
        push = self._detokenizer.push
        text = push(tokens[0]) if len(tokens) == 1 else "".join([push(token) for token in tokens])
        if self._token_ids:
            tokens = [*self._token_ids, *tokens]
        if not text:
            self._token_ids = list(tokens)
            return None
        self._token_ids = []
        return Output(
            choice=self._choice, events=(TextDelta(text),), token_ids=tokens, cached_tokens=self._cached_tokens
        )

    def _count(self, token: int) -> None:
        self._num_tokens += 1
        self._token_ids.append(token)

    def _read(self, token: int, logprobs: Logprobs | None) -> None:
        self._count(token)
        if self._content_logprobs is not None and logprobs is not None:
            text, data = self._detokenizer.push_with_bytes(token)
            if data or text or self._all_tokens:
                self._content_logprobs.add(token_logprobs(self._tokenizer, token, data, logprobs), text)
        else:
            text = self._detokenizer.push(token)
        self._chunk_ids.append(token)
        if text:
            ids, self._chunk_ids = self._chunk_ids, []
            self._feed(Chunk(text, ids))
        elif self._thinking is not None:
            self._thinking.note(())

    # -- the stages, each handing on to the next ------------------------------------------------------------------

    def _feed(self, chunk: Chunk) -> None:
        if self._reasoning is None:
            self._answer(chunk)
            return
        events = self._guarded(self._reasoning.feed, chunk)
        if events is None:
            self._reasoning = None
            events = [TextDelta(chunk.text)]
        elif self._thinking is not None:
            self._thinking.note(events)
        self._split(events, chunk)
        if self._drafts is not None and not self._is_thinking:
            self._think(self._drafts.close())

    @property
    def _is_thinking(self) -> bool:
        return self._reasoning is not None and self._thinking is not None and self._thinking.is_open

    def _split(self, events: Iterable[TextDelta | ReasoningDelta], chunk: Chunk | None) -> None:
        for event in events:
            if self.done:
                return
            if isinstance(event, ReasoningDelta):
                self._think(self._drafts.feed(event.text) if self._drafts is not None else event.text)
                continue
            if self._drafts is not None:
                self._think(self._drafts.close())
            if chunk is not None and event.text == chunk.text:
                self._answer(chunk)
            elif event.text:
                self._answer(Chunk(event.text))

    def _think(self, text: str) -> None:
        if text:
            self._emit(ReasoningDelta(text))

    def _answer(self, chunk: Chunk) -> None:
        if self._stops is None:
            self._call(chunk)
            return
        text, stop = self._stops.push(chunk.text)
        if text:
            self._call(chunk if text == chunk.text else Chunk(text))
        if stop is not None and not self.done:
            self._stop = stop
            self._finish_calls()
            self.done = True

    def _call(self, chunk: Chunk) -> None:
        if self._tools is None:
            self._emit(TextDelta(chunk.text))
            return
        self._newest = len(chunk.text)
        events = self._guarded(self._tools.feed, chunk)
        if events is None:
            self._tools = None
            events = [TextDelta(chunk.text)]
        self._emit_calls(events)

    def _emit_calls(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._content_logprobs is not None and isinstance(event, ToolCallEnd):
                self._content_logprobs.end_call(self._newest)
            if self._drop_calls and not isinstance(event, TextDelta):
                continue
            for checked in self._checks.feed(event) if self._checks is not None else (event,):
                self._emit_whole(checked)
            if isinstance(event, ToolCallStart):
                self._num_started += 1
            elif isinstance(event, ToolCallEnd):
                self._num_calls += 1
                if self._one_call:
                    self.done = True
                    return

    def _emit_whole(self, event: Event) -> None:
        for each in self._halves.feed(event):
            self._emit(each)

    def _finish_calls(self) -> None:
        if self._tools is not None:
            self._emit_calls(self._guarded(self._tools.finish) or ())
        if self._checks is not None:
            for event in self._checks.finish():
                self._emit_whole(event)
        for event in self._halves.finish():
            self._emit(event)

    def _flush(self, stop_token: int | None) -> None:
        text = self._detokenizer.finish()
        if text:
            self._feed(Chunk(text, self._chunk_ids))
        if self._reasoning is not None and not self.done:
            self._split(self._guarded(self._reasoning.finish) or (), None)
        calls: Sequence[Event] = ()
        if self._drafts is not None and not self.done:
            # Only where the model itself came to an end: what a limit cut off may not have been its last word.
            natural = stop_token is not None and self._is_thinking
            thought, calls = self._drafts.finish() if natural else (self._drafts.close(), ())
            self._think(thought)
        if self._stops is not None and not self.done:
            held = self._stops.finish()
            if held:
                self._call(Chunk(held))
        if stop_token is not None and not self.done:
            self._show_stop_token(stop_token)
        if not self.done:
            self._finish_calls()
        if calls and not self.done:
            self._emit_calls([_moved(call, self._num_started) for call in calls])

    def _show_stop_token(self, token: int) -> None:
        """Give the tool parser a stop token that it asked for: it may tell a finished call from one that was cut."""
        tools = self._tools
        if tools is None or token in self._stop_token_ids:
            return
        text = self._tokenizer.special_token(token)
        if text is not None and text in tools.stop_tokens and text in tools.special_tokens:
            self._call(Chunk(text, (token,)))

    def _guarded(self, step: Callable[..., Iterable[E]], *arguments: Chunk) -> list[E] | None:
        """Return what a parser's step yields, or None if it raises: a broken parser must not end the answer."""
        try:
            return list(step(*arguments))
        except Exception:
            log.exception("A parser failed; the rest of this completion is passed through as text.")
            return None

    # -- what comes out -------------------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        if self._content_logprobs is not None:
            if isinstance(event, TextDelta):
                self._content_logprobs.show(event.text)
            elif isinstance(event, ReasoningDelta):
                self._content_logprobs.hide(event.text)
        self._events.add(event)

    def _output(self, ended: Literal["stop", "length"] | None) -> Output:
        finish: FinishReason | None = "tool_calls" if ended == "stop" and self._num_calls else ended
        token_ids, self._token_ids = self._token_ids, []
        prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, []
        return Output(
            choice=self._choice,
            events=self._events.take(),
            token_ids=token_ids,
            logprobs=self._content_logprobs.take() if self._content_logprobs is not None else (),
            finish=finish,
            stop=self._stop,
            usage=self._usage() if finish is not None else None,
            cached_tokens=self._cached_tokens,
            prompt_logprobs=prompt_logprobs,
        )

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._num_tokens,
            cached_tokens=self._cached_tokens,
            reasoning_tokens=self._thinking.num_tokens if self._thinking is not None else 0,
        )


def _moved(event: E, by: int) -> E:
    """Return an event of a call whose index counts from ``by``."""
    if isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd):
        return structs.replace(event, index=event.index + by)
    return event
