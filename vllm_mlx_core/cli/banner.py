"""What ``serve`` says once a model is ready."""

from __future__ import annotations

import ipaddress
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from vllm_mlx_core import __version__
from vllm_mlx_core.api import ModelInfo
from vllm_mlx_core.engine.amounts import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """The facts to tell. Texts are single lines."""

    model: ModelInfo
    weights_bytes: int
    parsers_reason: str
    """Why these parsers; may be empty."""
    cache: str
    """The cache policy and its budget."""
    batching: str
    """How sequences are served together, and what decided it."""
    url: str
    """Where clients reach the server, without a path."""
    socket_path: Path | None = None
    """Unix socket that takes the place of the host in ``url``."""
    needs_key: bool
    open_to_network: bool
    chat_path: str | None
    """Path of a chat route that the curl line can use; None: no such route is served."""
    demonstration: bool
    """The built-in model is served because none was named."""

    def render(self) -> str:
        """Return the text, several lines without a final newline."""
        rows = [
            ("model", ", ".join(dict.fromkeys([self.model.id, *self.model.aliases]))),
            ("family", self.model.family),
            ("weights", format_bytes(self.weights_bytes)),
            ("context", f"{self.model.context_length} tokens"),
            ("tool calls", self.model.tool_parser or "not parsed"),
            ("reasoning", self.model.reasoning_parser or "not parsed"),
            *([("parsers", self.parsers_reason)] if self.parsers_reason else []),
            ("cache", self.cache),
            ("batching", self.batching),
            ("address", self.url if self.socket_path is None else f"{self.url} on the Unix socket {self.socket_path}"),
        ]
        lines = [f"vllm-mlx {__version__}", *(f"  {name:<11}{text}" for name, text in rows)]
        if self.demonstration:
            lines += [
                "",
                "This is a small demonstration model: it shows that everything works, but knows little and is often",
                "wrong. Name a model to serve another: vllm-mlx serve MODEL",
            ]
        if self.open_to_network and not self.needs_key:
            lines += ["", "Everyone on the network can use this server: --api-key restricts it."]
        if self.chat_path is not None:
            lines += ["", "Try it:", "", self._curl(self.chat_path)]
        return "\n".join(lines)

    def _curl(self, path: str) -> str:
        question = {
            "model": "default",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0,  # the same answer for everyone, and the likeliest to be right from a small model
        }
        through = "" if self.socket_path is None else f"--unix-socket {shlex.quote(str(self.socket_path))} "
        lines = [f"curl {through}{self.url}{path}", "-H 'Content-Type: application/json'"]
        if self.needs_key:
            lines.append('-H "Authorization: Bearer $VLLM_MLX_API_KEY"')
        return " \\\n    ".join([*lines, f"-d '{json.dumps(question)}'"])


def client_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the address at which a client on this machine reaches a server that listens on ``host``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{scheme}://{host}:{port}"
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"{scheme}://[{address}]:{port}" if address.version == 6 else f"{scheme}://{address}:{port}"
