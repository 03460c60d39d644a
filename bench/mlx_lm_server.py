"""Start mlx_lm.server with the same BLAS as ours, so that a comparison compares servers and not libraries."""

from __future__ import annotations

import runpy

from vllm_mlx_core.engine import device

if __name__ == "__main__":
    device.prepare()
    runpy.run_module("mlx_lm.server", run_name="__main__", alter_sys=True)
