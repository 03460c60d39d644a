"""States as bytes: what a second engine loads is what the first one dumped, and only of the same model."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from vllm_mlx_core.api import Checkpoint, Generator, KVQuantization, LoadOptions, StateCodec, Tensor, Tensors
from vllm_mlx_core.engine import states
from vllm_mlx_core.engine.prompt_state import PromptState
from vllm_mlx_core.engine.state_codec import codec_of
from vllm_mlx_core.host import Host
from vllm_mlx_core.testing import TINY_ARCHITECTURES, FakeState, write_tiny_model


def read(generator: Generator, tokens: list[int], layers: states.Layers) -> mx.array:
    """Return the last logits."""
    logits = generator.forward(mx.array([tokens], dtype=mx.int32), layers)[:, -1]
    mx.eval(logits, states.arrays(layers))
    return logits


def go_on(generator: Generator, layers: states.Layers) -> list[object]:
    """Return some logits and the greedy tokens that they lead to."""
    said, token = [], 9
    for _ in range(6):
        logits = read(generator, [token], layers)
        token = int(mx.argmax(logits[0]).item())
        said += [token, logits.tolist()]
    return said


def codec(generator: Generator, quantization: KVQuantization | None = None) -> StateCodec:
    found = codec_of(generator, quantization)
    assert found is not None
    return found


def stored(tensors: Tensors) -> Tensors:
    """Return tensors as they come out of a file."""
    return {name: Tensor(dtype, shape, bytes(data)) for name, (dtype, shape, data) in tensors.items()}


def state_after(generator: Generator, length: int) -> PromptState:
    layers = generator.make_cache()
    read(generator, [i * 17 % 180 + 3 for i in range(length)], layers)
    return PromptState(layers, length).compact()


def through_bytes(state: PromptState, source: StateCodec, target: StateCodec, cuts: list[int]) -> PromptState:
    segments = [state.segment(*ends) for ends in zip([0, *cuts], [*cuts, state.num_tokens], strict=True)]
    first, *after = [target.load_segment(stored(source.dump(segment))) for segment in segments]
    rest = None if state.snapshot is None else target.load_snapshot(stored(source.dump(state.snapshot)))
    joined = first.join(after, rest)
    assert isinstance(joined, PromptState)
    return joined


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
@pytest.mark.parametrize("length", [20, 70])
def test_another_engine_goes_on_from_the_bytes_as_this_one_would(architecture, length, generator):
    one, other = generator(architecture), generator(architecture)
    state = state_after(one, length)
    again = through_bytes(state, codec(one), codec(other), [8, 9])
    assert (again.num_tokens, again.nbytes, again.can_truncate) == (length, state.nbytes, state.can_truncate)
    assert go_on(other, again.layers()) == go_on(one, state.layers())


@pytest.mark.parametrize("architecture", [name for name in TINY_ARCHITECTURES if name != "llama4"])
def test_a_row_taken_out_of_a_batch_goes_through_bytes_too(architecture, generator):
    model = generator(architecture)
    rows = []
    for start in range(3):
        layers = model.make_cache()
        read(model, [(start * 31 + i * 17) % 180 + 3 for i in range(40)], layers)
        rows.append(layers)
    state = PromptState(states.extract(states.merge(rows), 1), 40).compact()
    again = through_bytes(state, codec(model), codec(model), [33])
    assert go_on(model, again.layers()) == go_on(model, state.layers())


def load(folder: Path, dtype: str | None = None) -> Generator:
    host = Host()
    host.load([])
    checkpoint = Checkpoint(folder)
    return host.model_families.get(host.detect_family(checkpoint))(
        checkpoint, LoadOptions(dtype=dtype)
    ).load_generator()


def test_half_precision_stays_as_it_is(tiny_model):
    model = load(tiny_model("qwen3_5"), "bfloat16")
    state = state_after(model, 20)
    assert {t.dtype for t in codec(model).dump(state.segment(0, 20)).values()} == {"BF16", "U8"}
    again = through_bytes(state, codec(model), codec(model), [7])
    assert go_on(model, again.layers()) == go_on(model, state.layers())


def test_quantised_keys_and_values_stay_as_they_are(generator):
    how = KVQuantization(bits=8, group_size=32, min_tokens=0)
    model = generator("deepseek_v32")
    state = state_after(model, 40).compact(how)
    again = through_bytes(state, codec(model, how), codec(model, how), [30])
    assert again.nbytes == state.nbytes < state_after(model, 40).nbytes
    assert go_on(model, again.layers()) == go_on(model, state.layers())


def test_a_dumped_array_keeps_its_bytes_when_the_state_goes_on(generator):
    model = generator("gemma3")
    state = state_after(model, 20)
    assert state.snapshot is not None
    views = codec(model).dump(state.snapshot)
    before = {name: bytes(tensor.data) for name, tensor in views.items()}
    go_on(model, state.layers())
    del state
    assert {name: bytes(tensor.data) for name, tensor in views.items()} == before


def test_bytes_of_another_architecture_or_of_none_are_refused(generator):
    models = {name: generator(name) for name in ("llama", "qwen3", "gemma3", "mamba2", "qwen3_next", "deepseek_v32")}
    dumped = {name: codec(model).dump(state_after(model, 20).segment(0, 20)) for name, model in models.items()}
    snapshots = {
        name: codec(model).dump(snapshot)
        for name, model in models.items()
        if (snapshot := state_after(model, 20).snapshot) is not None
    }
    assert set(snapshots) == {"gemma3", "mamba2", "qwen3_next"}
    for name, tensors in snapshots.items():
        for other, model in models.items():
            if other != name:
                with pytest.raises(ValueError, match="other caches than the model has"):
                    codec(model).load_snapshot(tensors)
    with pytest.raises(ValueError, match="other layers than the model has"):
        codec(models["mamba2"]).load_segment(dumped["llama"])
    with pytest.raises(ValueError, match="no snapshot"):
        codec(models["llama"]).load_snapshot(dumped["llama"])
    with pytest.raises(ValueError, match="no segment"):
        codec(models["gemma3"]).load_segment(snapshots["gemma3"])
    with pytest.raises(ValueError, match="is missing"):
        codec(models["llama"]).load_segment({})
    with pytest.raises(ValueError, match="no part"):
        codec(models["llama"]).dump(FakeState((1, 2)).segment(0, 2))


@pytest.mark.parametrize(
    "broken",
    [
        {"0": Tensor("F32", (1, 2, 20, 16), b"short")},
        {"0": Tensor("C64", (1,), bytes(8))},
        {"0": Tensor("F32", (1, 2, 19, 16), bytes(4 * 2 * 19 * 16))},
        {"about": Tensor("U8", (2,), b"[]")},
        {"about": Tensor("U8", (1,), b"{")},
        {"about": Tensor("U8", (2,), b"{}")},
    ],
)
def test_bytes_that_make_no_sense_are_refused(broken, generator):
    model = generator("llama")
    dumped = codec(model).dump(state_after(model, 20).segment(0, 20))
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        codec(model).load_segment({**dumped, **broken})


def test_the_identity_is_that_of_weights_and_of_all_that_shapes_a_state(tmp_path):
    folder = write_tiny_model("llama", tmp_path / "one")
    model = load(folder)
    same = load(write_tiny_model("llama", tmp_path / "same"))
    others = [
        (load(write_tiny_model("llama", tmp_path / "other", seed=1)), None),
        (load(write_tiny_model("llama", tmp_path / "quantised", bits=8)), None),
        (load(folder, "bfloat16"), None),
        (model, KVQuantization()),
        (model, KVQuantization(bits=4)),
    ]
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 10001.0'))
    others.append((load(folder), None))
    assert codec(model).identity == codec(same).identity
    identities = [codec(model).identity, *(codec(*each).identity for each in others)]
    assert len(set(identities)) == len(identities)


def test_a_large_array_that_differs_in_few_places_is_told_apart(tmp_path):
    """Pieces are hashed of what is larger than any array of a tiny model."""

    class One:
        nbytes = vocab_size = 0
        architecture = "one"

        def __init__(self, values: mx.array) -> None:
            self._values = values

        def weights(self):
            yield "values", self._values

        def make_cache(self):
            return []

        def forward(self, tokens, layers):
            raise NotImplementedError

    plain = mx.zeros((1000, 1000))
    first, last = mx.zeros((1000, 1000)), mx.zeros((1000, 1000))
    first[0, 0] = last[-1, -1] = 1
    rows = mx.zeros((1000, 1000))
    rows[::20] = 1
    identities = {codec(One(array)).identity for array in (plain, first, last, rows, plain.T)}
    assert len(identities) == 4
    assert codec_of(object(), None) is None  # type: ignore[arg-type]
