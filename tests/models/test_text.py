"""The text family: the conformance suite over several architectures, and what it says of broken checkpoints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelError, UnsupportedModel
from vllm_mlx_core.testing import write_tiny_model
from vllm_mlx_core.testing.families import ModelFamilySuite
from vllm_mlx_models import mlx_lm_bridge
from vllm_mlx_models.text import TextFamily


class TextSuite(ModelFamilySuite):
    family = TextFamily
    architecture = ""

    @pytest.fixture
    def checkpoint(self, tiny_model):
        return Checkpoint(path=tiny_model(self.architecture))


class TestLlama(TextSuite):
    architecture = "llama"


class TestGemma3(TextSuite):
    architecture = "gemma3"


class TestMamba2(TextSuite):
    architecture = "mamba2"


del TextSuite  # or pytest would collect it, without an architecture


@pytest.fixture
def folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model("qwen3"), tmp_path / "model")


def load(folder, **options):
    return TextFamily(Checkpoint(path=folder), LoadOptions(**options)).load_generator()


def change(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def logits(generator):
    return generator.forward(mx.array([[1, 2, 3]], dtype=mx.int32), generator.make_cache())


def test_the_contract_with_mlx_lm_holds(tiny_model):
    """What we use of mlx-lm: lazy strict loading, one cache per layer, ``model(tokens, cache=layers)``."""
    model = mlx_lm_bridge.load_lazily(tiny_model("qwen3"))
    layers = mlx_lm_bridge.make_prompt_cache(model)
    assert len(layers) == len(model.layers)
    assert model(mx.array([[1, 2]]), cache=layers).shape[:2] == (1, 2)
    assert layers[0].offset == 2
    assert mlx_lm_bridge.cast_predicate(model)("model.norm.weight") is True


def test_nbytes_is_the_size_of_the_weights(folder):
    stored = mx.load(str(folder / "model.safetensors"))
    assert load(folder).nbytes == sum(array.nbytes for array in stored.values())


@pytest.mark.parametrize("bits", [None, 4])
def test_on_a_cpu_half_precision_becomes_float32_scales_included(tmp_path, bits):
    folder = write_tiny_model("qwen3", tmp_path / "half", dtype="bfloat16", bits=bits)
    usual = mx.default_device()
    mx.set_default_device(mx.cpu)
    try:
        generator = load(folder)
    finally:
        mx.set_default_device(usual)
    kinds = {array.dtype for _, array in tree_flatten(generator._model.parameters())}
    assert kinds == ({mx.float32, mx.uint32} if bits else {mx.float32})
    assert logits(generator).dtype == mx.float32


def test_the_operator_may_choose_the_type(folder):
    assert logits(load(folder, dtype="bfloat16")).dtype == mx.bfloat16


def test_an_unknown_type_is_refused(folder):
    with pytest.raises(ModelError, match="float32, float16, bfloat16"):
        load(folder, dtype="int3")


def test_progress_is_reported(folder):
    seen = []
    load(folder, progress=lambda what, fraction=None: seen.append(fraction))
    assert seen == [0.0, 1.0]


def test_an_unknown_architecture_names_itself_and_the_library(folder):
    change(folder, model_type="no_such_model")
    with pytest.raises(UnsupportedModel, match=r"no_such_model.*mlx-lm is \d"):
        load(folder)


@pytest.mark.parametrize("trusted", [False, True])
def test_code_in_the_folder_runs_only_if_the_operator_trusts_it(folder, tmp_path, trusted):
    ran = tmp_path / "ran"
    code = f"from mlx_lm.models.qwen3 import Model, ModelArgs\nopen({str(ran)!r}, 'w').close()\n"
    (folder / "own.py").write_text(code)
    change(folder, model_file="own.py")
    if trusted:
        assert load(folder, trust_remote_code=True).vocab_size > 0
    else:
        with pytest.raises(ModelError, match="trust-remote-code"):
            load(folder)
    assert ran.exists() == trusted


def test_only_layers_of_mlx_lm_itself_are_called_pure(folder, monkeypatch):
    monkeypatch.setattr("mlx_lm.models.qwen3.MLP", qwen3.MLP)  # restores it
    assert load(folder).is_pure
    code = "from mlx_lm.models import qwen3\nfrom mlx_lm.models.qwen3 import Model, ModelArgs\n"
    code += "class OwnMLP(qwen3.MLP):\n    pass\nqwen3.MLP = OwnMLP\n"
    (folder / "own.py").write_text(code)
    change(folder, model_file="own.py")
    assert not load(folder, trust_remote_code=True).is_pure


def test_missing_weights_are_named(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"no weights.*pytorch_model\.bin is of another format"):
        load(folder)


def test_a_missing_shard_is_named(folder):
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"missing.*model-00002\.safetensors"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, -10])
def test_weights_cut_short_are_told_before_they_are_read(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match="cut short"):
        load(folder)


def test_weights_of_another_model_are_told(folder):
    change(folder, num_hidden_layers=7)
    with pytest.raises(ModelError, match="do not fit"):
        load(folder)


def test_a_config_that_lacks_a_field_is_told(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="hidden_size"):
        load(folder)


def test_more_weights_than_memory_are_refused_before_loading(folder, monkeypatch):
    monkeypatch.setattr("vllm_mlx_models.weight_files.os.sysconf", lambda name: 1)
    with pytest.raises(ModelError, match="Not enough memory: the weights take"):
        load(folder)


def test_running_out_of_memory_while_loading_is_explained(folder, monkeypatch):
    def out_of_memory(*_):
        raise RuntimeError("[malloc_or_wait] Unable to allocate 17179869184 bytes.")

    monkeypatch.setattr("vllm_mlx_models.generator.mx.eval", out_of_memory)
    with pytest.raises(ModelError, match="Not enough memory"):
        load(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_attention_heads", 0), ("vocab_size", 10**12), ("rope_theta", None), ("hidden_size", -1), ("head_dim", "x")],
)
def test_whatever_model_code_makes_of_a_senseless_config_is_a_model_error(folder, field, value):
    change(folder, **{field: value})
    with pytest.raises(ModelError):
        load(folder)


def test_a_tokenizer_of_transformers_and_the_weights_load_at_the_same_time(folder):
    """In a fresh process, for the imports are what collides."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "LlamaTokenizerFast"}))
    code = (
        "import sys; from vllm_mlx_core import LLM, SamplingParams\n"
        "with LLM(sys.argv[1]) as llm: print(llm.chat([{'role': 'user', 'content': 'Hi'}],"
        " SamplingParams(max_tokens=3)).usage.completion_tokens)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "3", done.stderr
