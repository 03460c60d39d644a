"""Calls in whatever format they come: for models whose own format is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.cohere_response import RESPONSE_MARKERS
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.harmony_messages import CHANNEL, END, START

from .apertus import ApertusToolParser
from .call_parser import CallParser
from .cohere import CohereToolParser
from .deepseek_v3 import DeepSeekV3ToolParser
from .deepseek_v32 import DeepSeekV32ToolParser
from .functionary import FunctionaryToolParser
from .functiongemma import FunctionGemmaToolParser
from .gemma4 import Gemma4ToolParser
from .glm45 import GLMToolParser
from .granite import GraniteToolParser
from .harmony import HarmonyToolParser
from .hermes import HermesToolParser
from .hunyuan import HunyuanToolParser
from .kimi_k2 import KimiK2ToolParser
from .kimi_k3 import KimiK3ToolParser
from .llama3_json import Llama3JSONToolParser
from .longcat import LongCatToolParser
from .minicpm5 import MiniCPM5ToolParser
from .minimax_m2 import MiniMaxM2ToolParser
from .minimax_m3 import MiniMaxM3ToolParser
from .mistral import MistralToolParser
from .nemotron import NemotronToolParser
from .phi4_mini import Phi4MiniToolParser
from .pythonic import PythonicToolParser
from .qwen3_coder import FUNCTIONS, Qwen3CoderToolParser
from .raw_json import JSONToolParser
from .seed_oss import SeedOSSToolParser
from .step3 import Step3ToolParser


class Form(NamedTuple):
    """A way to write calls. ``ahead`` is what must follow a start that several forms share.

    Of the patterns for one start at most one may match, and each must do so within two words.
    """

    parser: type[CallParser]
    starts: Sequence[str]
    ahead: str = ""


_CALL, _TAG, _RECIPIENT = "<tool_call>", "<|python_tag|>", ">>>"
_FUNCTION, _FUNCTION_NAME = FUNCTIONS
_NAME = r"[^\s<>{}\[\]\"']+"
_BARE = ("{", "[")

FORMS = (
    Form(HermesToolParser, (_CALL,), r"\s*[{\[]"),
    Form(Qwen3CoderToolParser, (_CALL,), r"\s*<function[= ]"),
    Form(Qwen3CoderToolParser, (_FUNCTION,), r"[^\s>]+>\s*[^\s{]"),
    Form(Qwen3CoderToolParser, (_FUNCTION_NAME,), r"[^\s>]+>\s*<parameter"),
    Form(MiniCPM5ToolParser, (_FUNCTION_NAME,), r"[^\s>]+>\s*<(?:param[ =]|/)"),
    Form(Llama3JSONToolParser, (_FUNCTION,), r"[^\s>]+>\s*\{"),
    Form(HunyuanToolParser, (_CALL,), rf"\s*{_NAME}\s*<tool_sep"),
    Form(GLMToolParser, (_CALL,), rf"\s*{_NAME}\s*</?(?:arg_|tool_call)"),
    Form(MiniMaxM3ToolParser, (_CALL,), r"\s*\]<\]"),
    Form(MiniMaxM3ToolParser, [start for start in MiniMaxM3ToolParser.starts if start != _CALL]),
    Form(HunyuanToolParser, [start for start in HunyuanToolParser.starts if start != _CALL]),
    Form(MistralToolParser, MistralToolParser.starts),
    Form(Phi4MiniToolParser, Phi4MiniToolParser.starts),
    Form(GraniteToolParser, ("<function_call>",)),
    Form(NemotronToolParser, ("<TOOLCALL>",)),
    Form(SeedOSSToolParser, (SeedOSSToolParser.start,)),
    Form(PythonicToolParser, (_TAG,), r"\s*\[\s*[^\W\d]"),
    Form(Llama3JSONToolParser, (_TAG,), r"\s*(?:[^\s\[]|\[\s*\{)"),
    Form(PythonicToolParser, [start for start in PythonicToolParser.starts if start not in (_TAG, *_BARE)]),
    *(
        Form(parser, parser.starts)
        for parser in (
            DeepSeekV3ToolParser,
            DeepSeekV32ToolParser,
            KimiK2ToolParser,
            KimiK3ToolParser,
            MiniMaxM2ToolParser,
            Step3ToolParser,
            LongCatToolParser,
            CohereToolParser,
            Gemma4ToolParser,
            FunctionGemmaToolParser,
            ApertusToolParser,
        )
    ),
    Form(HarmonyToolParser, (CHANNEL,), r"\s*(?:analysis|commentary|final)"),
    Form(HarmonyToolParser, (START,), r"\s*(?:assistant|functions\.)"),
    Form(FunctionaryToolParser, (_RECIPIENT,)),
    Form(JSONToolParser, ("{",)),
    Form(JSONToolParser, ("[",), r"\s*\{"),
    Form(PythonicToolParser, ("[",), r"\s*[^\W\d]"),
)
"""The forms, in the order in which they are tried. Formats that write the same as one of them are left out."""

_PARSERS = tuple(dict.fromkeys(form.parser for form in FORMS))
_ORDINARY = (_RECIPIENT, *_BARE)
"""Starts that are ordinary text: only a declared name makes a call of what follows."""
_AROUND = (*RESPONSE_MARKERS, *(token for parser in _PARSERS for token in parser.frame))
"""Markers around answers, which this parser does not read: where they are tokens, the detokenizer may drop them."""
_TWO_WORDS = re.compile(r"\s*\S*\s*\S*")
_FAR = 256
"""No pattern looks further ahead."""


class AutoToolParser(CallParser):
    """Any of the formats above. The marker that begins a call, and what follows it, decide which, anew for each call.

    - ``<tool_call>`` is Hermes' before ``{`` or ``[``, Qwen3-Coder's before ``<function``, MiniMax M3's before its
      mark, Hy3's before a name and ``<tool_sep>``, GLM's before a name and another tag. ``<function=NAME>`` is
      Llama's and Functionary's before ``{``, else Qwen3-Coder's, and ``<function name="NAME">`` is Qwen3-Coder's before
      ``<parameter``, else MiniCPM5's. After ``<|python_tag|>`` a list of Python calls is read as that, and anything
      else as Llama's. All other markers belong to one format, or to several alike.
    - Calls without a marker are read only at the very beginning of the answer, as JSON or as a list of Python calls,
      and only if they name a declared tool. That holds for Functionary's ``>>>NAME`` as well.
    - Headers of Harmony are dropped. What other formats put around an answer is, too, if it consists of special tokens.
    """

    families = "models whose chat template teaches calls in a form of its own"
    sample = HermesToolParser.sample
    starts = tuple(dict.fromkeys(start for form in FORMS for start in form.starts))
    frame = (END,)
    restarts = tuple(dict.fromkeys(start for parser in _PARSERS for start in parser.restarts))
    ends = tuple(dict.fromkeys(end for parser in _PARSERS for end in parser.ends))
    strays = tuple(dict.fromkeys(stray for parser in _PARSERS for stray in (parser.strays or parser.ends)))
    stop_tokens = tuple(dict.fromkeys(token for parser in _PARSERS for token in parser.stop_tokens))
    special_tokens = tuple(
        token
        for token in dict.fromkeys(token for parser in _PARSERS for token in parser.special_tokens)
        if token not in _AROUND
    )

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._readers: dict[type[CallParser], CallParser] = {}
        self._framed = True  # the end of a message of Harmony counts anywhere

    def calls(self, marker: str) -> Reading[None]:
        """Read calls in the format that ``marker`` and what follows it show."""
        self.bare = marker not in self.special_tokens  # if it is cut off before anything is certain
        if marker in _BARE and (self._wrote or self._num_calls):
            raise Malformed
        parser = yield from self._parser(marker)
        self.bare = parser.bare or marker in _ORDINARY
        yield from self._reader(parser).calls(marker)

    def _parser(self, marker: str) -> Reading[type[CallParser]]:
        """Return the parser for what follows, without reading it. Raises Malformed if there is none."""
        forms = _forms(marker)
        while True:
            following = self.text[self.pos : self.pos + _FAR]
            for parser, ahead in forms:
                if ahead.match(following):
                    return parser
            if self.ended:
                raise Unfinished
            if len(following) == _FAR or not _TWO_WORDS.fullmatch(following):
                raise Malformed
            yield

    def _reader(self, parser: type[CallParser]) -> CallParser:
        """Return a parser that reads in our place: it shares all our attributes, to which it adds its own."""
        reader = self._readers.get(parser)
        if reader is None:
            reader = self._readers[parser] = parser(self.context)
            for name, value in vars(reader).items():
                self.__dict__.setdefault(name, value)
            reader.__dict__ = self.__dict__
        return reader


@cache
def _forms(start: str) -> Sequence[tuple[type[CallParser], re.Pattern[str]]]:
    return [(form.parser, re.compile(form.ahead)) for form in FORMS if start in form.starts]
