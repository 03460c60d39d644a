"""Downloads from a fake hub."""

from __future__ import annotations

import errno
import threading

import pytest

from vllm_mlx_core.api import LoadOptions, ModelError, ModelNotFound
from vllm_mlx_models import hooks
from vllm_mlx_models.hub import hub_checkpoint

REPO = "acme/tiny"


@pytest.fixture
def repo(hub, tiny_model):
    hub.add(REPO, tiny_model("qwen3"))
    return hub


class Pauses(list[float]):
    def __call__(self, seconds):
        self.append(seconds)


def get(reference=REPO, **options):
    return hub_checkpoint(reference, LoadOptions(**options), sleep=Pauses())


def test_a_model_is_downloaded_whole_and_named_by_its_id(repo, tiny_model):
    checkpoint = get()
    assert checkpoint.name == REPO
    for file in tiny_model("qwen3").iterdir():
        assert (checkpoint.path / file.name).read_bytes() == file.read_bytes()


def test_a_hub_id_is_resolved_through_the_hook(repo):
    checkpoint = hooks.vllm_mlx_resolve_model(REPO, LoadOptions())
    assert hooks.vllm_mlx_detect_family(checkpoint, ["text", "gguf"]) == "text"


def test_files_in_other_formats_are_left_on_the_hub(repo):
    repo.repos[REPO]["main"] |= {"pytorch_model.bin": b"x", "model.onnx": b"x", "original.pth": b"x"}
    names = {file.name for file in get().path.iterdir()}
    assert "model.safetensors" in names
    assert not names & {"pytorch_model.bin", "model.onnx", "original.pth"}


def test_a_downloaded_model_needs_no_file_twice(repo):
    get()
    repo.requests.clear()
    get()
    assert not [path for _, path, _ in repo.requests if "/resolve/" in path]


def test_progress_rises_to_all(repo):
    seen = []
    get(progress=lambda what, fraction=None: seen.append((what, fraction)))
    fractions = [fraction for what, fraction in seen if what == f"downloading {REPO}"]
    assert fractions[-1] == 1.0
    assert all(0 <= fraction <= 1 for fraction in fractions)


def test_a_revision_is_what_is_asked_for(repo, tiny_model):
    repo.add(REPO, tiny_model("llama"), revision="v2")
    assert get(revision="v2").model_type == "llama"
    assert get().model_type == "qwen3"


def test_an_unknown_revision_is_named(repo):
    with pytest.raises(ModelNotFound, match="no revision 'v9'"):
        get(revision="v9")


def test_an_unknown_model_is_not_tried_again(hub):
    with pytest.raises(ModelNotFound, match="The hub has no model acme/none"):
        get("acme/none")
    assert len(hub.requests) == 1


def test_what_the_hub_does_not_show_may_be_private(hub):
    hub.fail("GET", "/api/models/acme/none", 401)
    with pytest.raises(ModelNotFound, match=r"check the name.*private or gated, set HF_TOKEN \(HF_TOKEN is not set\)"):
        get("acme/none")


@pytest.mark.parametrize("path", ["/api/models/acme/tiny", "model.safetensors"])
def test_a_busy_hub_is_tried_again_with_growing_pauses(repo, path):
    repo.fail("GET", path, 503, times=2)
    pauses = Pauses()
    assert hub_checkpoint(REPO, LoadOptions(), sleep=pauses).model_type == "qwen3"
    assert pauses == [1.0, 2.0]


def test_retries_end_with_a_clear_error(repo):
    repo.fail("GET", "/api/models/acme/tiny", 503, times=9)
    pauses = Pauses()
    with pytest.raises(ModelError, match=r"the server answered 503 \(tried 3 times\)"):
        hub_checkpoint(REPO, LoadOptions(download_retries=2), sleep=pauses)
    assert len(pauses) == 2


def test_a_body_cut_short_is_resumed_where_it_stopped(repo, tiny_model, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    repo.cut("model.safetensors", keep=1000)
    checkpoint = get()
    expected = (tiny_model("qwen3") / "model.safetensors").read_bytes()
    assert (checkpoint.path / "model.safetensors").read_bytes() == expected
    assert repo.ranges("model.safetensors") == [None, "bytes=1000-"]


def test_a_hub_that_stands_still_times_out(repo):
    repo.stall = threading.Event()
    with pytest.raises(ModelError, match="Cannot download acme/tiny"):
        get(download_timeout_s=0.05, download_retries=0)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_gated_model_says_to_set_a_token(repo, monkeypatch, token):
    repo.gated[REPO] = "secret"
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ModelError, match="set HF_TOKEN") as caught:
        get()
    assert not isinstance(caught.value, ModelNotFound)
    assert "wrong" not in str(caught.value)


def test_the_token_comes_from_the_environment(repo, monkeypatch):
    repo.gated[REPO] = "secret"
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert get().model_type == "qwen3"


def test_offline_uses_the_cache_and_no_network(repo):
    online = get()
    repo.requests.clear()
    assert get(offline=True).path == online.path
    assert repo.requests == []


def test_offline_without_the_model_says_so(repo):
    with pytest.raises(ModelNotFound, match="not in the cache"):
        get(offline=True)
    assert repo.requests == []


def test_no_connection_is_explained(monkeypatch, hub):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"Cannot download acme/tiny.*tried once"):
        get(download_retries=0)


def test_a_cached_model_is_served_when_the_hub_cannot_be_reached(repo, monkeypatch):
    online = get()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert get().path == online.path


def test_a_full_disk_is_explained(repo, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vllm_mlx_models.hub.snapshot_download", full)
    with pytest.raises(ModelError, match="The disk is full"):
        get()


def test_a_repository_without_a_model_is_refused(hub, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    hub.add("acme/notes", tmp_path)
    with pytest.raises(ModelError, match=r"no config\.json"):
        get("acme/notes")
