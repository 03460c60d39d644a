"""The ``gguf`` family: a GGUF file becomes a model folder in the cache, in two steps.

Reading a GGUF's metadata needs no MLX, so tokenizer, template and config are written when the model is resolved
(``gguf_checkpoint``): from then on the folder is an ordinary checkpoint, and parsers are chosen from its template as
from any other. The weights are written by the first ``load_generator``, on the engine thread. Each step is atomic and
done once per file.
"""

from __future__ import annotations

from .family import GGUFFamily
from .folder import gguf_checkpoint

__all__ = ["GGUFFamily", "gguf_checkpoint"]
