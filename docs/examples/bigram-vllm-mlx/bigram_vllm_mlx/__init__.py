"""Bigram models as a model family: the probability of a byte depends on the byte before it, as counted in a text."""

from __future__ import annotations

from vllm_mlx_core.api import Generator, ModelError, ModelFamily, TextProcessor

from .processor import BigramProcessor


class BigramFamily(ModelFamily):
    """Serves folders with ``"model_type": "bigram"`` in their config.json and a corpus.txt."""

    def load_processor(self) -> TextProcessor:
        """Return the text half, which is the same for every checkpoint."""
        return BigramProcessor()

    def load_generator(self) -> Generator:
        """Count the corpus. Raises ModelError if there is none."""
        from .model import BigramModel

        try:
            return BigramModel((self.checkpoint.path / "corpus.txt").read_bytes())
        except OSError as error:
            raise ModelError(f"{self.checkpoint.path} holds no corpus.txt that can be read.") from error
