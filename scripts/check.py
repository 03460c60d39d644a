"""Every check of this project, in one run: ``python scripts/check.py [STEP ...]``.

Without arguments all steps run, whatever the earlier ones say; the exit code is 0 only if all of them pass. The tests
come last, so that their summary is what you see.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WORKERS = "2"

STEPS = {
    "lint": [sys.executable, "-m", "ruff", "check"],
    "format": [sys.executable, "-m", "ruff", "format", "--check"],
    "types": [sys.executable, "-m", "mypy"],
    "imports": [str(BIN / "lint-imports")],
    "docs": [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"],
    "tests": [sys.executable, "-m", "pytest", "-n", WORKERS, "--dist", "loadfile", "--cov", "--cov-report", "term"],
}

ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # the test workers share the cores already
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_MKDOCS_2_WARNING": "1",  # an advertisement, not a finding
}


def run(step: str) -> bool:
    """Run one step, with its name above its output, and return whether it passed."""
    command = STEPS[step]
    print(f"\n== {step}: {' '.join(Path(part).name for part in command)}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vllm-mlx-site-") as site:
        arguments = [*command, site] if step == "docs" else command
        done = subprocess.run(arguments, cwd=ROOT, env=ENVIRONMENT | os.environ, stdin=subprocess.DEVNULL, check=False)
    print(
        f"== {step}: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s", flush=True
    )
    return done.returncode == 0


def main(names: list[str]) -> int:
    """Run the named steps, or all, and say which failed."""
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"There is no step {', '.join(unknown)}; there are: {', '.join(STEPS)}.", file=sys.stderr)
        return 2
    failed = [step for step in names or STEPS if not run(step)]
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nAll checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
