"""GGUF files: weights, config, tokenizer and template of a tiny model survive the detour through the format."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from vllm_mlx_core.api import Chat, Checkpoint, LoadOptions, ModelError, UnsupportedModel, no_progress
from vllm_mlx_models import hooks
from vllm_mlx_models.gguf import GGUFFamily, gguf_checkpoint
from vllm_mlx_models.gguf.config import model_config
from vllm_mlx_models.gguf.folder import ensure_weights
from vllm_mlx_models.gguf.header import GGUFHeader
from vllm_mlx_models.text import TextFamily
from vllm_mlx_models.tokenizer_loading import load_tokenizer

TOKENS = mx.array([[72, 101, 108, 108, 111, 32, 10]], dtype=mx.int32)


def logits(family):
    generator = family.load_generator()
    return generator.forward(TOKENS, generator.make_cache())


def serve(file, **options):
    checkpoint = hooks.vllm_mlx_resolve_model(str(file), LoadOptions(**options))
    assert hooks.vllm_mlx_detect_family(checkpoint, ["text", "gguf"]) == "gguf"
    return GGUFFamily(checkpoint, LoadOptions(**options))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(("kind", "tolerance"), [("F32", 1e-4), ("F16", 0.02), ("BF16", 0.1), ("Q8_0", 0.1)])
def test_the_logits_are_those_of_the_model_in_the_file(make_gguf, tiny_model, architecture, kind, tolerance):
    original = logits(TextFamily(Checkpoint(path=tiny_model(architecture)), LoadOptions()))
    converted = logits(serve(make_gguf(architecture, kind)))
    assert mx.max(mx.abs(converted - original)).item() < tolerance * mx.max(mx.abs(original)).item()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_blocks_are_kept_bit_for_bit(make_gguf, kind):
    file = make_gguf("llama", kind)
    kept = gguf_checkpoint(file)
    floats = gguf_checkpoint(file, key="floats", dequantize=True)
    both = [logits(GGUFFamily(checkpoint, LoadOptions(dtype="float32"))) for checkpoint in (kept, floats)]
    assert mx.allclose(*both, rtol=1e-3, atol=1e-3).item()
    assert json.loads((kept.path / "config.json").read_text())["quantization"]["bits"] == (8 if kind == "Q8_0" else 4)
    assert "quantization" not in json.loads((floats.path / "config.json").read_text())


def test_tokenizer_and_template_are_those_of_the_model(make_gguf, tiny_model):
    original = TextFamily(Checkpoint(path=tiny_model("qwen3")), LoadOptions()).load_processor()
    converted = serve(make_gguf("qwen3")).load_processor()
    text = "Hello  world 123 yes naïve 日本語 🦊\n\n<|im_end|><think>"
    assert converted.tokenizer.encode(text) == original.tokenizer.encode(text)
    assert converted.tokenizer.vocab_size == original.tokenizer.vocab_size
    chat = Chat(messages=[{"role": "user", "content": "Hi"}])
    assert converted.render(chat) == original.render(chat)
    assert converted.stop_token_ids == original.stop_token_ids
    assert converted.context_length == original.context_length


def test_resolving_makes_an_ordinary_folder_without_mlx(make_gguf):
    file = make_gguf("qwen3")
    code = (
        "import sys; from pathlib import Path; from vllm_mlx_models.gguf import gguf_checkpoint; "
        f"checkpoint = gguf_checkpoint(Path({str(file)!r})); "
        "print(checkpoint.model_type, bool(checkpoint.chat_template), 'mlx.core' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["qwen3", "True", "False"]


def test_a_file_is_converted_once(make_gguf):
    file = make_gguf("llama")
    seen = []

    def progress(what, fraction=None):
        seen.append(what)

    serve(file, progress=progress).load_generator()
    assert f"converting {file.name}" in seen
    seen.clear()
    serve(file, progress=progress).load_generator()
    assert f"converting {file.name}" not in seen


def test_a_changed_file_is_converted_anew(make_gguf):
    first = gguf_checkpoint(make_gguf("llama"))
    assert gguf_checkpoint(make_gguf("qwen3")).path != first.path
    with pytest.raises(ModelError, match="has changed"):
        ensure_weights(first.path, lambda *_: None)


def test_a_file_that_is_gone_before_its_weights_were_read_is_told(make_gguf):
    file = make_gguf("llama")
    checkpoint = gguf_checkpoint(file)
    file.unlink()
    with pytest.raises(ModelError, match="is gone"):
        GGUFFamily(checkpoint, LoadOptions()).load_generator()


def test_a_failed_conversion_leaves_nothing_behind(make_gguf, monkeypatch):
    checkpoint = gguf_checkpoint(make_gguf("llama"))
    before = sorted(checkpoint.path.iterdir())

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vllm_mlx_models.gguf.weights.mx.save_safetensors", full)
    with pytest.raises(ModelError, match=r"No space left.*VLLM_MLX_CACHE_DIR"):
        GGUFFamily(checkpoint, LoadOptions()).load_generator()
    assert sorted(checkpoint.path.iterdir()) == before


def test_a_file_may_be_given_to_the_family_itself(make_gguf):
    file = make_gguf("qwen3")
    family = GGUFFamily(Checkpoint(path=file, name="mine"), LoadOptions())
    assert family.checkpoint.name == "mine"
    assert family.load_processor().tokenizer.vocab_size == family.load_generator().vocab_size


def test_a_quantisation_that_mlx_cannot_read_is_named_with_those_it_can(make_gguf):
    with pytest.raises(UnsupportedModel, match=r"quantised as Q5_0.*F16, F32, Q4_0, Q4_1, Q6_K, Q8_0 work"):
        gguf_checkpoint(make_gguf("llama", "Q5_0"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\0" * 8, b"not a model at all"])
def test_a_broken_file_is_a_model_error(tmp_path, content):
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelError):
        gguf_checkpoint(file)


def test_a_file_cut_short_is_a_model_error(make_gguf):
    file = make_gguf("llama")
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="cut short"):
        gguf_checkpoint(file)


def test_an_architecture_without_a_layout_is_refused(tmp_path):
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "rwkv6")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="rwkv6 are not supported; llama, qwen2, qwen3 are"):
        gguf_checkpoint(tmp_path / "x.gguf")


SIZES = {
    "context_length": 131072,
    "embedding_length": 64,
    "feed_forward_length": 128,
    "block_count": 2,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
}


def header(rope_factor=None, **fields):
    named = {f"llama.{key}": value for key, value in (SIZES | fields).items()}
    return GGUFHeader({"general.architecture": "llama", **named}, {}, rope_factor)


def test_numbers_come_back_as_they_were_before_float32():
    assert model_config(header())["rms_norm_eps"] == 1e-5


def test_ready_made_rotary_frequencies_are_llama_3s():
    scaling = model_config(header(rope_factor=32.0))["rope_scaling"]
    assert (scaling["rope_type"], scaling["factor"]) == ("llama3", 32.0)


def test_rotary_scaling_is_taken_over():
    fields = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 32768}
    config = model_config(header(**{f"rope.{key}": value for key, value in fields.items()}))
    assert config["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    }
    assert "rope_scaling" not in model_config(header(**{"rope.scaling.type": "none"}))


def test_a_missing_size_and_experts_are_named():
    with pytest.raises(ModelError, match=r"lacks llama\.block_count"):
        model_config(header(block_count=None))
    with pytest.raises(UnsupportedModel, match="llama with experts"):
        model_config(header(expert_count=8))


def test_one_part_of_a_split_model_is_refused(tmp_path):
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "x-00001-of-00002.gguf", "llama")
    writer.add_uint16("split.count", 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="one part of a split model"):
        gguf_checkpoint(tmp_path / "x-00001-of-00002.gguf")


def test_an_unknown_pre_tokenizer_is_refused(make_gguf):
    with pytest.raises(UnsupportedModel, match="'martian'"):
        gguf_checkpoint(make_gguf("llama", pre="martian"))


def test_another_kind_of_tokenizer_is_refused(make_gguf):
    with pytest.raises(UnsupportedModel, match="'bert'"):
        gguf_checkpoint(make_gguf("llama", model="bert"))


def test_every_end_token_of_the_file_stops(make_gguf):
    processor = serve(make_gguf("qwen3", eot_token_id=5)).load_processor()
    assert 5 in processor.stop_token_ids
    assert processor.tokenizer.token_id("<|im_end|>") in processor.stop_token_ids


def test_the_sampling_that_the_file_advises_is_the_default(make_gguf):
    assert serve(make_gguf("qwen3", temperature=0.5)).load_processor().defaults.temperature == 0.5


def test_a_beginning_is_added_if_the_file_says_so(make_gguf):
    processor = serve(make_gguf("qwen3", add_bos_token=True)).load_processor()
    bos = processor.tokenizer.token_id("<|endoftext|>")
    assert processor.tokenize("a").token_ids == [bos, *processor.tokenizer.encode("a")]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentence_piece_vocabulary_cuts_as_its_own_library_does(make_gguf, tmp_path, prefix):
    library = pytest.importorskip("sentencepiece")
    sentences = [
        "the cat sat on the mat",
        "a cat and a hat",
        "naïve café",
        "that is the end of the tale",
        "12 + 3 = 15",
    ]
    trained = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 20),
        model_writer=trained,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=2,
    )
    reference = library.SentencePieceProcessor(model_proto=trained.getvalue())
    count = reference.get_piece_size()
    kinds = [
        6 if reference.is_byte(i) else 3 if reference.is_control(i) else 2 if reference.is_unknown(i) else 1
        for i in range(count)
    ]
    file = make_gguf(
        "llama",
        model="llama",
        pre=None,
        merges=None,
        tokens=[reference.id_to_piece(i) for i in range(count)],
        scores=[reference.get_score(i) for i in range(count)],
        token_type=kinds,
        bos_token_id=1,
        eos_token_id=2,
        unknown_token_id=0,
        add_space_prefix=prefix,
    )
    loaded = load_tokenizer(gguf_checkpoint(file).path)
    for text in ("the cat", "  that  hat ", "café 日本 🦊", "a\nb", "the end of the tale is 3", "x"):
        ids = loaded.tokenizer.encode(text)
        assert ids == reference.encode(text)
        assert loaded.tokenizer.decode(ids) == text
    assert loaded.tokenizer.encode("a", add_special_tokens=True)[0] == 1


def test_the_cache_folder_is_chosen_by_the_environment(monkeypatch, tmp_path):
    from vllm_mlx_models.paths import cache_dir

    monkeypatch.setenv("VLLM_MLX_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("VLLM_MLX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("vllm_mlx_models.paths.sys.platform", "linux")
    assert cache_dir() == tmp_path / "xdg" / "vllm-mlx"
    monkeypatch.setattr("vllm_mlx_models.paths.sys.platform", "darwin")
    assert cache_dir() == Path.home() / "Library" / "Caches" / "vllm-mlx"


def test_a_start_stopped_before_it_converted_does_not_bind_the_next_to_its_file(make_gguf, tmp_path):
    first = make_gguf("llama", "Q8_0")
    stopped = gguf_checkpoint(first, key="same-contents")
    elsewhere = (tmp_path / "elsewhere").mkdir() or tmp_path / "elsewhere" / first.name
    elsewhere.write_bytes(first.read_bytes())
    first.unlink()
    again = gguf_checkpoint(elsewhere, key="same-contents")
    assert again.path == stopped.path
    ensure_weights(again.path, no_progress)
    assert (again.path / "model.safetensors").is_file()


def test_weights_that_cannot_be_written_are_told_with_the_space_there_is(make_gguf, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("[write] Unable to write 5 bytes to file.")

    checkpoint = gguf_checkpoint(make_gguf("llama", "Q8_0"))
    monkeypatch.setattr("vllm_mlx_models.gguf.weights.mx.save_safetensors", full)
    with pytest.raises(ModelError, match=r"Cannot write .*MB are free.*VLLM_MLX_CACHE_DIR"):
        ensure_weights(checkpoint.path, no_progress)
    assert not [path for path in checkpoint.path.iterdir() if "safetensors" in path.name]
