"""Ollama's own API: chat, generate and the look-ups that its clients make before they talk."""

from .frontend import OllamaFrontend

__all__ = ["OllamaFrontend"]
