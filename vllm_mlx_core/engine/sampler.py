"""Picking the next token of every row of a decode batch in one set of array operations.

The order is: logit bias, banned stop tokens, penalties, temperature, min-p, top-k, top-p, draw. Rows whose parameters
need the same work form a group; a group's work depends on the row's own parameters only, never on who else is there, so
(seed, logits, position) always gives the same token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from .drawing import draw, seed_state, uniforms
from .logprobs import logprobs_of, ranked
from .messages import Logprobs, SamplingSpec
from .penalties import Penalties, is_penalised

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing by them leaves nothing of float32."""

_LOOKAHEAD = 16
_GREEDY = -1
_UNSORTED = 0
_OFF = 2.0  # a top_p no share of the mass ever reaches
_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """Log-probabilities of the rows that asked: ``chosen`` [R], ``top_ids`` and ``top_logprobs`` [R, K] or None.

    ``wanted`` is how many alternatives each row asked for; K is at least the largest of them.
    """

    rows: list[int]
    wanted: list[int]
    chosen: mx.array
    top_ids: mx.array | None
    top_logprobs: mx.array | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """One step's tokens, lazy: int32 [rows]; a row whose largest logit, ``peaks`` [rows], is not finite has none.

    The next step may read such a token all the same: ``read`` says -1 for it, and the row is dropped then.
    """

    tokens: mx.array
    peaks: mx.array
    logprobs: SampledLogprobs | None = None

    def arrays(self) -> list[mx.array]:
        """Return everything to evaluate."""
        asked = self.logprobs
        if asked is None:
            return [self.tokens, self.peaks]
        return [a for a in (self.tokens, self.peaks, asked.chosen, asked.top_ids, asked.top_logprobs) if a is not None]

    def read(self) -> tuple[list[int], list[Logprobs | None]]:
        """Return tokens (-1: no valid choice) and log-probabilities (None: not asked), one for each row.

        Waits for the arrays if they are not evaluated yet.
        """
        tokens: list[int] = self.tokens.tolist()
        peaks: list[float] = self.peaks.tolist()
        if not all(map(math.isfinite, peaks)):
            tokens = [token if math.isfinite(peak) else -1 for token, peak in zip(tokens, peaks, strict=True)]
        result: list[Logprobs | None] = [None] * len(tokens)
        asked = self.logprobs
        if asked is None:
            return tokens, result
        chosen = asked.chosen.tolist()
        ids = asked.top_ids.tolist() if asked.top_ids is not None else [[]] * len(chosen)
        values = asked.top_logprobs.tolist() if asked.top_logprobs is not None else ids
        for row, k, own, row_ids, row_values in zip(asked.rows, asked.wanted, chosen, ids, values, strict=True):
            result[row] = Logprobs(own, row_ids[:k], row_values[:k])
        return tokens, result


@dataclass(slots=True)
class _Row:
    spec: SamplingSpec
    state: int
    position: int
    stop_token_ids: Sequence[int]
    min_tokens: int


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that take one path. Parameters are [rows, 1], None where every row of the group has them off."""

    width: int
    index: mx.array | None  # None: the whole batch
    temperature: mx.array | None = None
    min_p: mx.array | None = None
    top_k: mx.array | None = None
    top_p: mx.array | None = None
    uniforms: mx.array | None = None  # [lookahead, rows, 1]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the next steps do, good for ``steps`` of them: arrays made once from the rows' parameters."""

    groups: list[_Group]
    order: mx.array | None
    edits: tuple[mx.array, mx.array, mx.array] | None  # row, token, addend
    logprob_rows: list[int]
    logprob_counts: list[int]
    logprob_index: mx.array | None
    steps: int


