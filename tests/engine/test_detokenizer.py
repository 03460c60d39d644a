"""Incremental detokenisation against what real tokenizers make of all ids at once."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from vllm_mlx_core.engine.detokenizer import Detokenizer, token_text

SPECIALS = ["<s>", "<think>", "<|end|>"]


class Adapter:
    """The api's tokenizer over the ``tokenizers`` library, for one kind of decoder."""

    def __init__(self, backend, to_bytes):
        self._backend = backend
        self._to_bytes = to_bytes
        self._specials = {backend.token_to_id(token): token for token in SPECIALS}

    @property
    def vocab_size(self):
        return self._backend.get_vocab_size()

    def encode(self, text, *, add_special_tokens=False):
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids):
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def token_bytes(self, token_id):
        return self._to_bytes(self._backend.id_to_token(token_id))

    def special_token(self, token_id):
        return self._specials.get(token_id)

    def token_id(self, token):
        return self._backend.token_to_id(token)


def with_specials(backend):
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    return backend


def byte_level():
    """All 256 bytes, and merges that cut characters in the middle."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    character = dict(zip(bytes_in_alphabet_order(), alphabet_by_byte(), strict=True))
    pairs = [(0xF0, 0x9F), (0xE4, 0xB8), (0x20, 0x68), (0x65, 0x6C), (0x6C, 0x6F), (0xAD, 0x20), (0x20, 0xF0)]
    merges = [(character[a], character[b]) for a, b in pairs]
    vocab = {token: i for i, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    backend = Tokenizer(BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    byte_of = {c: b for b, c in character.items()}
    return Adapter(with_specials(backend), lambda token: bytes(byte_of[c] for c in token))


def bytes_in_alphabet_order():
    return range(256)


def alphabet_by_byte():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def sentencepiece_like():
    """Words marked by ▁, single bytes for what the vocabulary lacks, a space dropped at the start."""
    tokens = [f"<0x{b:02X}>" for b in range(256)] + ["<unk>", "▁", *"abcdehlo", "é", "世", "▁h", "lo", "▁▁"]
    merges = [("▁", "h"), ("l", "o"), ("▁", "▁")]
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )

    def to_bytes(token):
        return bytes([int(token[3:5], 16)]) if token.startswith("<0x") else token.replace("▁", " ").encode()

    return Adapter(with_specials(backend), to_bytes)


def word_piece():
    """Pieces whose spacing depends on the piece before: nothing is known of a token alone."""
    pieces = ["[UNK]", "hel", "##lo", "##w", "w", "##orld", ".", "a", "##é", "世"]
    backend = Tokenizer(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece(cleanup=True)
    return Adapter(with_specials(backend), lambda token: None)


BYTE_LEVEL, SENTENCEPIECE, WORD_PIECE = byte_level(), sentencepiece_like(), word_piece()
TRICKY = ["👩‍👩‍👧‍👦 ok", "e\u0301a\u0308", "世界 hello", "🏳️‍🌈", " lead", "  two", "", "\n\n", "é🙂é", "한국어"]
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30)
"""All but the sign by which SentencePiece writes a space: nothing that it decodes holds one."""
texts = st.one_of(st.sampled_from(TRICKY), any_text, st.text("ahelo 世é🙂\u0301\u200d", max_size=30))


def pieces_of(tokenizer, ids, visible=None):
    detokenizer = Detokenizer(tokenizer, visible)
    return [*(detokenizer.push(i) for i in ids), detokenizer.finish()]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte-level", "sentencepiece"])
@given(text=texts)
def test_the_pieces_of_a_text_join_to_it_and_every_prefix_is_a_prefix_of_it(tokenizer, text):
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    assert whole == text
    shown = ""
    detokenizer = Detokenizer(tokenizer, ())
    for token_id in ids:
        shown += detokenizer.push(token_id)
        assert whole.startswith(shown)
    assert shown + detokenizer.finish() == whole


@given(text=texts, cut=st.integers(0, 100))
def test_a_text_cut_inside_a_character_ends_before_that_character(text, cut):
    ids = BYTE_LEVEL.encode(text)
    ids = ids[: cut % (len(ids) + 1)]
    raw = b"".join(BYTE_LEVEL.token_bytes(i) for i in ids)
    assert "".join(pieces_of(BYTE_LEVEL, ids)) == raw.decode(errors="ignore")


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=30))
def test_any_bytes_become_what_the_tokenizer_makes_of_them(ids):
    ids.append(BYTE_LEVEL.token_id("e"))  # no character is open at the end
    assert "".join(pieces_of(BYTE_LEVEL, ids)) == BYTE_LEVEL.decode(ids)


@given(st.lists(st.integers(256, SENTENCEPIECE.vocab_size - 1), max_size=12))
def test_any_sentencepiece_tokens_become_what_the_tokenizer_makes_of_them(ids):
    assert "".join(pieces_of(SENTENCEPIECE, ids)) == SENTENCEPIECE.decode(ids)


@given(st.lists(st.integers(0, WORD_PIECE.vocab_size - 1), max_size=12))
def test_tokens_that_depend_on_their_neighbours_are_decoded_together(ids):
    ids.insert(0, WORD_PIECE.token_id("hel"))
    assert "".join(pieces_of(WORD_PIECE, ids)) == WORD_PIECE.decode(ids)


def test_a_vocabulary_that_knows_only_some_tokens_alone_changes_to_decoding_midway():
    class Partly(Adapter):
        def token_bytes(self, token_id):
            return None if 0x80 <= token_id < 0x84 else super().token_bytes(token_id)

    tokenizer = Partly(SENTENCEPIECE._backend, SENTENCEPIECE._to_bytes)
    for text in ("a 🙂 lo", "🙂", " é🙂世 h", "a 🙂🙂 h lo"):
        assert "".join(pieces_of(tokenizer, tokenizer.encode(text))) == text


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE, WORD_PIECE], ids=["bytes", "sp", "wordpiece"])
def test_special_tokens_are_dropped_unless_they_are_visible(tokenizer):
    start, think, end = (tokenizer.token_id(token) for token in SPECIALS)
    ordinary = tokenizer.encode("hello")
    ids = [start, *ordinary, think, end]
    assert "".join(pieces_of(tokenizer, ids, ())) == tokenizer.decode(ordinary)
    assert "".join(pieces_of(tokenizer, ids, {"<think>"})) == tokenizer.decode([*ordinary, think])
    assert "".join(pieces_of(tokenizer, ids, None)) == tokenizer.decode(ids)


def test_a_special_token_inside_a_character_does_not_break_it():
    ids = BYTE_LEVEL.encode("🙂")
    ids.insert(1, BYTE_LEVEL.token_id("<s>"))
    assert "".join(pieces_of(BYTE_LEVEL, ids, ())) == "🙂"


def test_each_character_is_given_as_soon_as_it_is_complete():
    ids = BYTE_LEVEL.encode("a🙂b")
    assert pieces_of(BYTE_LEVEL, ids) == ["a", *[""] * (len(ids) - 3), "🙂", "b", ""]


def test_ids_beyond_the_vocabulary_say_nothing():
    assert pieces_of(BYTE_LEVEL, [BYTE_LEVEL.vocab_size + 5, BYTE_LEVEL.token_id("a")]) == ["", "a", ""]


@given(text=texts)
def test_the_bytes_of_the_tokens_join_to_the_text(text):
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        detokenizer = Detokenizer(tokenizer, ())
        pairs = [detokenizer.push_with_bytes(i) for i in tokenizer.encode(text)]
        assert b"".join(data for _, data in pairs).decode() == text == "".join(piece for piece, _ in pairs)


def test_the_text_of_a_token_alone_is_known_whatever_the_tokenizer():
    assert token_text(BYTE_LEVEL, BYTE_LEVEL.token_id("<think>")) == b"<think>"
    assert token_text(SENTENCEPIECE, SENTENCEPIECE.token_id("▁h")) == b" h"
    assert token_text(WORD_PIECE, WORD_PIECE.token_id("hel")) == b"hel"


def test_a_tokenizer_is_not_kept_alive_by_what_was_learnt_of_it():
    tokenizer = byte_level()
    pieces_of(tokenizer, tokenizer.encode("hello"))
    alive = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert alive() is None


def test_a_tokenizer_that_cannot_be_referred_to_weakly_works_too():
    class Slotted:
        __slots__ = ()
        vocab_size = 2

        def special_token(self, token_id):
            return None

        def token_bytes(self, token_id):
            return b"xy"[token_id : token_id + 1]

    assert pieces_of(Slotted(), [0, 1]) == ["x", "y", ""]
