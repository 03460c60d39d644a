"""Machines on which MLX cannot compile its CPU kernels, or finds them damaged: the server does without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheSpec, EngineSettings, Generator
from vllm_mlx_core.engine import device, kernels
from vllm_mlx_core.engine.core import EngineCore
from vllm_mlx_core.engine.messages import SamplingSpec, StepResult, Submit
from vllm_mlx_core.engine.selftest import ServingMode, self_test

LINUX_WITH_COMPILER = sys.platform == "linux" and shutil.which("g++") is not None and not device.has_metal()
needs_compiling = pytest.mark.skipif(not LINUX_WITH_COMPILER and not device.has_metal(), reason="nothing compiles here")
ASK = """
import sys
from vllm_mlx_core import LLM, SamplingParams
from vllm_mlx_core.api import EngineSettings, Settings
with LLM(sys.argv[1], settings=Settings(engine=EngineSettings(enforce_eager=True))) as llm:
    print(llm.generate([[5, 6, 7]], SamplingParams(max_tokens=4, temperature=0, ignore_eos=True))[0].token_ids)
"""


@pytest.fixture(autouse=True)
def compiling() -> Iterator[None]:
    """Let the next test compile again."""
    yield
    mx.enable_compile()


class Breaks:
    """A generator whose compiled functions fail from some forward pass on, as long as MLX compiles."""

    def __init__(self, inner: Generator, after: int) -> None:
        self._inner = inner
        self._after = after
        self.nbytes, self.vocab_size = inner.nbytes, inner.vocab_size

    def make_cache(self) -> list[Any]:
        return self._inner.make_cache()

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        self._after -= 1
        if self._after < 0 and kernels.can_compile():
            raise RuntimeError("[Compile::eval_cpu] Failed to compile function f: no space left")
        return self._inner.forward(tokens, layers)


def test_other_errors_are_not_taken_for_failed_kernels():
    assert not kernels.do_without(RuntimeError("[matmul] wrong shapes"))
    assert not kernels.do_without(ValueError("[Compile::eval_cpu]"))


@needs_compiling
def test_after_a_failed_kernel_nothing_is_compiled(caplog):
    assert kernels.can_compile()
    assert kernels.do_without(RuntimeError("Could not load C++ shared library x.so: file too short"))
    assert not kernels.can_compile()
    assert "file too short" in caplog.text


@needs_compiling
@pytest.mark.parametrize("after", [0, 12])
def test_the_self_test_does_not_mistake_a_failed_kernel_for_a_wrong_model(after, generator):
    broken = Breaks(generator("qwen3"), after)
    with pytest.raises(RuntimeError, match="Failed to compile") as caught:
        self_test(broken)
    assert kernels.do_without(caught.value)
    assert str(self_test(broken)) == "batched"


@needs_compiling
@pytest.mark.parametrize("count", [1, 3])
def test_a_kernel_that_fails_while_serving_costs_nobody_anything(count, generator):
    plain = generator("qwen3")

    def answers(generator: Generator) -> dict[int, list[int]]:
        tokens: dict[int, list[int]] = {}

        def note(step: StepResult) -> None:
            for update in step.updates:
                assert update.error is None
                tokens.setdefault(update.sequence_id, []).extend(update.tokens)

        engine = EngineCore(generator, EngineSettings(), ServingMode(), OffCache(CacheSpec()), note)
        for number in range(count):
            engine.handle(
                Submit(
                    sequence_id=number,
                    request_id=str(number),
                    prompt=[5, 6, 7 + number],
                    max_tokens=8,
                    sampling=SamplingSpec(temperature=0),
                )
            )
        while engine.has_work:
            engine.step()
        return tokens

    expected = answers(plain)
    assert answers(Breaks(plain, after=4)) == expected


@pytest.mark.skipif(not LINUX_WITH_COMPILER, reason="kernels are files on a Linux CPU only")
@pytest.mark.parametrize("fault", ["no such folder", "damaged"])
def test_a_model_is_served_where_kernels_cannot_be_kept(fault, tiny_model, tmp_path):
    model = str(tiny_model("qwen3"))
    healthy = subprocess.run([sys.executable, "-c", ASK, model], capture_output=True, text=True, check=True)
    if fault == "damaged":
        folder = tmp_path
        environment = os.environ | {"TMPDIR": str(folder)}
        subprocess.run([sys.executable, "-c", ASK, model], env=environment, capture_output=True, check=True)
        libraries = list(folder.rglob("*.so"))
        assert libraries
        for library in libraries:
            library.write_bytes(b"")
    else:
        environment = os.environ | {"TMPDIR": str(tmp_path / "missing")}
    done = subprocess.run([sys.executable, "-c", ASK, model], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, healthy.stdout), done.stderr
    assert "cannot compile kernels" in done.stderr
    assert "Traceback" not in done.stderr
