"""The engine's step: plan, run, settle. Owns every sequence, batch and cached state of one model. Engine thread only.

One step admits waiting sequences, enqueues the next decode step of every batch, reads the tokens of the step before
(which has been computed meanwhile), tells the front-end about them, and prefills a chunk of what waits:

    admit ─▶ launch k+1 ─▶ settle k ─▶ prefill ─▶ join

So the device never waits for Python between two tokens. The price is that a sequence that ends on a stop token takes
part in one more step, whose token is dropped.

Faults stay with the sequence that caused them. If a forward pass over several sequences raises, their states are
lost but their tokens are not: each goes back to the queue, is computed again and decodes alone from then on, so that
the culprit fails alone.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from vllm_mlx_core.api import CachePolicy, EngineSettings, Generator

from . import device, kernels, states
from .arrivals import Arrivals
from .batch import Batch
from .batches import Batches
from .captured import CapturedGenerator
from .memory_guard import NEXT_TOKENS, MemoryGuard, MemoryPlan
from .messages import (
    Abort,
    Command,
    EngineFinish,
    EngineReport,
    Inspect,
    Logprobs,
    SequenceUpdate,
    Shutdown,
    StepResult,
    Submit,
)
from .policies import make_policy
from .prefill import read_chunk, read_together
from .prefix_reuse import PrefixReuse
from .prompt_scores import Scores, are_numbers, positions_per_step, read_scored
from .sampler import Sampled
from .scheduler import Chunk, Scheduler, padded_length
from .selftest import ServingMode
from .sequence import Sequence, Stage
from .shared_reading import SharedReading
from .stall_budget import StallBudget
from .state_codec import codec_of
from .tidying import Tidying

log = logging.getLogger(__name__)

MAX_RESTARTS = 3
CLEAR_EVERY_STEPS = 512
MEMORY_CHECK_STEPS = NEXT_TOKENS // 2
"""Those that run have room for more tokens than they get between two checks; who lacks it is looked at every step."""

FAILED = "The model failed to compute this request."
NO_MEMORY = "The server has not enough memory for this request now. Try again later."
OUTGROWN = "Prompt and answer have become longer than what the memory of this server holds."
INVALID_NUMBERS = "The model produced invalid numbers (NaN) for this request."


@dataclass(slots=True)
class _Launched:
    """An enqueued decode step: the rows as they were then."""

    batch: Batch
    sequences: list[Sequence]
    sampled: Sampled


class EngineCore:
    """The state of one running engine. ``emit`` is called with every step's result before the step prefills.

    ``wake`` is called from any thread when there is work that no command brings: ``has_work`` says so then.
    Without a ``memory`` plan it takes what it needs.
    """

    def __init__(
        self,
        generator: Generator,
        settings: EngineSettings,
        mode: ServingMode,
        cache: CachePolicy,
        emit: Callable[[StepResult], None],
        *,
        memory: MemoryPlan | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._generator = CapturedGenerator(generator) if mode.captured else generator
        self._mode = mode
        self._prefixes = PrefixReuse(
            cache if mode.resumable and not cache.keeps_nothing else None,
            settings.kv_cache_quantization,
            truncatable_tokens=states.truncatable_tokens(generator.make_cache()),
        )
        self._prefixes.attach(codec_of(generator, settings.kv_cache_quantization))
        self._emit = emit
        self._memory = None if memory is None else MemoryGuard(memory, self._prefixes)
        policy = make_policy(settings)
        self._scheduler = Scheduler(
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            prefill_mode=mode.prefill,
            max_scored_tokens=positions_per_step(generator.vocab_size),
            policy=policy,
            may_start=None if self._memory is None else self._memory.may_start,
        )
        self._batches = Batches(self._generator, mode)
        self._sharing = SharedReading(
            level=policy.level,
            extract=self._batches.extract,
            always_truncates=states.always_truncates(generator.make_cache()),
            between_requests=not cache.keeps_nothing,
        )
        self._arrivals = Arrivals(wake)
        self._stalls = StallBudget(settings.decode_stall_target_ms / 1000)
        self._launched: list[_Launched] = []
        self._scores: list[Scores] = []
        self._updates: list[SequenceUpdate] = []
        self._admitted: list[int] = []
        self._reports: list[EngineReport] = []
        self._prefilled = 0
        self._steps = 0
        self._said_busy = False
        self._lacks_memory = False
        self._tidying = Tidying()

    # -- commands -------------------------------------------------------------------------------------------------

    def handle(self, command: Command) -> None:
        """Take a submission, an abort or a question. Mutates; never waits for the device."""
        match command:
            case Submit():
                self._arrive(Sequence(command))
            case Abort(sequence_ids):
                self._drop([s for i in sequence_ids if (s := self._scheduler.get(i))])
            case Inspect():
                self._reports.append(self._inspect(command))
                self._flush(time.perf_counter())
            case Shutdown():
                raise ValueError("the engine's owner shuts it down")

    def _arrive(self, sequence: Sequence) -> None:
        """Queue a sequence, once what is known of its beginning is at hand."""
        self._scheduler.announce(sequence)
        fetch = self._prefixes.fetch(sequence)
        if fetch is None:
            self._scheduler.enqueue(sequence)
        else:
            self._arrivals.hold(sequence, fetch)

    def _inspect(self, query: Inspect) -> EngineReport:
        """Answer a question, after clearing the cache if that is asked for."""
        cache, memory = self._prefixes.report(clear=query.clear_cache), device.memory()
        return EngineReport(
            query_id=query.query_id,
            steps=self._steps,
            cache=cache.stats,
            cache_max_bytes=cache.max_bytes,
            freed_bytes=cache.freed_bytes,
            active_memory_bytes=memory.active,
            peak_memory_bytes=memory.peak,
            buffer_memory_bytes=memory.buffers,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        waiting = self._scheduler.num_waiting - len(self._arrivals)
        return bool(self._launched or self._scheduler.num_running or waiting or self._arrivals.has_news)

    @property
    def timeout_s(self) -> float | None:
        """In how many seconds there will be something to do even if nothing happens; None: never."""
        return min((s for s in (self._arrivals.timeout_s, self._tidying.timeout_s) if s is not None), default=None)

    def rest(self) -> None:
        """Say that there is nothing to do, and verify that nothing is left behind. Logs what is wrong and mends it.

        To be called again after ``timeout_s``, if there is still nothing to do then.
        """
        if self._said_busy:  # what ran last was aborted, so that no step could say so
            self._flush(time.perf_counter())
        if self._batches:
            log.error("The engine is idle but holds %d batches; dropping them.", len(self._batches))
            self._batches.clear()
        self._scores.clear()  # of sequences that were aborted
        self._prefixes.check()
        self._tidying.rested()

    def fail_all(self, message: str) -> None:
        """End every sequence with an error and say so. Mutates."""
        for sequence in self._scheduler:
            self._fail(sequence, message)
            self._forget_fetch(sequence)
        self._batches.clear()
        self._launched.clear()
        self._scores.clear()
        self._flush(time.perf_counter())

    # -- one step -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Run one step. Mutates; waits for the previous step's tokens. Raises only if the engine itself is broken."""
        started = time.perf_counter()
        self._tidying.worked()
        for sequence, fetch in self._arrivals.take():
            self._prefixes.receive(fetch)
            self._scheduler.enqueue(sequence)
        if self._lacks_memory or self._steps % MEMORY_CHECK_STEPS == 0:
            self._stay_within_memory()
        for sequence in self._scheduler.admit():
            self._admitted.append(sequence.id)
            if sequence.layers is None:
                self._begin(sequence)
        if (starved := self._scheduler.starved) is not None and not self._launched:
            self._fail(starved, NO_MEMORY, lacks_memory="now")
        previous, self._launched = self._launched, []
        self._launch()
        if self._launched:
            self._stalls.launched(sum(launched.batch.step_bytes for launched in self._launched))
        for launched in previous:
            self._settle(launched)
        if previous:
            self._stalls.settled()
        else:
            self._stalls.rested()
        self._flush(started)
        scores, self._scores = self._scores, []
        self._prefill()
        for each in scores:
            self._settle_scores(each)
        self._steps += 1
        if self._steps % CLEAR_EVERY_STEPS == 0:
            mx.clear_cache()

    def _begin(self, sequence: Sequence) -> None:
        """Let a sequence that was just admitted have what is known of its prompt, or is being read."""
        running = self._scheduler.running if self._mode.resumable else []
        if not self._sharing.begin_with_siblings(sequence, running):
            self._prefixes.find(sequence)
            self._sharing.begin(sequence, running)

    def _stay_within_memory(self) -> None:
        """See to it that what runs has memory for its next tokens: let the last go, or end one that is too large."""
        running = self._scheduler.running
        self._lacks_memory = self._memory is not None and bool(running) and not self._memory.may_go_on(running)
        if self._lacks_memory and not self._scheduler.retreat():
            self._fail(running[0], OUTGROWN, lacks_memory="ever")
            self._drop(running)

    def _launch(self) -> None:
        """Enqueue the next step of every batch."""
        for batch in self._batches:
            done = [s for s in batch.sequences if s.is_sampled_out or s.is_leaving]
            for sequence in done:
                if sequence.num_computed:
                    sequence.final_state = self._prefixes.state_of(sequence, batch)
            self._leave(batch, done)
            for sequence in done:
                if sequence.is_leaving and not sequence.in_flight:
                    self._pause(sequence)
            if not batch.sequences or self._waits(batch):
                continue
            try:
                sampled = batch.launch()
            except Exception:
                self._recover(batch)
            else:
                self._launched.append(_Launched(batch, list(batch.sequences), sampled))

    def _waits(self, batch: Batch) -> bool:
        """Return whether a new batch waits for a step, so that none waits for a prompt and its step. Mutates."""
        if not self._launched or not batch.is_new:
            return False
        batch.is_new = False
        streams = sum(launched.batch.step_bytes for launched in self._launched)
        return not self._stalls.has_room(streams, batch.step_bytes, self._scheduler.crowding)

    def _settle(self, launched: _Launched) -> None:
        """Read a step's tokens, tell what they mean, and let finished sequences go."""
        try:
            mx.eval(*launched.sampled.arrays())
            tokens, logprobs = launched.sampled.read()
        except Exception:
            self._recover(launched.batch, launched.sequences)
            return
        finished = []
        for sequence, token, logprob in zip(launched.sequences, tokens, logprobs, strict=True):
            if sequence.stage is not Stage.DECODE or not sequence.in_flight:
                continue  # it was aborted or restarted after the launch
            sequence.in_flight -= 1
            if token < 0:
                self._fail(sequence, INVALID_NUMBERS)
                finished.append(sequence)
            elif self._deliver(sequence, token, logprob):
                if sequence in launched.batch.sequences:
                    sequence.final_state = self._prefixes.state_of(sequence, launched.batch)
                    finished.append(sequence)
                if sequence.final_state is not None:
                    self._prefixes.keep(sequence, sequence.final_state)
                self._scheduler.finish(sequence)
            elif sequence.is_leaving:
                self._pause(sequence)
        self._leave(launched.batch, finished)

    def _pause(self, sequence: Sequence) -> None:
        """Let a sequence that has left its batch wait for another place.

        Its state is the prefix cache's to keep, so that waiting takes no memory beyond the cache's; what the cache does
        not keep is computed again.
        """
        if sequence.final_state is not None:
            self._prefixes.keep(sequence, sequence.final_state)
        self._scheduler.pause(sequence)

    def _deliver(self, sequence: Sequence, token: int, logprob: Logprobs | None) -> bool:
        """Note a token and say whether it is the sequence's last."""
        submit = sequence.submit
        output = sequence.output
        output.append(token)
        finish: EngineFinish | None = None
        if token in submit.stop_token_ids and len(output) > submit.min_tokens:
            finish = "stop"
        elif len(output) >= submit.max_tokens:
            finish = "length"
        self._updates.append(
            SequenceUpdate(
                submit.sequence_id,
                (token,),
                () if logprob is None else (logprob,),
                finish,
                sequence.cached_tokens,
                prompt_logprobs=sequence.take_prompt_logprobs(),
            )
        )
        return finish is not None

    def _settle_scores(self, scores: Scores) -> None:
        """Read what a chunk of a prompt scored while the next one is computed; end what wants no more than that."""
        sequence = scores.sequence
        if scores.are_stale:
            return
        try:
            entries = scores.read()
        except Exception:
            batch = self._batches.of(sequence)
            if batch is not None:
                self._recover(batch)
            else:
                self._isolate([sequence])
            return
        if not are_numbers(entries):
            self._fail(sequence, INVALID_NUMBERS)
            self._drop([sequence])
            return
        sequence.prompt_logprobs += entries
        if not sequence.submit.max_tokens and len(sequence.prompt_logprobs) == len(sequence.submit.prompt) - 1:
            self._end_with_prompt(sequence)

    def _end_with_prompt(self, sequence: Sequence) -> None:
        """End a sequence that was to generate nothing."""
        update = SequenceUpdate(sequence.id, finish="length", prompt_logprobs=sequence.take_prompt_logprobs())
        self._updates.append(update)
        self._scheduler.finish(sequence)

    def _prefill(self) -> None:
        """Read the prompts that the plan has room for, and let those that are read join a batch."""
        self._sharing.review(self._scheduler.running)
        plan = self._scheduler.plan(
            stall_limit=self._stalls.limit(sum(batch.step_bytes for batch in self._batches), self._scheduler.crowding),
            memory_limit=None if self._memory is None else self._memory.chunk(self._scheduler.running),
        )
        self._join_ready(plan.ready)
        for group in plan.groups:
            self._prefilled += sum(chunk.length for chunk in group)
            self._stalls.read(padded_length(group))
            try:
                self._read(group)
            except Exception:
                self._isolate([chunk.sequence for chunk in group])
        if self._prefilled >= 1024:
            mx.clear_cache()

    def _join_ready(self, ready: list[Sequence]) -> None:
        """Let sequences that have nothing to read join a batch: those that have read as much as each other together."""
        together: dict[tuple[int, int], list[Sequence]] = {}
        for sequence in ready:
            if not sequence.submit.max_tokens:  # a prompt of one token: there is nothing to compute
                self._end_with_prompt(sequence)
            else:
                alone = sequence.isolated or not self._mode.batched
                together.setdefault((sequence.num_computed, sequence.id if alone else -1), []).append(sequence)
        for sequences in together.values():
            try:
                rows = [s.layers or self._generator.make_cache() for s in sequences]
                self._join(sequences, rows[0] if len(rows) == 1 else states.merge(rows))
            except Exception:
                self._isolate(sequences)

    def _read(self, group: list[Chunk]) -> None:
        if len(group) > 1:
            layers = read_together(self._generator, group, ragged=self._mode.prefill == "ragged")
            sequences = [chunk.sequence for chunk in group]
            self._sharing.hand_on(sequences, layers, self._scheduler.running)
            self._join(sequences, layers)
            return
        (chunk,) = group
        sequence = chunk.sequence
        if sequence.is_scored:
            self._scores.append(read_scored(self._generator, chunk))
        else:
            layers = read_chunk(self._generator, chunk)
            self._sharing.hand_on([sequence], layers, self._scheduler.running)
        if sequence.num_to_prefill:
            self._prefixes.keep_at_stop(sequence)
            return
        assert sequence.layers is not None
        if sequence.submit.max_tokens:
            self._join([sequence], sequence.layers)
        else:  # its scores, once they are read, are the end of it
            sequence.stage = Stage.DECODE
            sequence.layers = None

    # -- batches --------------------------------------------------------------------------------------------------

    def _join(self, sequences: list[Sequence], layers: states.Layers) -> None:
        """Move sequences whose prompts are read into a batch; ``layers`` is their solo or batch state."""
        self._prefixes.keep_prompts(sequences, layers)
        for sequence in sequences:
            sequence.stage = Stage.DECODE
            sequence.layers = None
            sequence.release()
        batch = self._batches.choose(sequences, layers)
        self._stalls.joined()
        try:
            batch.join(sequences, layers, soon=self._num_soon(batch, max(s.num_computed for s in sequences)))
        except Exception:
            self._recover(batch, sequences)

    def _num_soon(self, batch: Batch, length: int) -> int:
        """Return for how many rows more a batch may keep room when one of ``length`` joins: of prompts being read."""
        running = self._scheduler.running
        prompts = sum(s.stage is Stage.PREFILL and not s.isolated for s in running)
        if self._memory is None or not prompts:
            return prompts
        return min(prompts, self._memory.left(running) // max(1, batch.row_bytes(length)))

    def _leave(self, batch: Batch, sequences: Iterable[Sequence]) -> None:
        """Take sequences out of a batch, and the batch away if it is empty."""
        gone = {sequence.id for sequence in sequences}
        if gone:
            try:
                batch.remove(gone)
            except Exception:
                batch.sequences = [s for s in batch.sequences if s.id not in gone]
                self._recover(batch)
        if not batch.sequences:
            self._batches.discard(batch)

    def _drop(self, sequences: list[Sequence]) -> None:
        """Forget sequences wherever they are."""
        for sequence in sequences:
            self._sharing.bequeath(sequence, self._scheduler.running)
            self._scheduler.finish(sequence)
            self._forget_fetch(sequence)
        for batch in self._batches:
            self._leave(batch, [s for s in sequences if s in batch.sequences])

    def _forget_fetch(self, sequence: Sequence) -> None:
        fetch = self._arrivals.discard(sequence)
        if fetch is not None:
            self._prefixes.cancel(fetch)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _recover(self, batch: Batch, sequences: Iterable[Sequence] = ()) -> None:
        """Give up a batch whose state cannot be trusted any more; its sequences are computed again, each alone.

        So are ``sequences``: those that had not joined yet, or have left it with a token in flight.
        """
        lost = [s for s in dict.fromkeys([*batch.sequences, *sequences]) if s.stage is Stage.DECODE]
        self._batches.discard(batch)
        batch.sequences = []
        self._isolate(lost)

    def _isolate(self, sequences: list[Sequence]) -> None:
        """Called while an exception is handled: one sequence alone fails, several are tried again one by one.

        One alone is tried again as well if the machine is to blame and does without what failed.
        """
        error = sys.exc_info()[1]
        is_mended = error is not None and kernels.do_without(error)
        alone = len(sequences) == 1 and not is_mended
        if not is_mended:
            verdict = "it ends" if alone else "each is tried alone"
            log.exception("A step over %d sequences failed; %s", len(sequences), verdict)
        for sequence in sequences:
            if alone or sequence.restarts >= MAX_RESTARTS:
                self._fail(sequence, FAILED)
            else:
                sequence.isolated = True
                self._scheduler.requeue(sequence)

    def _fail(self, sequence: Sequence, message: str, *, lacks_memory: Literal["now", "ever"] | None = None) -> None:
        self._updates.append(SequenceUpdate(sequence.id, finish="error", error=message, lacks_memory=lacks_memory))
        self._scheduler.finish(sequence)

    def _flush(self, started: float) -> None:
        """Say what happened since the last time."""
        updates, self._updates = self._updates, []
        admitted, self._admitted = self._admitted, []
        reports, self._reports = self._reports, []
        prefilled, self._prefilled = self._prefilled, 0
        self._said_busy = bool(self._scheduler.num_running or self._scheduler.num_waiting)
        self._emit(
            StepResult(
                updates,
                self._scheduler.num_running,
                self._scheduler.num_waiting,
                prefilled,
                sum(len(u.tokens) for u in updates),
                time.perf_counter() - started,
                admitted,
                reports,
            )
        )
