"""Talk to a model in the terminal: to one that is loaded for it, or with --url to a server that is already running.

Without a terminal on both ends, every line of the input is a message and only the answers are written.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from contextlib import AbstractContextManager, aclosing
from typing import TYPE_CHECKING

from vllm_mlx_core.api import LoadOptions, TextDelta, UsageError, VllmMlxError

from . import keys, options, values
from .answering import Answerer, Finished
from .conversation import HELP as COMMANDS_HELP
from .conversation import Command, Conversation, parse_command
from .printing import AnswerPrinter
from .reading import Reader, line_reader, state_directory, terminal_reader

if TYPE_CHECKING:
    from vllm_mlx_core.host import Host

HELP = "talk to a model in the terminal"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.usage = "%(prog)s [MODEL] [--url URL] [option ...]"
    options.add_model(parser, "talk to")
    parser.add_argument("--system", metavar="TEXT", help="system message to begin with")
    options.add_sampling(parser)
    options.add_loading(parser)
    options.add_reasoning(parser)
    group = parser.add_argument_group("talking to a running server")
    group.add_argument(
        "--url",
        metavar="URL",
        type=values.url,
        help="OpenAI-compatible server to talk to; MODEL is then a name it knows (default: the first it lists)",
    )
    group.add_argument("--api-key", metavar="KEY", type=values.name, help=f"key for it (default: ${keys.VARIABLE})")


def run(args: Namespace, host: Host) -> int:
    """Chat until the user leaves. Return 1 if input that was not typed led to an error, else 0."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    with asyncio.Runner() as runner, _answerer(args, host, runner) as answerer:
        reader = terminal_reader(state_directory() / "chat_history") if interactive else line_reader(sys.stdin)
        return _Chat(runner, answerer, reader, Conversation(args.system), interactive=interactive).run()


def _answerer(args: Namespace, host: Host, runner: asyncio.Runner) -> AbstractContextManager[Answerer]:
    if args.url is None:
        if args.api_key is not None:
            raise UsageError("--api-key goes with --url: a model that is loaded here needs no key.")
        from . import local

        return local.load(args, host)
    if options.load_options(args) != LoadOptions() or args.reasoning_parser is not None:
        raise UsageError("--url talks to a running server: the options about loading and parsing do not apply to it.")
    from . import remote

    api_key = args.api_key or keys.from_environment()
    return remote.connect(runner, args.url, model=args.model, api_key=api_key, body=options.sampling_body(args))


class _Chat:
    """The loop. The event loop runs only while an answer comes in, so that Ctrl-C there interrupts nothing else."""

    def __init__(
        self,
        runner: asyncio.Runner,
        answerer: Answerer,
        reader: Reader,
        conversation: Conversation,
        *,
        interactive: bool,
    ) -> None:
        self._runner = runner
        self._answerer = answerer
        self._read = reader
        self._conversation = conversation
        self._interactive = interactive
        self._printer = AnswerPrinter(sys.stdout)
        self._interrupted = False
        self._failed = False

    def run(self) -> int:
        self._say(f"Talking to {self._answerer.name}. /help lists the commands, /exit leaves.")
        while (text := self._next()) is not None:
            command = parse_command(text)
            if command is None:
                self._ask(text)
            elif command.name == "exit":
                break
            else:
                self._obey(command)
        return int(self._failed and not self._interactive)

    def _next(self) -> str | None:
        """Return the next message that is not blank, or None when the user leaves."""
        while True:
            try:
                text = self._read()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted or not self._interactive:
                    return None
                self._interrupted = True
                self._say("Ctrl-C once more, Ctrl-D or /exit leaves.")
                continue
            if text.strip():
                self._interrupted = False
                return text

    def _ask(self, text: str) -> None:
        self._conversation.ask(text)
        answer: list[str] = []
        try:
            self._runner.run(self._stream(answer))
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._interrupted = True
            self._printer.note("stopped; Ctrl-C once more leaves")
        except VllmMlxError as error:
            self._failed = True
            self._printer.end()
            self._complain(str(error))
        finally:
            self._printer.end()
            self._conversation.settle("".join(answer))

    async def _stream(self, answer: list[str]) -> None:
        """Print the answer and collect its text in ``answer``, which holds what came if this is cancelled."""
        async with aclosing(self._answerer.answer(self._conversation.messages)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    if piece.reason == "length":
                        self._printer.note("cut off at the token limit")
                    continue
                if isinstance(piece, TextDelta):
                    answer.append(piece.text)
                self._printer.write(piece)

    def _obey(self, command: Command) -> None:
        if command.name == "help":
            self._say(COMMANDS_HELP)
        elif command.name == "clear":
            self._conversation.clear()
            self._say("The conversation starts anew.")
        elif command.name == "system":
            self._conversation.system = command.argument or None
            self._say("System message set." if command.argument else "System message removed.")
        else:
            self._failed = True
            self._complain(f"unknown command /{command.name}; /help lists them, a blank before / sends it as a message")

    def _say(self, text: str) -> None:
        if self._interactive:
            print(text, flush=True)

    def _complain(self, text: str) -> None:
        print(f"vllm-mlx: {' '.join(text.split())}", file=sys.stderr, flush=True)
