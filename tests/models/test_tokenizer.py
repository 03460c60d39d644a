"""The tokenizer adapters, over tokenizers of every decoder kind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from vllm_mlx_core.api import ModelError
from vllm_mlx_models.tokenizer import FastTokenizer, SlowTokenizer
from vllm_mlx_models.tokenizer_loading import load_tokenizer

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level(*added: str) -> FastTokenizer:
    merges = [("h", "e"), ("he", "l"), ("Ġ", "w"), ("Ã", "©")]
    vocab = {token: i for i, token in enumerate([*ALPHABET, *("".join(pair) for pair in merges)])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    backend.add_tokens([AddedToken(token, normalized=False) for token in ("<tool call>", *added)])
    return FastTokenizer(backend)


def sentence_piece(decoder=None) -> FastTokenizer:
    pieces = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "▁a", "▁ab", "é"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁a", "b")]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoder or decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_special_tokens(["<s>"])
    return FastTokenizer(backend)


def word_piece() -> FastTokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    return FastTokenizer(backend)


def known(tokenizer: FastTokenizer, text: str) -> int:
    token_id = tokenizer.token_id(text)
    assert token_id is not None
    return token_id


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_text_and_the_bytes_of_its_tokens_survive(make, text):
    tokenizer = make()
    ids = tokenizer.encode(text)
    pieces = [tokenizer.token_bytes(i) for i in ids]
    assert b"".join(pieces) == text.encode()
    assert tokenizer.decode(ids) == text


def test_the_bytes_of_every_byte_level_token_are_what_decoding_gives():
    tokenizer = byte_level("é", "日本")  # added tokens inside and outside the alphabet of bytes
    for token_id in range(tokenizer.vocab_size):
        data = tokenizer.token_bytes(token_id)
        assert data is not None
        assert data.decode("utf-8", "replace") == tokenizer.decode([token_id])


def test_an_id_outside_the_vocabulary_adds_nothing():
    tokenizer = byte_level()
    assert tokenizer.token_bytes(tokenizer.vocab_size + 5) == b""
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == ""


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    ],
)
def test_a_token_inside_a_text_keeps_its_space(decoder):
    tokenizer = sentence_piece(decoder)
    assert tokenizer.token_bytes(known(tokenizer, " ab")) == b" ab"


def test_a_decoder_that_looks_at_neighbours_claims_no_bytes():
    tokenizer = word_piece()
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("playing")] == [None, None]
    assert tokenizer.token_id("play") == 1


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@pytest.mark.parametrize("text", [" ", "a", "\n"])
def test_a_token_is_found_by_its_text(make, text):
    tokenizer = make()
    assert tokenizer.decode([tokenizer.token_id(text)]) == text


def test_spellings_of_the_vocabulary_are_not_texts():
    assert byte_level().token_id("Ġw") is None
    assert byte_level().token_id("no such token") is None
    assert sentence_piece().token_id("<0x41>") is None


def test_special_tokens_are_told_from_ordinary_ones():
    tokenizer = byte_level()
    end = known(tokenizer, "<|end|>")
    call = known(tokenizer, "<tool call>")
    assert tokenizer.special_token(end) == "<|end|>"
    assert tokenizer.special_token(call) is None
    assert tokenizer.is_added(call)
    assert tokenizer.special_token(0) is None
    assert tokenizer.encode("hel<|end|>") == [tokenizer.token_id("hel"), end]


def test_lone_surrogates_do_not_raise():
    tokenizer = byte_level()
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("\ud83e\udd8a")) == "🦊"


def test_truncation_and_padding_of_training_are_switched_off():
    backend = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(ALPHABET)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert len(FastTokenizer(backend).encode("hello")) == 5


def test_many_threads_may_share_a_tokenizer():
    tokenizer = byte_level()
    text = "hello world é " * 50
    expected = tokenizer.encode(text)
    wrong = []

    def work():
        for _ in range(30):
            if tokenizer.encode(text) != expected or tokenizer.decode(expected) != text:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- loading ----------------------------------------------------------------------------------------------------------


def copy_files(source, target, **changes):
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        content = json.loads((source / name).read_text())
        for key, value in changes.get(name.removesuffix(".json"), {}).items():
            content[key] = value
        (target / name).write_text(json.dumps(content))
    return target


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": True}, {"add_bos_token": True, "add_eos_token": True}])
@pytest.mark.parametrize("extra", [{}, {"additional_special_tokens": ["<extra>"]}])
def test_the_direct_way_and_transformers_agree(tiny_model, tmp_path, flags, extra):
    folder = copy_files(tiny_model("qwen3"), tmp_path / "t", tokenizer_config={**flags, **extra})
    direct = load_tokenizer(folder)
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(folder)
    text = "Hello <|im_end|> yes é🦊<extra>"
    for special in (False, True):
        assert direct.tokenizer.encode(text, add_special_tokens=special) == reference.encode(
            text, add_special_tokens=special
        )
    assert direct.tokenizer.vocab_size == len(reference)
    assert direct.special_tokens["eos_token"] == reference.eos_token
    assert direct.special_tokens["bos_token"] == reference.bos_token


def test_tokens_only_the_configuration_knows_get_their_ids(tiny_model, tmp_path):
    count = load_tokenizer(tiny_model("qwen3")).tokenizer.vocab_size
    added = {str(count): {"content": "<new>", "special": True}}
    folder = copy_files(tiny_model("qwen3"), tmp_path / "t", tokenizer_config={"added_tokens_decoder": added})
    tokenizer = load_tokenizer(folder).tokenizer
    assert tokenizer.token_id("<new>") == count
    assert tokenizer.special_token(count) == "<new>"


def test_other_classes_go_through_transformers(tiny_model, tmp_path):
    folder = copy_files(tiny_model("qwen3"), tmp_path / "t", tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    loaded = load_tokenizer(folder)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("naïve 🦊")) == "naïve 🦊"


def test_transformers_does_not_lament_that_there_is_no_pytorch(tiny_model, tmp_path):
    folder = copy_files(tiny_model("qwen3"), tmp_path / "t", tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    code = f"from vllm_mlx_models.tokenizer_loading import *; load_tokenizer(Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_a_plain_tokenizer_needs_no_transformers(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert load_tokenizer(tiny_model("qwen3")).tokenizer.vocab_size > 256


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_broken_file_is_a_model_error(tiny_model, tmp_path, name):
    folder = copy_files(tiny_model("qwen3"), tmp_path / "t")
    (folder / name).write_text("{ nonsense")
    with pytest.raises(ModelError):
        load_tokenizer(folder)


def test_a_folder_without_tokenizer_is_a_model_error(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match="tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_that_is_code_needs_trust(tmp_path):
    config = {"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}, "tokenizer_class": "Own"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenization_own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="trust-remote-code"):
        load_tokenizer(tmp_path)


class PythonTokenizer:
    """What transformers' Python tokenizers offer, over characters."""

    all_special_ids = (1,)
    all_special_tokens = ("<end>",)
    added_tokens_decoder = {1: "<end>", 200: "<call>"}  # noqa: RUF012

    def __len__(self):
        return 130

    def encode(self, text, add_special_tokens):
        return ([1] if add_special_tokens else []) + [ord(character) for character in text]

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        assert not skip_special_tokens
        assert not clean_up_tokenization_spaces
        return "".join(self.added_tokens_decoder.get(i, chr(i)) for i in ids)


def test_a_tokenizer_written_in_python_is_served_too():
    tokenizer = SlowTokenizer(PythonTokenizer())
    assert tokenizer.decode(tokenizer.encode("ab", add_special_tokens=True)) == "<end>ab"
    assert tokenizer.vocab_size == 201
    assert tokenizer.token_id("<call>") == 200
    assert tokenizer.token_id("a") == 97
    assert tokenizer.token_id("ab") is None
    assert (tokenizer.special_token(1), tokenizer.special_token(200)) == ("<end>", None)
    assert (tokenizer.token_bytes(200), tokenizer.token_bytes(97)) == (b"<call>", None)


def test_a_folder_without_a_tokenizer_is_told_what_to_look_for(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(ModelError, match=r"There is no tokenizer in .*tokenizer\.json"):
        load_tokenizer(tmp_path)
