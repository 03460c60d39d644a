"""How the completions of one request are taken apart: which parsers apply, and what each learns before it starts."""

from __future__ import annotations

import logging
from typing import TypeVar

from vllm_mlx_core.api import (
    Chat,
    GenerateRequest,
    ParserContext,
    ReasoningParser,
    RenderedPrompt,
    Settings,
    Tokenizer,
    ToolParser,
)

from .call_checks import CallChecks, ToolSchemas
from .calls_in_thinking import CallsInThinking
from .pipeline import CompletionPipeline
from .thinking import thinking_in_prompt

P = TypeVar("P", ReasoningParser, ToolParser)

log = logging.getLogger(__name__)


class RequestParsing:
    """Makes the pipelines of one request. Raw prompts are not parsed; without tools on offer, nor are tool calls."""

    def __init__(
        self,
        request: GenerateRequest,
        prompt: RenderedPrompt,
        tokenizer: Tokenizer,
        settings: Settings,
        *,
        tool_parser: type[ToolParser] | None,
        reasoning_parser: type[ReasoningParser] | None,
    ) -> None:
        self._request = request
        self._prompt = prompt.token_ids
        self._tokenizer = tokenizer
        self._settings = settings
        chat = request.prompt if isinstance(request.prompt, Chat) else None
        tools = tuple(chat.tools) if chat is not None else ()
        self._offers_tools = bool(tools) and request.tools_enabled
        self._tool_parser = tool_parser if chat is not None and (tools or not request.tools_enabled) else None
        self._reasoning_parser = reasoning_parser if chat is not None else None
        self._schemas = ToolSchemas(tools)
        is_open = is_off = False
        if self._reasoning_parser is not None:
            is_open, is_off = thinking_in_prompt(self._reasoning_parser, prompt.text)
            if chat is not None and chat.continue_final_message and not is_open:
                is_open = _leaves_thinking_open(chat, self._reasoning_parser)
                is_off = not is_open  # the client began the answer itself
        self._context = ParserContext(tokenizer, tools, thinking_open=is_open, thinking_off=is_off)

    @property
    def may_call(self) -> bool:
        """Whether a tool call in the output would be recognised and delivered."""
        return self._offers_tools and self._tool_parser is not None

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The special tokens that end a completion in the format of the tool parser in use."""
        if self._tool_parser is None:
            return ()
        ids = [self._tokenizer.token_id(token) for token in self._tool_parser.stop_tokens]
        return tuple(each for each in ids if each is not None and self._tokenizer.special_token(each) is not None)

    def pipeline(self, choice: int) -> CompletionPipeline:
        """Make the way from tokens to events for one completion."""
        request, params = self._request, self._request.sampling
        tools = _make(self._tool_parser, self._context)
        return CompletionPipeline(
            choice,
            self._tokenizer,
            reasoning=_make(self._reasoning_parser, self._context),
            tools=tools,
            calls_in_thinking=self._calls_in_thinking() if tools is not None else None,
            checks=self._checks() if tools is not None else None,
            stops=(params.stop,) if isinstance(params.stop, str) else params.stop,
            stop_token_ids=params.stop_token_ids,
            skip_special_tokens=params.skip_special_tokens,
            parallel_tool_calls=request.parallel_tool_calls,
            drop_calls=not request.tools_enabled,
            wants_logprobs=params.logprobs is not None,
            scored_prompt=self._prompt if params.prompt_logprobs is not None else None,
            prompt_tokens=len(self._prompt),
        )

    def _calls_in_thinking(self) -> CallsInThinking | None:
        parser, context = self._tool_parser, self._context
        if parser is None or self._reasoning_parser is None or not self._offers_tools:
            return None
        return CallsInThinking(lambda: parser(context), context.declares)

    def _checks(self) -> CallChecks | None:
        validates, repairs = self._settings.validate_tool_calls, self._settings.repair_tool_calls
        if not (validates or repairs) or not self._offers_tools:
            return None
        return CallChecks(self._schemas, validates=validates, repairs=repairs)


def _leaves_thinking_open(chat: Chat, parser: type[ReasoningParser]) -> bool:
    """Return whether the message that is to be continued breaks off inside its thinking."""
    text = chat.messages[-1].get("content")
    return isinstance(text, str) and bool(parser.start) and text.rfind(parser.start) > text.rfind(parser.end)


def _make(parser: type[P] | None, context: ParserContext) -> P | None:
    """Make a parser; one that cannot even be made is left out, as one that fails later is."""
    if parser is None:
        return None
    try:
        return parser(context)
    except Exception:
        log.exception("The parser %s failed; this completion goes without it", parser.__name__)
        return None
