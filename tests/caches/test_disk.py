"""What a disk cache keeps is found by the next process, and by nobody else's prompts."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import time

import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_caches.disk import folder as folder_module
from vllm_mlx_caches.disk import writer
from vllm_mlx_caches.disk.policy import DiskCache
from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_caches.off import OffCache
from vllm_mlx_caches.paged import PagedCache
from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_core.api import CacheSpec, UsageError
from vllm_mlx_core.testing import CachePolicySuite, FakeCodec

from .disk_states import WAIT_S, fetched, files, keep, open_cache, parts, size

PROMPT = tuple(range(1000, 1300))
POLICIES = [RadixCache, LRUCache, PagedCache]


class OnDisk(CachePolicySuite):
    """The suite, over a policy that keeps all that it is offered on a disk as well."""

    policy = DiskCache
    inner = RadixCache

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.path = tmp_path

    def make(self, max_bytes=None):
        return open_cache(self.path, over=self.inner, max_bytes=max_bytes)


class TestDiskOverRadix(OnDisk):
    pass


class TestDiskOverLRU(OnDisk):
    inner = LRUCache  # type: ignore[assignment]


class TestDiskOverPaged(OnDisk):
    inner = PagedCache  # type: ignore[assignment]


del OnDisk


@pytest.mark.parametrize("over", POLICIES)
@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("length", [16, 127, 128, 129, 300])
def test_the_next_process_finds_a_state(tmp_path, over, point, length):
    first = open_cache(tmp_path, over=over)
    keep(first, PROMPT[:length], point=point)
    first.close()
    second = open_cache(tmp_path, over=over)
    assert second.match((*PROMPT[:length], 1)) is None  # a match alone reads no files
    assert fetched(second, (*PROMPT[:length], 1)) == length
    assert second.stats().fetched_tokens == length
    second.close()


def test_the_next_process_finds_what_prompts_have_in_common(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT)
    first.close()
    second = open_cache(tmp_path)
    assert fetched(second, (*PROMPT[:260], 1, 2, 3)) == 256  # whole segments
    assert fetched(second, PROMPT) == 256
    second.close()


def test_points_at_which_a_conversation_can_resume_share_what_lies_before_them(tmp_path):
    first = open_cache(tmp_path)
    for end in (140, 150, 290):
        keep(first, PROMPT[:end], point=True)
    first.close()
    assert len(files(tmp_path)) == 5 + 3  # 0-128, 128-140, 128-150, 128-256, 256-290, and the points
    for query, expected in ((PROMPT[:140], 0), (PROMPT[:145], 140), (PROMPT[:290], 150), (PROMPT, 290)):
        second = open_cache(tmp_path)
        assert fetched(second, query) == expected
        second.close()


BLOCK = 40
KINDS = st.booleans()
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(
    lambda blocks: tuple(token for token in blocks for _ in range(BLOCK))
)


def promised(stored, query, *, point):
    """Return how many tokens of a query a stored state must save after a restart."""
    most = len(query) - 1
    common = next((i for i, pair in enumerate(zip(stored, query, strict=False)) if pair[0] != pair[1]), None)
    common = min(len(stored), len(query)) if common is None else common
    if common == len(stored) <= most:
        return len(stored)
    return 0 if point else min(common, most) // 128 * 128


@pytest.mark.parametrize("over", POLICIES)
def test_whatever_was_stored_is_found_again_as_far_as_it_is_the_same(tmp_path_factory, over):
    @settings(max_examples=25, deadline=None)
    @given(point=KINDS, stored=st.lists(PROMPTS, max_size=5), query=PROMPTS)
    def check(point, stored, query):
        folder = tmp_path_factory.mktemp("disk")
        first = open_cache(folder, over=over)
        for tokens in stored:
            keep(first, tokens, point=point)
        first.close()
        second = open_cache(folder, over=over)
        assert fetched(second, query) >= max((promised(tokens, query, point=point) for tokens in stored), default=0)
        second.close()
        shutil.rmtree(folder)

    check()


def test_salts_and_models_are_worlds_of_their_own(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT, salt="one")
    first.close()
    for identity, salt, expected in (("fake", "", 0), ("fake", "two", 0), ("other", "one", 0), ("fake", "one", 256)):
        second = open_cache(tmp_path, identity=identity)
        assert fetched(second, PROMPT, salt=salt) == expected
        second.close()


def test_what_memory_has_let_go_comes_back(tmp_path):
    cache = open_cache(tmp_path)
    keep(cache, PROMPT)
    cache.evict(1 << 40)
    deadline = time.monotonic() + WAIT_S
    while fetched(cache, (*PROMPT, 1)) != len(PROMPT):
        assert time.monotonic() < deadline, "it was never written"
    assert cache.fetch((*PROMPT, 1)) is None  # memory has it all
    cache.close()


def test_what_idle_requests_leave_is_kept_too(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT, idle=True)
    first.close()
    second = open_cache(tmp_path)
    assert fetched(second, (*PROMPT, 1)) == len(PROMPT)
    second.close()


def test_a_file_is_a_safetensors_file_for_its_owner_alone(tmp_path):
    folder = tmp_path / "new" / "folder"
    cache = open_cache(folder)
    keep(cache, PROMPT, point=True)
    cache.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(files(folder)) == 4
    for path in files(folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = dict(safetensors.deserialize(path.read_bytes()))
        assert "tokens" in content


def test_clearing_removes_this_models_files_and_nothing_else(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.safetensors").write_text("mine, too")
    other = open_cache(tmp_path, identity="other")
    keep(other, PROMPT)
    other.close()
    theirs = set(tmp_path.iterdir())
    cache = open_cache(tmp_path)
    keep(cache, PROMPT)
    keep(cache, PROMPT, salt="one")
    fetch = cache.fetch((*PROMPT[:200], *range(50)))
    assert fetch is not None
    cache.clear()
    fetch.future.exception(WAIT_S)
    fetch.keep()  # what was read before is not wanted any more
    assert cache.stats().entries == 0
    cache.close()
    assert set(tmp_path.iterdir()) == theirs


@pytest.mark.parametrize("damage", ["vanished", "cut", "emptied"])
def test_a_damaged_file_is_a_miss_removed_and_written_anew(tmp_path, damage):
    cache = open_cache(tmp_path)
    keep(cache, PROMPT)
    cache.close()
    middle = next(path for path in files(tmp_path) if PROMPT[128] in _tokens(path))
    match damage:
        case "vanished":
            middle.unlink()
        case "cut":
            os.truncate(middle, middle.stat().st_size - 1)
        case "emptied":
            os.truncate(middle, 0)
    second = open_cache(tmp_path)
    assert fetched(second, (*PROMPT, 1)) == 128
    assert not middle.exists()
    keep(second, PROMPT)
    second.close()
    third = open_cache(tmp_path)
    assert fetched(third, (*PROMPT, 1)) == len(PROMPT)
    third.close()


def _tokens(path):
    content = dict(safetensors.deserialize(path.read_bytes()))
    return memoryview(bytes(content["tokens"]["data"])).cast("I").tolist()


def test_a_file_under_another_name_is_not_taken_for_what_that_name_says(tmp_path):
    cache = open_cache(tmp_path)
    keep(cache, PROMPT[:128])
    keep(cache, PROMPT[128:256])
    cache.close()
    one, two = files(tmp_path)
    shutil.copyfile(one, two)
    second = open_cache(tmp_path)
    assert sorted([fetched(second, (*PROMPT[:128], 1)), fetched(second, (*PROMPT[128:256], 1))]) == [0, 128]
    second.close()
    assert files(tmp_path) == [one]


@pytest.mark.parametrize("over", POLICIES)
def test_no_damage_to_bytes_ever_gives_a_wrong_part(tmp_path, over):
    cache = open_cache(tmp_path, over=over)
    keep(cache, PROMPT[:200], point=True)
    cache.close()
    sound = {path: path.read_bytes() for path in files(tmp_path)}
    assert len(sound) == 3

    @settings(max_examples=150, deadline=None)
    @given(data=st.data())
    def check(data):
        for path, written in sound.items():
            path.write_bytes(written)
        victim = data.draw(st.sampled_from(sorted(sound)))
        content = bytearray(sound[victim])
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        else:
            for _ in range(data.draw(st.integers(1, 3))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        victim.write_bytes(bytes(content))
        second = open_cache(tmp_path, over=over)
        fetch = second.fetch((*PROMPT[:200], 1))
        assert fetch is not None
        assert fetch.future.exception(WAIT_S) is None
        fetch.keep()
        found = fetched(second, (*PROMPT[:200], 1))
        assert found in (0, 200)
        assert victim.exists() == (found == 200), "a file was kept that is of no use, or one that is was removed"
        second.close()

    check()


def test_the_cap_is_obeyed_while_the_folder_fills(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"x" * 100)
    cap = 20_000
    cache = open_cache(tmp_path, max_gb=str(cap / 1e9))
    most = 0
    for number in range(60):
        keep(cache, (number, *PROMPT), point=number % 2 == 0)
        most = max(most, size(tmp_path))
    cache.close()
    assert 0 < most <= cap + 100
    assert cap / 2 < sum(path.stat().st_size for path in files(tmp_path)) <= cap
    parts(tmp_path)


def test_what_is_used_stays_and_what_was_not_used_for_longest_goes_first(tmp_path):
    prompts = [(number, *PROMPT[:127]) for number in range(4)]
    cache = open_cache(tmp_path)
    for prompt in prompts[:3]:
        keep(cache, prompt)
    cache.close()
    each = files(tmp_path)[0].stat().st_size
    cache = open_cache(tmp_path, max_gb=str((3 * each + 100) / 1e9))
    assert fetched(cache, (*prompts[0], 1)) == 128
    keep(cache, prompts[3])
    cache.close()
    for prompt, expected in zip(prompts, (128, 0, 128, 128), strict=True):
        cache = open_cache(tmp_path)
        assert fetched(cache, (*prompt, 1)) == expected
        cache.close()


def test_of_a_conversation_the_end_goes_first(tmp_path):
    cache = open_cache(tmp_path)
    keep(cache, PROMPT, point=True)
    cache.close()
    oldest, *_, newest = files(tmp_path)
    assert "snapshot" in oldest.name
    assert PROMPT[0] in _tokens(newest)


def test_a_folder_that_is_gone_is_told_once_and_serving_goes_on(tmp_path, caplog):
    folder = tmp_path / "disk"
    cache = open_cache(folder)
    shutil.rmtree(folder)
    for number in range(5):
        keep(cache, (number, *PROMPT))
        assert fetched(cache, (number, *PROMPT)) == len(PROMPT)
        assert fetched(cache, (number, *PROMPT[:50], 1, 2, 3)) == 51
    cache.close()
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    assert cache.stats().unstored_parts == 5 * 3


def test_what_does_not_fit_the_queue_is_counted_and_the_beginning_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_WAITING_BYTES", 2000)  # a fake state says that a token takes 10 bytes
    cache = open_cache(tmp_path)
    keep(cache, PROMPT)
    assert cache.stats().unstored_parts == 1
    cache.close()
    second = open_cache(tmp_path)
    assert fetched(second, (*PROMPT, 1)) == 128
    second.close()


def test_temporary_files_of_a_process_that_has_ended_are_removed_when_they_are_old(tmp_path):
    old, young, other = (tmp_path / name for name in (".vllm-mlx-1-0.tmp", ".vllm-mlx-2-0.tmp", ".other-1-0.tmp"))
    for path in (old, young, other):
        path.write_bytes(b"x")
    long_ago = time.time() - folder_module.ABANDONED_S - 60
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    open_cache(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == [other, young]


def test_a_state_larger_than_the_budget_of_memory_is_read_only_so_far(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT)
    first.close()
    second = open_cache(tmp_path, max_bytes=8000)  # bytes on the disk: 8 for each token, and a little
    assert fetched(second, (*PROMPT, 1)) == 256 or fetched(second, (*PROMPT, 1)) == len(PROMPT)
    second.close()
    third = open_cache(tmp_path, max_bytes=1500)
    assert fetched(third, (*PROMPT, 1)) == 128
    third.close()


def test_requests_of_one_prompt_wait_for_one_look_up(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT)
    first.close()
    second = open_cache(tmp_path)
    fetches = [second.fetch((*PROMPT, 1)) for _ in range(3)]
    one, two, three = fetches
    assert one is two is three
    assert one is not None
    one.cancel()  # two still wait
    one.future.exception(WAIT_S)
    one.keep()
    one.keep()
    assert second.stats().fetched_tokens == len(PROMPT)
    second.close()


def test_a_model_that_cannot_be_told_from_others_leaves_nothing(tmp_path, caplog):
    cache = DiskCache(CacheSpec(options={"dir": str(tmp_path)}))
    cache.attach(None)
    keep(cache, PROMPT)
    assert cache.fetch((*PROMPT[:50], 1)) is None
    assert fetched(cache, (*PROMPT, 1)) == len(PROMPT)
    cache.close()
    assert not list(tmp_path.iterdir())
    assert "cannot be told" in caplog.text


@pytest.mark.parametrize(
    ("options", "over", "message"),
    [
        ({}, None, "needs the option 'dir'"),
        ({"dir": "{file}/below"}, None, "cannot be kept in"),
        ({"dir": "{file}"}, None, "cannot be kept in .*: it is not a folder"),
        ({"dir": "{folder}", "max_gb": "0"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}", "max_gb": "much"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}", "max_gb": "nan"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}", "max_gb": "inf"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}", "max_gb": "-1"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}", "max_gb": "1e300"}, None, "'max_gb' .* must be a number above 0"),
        ({"dir": "{folder}"}, OffCache, "keeps states in memory"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, options, over, message):
    (tmp_path / "file").touch()
    filled = {k: v.format(file=tmp_path / "file", folder=tmp_path / "folder") for k, v in options.items()}
    with pytest.raises(UsageError, match=message):
        DiskCache(CacheSpec(options=filled, over=over and over(CacheSpec())))


def test_a_codec_without_an_identity_of_its_own_shares_with_its_like(tmp_path):
    first = open_cache(tmp_path)
    keep(first, PROMPT)
    first.close()
    assert FakeCodec().identity == FakeCodec("fake").identity
    assert {part.tensors.keys() >= {"tokens"} for part in parts(tmp_path)} == {True}
