"""Several requests that a client sent as one: their outputs in one stream, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from vllm_mlx_core.api import Output, OutputStream


class MergedOutputs:
    """The outputs of several requests of ``n`` completions each, numbered through. An ``OutputStream`` itself."""

    def __init__(self, streams: Sequence[OutputStream], n: int) -> None:
        self._streams = streams
        self._n = n

    @property
    def prompt_tokens(self) -> int:
        """Length of all prompts together."""
        return sum(stream.prompt_tokens for stream in self._streams)

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over what each engine step added; raises the first RequestError of any request."""
        arrived: asyncio.Queue[Sequence[Output] | None] = asyncio.Queue()
        readers = [
            asyncio.create_task(self._read(stream, number * self._n, arrived))
            for number, stream in enumerate(self._streams)
        ]
        try:
            running = len(readers)
            while running:
                outputs = await arrived.get()
                if outputs is not None:
                    yield outputs
                    continue
                running -= 1
                for reader in readers:
                    if reader.done():
                        reader.result()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def aclose(self) -> None:
        """Abort whatever still runs."""
        for stream in self._streams:
            await stream.aclose()

    @staticmethod
    async def _read(stream: OutputStream, offset: int, arrived: asyncio.Queue[Sequence[Output] | None]) -> None:
        try:
            async for outputs in stream:
                await arrived.put([msgspec.structs.replace(each, choice=each.choice + offset) for each in outputs])
        finally:
            arrived.put_nowait(None)
