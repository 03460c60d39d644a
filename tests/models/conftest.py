"""A fake hub on the loopback interface, and tiny checkpoints to put on it."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from vllm_mlx_core.api import Checkpoint, LoadOptions
from vllm_mlx_models.processor import CheckpointProcessor


class FakeHub:
    """Serves folders as repositories, and misbehaves on demand."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.gated: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self._faults: list[tuple[str, str, int | Callable[[bytes], bytes]]] = []
        self.stall: threading.Event | None = None
        self.url = ""

    def add(self, repo: str, folder: Path, revision: str = "main") -> None:
        files = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
        self.repos.setdefault(repo, {})[revision] = files

    def fail(self, method: str, path: str, status: int, times: int = 1) -> None:
        self._faults += [(method, path, status)] * times

    def cut(self, path: str, keep: int) -> None:
        self._faults.append(("GET", path, lambda body: body[:keep]))

    def fault(self, method: str, path: str) -> int | Callable[[bytes], bytes] | None:
        for entry in self._faults:
            if entry[0] == method and entry[1] in path:
                self._faults.remove(entry)
                return entry[2]
        return None

    def sha(self, repo: str, revision: str) -> str:
        return hashlib.sha1(f"{repo}@{revision}".encode()).hexdigest()

    def ranges(self, name: str) -> list[str | None]:
        return [span for method, path, span in self.requests if method == "GET" and path.endswith(name)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((method, path, self.headers.get("Range")))
        fault = self.hub.fault(method, path)
        if isinstance(fault, int):
            self._send(method, fault, b"{}", {})
            return
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo, rest = "/".join(parts[2:4]), parts[4:]
            revision = rest[1] if len(rest) > 1 else "main"
        else:
            repo, revision = "/".join(parts[:2]), parts[3]
        known = self.hub.repos.get(repo)
        if known is None:
            self._send(method, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        token = self.hub.gated.get(repo)
        given = self.headers.get("Authorization")
        if token is not None and given != f"Bearer {token}":
            self._send(method, 403 if given else 401, b"{}", {"X-Error-Code": "GatedRepo"})
            return
        name = next((r for r in known if revision in (r, self.hub.sha(repo, r))), None)
        if name is None:
            self._send(method, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        files, sha = known[name], self.hub.sha(repo, name)
        if parts[:2] == ["api", "models"]:
            entries = [
                {"type": "file", "path": n, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}
                for n, b in files.items()
            ]
            info = {"id": repo, "modelId": repo, "sha": sha, "siblings": [{"rfilename": n} for n in files]}
            self._send(method, 200, json.dumps(entries if "tree" in parts else info).encode(), {})
            return
        self._send_file(method, files.get("/".join(parts[4:])), sha, fault)

    def _send_file(self, method: str, body: bytes | None, sha: str, cut: Callable[[bytes], bytes] | None) -> None:
        if body is None:
            self._send(method, 404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        if method == "GET" and self.hub.stall is not None:
            self.hub.stall.wait(30)
        headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        status = 200
        if span := self.headers.get("Range"):
            start = int(span.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            status, body = 206, body[start:]
        self._send(method, status, body, headers, cut)

    def _send(
        self,
        method: str,
        status: int,
        body: bytes,
        headers: dict[str, str],
        cut: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(cut(body) if cut else body)
        if cut:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may leave when it likes
            super().handle_error(request, client_address)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """The hub that the environment points to, with an empty cache and no token."""
    fake = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": fake})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    yield fake
    if fake.stall is not None:
        fake.stall.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def model_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where converted models go in a test."""
    folder = tmp_path / "model-cache"
    monkeypatch.setenv("VLLM_MLX_CACHE_DIR", str(folder))
    return folder


MakeProcessor = Callable[..., CheckpointProcessor]


@pytest.fixture
def with_template(tiny_model: Callable[[str], Path]) -> MakeProcessor:
    """Make a processor over the tiny tokenizer with another chat template."""

    def make(template: str) -> CheckpointProcessor:
        return CheckpointProcessor(Checkpoint(path=tiny_model("llama")), LoadOptions(chat_template=template))

    return make


# -- GGUF files -------------------------------------------------------------------------------------------------------

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(source: Path, file: Path, kind: str = "F32", **fields: Any) -> Path:
    """Write a tiny model as a GGUF file, its matrices quantised as ``kind``; ``fields`` replace tokenizer fields."""
    import gguf
    import mlx.core as mx
    import numpy as np

    config = json.loads((source / "config.json").read_text())
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    architecture, heads, kv_heads = config["model_type"], config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    special = {token["id"]: token["special"] for token in tokenizer["added_tokens"]}
    vocab = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    ids = tokenizer["model"]["vocab"]
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": vocab,
        "token_type": [(3 if special[i] else 4) if i in special else 1 for i in range(len(vocab))],
        "merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "eos_token_id": ids["<|im_end|>"],
        "bos_token_id": ids["<|endoftext|>"],
    } | fields
    add: dict[str, Callable[[Any], None]] = {
        "model": writer.add_tokenizer_model,
        "pre": writer.add_tokenizer_pre,
        "tokens": writer.add_token_list,
        "token_type": writer.add_token_types,
        "merges": writer.add_token_merges,
        "scores": writer.add_token_scores,
        "eos_token_id": writer.add_eos_token_id,
        "eot_token_id": writer.add_eot_token_id,
        "bos_token_id": writer.add_bos_token_id,
        "unknown_token_id": writer.add_unk_token_id,
        "temperature": lambda value: writer.add_float32("general.sampling.temp", value),
        "add_bos_token": writer.add_add_bos_token,
        "add_space_prefix": writer.add_add_space_prefix,
    }
    for name, value in values.items():
        if value is not None:
            add[name](value)
    writer.add_chat_template((source / "chat_template.jinja").read_text())
    for name, array in mx.load(str(source / "model.safetensors")).items():
        rows = np.array(array.astype(mx.float32))
        module, _, leaf = name.rpartition(".")
        layer = ""
        if module.startswith("model.layers."):
            _, _, number, module = module.split(".", 3)
            layer = f"blk.{number}."
        if architecture == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
            count = heads if module.endswith("q_proj") else kv_heads  # from halves to pairs
            rows = (
                rows.reshape(count, 2, rows.shape[0] // count // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
            )
        quantised = rows.ndim == 2
        data_type = gguf.GGMLQuantizationType[kind if quantised else "F32"]
        data = gguf.quantize(rows, data_type) if quantised else rows
        writer.add_tensor(f"{layer}{_GGUF_NAMES[module]}.{leaf}", data, raw_dtype=data_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture
def make_gguf(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Make a GGUF file of a tiny model: ``make_gguf("llama", "Q8_0")``."""

    def make(architecture: str, kind: str = "F32", name: str = "tiny.gguf", **fields: Any) -> Path:
        return write_gguf(tiny_model(architecture), tmp_path / name, kind, **fields)

    return make
