"""The load-time self-test: does this model give the same answer in a batch as alone?

Several architectures do not: some mix rows when prompts of different lengths are prefilled together, some cannot
batch at all. So the engine does not keep a list of names: it compares, on a few tokens, and serves in the mode that
is right.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from vllm_mlx_core.api import Generator, Progress, VllmMlxError, no_progress

from . import kernels, states
from .captured import SMALLEST_ROOM, CapturedGenerator, can_capture
from .prompt_state import PromptState
from .scheduler import PrefillMode

log = logging.getLogger(__name__)

LENGTHS = (7, 19, 3, 12)
STEPS = 3
LARGE_ROOM = 1024
WORTH_CAPTURING = 0.08
"""Share of a step that Python takes; below it, capturing gains nothing that can be measured."""
TOP = 8
TOLERANCE = {mx.float32: 0.01}
HALF_TOLERANCE = 0.3
"""Largest difference of log-probabilities of the likeliest tokens, in nats. Half precision and quantised kernels round
differently for different batch shapes; models that are wrong differ by more."""


@dataclass(frozen=True, slots=True)
class ServingMode:
    """How a model may be served. ``reason`` says why not everything is allowed; empty if it is."""

    batched: bool = True
    """Sequences decode together; otherwise each in a forward of its own."""
    prefill: PrefillMode = "ragged"
    resumable: bool = True
    """A state taken out of a batch goes on right, so it may be cached."""
    captured: bool = False
    """Decode steps are captured: recorded once and replayed."""
    reason: str = ""

    def __str__(self) -> str:
        if not self.batched:
            return "one row at a time" + ("" if self.resumable else ", no prefix reuse")
        prefill = {"ragged": "", "equal": ", prompts of equal length together", "solo": ", prompts one at a time"}
        return "batched" + prefill[self.prefill] + ("" if self.resumable else ", no prefix reuse")


@dataclass(frozen=True, slots=True)
class _Reference:
    """A prompt read alone: what follows it greedily, and the logits [steps, vocab] behind that."""

    prompt: list[int]
    tokens: list[int]
    logits: mx.array


def self_test(generator: Generator, progress: Progress = no_progress, *, may_capture: bool = True) -> ServingMode:
    """Find the serving mode by comparing batch with solo. Engine thread; takes some forty forwards of a few tokens.

    Raises whatever the model raises on a single short prompt: such a model cannot be served. Also raises what
    ``kernels.is_failure`` knows.
    """
    references = []
    for number, length in enumerate(LENGTHS):
        progress("self-test", number / 10)
        references.append(_alone(generator, _prompt(length, generator.vocab_size)))
    mode = _find_mode(generator, references, progress)
    if may_capture and getattr(generator, "is_pure", False) and kernels.can_compile():
        why = _why_not_captured(generator, references, progress, batched=mode.batched)
        if why:
            log.debug("Decode steps are not captured: %s", why)
        mode = replace(mode, captured=not why)
    return mode


def _find_mode(generator: Generator, references: Sequence[_Reference], progress: Progress) -> ServingMode:
    no_resume = _differs("resuming a state", lambda: _resume_alone_check(generator, references[1]))
    alone = ServingMode(batched=False, prefill="solo", resumable=not no_resume)
    if not states.can_merge(generator.make_cache()):
        return replace(alone, reason=_both("its cache cannot hold several sequences", no_resume))
    progress("self-test", 0.4)
    if why := _differs("decoding in a batch", lambda: _decode_check(generator, references)):
        return replace(alone, reason=_both(why, no_resume))
    progress("self-test", 0.5)
    no_resume = no_resume or _differs("resuming a row of a batch", lambda: _resume_check(generator, references))
    progress("self-test", 0.7)
    resumable = not no_resume
    ragged = _differs("prompts of different lengths", lambda: _prefill_check(generator, references, ragged=True))
    if not ragged:
        return ServingMode(resumable=resumable, reason=no_resume)
    progress("self-test", 0.8)
    equal = [references[1], _alone(generator, _prompt(LENGTHS[1], generator.vocab_size, salt=5))]
    solo = _differs("prompts of equal length", lambda: _prefill_check(generator, equal, ragged=False))
    reason = _both(no_resume, ragged, solo)
    return ServingMode(prefill="solo" if solo else "equal", resumable=resumable, reason=reason)


def _both(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _prompt(length: int, vocab_size: int, salt: int = 1) -> list[int]:
    """Return token ids that are spread over the first part of the vocabulary, where the ordinary ones are."""
    return [(salt * 31 + i * 17 + i * i * length) % min(vocab_size, 200) for i in range(length)]


def _alone(generator: Generator, prompt: list[int]) -> _Reference:
    layers = generator.make_cache()
    if len(prompt) > 1:
        generator.forward(mx.array([prompt[:-1]], dtype=mx.int32), layers)
        mx.eval(states.arrays(layers))
    token, tokens, rows = prompt[-1], [], []
    for _ in range(STEPS):
        logits = generator.forward(mx.array([[token]], dtype=mx.int32), layers)[0, -1]
        token = int(mx.argmax(logits).item())
        tokens.append(token)
        rows.append(logits)
    return _Reference(prompt, tokens, mx.stack(rows))


def _read_alone(generator: Generator, reference: _Reference) -> states.Layers:
    layers = generator.make_cache()
    generator.forward(mx.array([reference.prompt[:-1]], dtype=mx.int32), layers)
    return layers


def _decode_check(generator: Generator, references: Sequence[_Reference]) -> float:
    """Decode all but the first together, let the first join after one step and the last leave: as a server does."""
    first, *others = references
    batch = states.merge([_read_alone(generator, r) for r in others])
    worst = _follow(generator, batch, others, steps=[0])
    states.extend(batch, states.merge([_read_alone(generator, first)]), rows=len(others), more_rows=1)
    # the newcomer reads its prompt's last token while the others read their first answer
    tokens = [r.tokens[0] for r in others] + [first.prompt[-1]]
    logits = generator.forward(mx.array(tokens, dtype=mx.int32)[:, None], batch)[:, -1]
    expected = [r.logits[1] for r in others] + [first.logits[0]]
    worst = max(worst, *(_distance(expected[i], logits[i]) for i in range(len(expected))))
    states.keep(batch, [len(others), *range(len(others) - 1)])
    tokens = [first.tokens[0], *(r.tokens[1] for r in others[:-1])]
    logits = generator.forward(mx.array(tokens, dtype=mx.int32)[:, None], batch)[:, -1]
    expected = [first.logits[1], *(r.logits[2] for r in others[:-1])]
    return max(worst, *(_distance(expected[i], logits[i]) for i in range(len(expected))))


def _resume_check(generator: Generator, references: Sequence[_Reference]) -> float:
    batch = states.merge([_read_alone(generator, r) for r in references])
    worst = _follow(generator, batch, references, steps=[0])
    for row, reference in enumerate(references):
        worst = max(worst, _go_on(generator, reference, states.extract(batch, row)))
    return worst


def _resume_alone_check(generator: Generator, reference: _Reference) -> float:
    layers = _read_alone(generator, reference)
    generator.forward(mx.array([[reference.prompt[-1]]], dtype=mx.int32), layers)
    return _go_on(generator, reference, layers)


def _go_on(generator: Generator, reference: _Reference, layers: states.Layers) -> float:
    """Go on from a state that has read the prompt, then, if it can go back, from its state one token earlier."""
    kept = PromptState(layers, len(reference.prompt)).compact()
    logits = generator.forward(mx.array([[reference.tokens[0]]], dtype=mx.int32), kept.layers())[0, -1]
    worst = _distance(reference.logits[1], logits)
    if kept.can_truncate:
        earlier = kept.truncate(len(reference.prompt) - 1).layers()
        logits = generator.forward(mx.array([[reference.prompt[-1]]], dtype=mx.int32), earlier)[0, -1]
        worst = max(worst, _distance(reference.logits[0], logits))
    return worst


def _prefill_check(generator: Generator, references: Sequence[_Reference], *, ragged: bool) -> float:
    batch = states.merge([generator.make_cache() for _ in references])
    lengths = [len(r.prompt) - 1 for r in references]
    longest = max(lengths)
    rows = [r.prompt[:-1] + [0] * (longest - n) for r, n in zip(references, lengths, strict=True)]
    if ragged:
        states.begin_ragged(batch, lengths)
    generator.forward(mx.array(rows, dtype=mx.int32), batch)
    if ragged:
        states.end_ragged(batch)
    return _follow(generator, batch, references, steps=range(STEPS))


def _why_not_captured(
    generator: Generator, references: Sequence[_Reference], progress: Progress, *, batched: bool
) -> str:
    """Return why decode steps should not be captured, or nothing if they should. The cheapest reasons come first."""
    if not can_capture(_read_alone(generator, references[0])):
        return "its caches are not plain"
    if (share := _python_share(generator, references[0])) < WORTH_CAPTURING:
        return f"Python takes {share:.0%} of a step"
    return _differs("capturing a step", lambda: _capture_check(generator, references, progress, batched=batched))


def _python_share(generator: Generator, reference: _Reference) -> float:
    """Return which share of a decode step is spent on describing it: what capturing can save."""
    layers = _read_alone(generator, reference)
    described, done = [], []
    for _ in range(5):
        start = time.perf_counter()
        logits = generator.forward(mx.array([[reference.prompt[-1]]], dtype=mx.int32), layers)
        described.append(time.perf_counter() - start)
        mx.eval(logits)
        done.append(time.perf_counter() - start)
    return min(described) / min(done)


def _capture_check(
    generator: Generator, references: Sequence[_Reference], progress: Progress, *, batched: bool
) -> float:
    """Decode with captured steps, alone and (if the model can) together. Infinite if capturing was given up.

    Again in large buffers, which are mostly masked: a model that goes by the length of what it fetched shows there.
    """
    worst = 0.0
    for room, most_rows, steps in ((SMALLEST_ROOM, len(references), STEPS), (LARGE_ROOM, 2, 1)):
        captured = CapturedGenerator(generator, smallest_room=room)
        for rows in (1, most_rows) if batched else (1,):
            progress("compiling the decode step (slow the first time)", None)
            layers = [_read_alone(generator, r) for r in references[:rows]]
            state = layers[0] if rows == 1 else states.merge(layers)
            worst = max(worst, _follow(captured, state, references[:rows], steps=range(steps)))
            if not captured.num_graphs:
                return math.inf
    return worst


def _follow(
    generator: Generator, batch: states.Layers, references: Sequence[_Reference], steps: Sequence[int]
) -> float:
    """Feed each row what its reference was fed and return the worst difference of its logits."""
    worst = 0.0
    for step in steps:
        tokens = [r.tokens[step - 1] if step else r.prompt[-1] for r in references]
        logits = generator.forward(mx.array(tokens, dtype=mx.int32)[:, None], batch)[:, -1]
        worst = max(worst, *(_distance(r.logits[step], logits[i]) for i, r in enumerate(references)))
    return worst


def _distance(expected: mx.array, actual: mx.array) -> float:
    """Return by how much the likeliest tokens' log-probabilities differ, as a share of what the dtype allows."""
    tolerance = TOLERANCE.get(expected.dtype, HALF_TOLERANCE)
    a, b = expected.astype(mx.float32), actual.astype(mx.float32)
    top = mx.argpartition(-a, kth=min(TOP, a.size - 1))[:TOP]
    difference = mx.abs((a - mx.logsumexp(a))[top] - (b - mx.logsumexp(b))[top]).max().item()
    return float(difference) / tolerance if difference == difference else math.inf


def _differs(what: str, check: Callable[[], float]) -> str:
    """Return why ``check`` failed, or nothing if it passed. A model that raises in a batch is one that cannot batch."""
    try:
        worst = check()
    except Exception as error:
        if isinstance(error, VllmMlxError) or kernels.is_failure(error):
            raise
        log.debug("Self-test: %s raised", what, exc_info=True)
        return f"{what} raised {type(error).__name__}"
    return "" if worst <= 1 else f"{what} changes its answers"
