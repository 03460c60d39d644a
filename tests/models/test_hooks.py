"""Resolving a reference and detecting the family."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelError, ModelNotFound
from vllm_mlx_models import hooks

FAMILIES = ["gguf", "text"]


def resolve(reference: str) -> Checkpoint:
    return hooks.vllm_mlx_resolve_model(reference, LoadOptions(offline=True))


def detect(config: dict[str, object], families: list[str] = FAMILIES) -> str | None:
    return hooks.vllm_mlx_detect_family(Checkpoint(path=Path("nowhere"), overrides=config), families)


def test_importing_the_hooks_imports_no_heavy_library():
    code = (
        "import sys; import vllm_mlx_models.hooks; "
        "print([m for m in ('mlx', 'mlx_lm', 'transformers', 'tokenizers', 'huggingface_hub', 'gguf', 'jinja2') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_is_a_checkpoint_named_as_it_was_asked_for(tiny_model):
    path = tiny_model("qwen3")
    checkpoint = resolve(str(path))
    assert checkpoint.path == path
    assert checkpoint.name == str(path)


def test_a_missing_path_is_named_with_similar_ones_beside_it(tmp_path):
    (tmp_path / "qwen3-tiny").mkdir()
    with pytest.raises(ModelNotFound, match=r"Did you mean .*qwen3-tiny"):
        resolve(str(tmp_path / "qwen3-tin"))


def test_a_missing_path_says_how_far_it_exists(tmp_path):
    with pytest.raises(ModelNotFound, match="exists, what follows does not"):
        resolve(str(tmp_path / "models" / "x"))


def test_a_folder_without_config_says_so_and_points_inside(tmp_path, tiny_model):
    (tmp_path / "inner").symlink_to(tiny_model("llama"))
    with pytest.raises(ModelError, match=r"no config\.json in it.*holds inner"):
        resolve(str(tmp_path))


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.txt").write_text("hello")
    with pytest.raises(ModelError, match="not a GGUF file"):
        resolve(str(tmp_path / "model.txt"))


@pytest.mark.parametrize("reference", ["llama", "a--b/c", "org/na..me", "org/with space", "", "\x00"])
def test_what_is_neither_path_nor_hub_id_is_explained(reference):
    with pytest.raises(ModelNotFound, match=r"no hub id \(org/name\)"):
        resolve(reference)


@pytest.mark.parametrize("reference", ["./x", "/no/such", "a/b/c", "../../no-such", "~/nope", "org/file.gguf"])
def test_what_looks_like_a_path_is_never_asked_of_the_hub(reference, hub):
    with pytest.raises(ModelNotFound, match="There is no file or folder"):
        hooks.vllm_mlx_resolve_model(reference, LoadOptions())
    assert hub.requests == []


def test_a_broken_config_is_a_model_error(tmp_path):
    (tmp_path / "config.json").write_text("{")
    checkpoint = resolve(str(tmp_path))
    with pytest.raises(ModelError, match="not valid JSON"):
        hooks.vllm_mlx_detect_family(checkpoint, FAMILIES)


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "qwen3"}, "text"),
        ({"model_type": "mistral"}, "text"),
        ({"model_type": "kimi_k2"}, "text"),
        ({"model_type": "bailing_hybrid", "architectures": ["BailingMoeV3ForCausalLM"]}, "text"),
        ({"model_type": "own", "model_file": "own.py"}, "text"),
        ({"model_type": "no_such_model"}, None),
        ({"model_type": "../utils"}, None),
        ({"model_type": 3}, None),
        ({}, None),
    ],
)
def test_the_text_family_takes_what_mlx_lm_has(config, family):
    assert detect(config) == family


def test_a_family_registered_for_the_model_type_wins():
    assert detect({"model_type": "qwen3"}, [*FAMILIES, "qwen3"]) == "qwen3"


def test_a_family_that_is_not_offered_is_not_answered():
    assert detect({"model_type": "qwen3"}, ["gguf"]) is None


def test_a_gguf_file_is_told_by_name_or_by_first_bytes(tmp_path):
    for name, content in (("a.gguf", b""), ("b", b"GGUF1234")):
        file = tmp_path / name
        file.write_bytes(content)
        assert hooks.vllm_mlx_detect_family(Checkpoint(path=file), FAMILIES) == "gguf"


def test_the_tables_of_renamed_types_are_read_from_mlx_lm():
    from mlx_lm import utils

    from vllm_mlx_models import architectures

    for name in utils.MODEL_REMAPPING:
        assert architectures.is_known({"model_type": name}), name
    for model_type, architecture in utils.MODEL_ARCHITECTURE_REMAPPING:
        assert architectures.is_known({"model_type": model_type, "architectures": [architecture]})


def test_what_is_neither_file_nor_folder_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        hooks.vllm_mlx_resolve_model(str(tmp_path / "pipe"), LoadOptions())
