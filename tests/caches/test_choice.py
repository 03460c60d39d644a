from importlib.metadata import entry_points

import pytest

from vllm_mlx_caches import hooks
from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheSpec, EngineSettings, Settings, UsageError


def test_the_policy_that_is_chosen_by_default_exists():
    names = {entry_point.name for entry_point in entry_points(group="vllm_mlx.cache_policies")}
    assert hooks.vllm_mlx_choose_cache(Settings()) in names


def test_a_policy_without_options_says_so():
    with pytest.raises(UsageError, match="'off' has no option 'x'"):
        OffCache(CacheSpec(options={"x": "1"}))


def test_a_cache_that_is_off_says_so_in_its_misses():
    cache = OffCache(CacheSpec())
    assert cache.match((1, 2, 3)) is None
    miss = cache.stats().last_miss
    assert miss is not None
    assert miss.reason == "the prefix cache is off"


def choose(*, cache=None, **options):
    settings = Settings(engine=EngineSettings(cache=cache), plugin_options=options)
    hooks.vllm_mlx_configure(settings)
    return hooks.vllm_mlx_choose_cache(settings)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "radix"),
        ({"enable_prefix_cache": True}, "radix"),
        ({"enable_prefix_cache": False}, "off"),
        ({"no_memory_aware_cache": True}, "lru:max_entries=100"),
        ({"no_memory_aware_cache": True, "prefix_cache_size": 7}, "lru:max_entries=7"),
    ],
)
def test_the_short_options_name_a_policy(options, expected):
    assert choose(**options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "radix", "enable_prefix_cache": False}, "--disable-prefix-cache and --cache radix"),
        ({"cache": "off", "no_memory_aware_cache": True}, "--no-memory-aware-cache and --cache off"),
        ({"enable_prefix_cache": False, "no_memory_aware_cache": True}, "contradict each other"),
        ({"prefix_cache_size": 7}, "--prefix-cache-size needs --no-memory-aware-cache"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        choose(**options)
