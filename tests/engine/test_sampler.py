"""The batch sampler against numpy, one row at a time, whatever the other rows are."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vllm_mlx_core.engine.messages import SamplingSpec
from vllm_mlx_core.engine.sampler import BatchSampler

VOCAB = 97
GREEDY = SamplingSpec(temperature=0.0)


def logits_for(seed, vocab=VOCAB, scale=2.0):
    return np.random.default_rng(seed).normal(scale=scale, size=vocab).astype(np.float32)


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def sampler_of(*specs, vocab=VOCAB, prompt=(), output=(), stops=(), min_tokens=0):
    sampler = BatchSampler(vocab)
    for spec in specs:
        sampler.append(spec, prompt, output, stops, min_tokens)
    return sampler


def tokens_of(sampler, *rows):
    return sampler.sample(mx.array(np.stack(rows))).read()[0]


def run(spec, rows, **kwargs):
    """Return what one sequence samples from these logits, one after the other."""
    sampler = sampler_of(spec, vocab=len(rows[0]), **kwargs)
    return [tokens_of(sampler, row)[0] for row in rows]


def draws(logits, num, **params):
    """Return the counts of ``num`` independent draws from one row of logits."""
    sampler = sampler_of(*(SamplingSpec(seed=seed, **params) for seed in range(num)), vocab=len(logits))
    tokens = tokens_of(sampler, *([logits] * num))
    assert min(tokens) >= 0
    return np.bincount(tokens, minlength=len(logits))


def allowed_by(logits, *, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0):
    """Return the set of tokens that may be drawn, computed the slow way."""
    p = softmax(np.asarray(logits, np.float64) / temperature)
    p[p < min_p * p.max()] = 0
    order = sorted(range(len(p)), key=lambda t: -p[t])[: top_k or len(p)]
    total = sum(p[t] for t in order)
    allowed: set[int] = set()
    mass = 0.0
    for token in order:
        if allowed and mass >= top_p * total:
            break
        mass += p[token]
        if p[token] > 0:
            allowed.add(token)
    return allowed


specs = st.builds(
    SamplingSpec,
    temperature=st.sampled_from([0.0, 1e-5, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 0, 1, 5, 40, 96, 1000]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.3, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    logit_bias=st.sampled_from([{}, {}, {3: 4.0, 96: -100.0}]),
    seed=st.integers(-(2**63), 2**64),
    logprobs=st.sampled_from([None, None, 0, 3, 20]),
)
rows_of_specs = st.lists(st.tuples(specs, st.integers(0, 10_000)), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(rows_of_specs, st.data(), st.sampled_from([mx.float32, mx.float16, mx.bfloat16]))
def test_a_row_samples_the_same_alone_and_in_a_batch_that_changes(rows, data, dtype):
    steps = 4
    inputs = [[logits_for(seed + 7919 * step) for step in range(steps)] for _, seed in rows]

    def step(sampler, which, position):
        logits = mx.array(np.stack([inputs[i][position] for i in which])).astype(dtype)
        return sampler.sample(logits).read()

    expected = []
    for i, (spec, _) in enumerate(rows):
        solo = sampler_of(spec, prompt=[1, 2, 2], stops=[5], min_tokens=2)
        expected.append([tuple(x[0] for x in step(solo, [i], position)) for position in range(steps)])

    batch = sampler_of(*(spec for spec, _ in rows), prompt=[1, 2, 2], stops=[5], min_tokens=2)
    alive = list(range(len(rows)))
    for position in range(steps):
        tokens, logprobs = step(batch, alive, position)
        for slot, i in enumerate(alive):
            token, own = expected[i][position]
            assert tokens[slot] == token
            assert logprobs[slot] == own
        keep = data.draw(st.permutations(range(len(alive))))
        keep = keep[: data.draw(st.integers(1, len(keep)))]
        batch.filter(keep)
        alive = [alive[slot] for slot in keep]


@pytest.mark.parametrize("vocab", [2048, 2049, 5003])
def test_a_row_of_a_wide_vocabulary_samples_the_same_alone_and_among_others(vocab):
    each: list[dict[str, Any]] = [
        {},
        {"min_p": 0.01},
        {"top_k": 3},
        {"top_k": 100},
        {"top_k": 1500},
        {"top_p": 0.9},
        {"top_k": 9, "top_p": 0.5},
    ]
    specs = [SamplingSpec(seed=i, temperature=t, **params) for i, params in enumerate(each) for t in (1.0, 1.5)]
    rows = [logits_for(i, vocab) for i in range(len(specs))]
    alone = [run(spec, [row])[0] for spec, row in zip(specs, rows, strict=True)]
    assert tokens_of(sampler_of(*specs, vocab=vocab), *rows) == alone
    assert tokens_of(sampler_of(*specs[::-1], vocab=vocab), *rows[::-1]) == alone[::-1]


@settings(max_examples=30, deadline=None)
@given(specs, st.integers(0, 1000), st.integers(0, 5))
def test_a_sequence_that_resumes_goes_on_as_if_it_had_never_stopped(spec, seed, cut):
    rows = [logits_for(seed + i) for i in range(6)]
    whole = run(spec, rows, prompt=[4, 9], stops=[7, 8], min_tokens=3)
    resumed = run(spec, rows[cut:], prompt=[4, 9], output=whole[:cut], stops=[7, 8], min_tokens=3)
    assert resumed == whole[cut:]


def test_a_row_that_joins_later_is_not_changed_by_the_step_it_joins_at():
    spec = SamplingSpec(seed=5, temperature=1.0, frequency_penalty=0.5)
    rows = [logits_for(i) for i in range(20)]
    alone = run(spec, rows)
    sampler = sampler_of(SamplingSpec(seed=1, repetition_penalty=1.2))
    for i in range(3):
        tokens_of(sampler, logits_for(100 + i))
    sampler.append(spec, [], [], [], 0)
    assert [tokens_of(sampler, logits_for(50 + i), row)[1] for i, row in enumerate(rows)] == alone


@pytest.mark.parametrize("vocab", [97, 3000])
def test_draws_follow_the_softmax(vocab):
    logits = logits_for(1, vocab, scale=3.0)
    logits[7] = -np.inf
    num = 4000
    counts = draws(logits, num, temperature=1.3)
    expected = num * softmax(logits / 1.3)
    assert counts[7] == 0
    likely = expected >= 5
    rest = expected[~likely].sum()
    chi2 = ((counts[likely] - expected[likely]) ** 2 / expected[likely]).sum()
    chi2 += (counts[~likely].sum() - rest) ** 2 / rest
    freedom = likely.sum()
    assert abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom)


def test_draws_of_one_sequence_follow_the_softmax_over_its_positions():
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    counts = np.bincount(run(SamplingSpec(seed=11), [logits] * 2000), minlength=4)
    expected = 2000 * np.array([0.5, 0.25, 0.125, 0.125])
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # 0.1 % of honest generators


def test_every_token_of_a_flat_wide_distribution_can_be_drawn_evenly_over_the_vocabulary():
    vocab = 50_000
    counts = draws(np.zeros(vocab, np.float32), 60)
    quarters = counts.reshape(4, -1).sum(axis=1)
    assert quarters.min() >= 5
    assert (counts > 0).sum() >= 58


@pytest.mark.parametrize(
    "params",
    [
        {"top_k": 1},
        {"top_k": 10},
        {"top_k": 60},
        {"top_k": 10, "top_p": 0.5},
        {"top_p": 0.4},
        {"top_p": 0.8},
        {"top_p": 1e-7},
        {"top_p": 0.0},
        {"min_p": 0.3},
        {"min_p": 1.0},
        {"min_p": 0.1, "top_k": 6, "top_p": 0.9},
        {"min_p": 0.2, "top_p": 0.7},
        {"top_k": 500},
    ],
)
@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_exactly_the_allowed_tokens_are_drawn(params, temperature):
    logits = logits_for(3, scale=0.8)
    allowed = allowed_by(logits, temperature=temperature, **params)
    drawn = set(np.flatnonzero(draws(logits, 3000, temperature=temperature, **params)))
    assert drawn <= allowed
    p = softmax(logits / temperature)
    sure = {token for token in allowed if p[token] > 0.006}
    assert sure <= drawn


def test_truncated_draws_keep_the_proportions_of_what_is_left():
    logits = logits_for(5)
    allowed = sorted(allowed_by(logits, top_k=4))
    counts = draws(logits, 3000, top_k=4)[allowed]
    expected = 3000 * softmax(logits[allowed])
    assert ((counts - expected) ** 2 / expected).sum() < 16.3


def test_temperatures_near_zero_are_greedy_and_large_ones_do_not_overflow():
    rows = [logits_for(i, scale=50.0) for i in range(5)]
    best = [int(row.argmax()) for row in rows]
    for temperature in (0.0, 1e-45, 1e-5, 1e-4):
        for off in (SamplingSpec(), SamplingSpec(top_k=5), SamplingSpec(top_p=0.9), SamplingSpec(min_p=0.1)):
            assert run(replace(off, temperature=temperature, seed=1), rows) == best
    assert all(token >= 0 for token in run(SamplingSpec(temperature=1e6, seed=1), rows))


def test_equal_logits_share_the_draws_and_top_k_still_keeps_k():
    counts = draws(np.zeros(VOCAB, np.float32), 2000, top_k=3)
    assert (counts > 0).sum() == 3
    assert counts[counts > 0].min() > 550


@pytest.mark.parametrize(
    "spec",
    [
        GREEDY,
        SamplingSpec(seed=1),
        SamplingSpec(seed=1, top_k=5),
        SamplingSpec(seed=1, top_p=0.5),
        SamplingSpec(seed=1, min_p=0.5),
        SamplingSpec(temperature=0.0, repetition_penalty=1.5, presence_penalty=1.0),
        SamplingSpec(seed=1, top_k=2, logprobs=2),
    ],
)
def test_a_row_without_a_valid_choice_gets_no_token_and_its_neighbours_theirs(spec):
    good = [logits_for(1), logits_for(2)]
    one_nan = logits_for(3)
    one_nan[VOCAB // 2] = np.nan
    bad = [one_nan, np.full(VOCAB, np.nan, np.float32), np.full(VOCAB, -np.inf, np.float32)]
    sampler = sampler_of(*[spec] * 5)
    alone = sampler_of(*[spec] * 2)
    for _ in range(3):
        tokens = tokens_of(sampler, bad[0], good[0], bad[1], good[1], bad[2])
        assert [tokens[i] for i in (0, 2, 4)] == [-1, -1, -1]
        assert [tokens[1], tokens[3]] == tokens_of(alone, *good)


def test_penalties_are_those_of_the_slow_computation():
    rng = np.random.default_rng(0)
    spec = SamplingSpec(temperature=0.0, repetition_penalty=1.4, presence_penalty=0.6, frequency_penalty=0.3)
    only_frequency = SamplingSpec(temperature=0.0, frequency_penalty=0.9)
    vocab, prompt = 12, [0, 3, 3, 50_000]
    plain = rng.normal(size=(40, vocab)).astype(np.float32)
    sampler = sampler_of(only_frequency, GREEDY, spec, vocab=vocab, prompt=prompt)
    outputs: list[list[int]] = [[], [], []]
    for logits in plain:
        expected = []
        for which, output in zip((only_frequency, GREEDY, spec), outputs, strict=True):
            x = logits.astype(np.float64)
            for token in {*prompt[:3], *output}:
                x[token] = x[token] / which.repetition_penalty if x[token] > 0 else x[token] * which.repetition_penalty
            for token in set(output):
                x[token] -= which.frequency_penalty * output.count(token) + which.presence_penalty
            expected.append(int(x.argmax()))
        assert tokens_of(sampler, logits, logits, logits) == expected
        for output, token in zip(outputs, expected, strict=True):
            output.append(token)


def test_a_penalised_row_that_joins_and_leaves_takes_its_counts_with_it():
    spec = SamplingSpec(temperature=0.0, frequency_penalty=100.0)
    logits = np.arange(5, dtype=np.float32)
    sampler = sampler_of(spec, GREEDY, vocab=5)
    assert tokens_of(sampler, logits, logits) == [4, 4]
    sampler.append(SamplingSpec(temperature=0.0, repetition_penalty=100.0), [4, 3], [2], [], 0)
    assert tokens_of(sampler, logits, logits, logits) == [3, 4, 1]
    sampler.filter([2, 0])
    assert tokens_of(sampler, logits, logits) == [4, 2]
    sampler.filter([1])
    assert tokens_of(sampler, logits) == [1]


def test_bias_is_added_before_anything_else():
    logits = np.zeros(VOCAB, np.float32)
    assert run(SamplingSpec(temperature=0.0, logit_bias={5: 1.0, 6: 2.0}), [logits]) == [6]
    banned = logits_for(1)
    best = int(banned.argmax())
    assert best not in run(SamplingSpec(seed=3, logit_bias={best: -1000.0}), [banned] * 50)


def test_bias_for_a_token_outside_the_vocabulary_is_refused_and_adds_no_row():
    sampler = BatchSampler(5)
    with pytest.raises(ValueError, match="token 5"):
        sampler.append(SamplingSpec(logit_bias={5: 1.0}), [], [], [], 0)
    assert len(sampler) == 0


def test_stop_tokens_are_banned_until_min_tokens_even_against_a_bias():
    logits = np.arange(6, dtype=np.float32)
    spec = SamplingSpec(temperature=0.0, logit_bias={5: 10.0})
    assert run(spec, [logits] * 5, stops=[5, 4, 1000], min_tokens=3) == [3, 3, 3, 5, 5]
    assert run(spec, [logits] * 2, stops=[5], min_tokens=3, output=[0, 0]) == [4, 5]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.lists(st.sampled_from([None, 0, 1, 5, 40]), min_size=1, max_size=5))
def test_logprobs_are_those_of_the_unmodified_model_and_only_for_rows_that_asked(seed, asked):
    specs = [
        SamplingSpec(seed=i, temperature=0.5, top_k=20, logit_bias={1: 3.0}, logprobs=k) for i, k in enumerate(asked)
    ]
    rows = [logits_for(seed + i) for i in range(len(asked))]
    sampled = sampler_of(*specs).sample(mx.array(np.stack(rows)))
    mx.eval(*sampled.arrays())
    tokens, logprobs = sampled.read()
    for k, row, token, own in zip(asked, rows, tokens, logprobs, strict=True):
        if k is None:
            assert own is None
            continue
        expected = np.log(softmax(row))
        assert own.chosen == pytest.approx(expected[token], abs=1e-5)
        best = np.argsort(-expected)[:k]
        assert list(own.top_ids) == list(best)
        assert list(own.top_logprobs) == pytest.approx(expected[best], abs=1e-5)


def test_logprobs_are_not_computed_when_nobody_asks_and_never_infinite():
    assert sampler_of(GREEDY).sample(mx.zeros((1, VOCAB))).logprobs is None
    logits = np.full(4, -np.inf, np.float32)
    logits[2] = 0
    (own,) = sampler_of(SamplingSpec(logprobs=4), vocab=4).sample(mx.array(logits[None])).read()[1]
    assert own.chosen == 0
    assert own.top_logprobs == [0.0, -9999.0, -9999.0, -9999.0]


def test_sampling_does_not_change_the_logits_it_is_given():
    logits = mx.array(np.stack([logits_for(1), logits_for(2)]))
    before = np.array(logits)
    spec = SamplingSpec(repetition_penalty=1.5, logit_bias={1: 5.0})
    sampler_of(spec, GREEDY, prompt=[1, 2]).sample(logits).read()
    assert np.array_equal(np.array(logits), before)
