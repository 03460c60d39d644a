"""``vllm-mlx chat --url`` in a pseudo-terminal."""

import threading
from typing import Any

import pytest

PROMPT = "\x1b[0m>"  # the blank after it is drawn by moving the cursor
CTRL_C, CTRL_D, ALT_ENTER, UP = "\x03", "\x04", "\x1b\r", "\x1b[A"
DIM, RESET = "\x1b[2m", "\x1b[0m"


def contents(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in body["messages"]]


@pytest.fixture
def chat(terminal, fake_server):
    def start(*argv, **environment):
        chat = terminal("chat", "--url", fake_server.url, *argv, **environment)
        chat.expect("Talking to ")
        chat.expect(PROMPT)
        return chat

    return start


def test_a_conversation_streams_remembers_and_ends_with_exit(chat, fake_server):
    session = chat()
    session.send("hello\r")
    session.expect("You said: hello")
    session.expect(PROMPT)
    session.send("again\r")
    session.expect("You said: again")
    session.expect(PROMPT)
    session.send("/exit\r")
    assert session.wait() == 0
    assert contents(fake_server.bodies[-1]) == [
        ("user", "hello"),
        ("assistant", "You said: hello"),
        ("user", "again"),
    ]


def test_reasoning_is_dimmed_and_not_sent_back(chat, fake_server):
    session = chat()
    session.send("hello\r")
    session.expect(f"{DIM}let me think{RESET}\r\nYou said: hello")
    session.expect(PROMPT)
    session.send("again\r")
    session.expect("You said: again")
    assert "let me think" not in str(fake_server.bodies[-1])


def test_no_color_shows_reasoning_without_styles(chat):
    session = chat(NO_COLOR="1")
    session.send("hello\r")
    between = session.expect("let me think\r\nYou said: hello")
    assert DIM not in between


def test_ctrl_c_stops_the_answer_and_keeps_the_session(chat, fake_server):
    disconnected = threading.Event()

    def endless(handler, body):
        handler.begin_stream()
        handler.send_delta(content="Once upon a time")
        if handler.wait_for_disconnect():
            disconnected.set()

    echo, fake_server.reply = fake_server.reply, endless
    session = chat()
    session.send("tell a story\r")
    session.expect("Once upon a time")
    session.send(CTRL_C)
    session.expect("stopped")
    session.expect(PROMPT)
    assert disconnected.wait(30)
    fake_server.reply = echo
    session.send("go on\r")
    session.expect("You said: go on")
    assert contents(fake_server.bodies[-1])[:2] == [("user", "tell a story"), ("assistant", "Once upon a time")]


def test_ctrl_c_before_the_first_token_takes_the_question_back(chat, fake_server):
    asked = threading.Event()

    def silent(handler, body):
        asked.set()
        handler.begin_stream()
        handler.wait_for_disconnect()

    echo, fake_server.reply = fake_server.reply, silent
    session = chat()
    session.send("never mind\r")
    assert asked.wait(30)
    session.send(CTRL_C)
    session.expect("stopped")
    session.expect(PROMPT)
    fake_server.reply = echo
    session.send("hello\r")
    session.expect("You said: hello")
    assert contents(fake_server.bodies[-1]) == [("user", "hello")]


def test_a_second_ctrl_c_leaves(chat):
    session = chat()
    session.send(CTRL_C)
    session.expect("once more")
    session.expect(PROMPT)
    session.send(CTRL_C)
    assert session.wait() == 0


def test_ctrl_d_leaves(chat):
    session = chat()
    session.send(CTRL_D)
    assert session.wait() == 0


def test_commands_change_the_conversation(chat, fake_server):
    session = chat("--system", "be brief")
    session.send("one\r")
    session.expect("You said: one")
    session.expect(PROMPT)
    session.send("/clear\r")
    session.expect("anew")
    session.expect(PROMPT)
    session.send("/system talk like a pirate\r")
    session.expect("System message set")
    session.expect(PROMPT)
    session.send("/help\r")
    session.expect("/system TEXT")
    session.expect(PROMPT)
    session.send("/nonsense\r")
    session.expect("unknown command /nonsense")
    session.expect(PROMPT)
    session.send("two\r")
    session.expect("You said: two")
    assert contents(fake_server.bodies[0]) == [("system", "be brief"), ("user", "one")]
    assert contents(fake_server.bodies[1]) == [("system", "talk like a pirate"), ("user", "two")]


@pytest.mark.parametrize("typed", [f"one{ALT_ENTER}two", "\x1b[200~one\ntwo\x1b[201~"], ids=["alt-enter", "paste"])
def test_a_message_may_have_several_lines(chat, fake_server, typed):
    session = chat()
    session.send(f"{typed}\r")
    session.expect("You said: one\r\ntwo")
    assert contents(fake_server.bodies[0]) == [("user", "one\ntwo")]


def test_earlier_messages_are_recalled_in_the_next_session(chat, fake_server, tmp_path):
    session = chat()
    session.send("remember me\r")
    session.expect("You said: remember me")
    session.expect(PROMPT)
    session.send(CTRL_D)
    assert session.wait() == 0
    history = tmp_path / "state" / "vllm-mlx" / "chat_history"
    assert history.stat().st_mode & 0o077 == 0
    session = chat()
    session.send(f"{UP}\r")
    session.expect("You said: remember me")


def test_an_error_is_one_line_and_the_session_goes_on(chat, fake_server):
    def refuse(handler, body):
        handler.send_json(400, {"error": {"message": "temperature is\ntoo high", "type": "invalid_request_error"}})

    echo, fake_server.reply = fake_server.reply, refuse
    session = chat()
    session.send("hello\r")
    session.expect("vllm-mlx: temperature is too high\r\n")
    session.expect(PROMPT)
    fake_server.reply = echo
    session.send("hello again\r")
    session.expect("You said: hello again")
    assert contents(fake_server.bodies[-1]) == [("user", "hello again")]


def test_escape_sequences_of_the_model_do_not_reach_the_terminal(chat, fake_server):
    def hostile(handler, body):
        handler.begin_stream()
        handler.send_delta(content="a\x1b]0;owned\x07b\x9bc\rd\n")
        handler.send_delta(finish_reason="stop")
        handler.send_event("[DONE]")

    fake_server.reply = hostile
    session = chat()
    session.send("hello\r")
    session.expect("a]0;ownedbcd\r\n")


def test_a_model_in_this_process_answers_after_its_progress_is_gone(terminal):
    session = terminal("chat", "scripted", "--plugin", "vllm_mlx_core.testing.scripted")
    session.expect("Loading the model")
    session.expect("Talking to scripted")
    session.expect(PROMPT)
    session.send("hello\r")
    session.expect("\x1b[?2004l")  # the editor has let go of the terminal: what follows is the answer
    session.expect("hello\r\n")
    session.expect(PROMPT)
    session.send(CTRL_D)
    assert session.wait() == 0
