import pytest

from vllm_mlx_core.api import ModelError, ModelNotFound
from vllm_mlx_core.cli.failures import explain_load_failures


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater than the maximum"),
        RuntimeError("[malloc] Unable to allocate 9 bytes."),
        RuntimeError("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    ],
    ids=str,
)
def test_want_of_memory_is_called_that(error):
    with pytest.raises(ModelError, match="Not enough memory to load org/big"), explain_load_failures("org/big"):
        raise error


def test_a_file_that_cannot_be_read_is_named():
    with pytest.raises(ModelError, match=r"Cannot load org/big: .*Permission denied.*weights"):  # noqa: SIM117
        with explain_load_failures("org/big"):
            raise PermissionError(13, "Permission denied", "weights")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("a bug"), ModelNotFound("no such model")])
def test_other_errors_pass_unchanged(error):
    with pytest.raises(type(error)) as caught, explain_load_failures(None):
        raise error
    assert caught.value is error
