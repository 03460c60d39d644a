import filecmp
import json

import mlx.core as mx
import mlx_lm
import pytest
from transformers import AutoTokenizer

from vllm_mlx_core.testing import TINY_ARCHITECTURES, tiny, write_tiny_model


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_every_tiny_model_loads_and_generates(architecture, bits, tmp_path):
    path = write_tiny_model(architecture, tmp_path / "model", bits=bits)
    model, tokenizer = mlx_lm.load(str(path))
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    responses = list(mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=8))
    assert [response.finish_reason for response in responses][-1] == "length"
    assert len({response.token for response in responses}) > 1


def test_the_same_seed_gives_the_same_files(tmp_path):
    first = write_tiny_model("qwen3_next", tmp_path / "first")
    mx.random.uniform()
    second = write_tiny_model("qwen3_next", tmp_path / "second")
    other = write_tiny_model("qwen3_next", tmp_path / "other", seed=1)
    assert filecmp.cmp(first / "model.safetensors", second / "model.safetensors", shallow=False)
    assert not filecmp.cmp(first / "model.safetensors", other / "model.safetensors", shallow=False)


def test_the_benchmark_model_keeps_its_size(tmp_path):
    config = json.loads((write_tiny_model("qwen3", tmp_path) / "config.json").read_text())
    assert (config["vocab_size"], config["num_hidden_layers"], config["hidden_size"]) == (288, 2, 64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_have_the_dtype_that_was_asked_for(dtype, tmp_path):
    path = write_tiny_model("llama", tmp_path, dtype=dtype)
    weights = mx.load(str(path / "model.safetensors"))
    assert {str(weight.dtype) for weight in weights.values()} == {f"mlx.core.{dtype}"}


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no tiny 'gpt5'. Known: llama, "):
        write_tiny_model("gpt5", tmp_path)
    with pytest.raises(ValueError, match="not 'int8'"):
        write_tiny_model("llama", tmp_path, dtype="int8")
    with pytest.raises(ValueError, match="not 3"):
        write_tiny_model("llama", tmp_path, bits=3)


def test_the_tokenizer_gives_every_text_back(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(write_tiny_model("llama", tmp_path))
    for text in ("plain", " spaces  and\n\nlines\t", "yes no", "日本語 😀", "<think>\n<tool_call>{}</tool_call>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_template_renders_what_clients_send(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(write_tiny_model("llama", tmp_path))
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    rendered = tokenizer.apply_chat_template(
        [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "3"},
        ],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        add_generation_prompt=True,
        enable_thinking=False,
        tokenize=False,
    )
    assert rendered.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert "<|im_start|>user\none two<|im_end|>\n" in rendered
    assert '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n' in rendered
    assert "<tool_response>\n3\n</tool_response>" in rendered
    assert rendered.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_command_line_writes_a_model(tmp_path, capsys):
    assert tiny.main(["llama", str(tmp_path / "out"), "--seed", "3", "--bits", "8"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["quantization"]["bits"] == 8
