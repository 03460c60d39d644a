"""Where the user's messages come from: an editor line with history on a terminal, plain lines otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from prompt_toolkit.history import History

Reader = Callable[[], str]
"""Returns the next message. Raises EOFError at the end and KeyboardInterrupt for Ctrl-C."""

PROMPT = "> "


def state_directory() -> Path:
    """Return the folder for what this program remembers between runs; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "vllm-mlx"


def line_reader(stream: TextIO) -> Reader:
    """Return a reader that takes every line of ``stream`` as one message."""

    def read() -> str:
        line = stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    return read


def terminal_reader(history_file: Path) -> Reader:
    """Return a reader that lets the user edit a message and recall earlier ones; a paste may have several lines."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        PROMPT, history=_history(history_file), key_bindings=keys, prompt_continuation=". "
    )
    return session.prompt


def _history(file: Path) -> History:
    """Return the history in ``file``, which only the user may read; without a writable place, one in memory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        with file.open("ab"):
            return FileHistory(file)
    except OSError:
        return InMemoryHistory()
