import subprocess
import sys

import pytest

import vllm_mlx_core.testing as testing

HEAVY = ("mlx", "mlx_lm", "transformers", "pytest", "hypothesis", "fastapi", "starlette", "uvicorn")


def heavy_modules_after(statement):
    """Return which heavy packages a new interpreter has imported after ``statement``."""
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import vllm_mlx_core.testing",
        "from vllm_mlx_core.testing import TINY_ARCHITECTURES, FakeState",
        "import vllm_mlx_core.testing.scripted",
        "from vllm_mlx_core.testing.scripted_family import ScriptedFamily as F; F(None, None).load_processor()",
        "import vllm_mlx_caches.hooks, vllm_mlx_caches.lru, vllm_mlx_caches.off",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement):
    assert heavy_modules_after(statement) == []


def test_all_public_names_exist():
    assert len(set(testing.__all__)) == len(testing.__all__)
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    assert set(testing.__all__) <= set(dir(testing))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        testing.Nothing  # noqa: B018
