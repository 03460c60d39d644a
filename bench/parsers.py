"""Feed every registered parser long completions, one token at a time, and print how many megabytes it reads a second.

    python bench/parsers.py [NAME …] [--size 1000000] [--repeats 5] [--floor 2.0] [--growth 1.5]

Three inputs of about SIZE characters each: plain content, one call with one huge argument, and many calls of about 500
characters. Calls are a parser's own ``sample`` with another text for the city, so a new parser is measured without a
change here. For reasoning parsers the argument is the thinking of their ``sample``, and the calls are content.

Every input is read again at twice the size, in turns. The exit code is 1 if a parser reads fewer than FLOOR megabytes
(10^6 characters) a second in its fastest turn, or takes more than GROWTH times as long for a character of the longer
input in the median turn. Time is that of the processor, so that other processes matter less.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vllm_mlx_core.api import Chunk, ParserContext, ReasoningParser, StreamParser, Tool, ToolParser
from vllm_mlx_core.api.errors import PluginError
from vllm_mlx_core.api.hooks import Kind
from vllm_mlx_core.host.manager import Host
from vllm_mlx_core.host.report import rows
from vllm_mlx_core.testing.events import fold

PROSE = "The quick brown fox jumps over a lazy dog, and then it sleeps until seven. "
CONTENT = (
    f"{PROSE * 3}It costs < 5 euros [1]; see `x = a[0]` or https://example.org/.\n\n- A point: {{1, 2}}\n- **Two**\n"
)
TOOL = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
CITY = "Paris"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
"""What reasoning parsers pass through as content."""
CALL_LENGTH = 500
BETWEEN = ("\n", "", "; ")
"""What may stand between two calls of one completion."""
TOKEN = re.compile(r" ?[^\W\d_]+| ?\d{1,3}| ?[^\s\w]+|_+|\s+")
"""About how GPT-like tokenizers cut text before they merge: words with the space before them, digits, punctuation."""


class BadSample(Exception):
    """A parser's sample is not what the benchmark needs."""


class Case(NamedTuple):
    """One input: the completions that hold it. Usually one; for formats that end with a call, one for each call."""

    completions: Sequence[str]

    @property
    def size(self) -> int:
        """How many characters there are."""
        return sum(map(len, self.completions))


class Figure(NamedTuple):
    """What was measured for one parser and one input."""

    rate: float
    """Megabytes a second."""
    growth: float
    """How much longer a character takes in the input of twice the size."""


