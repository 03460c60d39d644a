"""One completion as the engine sees it: token ids and where it stands."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence as TokenIds
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import IDLE_PRIORITY, Lease, pack_tokens

from .messages import Logprobs, Submit

if TYPE_CHECKING:
    from .prompt_state import PromptState

log = logging.getLogger(__name__)


class Stage(Enum):
    """Where a sequence is; it moves down, or back to WAITING when it lost its state, or gave its place to another."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """A submitted completion. Engine thread only."""

    submit: Submit
    arrival: int = 0
    """Its place in the queue: older sequences of one priority run first."""
    stage: Stage = Stage.WAITING
    output: list[int] = field(default_factory=list)
    """Generated tokens that have been read and delivered."""
    layers: list[Any] | None = None
    """Its own layer states while it prefills or is paused; a decoding sequence's state lives in its batch."""
    num_computed: int = 0
    """Tokens its state has read, those of enqueued steps included."""
    in_flight: int = 0
    """Tokens that are being sampled but have not been read (0 or 1)."""
    final_state: PromptState | None = None
    """Its state when it left its batch with its last token in flight: worth keeping if that token is valid."""
    cached_tokens: int = 0
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    """Those of the prompt's tokens, as far as they have been read; they go with the first token."""
    lease: Lease | None = None
    awaits: Sequence | None = None
    """Who reads the first ``num_awaited`` tokens of its prompt for it: until then it reads nothing itself."""
    num_awaited: int = 0
    stops: set[int] = field(default_factory=set)
    """Token counts at which the reading of its prompt pauses, so that its state there can be kept or copied."""
    is_leaving: bool = False
    """Gives its place to another one as soon as no token of it is in flight."""
    waiting_since: float = 0.0
    """When it began to wait for its place, in seconds of the scheduler's clock."""
    turn_ends: float = -math.inf
    """Until when nobody may take its place, in seconds of the scheduler's clock."""
    num_accounted: int = 0
    """Tokens of prompt and output that count as served to its user, or need not."""
    isolated: bool = False
    """Decodes alone, because a step it took part in failed."""
    restarts: int = 0
    _packed_prompt: bytes | None = field(default=None, repr=False)

    @property
    def id(self) -> int:
        """The sequence's id."""
        return self.submit.sequence_id

    @property
    def num_tokens(self) -> int:
        """Length of prompt and output."""
        return len(self.submit.prompt) + len(self.output)

    @property
    def tokens(self) -> list[int]:
        """Prompt and output (a new list)."""
        return [*self.submit.prompt, *self.output]

    @property
    def prompt_cache_ids(self) -> TokenIds[int]:
        """What the prompt is compared by: with others that are read, and with what the prefix cache holds."""
        return self.submit.prompt if self.submit.cache_ids is None else self.submit.cache_ids

    @property
    def cache_ids(self) -> list[int]:
        """What prompt and output are compared by (a new list)."""
        return [*self.prompt_cache_ids, *self.output]

    @property
    def packed_prompt(self) -> bytes:
        """What the prompt is compared by, as ``pack_tokens`` gives it (made once)."""
        if self._packed_prompt is None:
            self._packed_prompt = pack_tokens(self.prompt_cache_ids)
        return self._packed_prompt

    @property
    def num_to_prefill(self) -> int:
        """Tokens still to read before it can decode: all but the last one, which the first decode step reads."""
        return self.num_tokens - 1 - self.num_computed

    @property
    def num_to_stop(self) -> int:
        """Tokens that can be read at once: ``num_to_prefill``, or fewer if reading pauses before that."""
        todo = self.num_to_prefill
        return min((gap for stop in self.stops if 0 < (gap := stop - self.num_computed) < todo), default=todo)

    @property
    def last_token(self) -> int:
        """The token that its next decode step reads."""
        return self.output[-1] if self.output else self.submit.prompt[-1]

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        return self.submit.priority >= IDLE_PRIORITY

    @property
    def leaves_idle_states(self) -> bool:
        """Whether what it leaves in the prefix cache is of use to nobody who waits or is expected."""
        return self.is_idle and not self.submit.expected

    @property
    def is_scored(self) -> bool:
        """Whether its prompt is to be read for its log-probabilities as well: not again once they are told."""
        return self.submit.sampling.prompt_logprobs is not None and not self.output

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.stage is Stage.FINISHED

    @property
    def is_sampled_out(self) -> bool:
        """Whether the token in flight is the last one it may have."""
        return len(self.output) + self.in_flight >= self.submit.max_tokens

    @property
    def makes_room(self) -> bool:
        """Whether its place is free as soon as its token in flight is read."""
        return self.is_leaving or (self.stage is Stage.DECODE and self.is_sampled_out)

    @property
    def may_pause(self) -> bool:
        """Whether it can give up its place now, or once its token in flight is read, and lose nothing.

        A prompt that is scored is never read twice: it stays until its scores are told.
        """
        if self.stage is Stage.PREFILL:
            return not self.is_scored
        return self.stage is Stage.DECODE and not self.makes_room and bool(self.in_flight or not self.is_scored)

    def take_prompt_logprobs(self) -> list[Logprobs]:
        """Return those of the prompt, which must have been read, and forget them. Mutates."""
        taken, self.prompt_logprobs = self.prompt_logprobs, []
        return taken

    def finish(self) -> None:
        """End it and let go of its state. Mutates; safe to call twice."""
        self.stage = Stage.FINISHED
        self.layers = None
        self.awaits = None
        self.final_state = None
        self.release()

    def release(self) -> None:
        """Unpin the cached prefix it started from. Mutates; safe to call twice; never raises."""
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                lease.release()
            except Exception:
                log.exception("A cached prefix could not be released")

    def pause(self) -> None:
        """Go back to WAITING with what has been read, if it has a state of its own. No token is in flight. Mutates."""
        self.stage = Stage.WAITING
        self.awaits = None
        self.is_leaving = False
        self.final_state = None
        if self.layers is None:  # it was in a batch
            self.num_computed = 0
        self.release()

    def restart(self) -> None:
        """Go back to WAITING: the state is lost, the tokens are not. Mutates."""
        self.stage = Stage.WAITING
        self.layers = None
        self.awaits = None
        self.final_state = None
        self.num_computed = 0
        self.in_flight = 0
        self.is_leaving = False
        self.prompt_logprobs = []
        self.restarts += 1
        self.release()
