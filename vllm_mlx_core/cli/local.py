"""Answers from a model in this process."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import (
    Chat,
    EngineSettings,
    GenerateRequest,
    Output,
    Prompt,
    ReasoningDelta,
    SamplingParams,
    Settings,
    TextDelta,
)

from . import options
from .answering import Finished, Piece
from .failures import explain_load_failures
from .progress import report_progress

if TYPE_CHECKING:
    from vllm_mlx_core.host import Host
    from vllm_mlx_core.residency.loader import LoadedModel

NO_TIMEOUT_S = float(365 * 24 * 3600)
"""Whoever sits at the terminal decides how long an answer may take."""


@contextmanager
def load(args: Namespace, host: Host) -> Iterator[LocalModel]:
    """Load the model of the command line, with progress on standard error, and unload it at the end.

    Blocks, so that Ctrl-C ends it at any time. Raises ModelError, PluginError or UsageError.
    """
    settings = Settings(
        timeout_s=NO_TIMEOUT_S,
        tool_parser="none",
        reasoning_parser=options.unless_auto(args.reasoning_parser),
        template_kwargs=args.chat_template_kwargs,
        engine=EngineSettings(enforce_eager=True),  # one reader is not worth the wait for a compiler
    )
    with report_progress() as progress, explain_load_failures(args.model):
        from vllm_mlx_core.engine import kernel_folder
        from vllm_mlx_core.residency.loader import load_model

        kernel_folder.keep_private()
        loaded = load_model(args.model, host, settings, options.load_options(args, progress))
    try:
        yield LocalModel(loaded, options.sampling_params(args))
    finally:
        loaded.client.close()


class LocalModel:
    """A loaded model (``Answerer``), asked with the same sampling every time."""

    def __init__(self, loaded: LoadedModel, sampling: SamplingParams) -> None:
        self.name = loaded.info.id
        self._client = loaded.client
        self._sampling = sampling
        self._request_ids = count(1)

    async def answer(self, messages: Sequence[Mapping[str, Any]]) -> AsyncGenerator[Piece, None]:
        """See ``Answerer.answer``."""
        async with aclosing(self.outputs(Chat(messages=messages))) as outputs:
            async for output in outputs:
                for event in output.events:
                    if isinstance(event, TextDelta | ReasoningDelta):
                        yield event
                if output.finish is not None:
                    yield Finished(output.finish)

    async def outputs(self, prompt: Prompt) -> AsyncGenerator[Output, None]:
        """Yield one completion's outputs as they are made; closing early aborts it. Raises RequestError."""
        request = GenerateRequest(
            request_id=f"cli-{next(self._request_ids)}",
            model=self.name,
            prompt=prompt,
            sampling=self._sampling,
            tools_enabled=False,
        )
        stream = await self._client.generate(request)
        try:
            async for outputs in stream:
                for output in outputs:
                    yield output
        finally:
            await stream.aclose()
