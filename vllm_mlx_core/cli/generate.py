"""Answer one prompt and write the answer to standard output as it comes.

A terminal shows the model's reasoning too; elsewhere exactly the answer is written.
"""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import Chat, Prompt, ReasoningDelta, TextDelta, UsageError

from . import options, values

if TYPE_CHECKING:
    from vllm_mlx_core.api import Completion
    from vllm_mlx_core.host import Host

    from .local import LocalModel

HELP = "answer one prompt"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.usage = "%(prog)s MODEL PROMPT [option ...]"
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=values.name,
        help="a folder, a .gguf file, a hub id or a known name",
    )
    parser.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--raw", action="store_true", help="continue PROMPT as it is, without the chat template")
    parser.add_argument(
        "--json", action="store_true", help="write one JSON object at the end, with reasoning and token counts"
    )
    options.add_sampling(parser)
    options.add_loading(parser)
    options.add_reasoning(parser)


def run(args: Namespace, host: Host) -> int:
    """Answer the prompt."""
    prompt = _prompt(args)
    from . import local

    with asyncio.Runner() as runner, local.load(args, host) as model:
        completion = runner.run(_generate(model, prompt, show=not args.json))
    if args.json:
        print(json.dumps(_report(model.name, completion), ensure_ascii=False))
    return 0


def _prompt(args: Namespace) -> Prompt:
    if args.raw:
        for option, value in (("--system", args.system), ("--chat-template-kwargs", args.chat_template_kwargs)):
            if value:
                raise UsageError(f"{option} goes into the chat template, which --raw leaves out.")
    text = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not text:
        raise UsageError("The prompt is empty.")
    if args.raw:
        return str(text)
    system = [{"role": "system", "content": args.system}] if args.system else []
    return Chat(messages=[*system, {"role": "user", "content": text}])


async def _generate(model: LocalModel, prompt: Prompt, *, show: bool) -> Completion:
    from vllm_mlx_core.api import Completion

    from .printing import AnswerPrinter

    printer = AnswerPrinter(sys.stdout)
    completion = Completion()
    try:
        async with aclosing(model.outputs(prompt)) as outputs:
            async for output in outputs:
                completion.add(output)
                for event in output.events if show else ():
                    if isinstance(event, TextDelta | ReasoningDelta):
                        printer.write(event)
    finally:
        printer.end()
    return completion


def _report(model: str, completion: Completion) -> dict[str, Any]:
    usage = completion.usage
    return {
        "model": model,
        "text": completion.text,
        "reasoning": completion.reasoning,
        "finish_reason": completion.finish_reason,
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
    }
