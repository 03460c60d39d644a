"""The conformance suite of generative model families.

    class TestMyFamily(ModelFamilySuite):
        family = MyFamily

        @pytest.fixture
        def checkpoint(self, tmp_path):
            return Checkpoint(write_tiny_model("qwen3", tmp_path))

Everything runs on a checkpoint that the author gives; a tiny one is best.
"""

# ruff: noqa: D102 - the names of the tests say what they check

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx
import pytest

from vllm_mlx_core.api import Chat, Checkpoint, Generator, LoadOptions, ModelFamily, TextProcessor
from vllm_mlx_core.engine import states

from ._suite import ConformanceSuite

_QUESTIONS = (
    "Hello",
    "The quick brown fox jumps over the lazy dog.",
    "What is a monad?",
)
_STEPS = 6

Layers = list[Any]


class ModelFamilySuite(ConformanceSuite):
    """A family's processor renders and its generator gives the same answer however the engine slices the work."""

    family: ClassVar[type[ModelFamily]]
    """The family under test."""
    texts: ClassVar[Sequence[str]] = ("Hello, world", "naïve café", "日本語", "two\nlines", "🦊 emoji")
    """What the tokenizer must give back as it was."""
    can_batch: ClassVar[bool] = True
    """False: the layers' caches cannot be merged, and must refuse."""
    tolerance: ClassVar[float] = 1e-3
    """Largest difference of two logits that should be equal."""

    @pytest.fixture
    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint to load: the author overrides this."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named 'checkpoint'.")

    @pytest.fixture
    def processor(self, checkpoint: Checkpoint) -> TextProcessor:
        """Return the text half of the family."""
        return self.family(checkpoint, LoadOptions()).load_processor()

    @pytest.fixture
    def generator(self, checkpoint: Checkpoint) -> Generator:
        """Return the compute half of the family."""
        return self.family(checkpoint, LoadOptions()).load_generator()

    @pytest.fixture
    def prompts(self, processor: TextProcessor) -> list[list[int]]:
        """Return rendered prompts of different lengths."""
        return [list(processor.render(_chat(question)).token_ids) for question in _QUESTIONS]

    # -- text half

    def test_a_chat_is_rendered(self, processor: TextProcessor) -> None:
        rendered = processor.render(_chat("What is a monad?"))
        assert "What is a monad?" in rendered.text
        assert 0 < len(rendered.token_ids) <= processor.context_length
        assert all(0 <= token < processor.tokenizer.vocab_size for token in rendered.token_ids)

    def test_boundaries_rise_and_lie_in_the_prompt(self, processor: TextProcessor) -> None:
        rendered = processor.render(_chat("What is a monad?"))
        boundaries = list(rendered.boundaries)
        assert boundaries == sorted(set(boundaries))
        assert all(isinstance(each, int) and 0 < each <= len(rendered.token_ids) for each in boundaries)

    def test_content_parts_are_rendered_like_a_string(self, processor: TextProcessor) -> None:
        parts = [{"type": "text", "text": "What is a monad?"}]
        assert processor.render(_chat(parts)) == processor.render(_chat("What is a monad?"))

    def test_a_raw_prompt_is_tokenised(self, processor: TextProcessor) -> None:
        rendered = processor.tokenize("Once upon a time")
        assert "Once upon a time" in processor.tokenizer.decode(rendered.token_ids)

    def test_texts_survive_the_tokenizer(self, processor: TextProcessor) -> None:
        tokenizer = processor.tokenizer
        for text in self.texts:
            assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_the_bytes_of_tokens_join_to_the_text(self, processor: TextProcessor) -> None:
        tokenizer = processor.tokenizer
        for text in self.texts:
            pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode(text)]
            if None not in pieces:
                assert b"".join(piece for piece in pieces if piece is not None).strip() == text.encode().strip()

    def test_stop_tokens_exist_and_are_tokens(self, processor: TextProcessor, generator: Generator) -> None:
        assert processor.stop_token_ids, "nothing ends a turn"
        assert all(0 <= token < generator.vocab_size for token in processor.stop_token_ids)

    # -- compute half

    def test_forward_gives_one_row_of_logits_for_each_token(
        self, generator: Generator, prompts: list[list[int]]
    ) -> None:
        logits = generator.forward(mx.array([prompts[0]]), generator.make_cache())
        assert logits.shape == (1, len(prompts[0]), generator.vocab_size)
        assert mx.all(mx.isfinite(logits[0, -1])).item()
        assert generator.nbytes >= 0

    def test_every_cache_is_new(self, generator: Generator, prompts: list[list[int]]) -> None:
        first = generator.forward(mx.array([prompts[0]]), generator.make_cache())
        self._assert_close(generator.forward(mx.array([prompts[0]]), generator.make_cache()), first)

    @pytest.mark.parametrize("chunk", [1, 5])
    def test_prefill_in_chunks_equals_prefill_in_one(
        self, generator: Generator, prompts: list[list[int]], chunk: int
    ) -> None:
        for prompt in prompts:
            whole = generator.forward(mx.array([prompt]), generator.make_cache())[:, -1]
            layers = generator.make_cache()
            for start in range(0, len(prompt), chunk):
                last = generator.forward(mx.array([prompt[start : start + chunk]]), layers)[:, -1]
            self._assert_close(last, whole)

    def test_decoding_continues_what_prefill_read(self, generator: Generator, prompts: list[list[int]]) -> None:
        for prompt in prompts:
            answer, logits = _decode_alone(generator, prompt)
            whole = generator.forward(mx.array([prompt + answer]), generator.make_cache())[0, -_STEPS - 1 :]
            self._assert_close(logits, whole)

    def test_rows_of_a_batch_equal_the_rows_alone(self, generator: Generator, prompts: list[list[int]]) -> None:
        merged = self._merge([_prefill(generator, prompt) for prompt in prompts])
        if merged is None:
            return
        alone = [_decode_alone(generator, prompt) for prompt in prompts]
        for step in range(_STEPS):
            logits = generator.forward(mx.array([[answer[step]] for answer, _ in alone]), merged)
            assert logits.shape == (len(prompts), 1, generator.vocab_size)
            for row, (_, expected) in enumerate(alone):
                self._assert_close(logits[row, 0], expected[step + 1])

    def test_a_row_leaves_the_batch_as_it_would_have_been_alone(
        self, generator: Generator, prompts: list[list[int]]
    ) -> None:
        merged = self._merge([_prefill(generator, prompt) for prompt in prompts])
        if merged is None:
            return
        alone = [_decode_alone(generator, prompt) for prompt in prompts]
        generator.forward(mx.array([[answer[0]] for answer, _ in alone]), merged)
        for row, (answer, expected) in enumerate(alone):
            layers = [layer.extract(row) for layer in merged]
            for step in range(1, _STEPS):
                logits = generator.forward(mx.array([[answer[step]]]), layers)
                self._assert_close(logits[0, -1], expected[step + 1])

    def _merge(self, rows: list[Layers]) -> Layers | None:
        """Merge rows into one batch; None if the family's caches rightly refuse."""
        try:
            merged = states.merge(rows)
        except (AttributeError, ValueError, NotImplementedError):
            if self.can_batch:
                raise
            return None
        assert self.can_batch, "can_batch is False, but the caches merge"
        return merged

    def _assert_close(self, left: mx.array, right: mx.array) -> None:
        difference = mx.max(mx.abs(left - right)).item()
        assert difference <= self.tolerance, f"logits that should be equal differ by {difference}"


def _chat(content: Any) -> Chat:
    return Chat(messages=[{"role": "user", "content": content}])


def _prefill(generator: Generator, prompt: list[int]) -> Layers:
    layers = generator.make_cache()
    mx.eval(generator.forward(mx.array([prompt]), layers))
    return layers


def _decode_alone(generator: Generator, prompt: list[int]) -> tuple[list[int], mx.array]:
    """Decode greedily; return the tokens, and the logits behind the prompt and behind each token."""
    layers = generator.make_cache()
    logits = [generator.forward(mx.array([prompt]), layers)[0, -1]]
    answer: list[int] = []
    for _ in range(_STEPS):
        answer.append(int(mx.argmax(logits[-1]).item()))
        logits.append(generator.forward(mx.array([answer[-1:]]), layers)[0, -1])
    return answer, mx.stack(logits)
