"""``python -m vllm_mlx_core`` is ``vllm-mlx``."""

import sys

from .cli import main

sys.exit(main())
