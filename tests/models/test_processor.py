"""The text half of a checkpoint: limits, stop tokens, defaults."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from vllm_mlx_core.api import Chat, Checkpoint, InvalidRequest, LoadOptions, ModelError, SamplingParams, Tool
from vllm_mlx_models.context_length import DEFAULT, context_length
from vllm_mlx_models.processor import CheckpointProcessor


@pytest.fixture
def folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model("qwen3"), tmp_path / "model")


def change(folder, name, **values):
    file = folder / name
    content = json.loads(file.read_text()) if file.is_file() else {}
    content.update(values)
    file.write_text(json.dumps(content))


def load(folder, **options):
    return CheckpointProcessor(Checkpoint(path=folder), LoadOptions(**options))


def token(processor, text):
    return processor.tokenizer.token_id(text)


def test_the_text_half_imports_no_mlx_and_no_transformers(folder):
    code = (
        "import sys; from pathlib import Path; from vllm_mlx_core.api import *; "
        "from vllm_mlx_models.text import TextFamily; "
        f"TextFamily(Checkpoint(path=Path({str(folder)!r})), LoadOptions()).load_processor(); "
        "print([m for m in ('mlx', 'mlx.core', 'mlx_lm', 'transformers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 8192}, "max_position_embeddings": 77}, 8192),
        ({"text_config": {"hidden_size": 1}, "max_position_embeddings": 77}, 77),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        ({"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "linear", "factor": 2}}, 4096),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        (
            {
                "model_type": "gemma3_text",
                "max_position_embeddings": 131072,
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}},
            },
            131072,
        ),
        ({"max_position_embeddings": 100, "rope_scaling": None}, 100),
        ({"max_position_embeddings": True, "n_ctx": 9}, 9),
        ({}, DEFAULT),
    ],
)
def test_the_context_length_is_read_from_the_config(config, expected):
    assert context_length(config) == expected


def test_a_config_without_limit_falls_back_to_the_tokenizer():
    assert context_length({}, 555) == 555


def test_stop_tokens_come_from_every_place_that_names_one(folder):
    change(folder, "config.json", eos_token_id=7)
    change(folder, "generation_config.json", eos_token_id=[5, 6, 99999])
    processor = load(folder)
    assert list(processor.stop_token_ids) == [5, 6, 7, token(processor, "<|im_end|>")]


def test_the_end_of_turn_is_found_in_the_template(folder):
    change(folder, "tokenizer_config.json", eos_token="<|endoftext|>")
    change(folder, "config.json", eos_token_id=None)
    processor = load(folder)
    assert list(processor.stop_token_ids) == [token(processor, name) for name in ("<|endoftext|>", "<|im_end|>")]


def test_what_follows_a_harmony_message_ends_no_turn(folder):
    change(folder, "tokenizer_config.json", eos_token="<|endoftext|>")
    change(folder, "config.json", eos_token_id=None)
    template = "{% for m in messages %}<|channel|>final{{ m.content }}<|im_end|>{% endfor %}"
    processor = load(folder, chat_template=template)
    assert list(processor.stop_token_ids) == [token(processor, "<|endoftext|>")]


def test_the_authors_advice_becomes_the_defaults(folder):
    change(
        folder,
        "generation_config.json",
        do_sample=True,
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        min_p=0,
        repetition_penalty=1.05,
        presence_penalty=9,
    )
    assert load(folder).defaults == SamplingParams(
        temperature=0.6, top_p=0.95, top_k=20, min_p=0.0, repetition_penalty=1.05
    )


@pytest.mark.parametrize(
    "advice",
    [{"do_sample": False, "temperature": 0.6}, {"temperature": "hot", "top_p": 0, "top_k": -3, "min_p": None}, {}],
)
def test_advice_not_to_sample_and_odd_values_change_nothing(folder, advice):
    change(folder, "generation_config.json", **advice)
    assert load(folder).defaults == SamplingParams()


def test_a_broken_generation_config_is_no_obstacle(folder):
    (folder / "generation_config.json").write_text("{")
    assert load(folder).defaults == SamplingParams()


def test_a_raw_prompt_gets_the_tokenizers_own_beginning(folder):
    post = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    change(folder, "tokenizer.json", post_processor=post)
    processor = load(folder)
    assert processor.tokenize("a").token_ids == [1, *processor.tokenizer.encode("a")]
    assert processor.render(Chat(messages=[{"role": "user", "content": "a"}])).token_ids[0] != 1


def test_without_a_template_a_chat_says_what_to_do(folder):
    (folder / "chat_template.jinja").unlink()
    change(folder, "tokenizer_config.json", chat_template=None)
    with pytest.raises(InvalidRequest, match="--chat-template") as caught:
        load(folder).render(Chat(messages=[{"role": "user", "content": "a"}]))
    assert caught.value.code == "no_chat_template"
    assert load(folder).tokenize("a").text == "a"


def test_the_operators_template_replaces_the_checkpoints(folder):
    rendered = load(folder, chat_template="own").render(Chat(messages=[{"role": "user", "content": "a"}]))
    assert rendered.text == "own"


PLAIN, TOOL_USE = "plain {{ messages[0].content }}", "{% for t in tools %}{{ t.function.name }}{% endfor %} tools"


def _in_config(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": TOOL_USE}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))


def _in_files(folder):
    (folder / "additional_chat_templates").mkdir()
    (folder / "chat_template.jinja").write_text(PLAIN)
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(TOOL_USE)


@pytest.mark.parametrize("put", [_in_config, _in_files])
def test_a_template_for_tools_serves_conversations_with_tools_only(tiny_model, tmp_path, put):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "model")
    put(folder)
    processor = CheckpointProcessor(Checkpoint(path=folder), LoadOptions())
    messages = [{"role": "user", "content": "Hi"}]
    assert processor.render(Chat(messages=messages)).text == "plain Hi"
    assert processor.render(Chat(messages=messages, tools=[Tool("f", "", {})])).text == "f tools"


def test_the_operators_template_replaces_all(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "model")
    _in_config(folder)
    processor = CheckpointProcessor(Checkpoint(path=folder), LoadOptions(chat_template="mine"))
    chat = Chat(messages=[{"role": "user", "content": "Hi"}], tools=[Tool("f", "", {})])
    assert processor.render(chat).text == "mine"


def test_a_template_beside_the_processor_of_a_model_that_also_sees_is_found(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder, "tokenizer_config.json", chat_template=None)
    change(folder, "chat_template.json", chat_template="seen: {{ messages[0].content }}")
    assert load(folder).render(Chat(messages=[{"role": "user", "content": "a"}])).text == "seen: a"
    change(folder, "tokenizer_config.json", chat_template="own: {{ messages[0].content }}")
    assert load(folder).render(Chat(messages=[{"role": "user", "content": "a"}])).text == "own: a"


def test_a_template_file_that_is_broken_is_named(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder, "tokenizer_config.json", chat_template=None)
    (folder / "chat_template.json").write_text("[]")
    with pytest.raises(ModelError, match=r"chat_template\.json"):
        load(folder)


def test_an_empty_template_of_the_operator_s_is_no_template(folder):
    with pytest.raises(InvalidRequest) as caught:
        load(folder, chat_template="").render(Chat(messages=[{"role": "user", "content": "a"}]))
    assert caught.value.code == "no_chat_template"


@pytest.mark.parametrize("templates", [[{"name": "default"}], [1], ["a"]])
def test_named_templates_that_make_no_sense_are_told(tiny_model, tmp_path, templates):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "model")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": templates})
    )
    with pytest.raises(ModelError, match=r"chat template|tokenizer_config"):
        CheckpointProcessor(Checkpoint(path=folder), LoadOptions())
