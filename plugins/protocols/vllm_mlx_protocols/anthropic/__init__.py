"""Anthropic's messages, as its own clients and coding agents speak them."""

from .frontend import AnthropicFrontend

__all__ = ["AnthropicFrontend"]
