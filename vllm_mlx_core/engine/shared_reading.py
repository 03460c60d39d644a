"""Prompts that begin alike and are there together are read once. Engine thread only.

A prefix cache knows what was read before; this is about what is being read. A sequence that is given a place looks for
one that has it already and whose prompt begins as its own does. If that is past the common beginning, it takes a copy
of the state at once. If that is still reading it, it waits for the copy. So of requests that arrive together with one
system prompt the first reads it for all, and the completions of one prompt (``n``) fork when it is read. It needs no
cache, and keeps nothing; but where the operator wants no cache, requests share nothing with each other.

Nobody waits for a sequence of a worse level, which might be read much later, and only for one that has its place
longer: so nobody waits in a circle. If whom it waits for ends or gives up its place, it looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

from vllm_mlx_core.api import common_prefix

from . import states
from .prompt_state import PromptState
from .sequence import Sequence, Stage
from .states import Layers

log = logging.getLogger(__name__)

MIN_SHARED_TOKENS = 32
"""Shorter beginnings are read again: together with other prompts that costs less than waiting for them."""


class _Source(NamedTuple):
    """Who has or reads the first ``num_tokens`` of a prompt."""

    num_tokens: int
    is_read: bool
    sequence: Sequence


class SharedReading:
    """Finds who reads what a prompt begins with, and hands on copies.

    ``level`` gives a sequence's class in the order of places. ``extract`` returns the solo state of a decoding sequence
    without mutating it. If not ``always_truncates``, a state can be copied only at the point where it is: reading then
    pauses at the end of what is common. Unless ``between_requests``, only the completions of one request share.
    """

    def __init__(
        self,
        *,
        level: Callable[[Sequence], int],
        extract: Callable[[Sequence], Layers | None],
        always_truncates: bool,
        between_requests: bool = True,
    ) -> None:
        self._level = level
        self._extract = extract
        self._always_truncates = always_truncates
        self._between_requests = between_requests

    def begin(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Give a sequence that has a place what another one has read of its prompt, or let it wait for that. Mutates.

        ``running`` are those with a place, in the order in which they got it. Returns whether there is such a one.
        """
        if not _may_share(sequence) or sequence.num_to_prefill < MIN_SHARED_TOKENS:
            return False
        earlier = takewhile(lambda other: other is not sequence, running)
        sources = [source for other in earlier if (source := self._source(sequence, other)) is not None]
        for source in sorted(sources, key=lambda s: (s.num_tokens, s.is_read), reverse=True):
            if not source.is_read:
                self._wait(sequence, source)
                return True
            if _give(sequence, source.num_tokens, source.sequence, self._layers_of(source.sequence)):
                return True
        return False

    def begin_with_siblings(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Do so with another completion of the same request, which has read or reads the whole prompt."""
        request_id = sequence.submit.request_id
        return self.begin(sequence, [s for s in running if s.submit.request_id == request_id])

    def hand_on(self, readers: list[Sequence], layers: Layers, running: Iterable[Sequence]) -> None:
        """Give copies of what ``readers`` have read by now to those of ``running`` who waited for that. Mutates those.

        ``layers`` are the solo state of one reader or the batch state of several, and stay what they are.
        """
        waiting = [s for s in running if s.awaits is not None and s.num_awaited <= s.awaits.num_computed]
        if not waiting:
            return
        for row, reader in enumerate(readers):
            followers = [s for s in waiting if s.awaits is reader]
            if followers:
                own = states.extract(layers, row) if len(readers) > 1 else layers
                for sequence in followers:
                    sequence.awaits = None
                    _give(sequence, sequence.num_awaited, reader, own)

    def bequeath(self, reader: Sequence, running: Iterable[Sequence]) -> None:
        """Give those who wait for a sequence that is about to leave what it has read so far. Mutates those."""
        if reader.layers is not None and reader.num_computed:
            for sequence in running:
                if sequence.awaits is reader and sequence.num_computed < reader.num_computed:
                    _give(sequence, min(reader.num_computed, sequence.num_awaited), reader, reader.layers)

    def review(self, running: list[Sequence]) -> None:
        """Let those look again who wait for a sequence that does not read any more. Mutates them."""
        for sequence in running:
            if sequence.awaits is not None and sequence.awaits.stage is not Stage.PREFILL:
                sequence.awaits = None
                self.begin(sequence, running)

    def _layers_of(self, reader: Sequence) -> Layers | None:
        """Return the solo state of a sequence that reads or decodes; None if it has none, or none can be taken out."""
        try:
            return reader.layers or self._extract(reader)
        except Exception:
            log.exception("A state could not be taken out of a batch for a prompt that begins alike")
            return None

    def _source(self, sequence: Sequence, other: Sequence) -> _Source | None:
        if other.submit.salt != sequence.submit.salt or not _may_share(other):
            return None
        if not self._between_requests and other.submit.request_id != sequence.submit.request_id:
            return None
        most = min(len(other.submit.prompt), sequence.num_tokens) - 1
        common = min(common_prefix(other.packed_prompt, sequence.packed_prompt), most)
        if common < sequence.num_computed + MIN_SHARED_TOKENS:
            return None
        is_read = other.num_computed >= common
        if is_read:
            may = self._always_truncates or other.num_computed == common
        else:
            may = other.stage is Stage.PREFILL and self._level(other) <= self._level(sequence)
        return _Source(common, is_read, other) if may else None

    def _wait(self, sequence: Sequence, source: _Source) -> None:
        sequence.awaits, sequence.num_awaited = source.sequence, source.num_tokens
        if not self._always_truncates:
            source.sequence.stops.add(source.num_tokens)


def _may_share(sequence: Sequence) -> bool:
    return not sequence.isolated and not sequence.is_scored


def _give(sequence: Sequence, num_tokens: int, reader: Sequence, layers: Layers | None) -> bool:
    """Give ``sequence`` a copy of ``layers`` after ``num_tokens``; return whether that could be done.

    If not, it stays as it is and reads its prompt itself.
    """
    if layers is None:
        return False
    try:
        state = PromptState(layers, reader.num_computed)
        if num_tokens < state.num_tokens:
            if not state.can_truncate:
                return False
            state = state.truncate(num_tokens)
        copied = state.layers()
    except Exception:
        log.exception("A state could not be copied for a prompt that begins alike, which is read in full")
        return False
    sequence.release()
    sequence.layers = copied
    sequence.num_computed = num_tokens
    if not sequence.output:
        # What one request reads for several completions it has read all the same.
        is_fork = reader.submit.request_id == sequence.submit.request_id
        sequence.cached_tokens = reader.cached_tokens if is_fork else num_tokens
    return True
