"""The family itself: the text family over a folder made from a GGUF file."""

from __future__ import annotations

from vllm_mlx_core.api import Checkpoint, Generator, LoadOptions
from vllm_mlx_models.text import TextFamily

from .folder import ensure_weights, gguf_checkpoint


class GGUFFamily(TextFamily):
    """Serves a GGUF file, or the folder that ``gguf_checkpoint`` made of one."""

    def __init__(self, checkpoint: Checkpoint, options: LoadOptions) -> None:
        if checkpoint.path.is_file():
            checkpoint = gguf_checkpoint(checkpoint.path, checkpoint.name)
        super().__init__(checkpoint, options)

    def load_generator(self) -> Generator:
        """Convert the weights if that was not done yet, then load them. Engine thread. Raises ModelError."""
        ensure_weights(self.checkpoint.path, self.options.progress)
        return super().load_generator()
