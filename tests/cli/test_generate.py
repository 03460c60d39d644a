"""``vllm-mlx generate`` with the scripted model, which repeats what it is told."""

import io
import json
import sys

import pytest

from vllm_mlx_core.cli import main

SCRIPTED = ("--plugin", "vllm_mlx_core.testing.scripted")


@pytest.fixture
def generate(capsys):
    def run(*argv):
        code = main(["generate", "scripted", *argv, *SCRIPTED])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_answer_is_written_to_standard_output_and_nothing_else(generate):
    code, out, _ = generate("hello wörld")
    assert (code, out) == (0, "hello wörld\n")


def test_each_phase_of_loading_is_one_line_on_standard_error(generate):
    lines = generate("hello")[2].splitlines()
    assert "Loading the model" in lines
    assert len(lines) == len(set(lines))


def test_the_prompt_may_come_from_standard_input(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert generate("-")[1] == "from a pipe\n"


def test_reasoning_is_kept_out_of_the_answer(generate):
    prompt = "<think>hm</think>yes"
    assert generate(prompt, "--reasoning-parser", "think")[1] == "yes\n"
    assert generate(prompt, "--reasoning-parser", "none")[1] == f"{prompt}\n"


def test_text_that_looks_like_a_tool_call_is_text(generate):
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert generate(call)[1] == f"{call}\n"


def test_json_reports_text_reasoning_and_counts(generate):
    _, out, _ = generate("<think>hm</think>yes", "--json", "--reasoning-parser", "think")
    report = json.loads(out)
    usage = report.pop("usage")
    assert report == {"model": "scripted", "text": "yes", "reasoning": "hm", "finish_reason": "stop"}
    assert usage["completion_tokens"] >= len("yes")
    assert usage["prompt_tokens"] > 0


def test_max_tokens_cuts_the_answer_off(generate):
    report = json.loads(generate("abcdef", "--json", "--max-tokens", "3")[1])
    assert (report["text"], report["finish_reason"], report["usage"]["completion_tokens"]) == ("abc", "length", 3)


def test_a_raw_prompt_is_not_put_into_the_chat_template(generate):
    script = "#open-think\nhm</think>yes"  # a directive of the scripted model's chat template
    assert generate(script, "--reasoning-parser", "none")[1] == "hm</think>yes\n"
    assert generate(script, "--reasoning-parser", "none", "--raw")[1] == f"{script}\n"


def test_chat_talks_to_a_model_in_this_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    assert main(["chat", "scripted", *SCRIPTED]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["generate", "scripted", "--raw", "--system", "x", "y"], "--system goes into the chat template"),
        (["generate", "scripted", "--raw", "--chat-template-kwargs", '{"a": 1}', "y"], "--chat-template-kwargs goes"),
        (["generate", "scripted", ""], "The prompt is empty"),
    ],
)
def test_a_contradiction_is_one_line_and_exit_code_2(capsys, argv, message):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["serve", "chat", "generate"])
def test_a_path_that_is_not_there_is_one_line_and_exit_code_1(capsys, command):
    argv = ["--port", "0"] if command == "serve" else ["hello"] if command == "generate" else []
    assert main([command, "./no/such/model", *argv]) == 1
    *progress, error = capsys.readouterr().err.splitlines()
    assert error.startswith("vllm-mlx: ")
    assert "no/such/model" in error
    assert not [line for line in progress if "Traceback" in line]


def test_an_architecture_that_nothing_loads_is_one_line_and_exit_code_1(capsys, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "perpetuum_mobile"}', encoding="utf-8")
    assert main(["generate", str(tmp_path), "hello"]) == 1
    assert "perpetuum_mobile" in capsys.readouterr().err.splitlines()[-1]
