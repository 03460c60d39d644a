"""The ``text`` family: every language model that mlx-lm loads."""

from __future__ import annotations

from vllm_mlx_core.api import Checkpoint, Generator, LoadOptions, ModelError, ModelFamily, TextProcessor

from .tokenizer_loading import prepare_imports


class TextFamily(ModelFamily):
    """A folder with config.json, model*.safetensors and a tokenizer."""

    def __init__(self, checkpoint: Checkpoint, options: LoadOptions) -> None:
        super().__init__(checkpoint, options)
        prepare_imports(checkpoint.path)

    def load_processor(self) -> TextProcessor:
        """Load tokenizer and template. Any thread. Raises ModelError."""
        from .processor import CheckpointProcessor

        return CheckpointProcessor(self.checkpoint, self.options)

    def load_generator(self) -> Generator:
        """Load the weights. Engine thread. Raises ModelError."""
        if "model_file" in self.checkpoint.config and not self.options.trust_remote_code:
            raise ModelError(
                f"{self.checkpoint.name or self.checkpoint.path} brings its own model code "
                f"({self.checkpoint.config['model_file']}). --trust-remote-code lets it run."
            )
        from .generator import load_generator

        return load_generator(self.checkpoint.path, self.options)
