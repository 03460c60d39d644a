import io
import subprocess
import sys

from vllm_mlx_core.cli.progress import report_progress


def test_without_a_terminal_each_phase_is_one_line():
    out = io.StringIO()
    with report_progress(out) as progress:
        progress("finding the model", None)
        for step in range(10):
            progress("downloading weights", step / 10)
        progress("self-test", 0.5)
        progress("downloading weights", 1.0)
    assert out.getvalue() == "Finding the model\nDownloading weights\nSelf-test\n"


def test_a_terminal_shows_a_bar_and_leaves_nothing_behind():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    with report_progress(out) as progress:
        progress("loading [weights]", None)
        progress("self-test", 0.5)
    assert "Loading [weights]" in out.getvalue()
    assert "50%" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # the bar's lines are erased


def test_rich_is_imported_for_a_terminal_only():
    code = (
        "import io, sys\n"
        "from vllm_mlx_core.cli.progress import report_progress\n"
        "with report_progress(io.StringIO()) as progress: progress('loading', 0.5)\n"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
