"""Layer states: what is kept stays what it was, and holds no more than it says."""

from __future__ import annotations

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from vllm_mlx_core.api import Generator, KVQuantization, ModelError
from vllm_mlx_core.engine import states
from vllm_mlx_core.engine.batch import Batch
from vllm_mlx_core.engine.messages import SamplingSpec, Submit
from vllm_mlx_core.engine.prompt_state import PromptState, check_quantization
from vllm_mlx_core.engine.sequence import Sequence
from vllm_mlx_core.testing import TINY_ARCHITECTURES

BATCHED = [name for name in TINY_ARCHITECTURES if name != "llama4"]


def read(generator: Generator, tokens: list[int], layers: states.Layers) -> mx.array:
    """Return the last logits."""
    logits = generator.forward(mx.array([tokens], dtype=mx.int32), layers)[:, -1]
    mx.eval(logits, states.arrays(layers))
    return logits


def prompt(salt: int, length: int) -> list[int]:
    return [(salt * 31 + i * 17) % 180 + 3 for i in range(length)]


def contents(state: PromptState) -> list[tuple[str, object]]:
    """Return every value of a state; arrays as nested lists."""
    flat = tree_flatten(states.arrays(state.layers()))
    return [(path, value.tolist() if isinstance(value, mx.array) else value) for path, value in flat]


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_a_kept_state_is_not_changed_by_what_is_computed_from_it(architecture, generator):
    model = generator(architecture)
    layers = model.make_cache()
    read(model, prompt(1, 40), layers)
    kept = PromptState(layers, 40).compact()
    before = contents(kept)
    for step in range(5):  # the live state goes on
        read(model, [step + 3], layers)
    first, second = (read(model, [9, 8, 7], kept.layers()) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert contents(kept) == before


@pytest.mark.parametrize("architecture", BATCHED)
def test_a_row_taken_out_of_a_batch_holds_no_more_memory_than_it_says(architecture, generator):
    model = generator(architecture)
    rows = []
    for row in range(32):
        layers = model.make_cache()
        read(model, prompt(row, 40), layers)
        rows.append(layers)
    batch = states.merge(rows)
    mx.eval(states.arrays(batch))
    kept = PromptState(states.extract(batch, 5), 40).compact()
    expected = read(model, [9], rows[5])
    del rows, layers, batch
    mx.synchronize()
    held = mx.get_active_memory()
    nbytes, restored = kept.nbytes, read(model, [9], kept.layers())
    mx.synchronize()
    del kept
    mx.synchronize()
    assert held - mx.get_active_memory() <= 2 * nbytes + 16_384
    assert mx.abs(restored - expected).max().item() < 1e-4


@pytest.mark.parametrize("architecture", BATCHED)
def test_rows_that_have_read_nothing_join_and_are_joined_like_others(architecture, generator):
    model = generator(architecture)
    long = prompt(3, 20)

    def empty(rows: int) -> states.Layers:
        return states.merge([model.make_cache() for _ in range(rows)])

    def full() -> states.Layers:
        layers = model.make_cache()
        read(model, long, layers)
        return states.merge([layers])

    batch = empty(1)
    states.extend(batch, empty(2), rows=1, more_rows=2)
    states.extend(batch, full(), rows=3, more_rows=1)
    states.extend(batch, empty(2), rows=4, more_rows=2)
    tokens = [4, 5, 6, 7, 8, 9]
    logits = model.forward(mx.array(tokens, dtype=mx.int32)[:, None], batch)[:, -1]
    for row, token in enumerate(tokens):
        alone = read(model, [*long, token] if row == 3 else [token], model.make_cache())[0]
        assert mx.abs(logits[row] - alone).max().item() < 1e-3


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
@pytest.mark.parametrize("length", [10, 31, 32, 33, 70])
def test_a_state_either_goes_back_right_or_says_that_it_cannot(architecture, length, generator):
    model = generator(architecture)
    tokens = prompt(2, length)
    layers = model.make_cache()
    for start in range(0, length, 8):
        read(model, tokens[start : start + 8], layers)
    kept = PromptState(layers, length)
    if not kept.can_truncate:
        with pytest.raises(ValueError, match="cannot go"):
            kept.truncate(length - 3)
        return
    cold = model.make_cache()
    expected = read(model, [*tokens[: length - 3], 9], cold)
    actual = read(model, [9], kept.truncate(length - 3).layers())
    assert mx.abs(expected - actual).max().item() < 1e-3


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_how_long_a_state_can_go_back_is_known_before_anything_is_read(architecture, generator):
    model = generator(architecture)
    limit = states.truncatable_tokens(model.make_cache())
    layers = model.make_cache()
    for length in range(0, 140, 7):
        read(model, prompt(1, 7), layers)
        if length + 7 < limit:
            assert PromptState(layers, length + 7).can_truncate
    assert PromptState(layers, 140).can_truncate == (limit > 140)
    assert states.always_truncates(model.make_cache()) == (limit == float("inf"))


@pytest.mark.parametrize("architecture", BATCHED)
def test_a_batch_may_shrink_before_its_first_step(architecture, generator):
    model = generator(architecture)
    batch = Batch(model)
    for number in range(2):  # prompts of one token: nothing has been read
        submit = Submit(
            sequence_id=number,
            request_id="r",
            prompt=[5 + number],
            max_tokens=4,
            sampling=SamplingSpec(temperature=0),
        )
        batch.join([Sequence(submit)], model.make_cache())
    batch.remove({0})
    assert batch.launch().read()[0] == [mx.argmax(read(model, [6], model.make_cache())[0]).item()]


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
@pytest.mark.parametrize("length", [20, 70])
def test_the_parts_of_a_state_joined_again_are_that_state(architecture, length, generator):
    model = generator(architecture)
    layers = model.make_cache()
    read(model, prompt(2, length), layers)
    state = PromptState(layers, length).compact()
    parts = [state.segment(0, 5), state.segment(5, 12).part(0, 4), state.segment(9, length)]
    assert [part.num_tokens for part in parts] == [5, 4, length - 9]
    again = parts[0].join(parts[1:], state.snapshot)
    assert contents(again) == contents(state)
    assert read(model, [9], again.layers()).tolist() == read(model, [9], state.layers()).tolist()
    rest = state.snapshot.nbytes if state.snapshot is not None else 0
    assert sum(part.nbytes for part in parts) + rest == state.nbytes


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_parts_that_do_not_fit_together_are_refused(architecture, generator):
    model = generator(architecture)
    layers = model.make_cache()
    read(model, prompt(2, 70), layers)
    state = PromptState(layers, 70)
    for start, stop in ((-1, 5), (5, 5), (60, 71)):
        with pytest.raises(ValueError, match="no tokens"):
            state.segment(start, stop)
    if state.snapshot is not None:
        for snapshot in (None, state.snapshot):
            with pytest.raises(ValueError, match="snapshot"):
                state.segment(0, 60).join([], snapshot)


@pytest.mark.parametrize(("bits", "share", "tolerance"), [(8, 0.45, 0.05), (4, 0.35, 1.0)])
def test_a_quantised_state_holds_less_and_goes_on_nearly_alike(bits, share, tolerance, generator):
    how = KVQuantization(bits=bits, group_size=32, min_tokens=40)
    model = generator("deepseek_v32")  # some of its arrays are wide enough
    layers = model.make_cache()
    read(model, prompt(2, 64), layers)
    plain, quantised = PromptState(layers, 64).compact(), PromptState(layers, 64).compact(how)
    assert quantised.nbytes <= share * plain.nbytes
    parts = [quantised.segment(0, 30), quantised.segment(30, 64)]
    expected = read(model, [9], plain.layers())
    for state in (quantised, parts[0].join(parts[1:], None), quantised.truncate(64)):
        actual = read(model, [9], state.layers())
        assert 0 < mx.abs(expected - actual).max().item() < tolerance


def test_a_short_state_is_not_quantised(generator):
    model = generator("deepseek_v32")
    layers = model.make_cache()
    read(model, prompt(2, 20), layers)
    how = KVQuantization(group_size=32, min_tokens=21)
    assert PromptState(layers, 20).compact(how).nbytes == PromptState(layers, 20).compact().nbytes


@pytest.mark.parametrize(("architecture", "reason"), [("llama", "heads of this model"), ("mamba2", "no layer")])
def test_a_quantisation_that_cannot_be_had_is_refused(architecture, reason, generator):
    with pytest.raises(ModelError, match=reason):
        check_quantization(generator(architecture), KVQuantization(group_size=128))
