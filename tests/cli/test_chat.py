"""``vllm-mlx chat --url`` with its input and output piped."""

import io
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from vllm_mlx_core.cli import main


@pytest.fixture
def piped(monkeypatch, capsys):
    """Run the command with ``lines`` as its standard input; return exit code, output and errors."""

    def run(lines, *argv):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        code = main(["chat", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_every_line_is_a_message_and_only_answers_are_written(piped, fake_server):
    code, out, err = piped("one\n\ntwo", "--url", fake_server.url)
    assert (code, out, err) == (0, "You said: one\nYou said: two\n", "")
    assert [message["content"] for message in fake_server.bodies[1]["messages"]] == ["one", "You said: one", "two"]


def test_commands_work_in_piped_input(piped, fake_server):
    code, out, _ = piped("/system be kind\none\n/clear\ntwo\n/exit\nthree\n", "--url", fake_server.url)
    assert (code, out) == (0, "You said: one\nYou said: two\n")
    assert [message["content"] for message in fake_server.bodies[1]["messages"]] == ["be kind", "two"]


def test_a_path_is_a_message_and_not_a_command(piped, fake_server):
    assert piped("/etc/hosts\n", "--url", fake_server.url)[1] == "You said: /etc/hosts\n"


def test_options_become_request_fields_and_what_is_not_said_is_left_out(piped, fake_server):
    piped("a\n", "--url", fake_server.url)
    piped(
        *("a\n", "named", "--url", f"{fake_server.url}/v1/", "--temperature", "0", "--top-p", "0.5", "--seed", "7"),
        *("--max-tokens", "9", "--api-key", "secret", "--chat-template-kwargs", '{"enable_thinking": false}'),
    )
    messages = [{"role": "user", "content": "a"}]
    assert fake_server.bodies[0] == {"model": "fake-model", "stream": True, "messages": messages}
    path, headers, body = fake_server.requests[1]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert body == {
        "model": "named",
        "stream": True,
        "messages": messages,
        "temperature": 0,
        "top_p": 0.5,
        "seed": 7,
        "max_tokens": 9,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_key_of_the_environment_is_sent(piped, fake_server, monkeypatch):
    monkeypatch.setenv("VLLM_MLX_API_KEY", "secret")
    piped("a\n", "--url", fake_server.url)
    assert fake_server.requests[0][1]["Authorization"] == "Bearer secret"


def reply_with(*events: Any) -> Callable[[Any, Any], None]:
    def reply(handler: Any, body: Any) -> None:
        handler.begin_stream()
        for event in events:
            handler.send_event(event)

    return reply


TEXT = {"choices": [{"index": 0, "delta": {"content": "half"}}]}


@pytest.mark.parametrize(
    ("reply", "output", "message"),
    [
        (lambda handler, body: handler.send_json(401, {"error": {"message": "wrong key"}}), "", "wrong key"),
        (lambda handler, body: handler.send_json(500, ["?"]), "", "the server answered with status 500"),
        (lambda handler, body: handler.send_json(404, {"error": "no such model"}), "", "no such model"),
        (reply_with(TEXT, {"error": {"message": "out of memory"}}), "half\n", "out of memory"),
        (reply_with(TEXT), "half\n", "the server broke off in the middle of the answer"),
        (reply_with("not json"), "", "the server sent an event that is not a JSON object"),
    ],
    ids=["401", "500", "404", "error event", "cut off", "no JSON"],
)
def test_a_failed_answer_is_one_line_and_exit_code_1(piped, fake_server, reply, output, message):
    fake_server.reply = reply
    code, out, err = piped("a\n", "--url", fake_server.url)
    assert (code, out, err) == (1, output, f"vllm-mlx: {message}\n")


def test_comments_and_chunks_without_choices_are_skipped(piped, fake_server):
    def reply(handler, body):
        handler.begin_stream()
        handler.wfile.write(b": keep-alive\n\nevent: message\n")
        handler.send_event({"choices": []})
        handler.send_delta(reasoning="hm", content="yes")
        handler.send_delta(finish_reason="stop")

    fake_server.reply = reply
    assert piped("a\n", "--url", fake_server.url)[:2] == (0, "yes\n")


def test_a_server_that_is_not_there_is_one_line_and_exit_code_1(piped):
    code, out, err = piped("a\n", "--url", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("vllm-mlx: cannot talk to http://127.0.0.1:1/v1: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "secret"],
        ["--url", "http://a:notaport"],
        ["--url", "http://127.0.0.1:1", "--revision", "main"],
        ["--url", "http://127.0.0.1:1", "--reasoning-parser", "think"],
    ],
    ids=" ".join,
)
def test_options_without_an_effect_and_impossible_addresses_are_refused(piped, argv):
    code, _, err = piped("", *argv)
    assert code == 2
    assert err.count("\n") == 1


def test_a_server_that_hangs_up_without_a_word_is_named_with_a_reason(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        code = main(["chat", "m", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}"])
        thread.join()
    err = capsys.readouterr().err
    assert code == 1
    assert re.fullmatch(r"vllm-mlx: cannot talk to http://127.0.0.1:\d+/v1: \S.*\n", err)
