"""What was said in a terminal chat, and the commands that change it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HELP = """\
/system TEXT   set the system message (without TEXT: remove it)
/clear         forget the conversation; the system message stays
/help          show this
/exit          leave, as Ctrl-D does
Ctrl-C stops a running answer; once more leaves. Alt-Enter starts a new line; pasted text may have several."""

_COMMAND = re.compile(r"/(?P<name>[a-z]+)(?:\s+(?P<argument>.*))?", re.DOTALL)


class Command(NamedTuple):
    """A line that is meant for the chat program, not for the model."""

    name: str
    argument: str


def parse_command(text: str) -> Command | None:
    """Return the command in ``text``: a slash, a word, maybe an argument. Anything else, such as a path, is None."""
    match = _COMMAND.fullmatch(text.rstrip())
    return Command(match["name"], (match["argument"] or "").strip()) if match else None


@dataclass
class Conversation:
    """The turns so far; user and assistant always alternate."""

    system: str | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages to send, the system message first."""
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.turns]

    def ask(self, text: str) -> None:
        """Add what the user says. Mutates."""
        self.turns.append({"role": "user", "content": text})

    def settle(self, answer: str) -> None:
        """Add the answer to the last question, or take the question back if there is none. Mutates."""
        if answer:
            self.turns.append({"role": "assistant", "content": answer})
        else:
            self.turns.pop()

    def clear(self) -> None:
        """Forget all turns. Mutates."""
        self.turns.clear()
