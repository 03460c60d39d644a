import subprocess
import sys


def test_importing_mlx_lm_leaves_the_limit_of_open_files_alone():
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (1000, 1000));"
        "import vllm_mlx_models.mlx_lm_bridge;"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (1000, 1000);"
        "r.setrlimit(r.RLIMIT_NOFILE, (900, 900)); assert r.getrlimit(r.RLIMIT_NOFILE) == (900, 900)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