def text(size: int, source: str = PROSE) -> str:
    """Return ``size`` characters made of ``source``, without white space at either end."""
    return (source * (size // len(source) + 1))[: size - 1].rstrip().ljust(size, ".")


def tool_cases(parser: type[ToolParser], size: int) -> Iterator[Case]:
    """Make the inputs for a tool parser. Raises BadSample if its sample is not one call of get_weather for Paris."""

    def call(city: str) -> str:
        return parser.sample.replace(CITY, city)

    def check(completions: Sequence[str], calls: int, city: str) -> bool:
        read = [each for completion in completions for each in fold(make(parser).parse(completion)).calls]
        return read == [(TOOL.name, {"city": city})] * calls

    city, short = text(size), text(max(1, CALL_LENGTH - len(parser.sample)))
    if not check([parser.sample], 1, CITY) or not check([call(city)], 1, city):
        raise BadSample(f"its sample is not one call of {TOOL.name} for {CITY}")
    between = next((each for each in BETWEEN if check([each.join([call(short)] * 3)], 3, short)), None)
    count = max(1, size // CALL_LENGTH)
    yield Case([text(size, CONTENT)])
    yield Case([call(city)])
    yield Case([call(short)] * count if between is None else [between.join([call(short)] * count)])


def reasoning_cases(parser: type[ReasoningParser], size: int) -> Iterator[Case]:
    """Make the inputs for a reasoning parser. Raises BadSample if its sample does not hold thinking and an answer."""
    folded = fold(make(parser).parse(parser.sample))
    thinking, answer = folded.reasoning.strip(), folded.content.strip()
    if not thinking or not answer or thinking not in parser.sample or answer not in parser.sample:
        raise BadSample("its sample does not hold thinking and an answer")
    call = CALL.replace(CITY, text(CALL_LENGTH - len(CALL)))
    yield Case([parser.sample.replace(answer, text(size, CONTENT))])
    yield Case([parser.sample.replace(thinking, text(size))])
    yield Case([parser.sample.replace(answer, call * max(1, size // CALL_LENGTH))])


def make(parser: type[StreamParser[Any]]) -> StreamParser[Any]:
    """Return a new parser of a completion for which get_weather was declared."""
    opens = issubclass(parser, ReasoningParser) and not parser.sample.startswith(parser.start)
    return parser(ParserContext(tools=[TOOL], thinking_open=opens))


def chunks_of(case: Case) -> Sequence[Sequence[Chunk]]:
    """Return the completions of a case in tokens."""
    known: dict[str, Chunk] = {}
    completions = [[known.setdefault(t, Chunk(t)) for t in TOKEN.findall(each)] for each in case.completions]
    assert sum(len(chunk.text) for chunks in completions for chunk in chunks) == case.size
    return completions


def seconds(parser: type[StreamParser[Any]], completions: Sequence[Sequence[Chunk]]) -> float:
    """Return the processor time that reading them took."""
    start = time.process_time()
    for chunks in completions:
        reader = make(parser)
        for chunk in chunks:
            for _ in reader.feed(chunk):
                pass
        for _ in reader.finish():
            pass
    return time.process_time() - start


def measure(parser: type[Any], cases: Callable[..., Iterator[Case]], size: int, repeats: int) -> list[Figure]:
    """Return a figure for each input. Raises BadSample.

    The two sizes are read in turns, and the growth is the median of the turns: a machine that is slow for a moment is
    so for both.
    """
    figures = []
    for case, twice in zip(cases(parser, size), cases(parser, 2 * size), strict=True):
        inputs = chunks_of(case), chunks_of(twice)
        turns = [[seconds(parser, completions) for completions in inputs] for _ in range(repeats)]
        growth = statistics.median(longer / shorter for shorter, longer in turns) * case.size / twice.size
        figures.append(Figure(1e-6 * case.size / min(shorter for shorter, _ in turns), growth))
    return figures


def problems(figure: Figure, floor: float, growth: float) -> Iterator[str]:
    """Say which limits a figure misses."""
    if figure.rate < floor:
        yield f"{figure.rate:.2f} MB/s, below {floor}"
    if figure.growth > growth:
        yield f"twice the input takes {figure.growth:.2f} times as long for a character, above {growth}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table for each kind of parser, and return the exit code."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("names", nargs="*", metavar="NAME", help="parsers to measure; default: all")
    options.add_argument("--size", type=int, default=1_000_000, help="characters of each input")
    options.add_argument("--repeats", type=int, default=5, help="readings of each input")
    options.add_argument("--floor", type=float, default=2.0, help="least MB/s")
    options.add_argument("--growth", type=float, default=1.5, help="greatest growth of the time for a character")
    args = options.parse_args(arguments)

    host = Host()
    host.load()
    width = args.size / len(TOKEN.findall(text(args.size, CONTENT)))
    print(f"Inputs of {args.size:,} characters, in pieces of {width:.1f} on average, as GPT-like tokenizers cut before")
    print("they merge. MB/s; in brackets: how much longer a character takes in an input of twice the size.")
    known = set(host.tool_parsers.names()) | set(host.reasoning_parsers.names())
    missed = [f"no parser is called {name}" for name in args.names if name not in known]
    for kind, registry, cases, heads in KINDS:
        print(f"\n| {kind} | {' | '.join(heads)} |\n| --- | --- | --- | --- |")
        for row in rows(host):
            if row.kind != registry or not (set(args.names) & {row.name, *row.aliases} or not args.names):
                continue
            try:
                parser = host.registries[registry].get(row.name)
                figures = measure(parser, cases, args.size, args.repeats)
            except (BadSample, PluginError) as problem:
                missed.append(f"{kind} {row.name}: {problem}")
                continue
            cells = " | ".join(f"{figure.rate:.1f} ({figure.growth:.2f})" for figure in figures)
            print(f"| {row.name} | {cells} |", flush=True)
            for head, figure in zip(heads, figures, strict=True):
                found = problems(figure, args.floor, args.growth)
                missed += [f"{kind} {row.name}, {head}: {problem}" for problem in found]
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


KINDS: Sequence[tuple[str, Kind, Callable[..., Iterator[Case]], Sequence[str]]] = (
    ("tool parser", "tool_parsers", tool_cases, ("content", "one argument", "many calls")),
    ("reasoning parser", "reasoning_parsers", reasoning_cases, ("content", "one thought", "many calls")),
)

if __name__ == "__main__":
    sys.exit(main())