class BatchSampler:
    """The sampling state of the rows of one decode batch; row i belongs to row i of the batch. Engine thread only."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._rows: list[_Row] = []
        self._penalties = Penalties(vocab_size)
        self._plan: _Plan | None = None
        self._step = 0

    def __len__(self) -> int:
        return len(self._rows)

    def append(
        self,
        spec: SamplingSpec,
        prompt: Sequence[int],
        output: Sequence[int],
        stop_token_ids: Sequence[int],
        min_tokens: int,
    ) -> None:
        """Add a row at the end. Mutates.

        ``output`` are the tokens generated already: a sequence that was preempted goes on as it would have. Raises
        ValueError, and adds nothing, if ``spec.logit_bias`` names a token outside the vocabulary.
        """
        outside = [token for token in spec.logit_bias if not 0 <= token < self._vocab_size]
        if outside:
            raise ValueError(f"logit_bias names token {outside[0]}, but the vocabulary has {self._vocab_size} tokens.")
        if is_penalised(spec):
            self._penalties.append(len(self._rows), spec, prompt, output)
        stops = [token for token in stop_token_ids if 0 <= token < self._vocab_size]
        self._rows.append(_Row(spec, seed_state(spec.seed), len(output), stops, min_tokens))
        self._plan = None

    def filter(self, keep: Sequence[int]) -> None:
        """Keep these rows, in this order. Mutates."""
        self._rows = [self._rows[row] for row in keep]
        self._penalties.filter(keep)
        self._plan = None

    def sample(self, logits: mx.array) -> Sampled:
        """Pick a token for every row of ``logits`` [rows, vocab] (any float type) and advance every position.

        Lazy: evaluates nothing and reads nothing back. Mutates the state, not ``logits``.
        """
        plan = self._plan
        if plan is None or self._step >= plan.steps:
            plan = self._plan = self._make_plan()
            self._step = 0
        x = logits
        if plan.edits is not None or self._penalties:
            x = x.astype(mx.float32)
            if plan.edits is not None:
                rows, tokens, addends = plan.edits
                x = x.at[rows, tokens].add(addends)
            x = self._penalties.apply(x)
        peak = mx.max(x, axis=-1)  # NaN if any logit is
        picked = [self._pick(x if g.index is None else x[g.index], g) for g in plan.groups]
        chosen = picked[0] if plan.order is None else mx.concatenate(picked)[plan.order]
        chosen = chosen.view(mx.int32)
        self._penalties.update(chosen)
        self._step += 1
        for row in self._rows:
            row.position += 1
        return Sampled(chosen, peak, self._logprobs(plan, logits, chosen))

    def _pick(self, x: mx.array, group: _Group) -> mx.array:
        """Return uint32 [rows]."""
        if group.width == _GREEDY:
            return mx.argmax(x, axis=-1)
        assert group.uniforms is not None
        u = group.uniforms[self._step]
        x = x.astype(mx.float32)
        if group.width == _UNSORTED:
            weights = _softmax(x, group.temperature)
            if group.min_p is not None:
                weights = weights * (weights >= group.min_p * mx.max(weights, axis=-1, keepdims=True))
            return draw(weights, u)[:, 0]
        ids, values = ranked(x, group.width)
        weights = _softmax(values, group.temperature)
        if group.min_p is not None:
            weights = weights * (weights >= group.min_p * weights[:, :1])
        if group.top_k is not None:
            weights = weights * (mx.arange(group.width) < group.top_k)
        if group.top_p is not None:
            sums = mx.cumsum(weights, axis=-1)
            more_likely = mx.cumsum(weights, axis=-1, inclusive=False)
            weights = weights * (more_likely < group.top_p * sums[:, -1:])
        return mx.take_along_axis(ids, draw(weights, u), axis=-1)[:, 0]

    def _logprobs(self, plan: _Plan, logits: mx.array, chosen: mx.array) -> SampledLogprobs | None:
        if not plan.logprob_rows:
            return None
        if plan.logprob_index is not None:
            logits, chosen = logits[plan.logprob_index], chosen[plan.logprob_index]
        most = max(plan.logprob_counts)
        # Never fewer than protocols allow: the order of equal alternatives must not depend on what others ask for.
        own, ids, values = logprobs_of(logits, chosen, max(most, _ALTERNATIVES) if most else 0)
        return SampledLogprobs(plan.logprob_rows, plan.logprob_counts, own, ids, values)

    def _make_plan(self) -> _Plan:
        paths: dict[int, list[int]] = {}
        for index, row in enumerate(self._rows):
            paths.setdefault(self._width(row.spec), []).append(index)
        single = len(paths) == 1
        groups = [self._make_group(width, rows, single) for width, rows in paths.items()]
        order = None
        if not single:
            order = mx.array(np.argsort(np.concatenate([np.array(rows) for rows in paths.values()])))
        edits: list[tuple[int, int, float]] = []
        steps = _LOOKAHEAD
        for index, row in enumerate(self._rows):
            edits += [(index, token, value) for token, value in row.spec.logit_bias.items()]
            if row.position < row.min_tokens and row.stop_token_ids:
                edits += [(index, token, -math.inf) for token in set(row.stop_token_ids)]
                steps = min(steps, row.min_tokens - row.position)
        columns = list(zip(*edits, strict=True))
        asked = [(index, row.spec.logprobs) for index, row in enumerate(self._rows) if row.spec.logprobs is not None]
        rows = [index for index, _ in asked]
        return _Plan(
            groups=groups,
            order=order,
            edits=(mx.array(columns[0]), mx.array(columns[1]), mx.array(columns[2], mx.float32)) if edits else None,
            logprob_rows=rows,
            logprob_counts=[count for _, count in asked],
            logprob_index=None if len(rows) == len(self._rows) else mx.array(rows),
            steps=steps,
        )

    def _make_group(self, width: int, indexes: list[int], single: bool) -> _Group:
        index = None if single else mx.array(indexes)
        if width == _GREEDY:
            return _Group(width, index)
        rows = [self._rows[i] for i in indexes]
        specs = [row.spec for row in rows]
        table = uniforms([row.state for row in rows], [row.position for row in rows], _LOOKAHEAD)
        return _Group(
            width,
            index,
            temperature=_column([spec.temperature for spec in specs], 1.0),
            min_p=_column([spec.min_p for spec in specs], 0.0),
            top_k=_column([float(self._top_k(spec) or width) for spec in specs], float(width)),
            top_p=_column([max(spec.top_p, 1e-9) if spec.top_p < 1 else _OFF for spec in specs], _OFF),
            uniforms=mx.array(table[..., None]),
        )

    def _top_k(self, spec: SamplingSpec) -> int:
        return spec.top_k if 0 < spec.top_k < self._vocab_size else 0

    def _width(self, spec: SamplingSpec) -> int:
        """Return how many of a row's most likely tokens must be put in order: its path."""
        if spec.temperature < GREEDY_BELOW:
            return _GREEDY
        top_k = self._top_k(spec)
        if not top_k:
            return self._vocab_size if spec.top_p < 1 else _UNSORTED
        width = 32
        while width < top_k:
            width *= 4
        return width if 2 * width <= self._vocab_size else self._vocab_size


def _column(values: list[float], neutral: float) -> mx.array | None:
    return None if all(value == neutral for value in values) else mx.array(values, dtype=mx.float32)[:, None]


def _softmax(x: mx.array, temperature: mx.array | None) -> mx.array:
    # Dividing by 1 changes no bit, so a group without temperatures may skip it.
    return mx.softmax(x if temperature is None else x / temperature, axis=-1, precise=True)
