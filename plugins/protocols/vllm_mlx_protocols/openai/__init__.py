"""OpenAI's chat completions, completions and models, as its own clients speak them."""

from .frontend import OpenAIFrontend

__all__ = ["OpenAIFrontend"]
