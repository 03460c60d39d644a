"""The CPU's own attention against MLX's, for every mask and head layout that models use."""

from __future__ import annotations

import sys

import mlx.core as mx
import pytest

from vllm_mlx_core.engine import cpu_attention
from vllm_mlx_core.engine.cpu_attention import attention
from vllm_mlx_core.engine.device import has_metal

HEADS = [(4, 4), (6, 2), (8, 1)]


@pytest.fixture(autouse=True)
def no_threshold(monkeypatch):
    """Small tensors take the path of large ones."""
    monkeypatch.setattr(cpu_attention, "MIN_SCORES", 0)


@pytest.fixture
def mlx_attention(monkeypatch):
    """Count what is left to MLX's function."""
    original = cpu_attention._mlx_attention
    calls = []

    def counted(*args, **kwargs):
        calls.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(cpu_attention, "_mlx_attention", counted)
    return calls


def tensors(rows=2, heads=4, kv_heads=4, length=5, positions=9, width=16, value_width=16, dtype=mx.float32, scale=1.0):
    keys = mx.random.split(mx.random.key(positions * 31 + length), 3)
    return (
        (mx.random.normal((rows, heads, length, width), key=keys[0]) * scale).astype(dtype),
        (mx.random.normal((rows, kv_heads, positions, width), key=keys[1]) * scale).astype(dtype),
        mx.random.normal((rows, kv_heads, positions, value_width), key=keys[2]).astype(dtype),
    )


def masks(rows: int, heads: int, length: int, positions: int):
    causal = mx.arange(positions - length, positions)[:, None] >= mx.arange(positions)
    padding = mx.arange(positions) >= mx.array([[0], [3]])[:rows]
    per_head = mx.arange(heads)[:, None, None] <= mx.arange(positions) + 2
    return {
        "none": None,
        "causal": "causal",
        "2d": causal,
        "1d": mx.arange(positions) < positions - 1,
        "padded": causal & padding[:, None, None],
        "per head": causal & per_head | (mx.arange(positions) == 0),
        "nothing allowed": mx.zeros((length, positions), dtype=mx.bool_),
    }


def both(q, k, v, mask):
    scale = q.shape[-1] ** -0.5
    return (
        attention(q, k, v, scale=scale, mask=mask),
        cpu_attention._mlx_attention(q, k, v, scale=scale, mask=mask),
    )


@pytest.mark.parametrize("mask", masks(2, 4, 5, 9))
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_it_agrees_with_mlx(heads, kv_heads, length, mask):
    q, k, v = tensors(heads=heads, kv_heads=kv_heads, length=length, value_width=24)
    ours, theirs = both(q, k, v, masks(2, heads, length, 9)[mask])
    assert ours.shape == theirs.shape == (2, heads, length, 24)
    assert mx.allclose(ours, theirs, atol=2e-6, rtol=2e-6).item()


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v = tensors(scale=60.0)
    ours, theirs = both(q, k, v, "causal")
    assert mx.isfinite(ours).all().item()
    assert mx.allclose(ours, theirs, atol=1e-4, rtol=1e-4).item()


def test_a_row_of_nan_stays_alone():
    q, k, v = tensors()
    k[0, 0, 2, 0] = mx.nan
    ours, theirs = both(q, k, v, None)
    assert mx.isnan(ours[0, 0]).all().item()
    assert mx.array_equal(mx.isnan(ours), mx.isnan(theirs)).item()


def test_it_works_inside_a_recorded_function():
    q, k, v = tensors(length=1)
    recorded = mx.compile(lambda q, k, v: attention(q, k, v, scale=0.25))
    assert mx.allclose(recorded(q, k, v), attention(q, k, v, scale=0.25), atol=1e-6).item()


@pytest.mark.parametrize(
    "options",
    [
        {"mask": mx.zeros((5, 9))},
        {"sinks": mx.zeros((4,))},
        {"mask": mx.ones((5, 9), dtype=mx.bool_), "sinks": mx.zeros((4,))},
        {"stream": mx.default_device()},
    ],
)
def test_what_is_not_usual_is_left_to_mlx(options, mlx_attention):
    q, k, v = tensors()
    attention(q, k, v, scale=0.25, **options)
    assert len(mlx_attention) == 1


def test_half_precision_is_left_to_mlx(mlx_attention):
    q, k, v = tensors(dtype=mx.float16)
    assert attention(q, k, v, scale=0.25).dtype == mx.float16
    assert len(mlx_attention) == 1


def test_few_scores_are_left_to_mlx(mlx_attention, monkeypatch):
    monkeypatch.setattr(cpu_attention, "MIN_SCORES", 2 * 4 * 5 * 9)
    attention(*tensors(), scale=0.25)
    assert not mlx_attention
    attention(*tensors(positions=8), scale=0.25)
    assert len(mlx_attention) == 1


def test_wrong_shapes_raise_what_mlx_raises(mlx_attention):
    q, k, v = tensors(heads=4, kv_heads=3)
    with pytest.raises(ValueError, match="multiple of n_kv_heads"):
        attention(q, k, v, scale=0.25)
    assert len(mlx_attention) == 1


@pytest.mark.parametrize("shape", [(4, 9), (5, 8), (3, 5, 9), (3, 1, 5, 9), (1, 2, 4, 5, 9)])
def test_a_mask_of_a_wrong_shape_raises_what_mlx_raises(shape, mlx_attention):
    with pytest.raises(ValueError, match="shape"):
        attention(*tensors(), scale=0.25, mask=mx.ones(shape, dtype=mx.bool_))
    assert len(mlx_attention) == 1


def test_an_unknown_mask_name_raises_what_mlx_raises():
    with pytest.raises(ValueError, match="diagonal"):
        attention(*tensors(), scale=0.25, mask="diagonal")


@pytest.mark.skipif(sys.platform != "linux" or has_metal(), reason="MLX's own attention is the faster one here")
def test_models_use_it_once_it_is_installed(monkeypatch):
    assert cpu_attention.install()
    from mlx_lm.models import base

    seen = []

    def masked(scores, *rest):
        seen.append(rest)
        return scores

    monkeypatch.setattr(cpu_attention, "_masked", masked)
    base.scaled_dot_product_attention(*tensors(), cache=None, scale=0.25, mask="causal")
    assert len(seen) == 1
