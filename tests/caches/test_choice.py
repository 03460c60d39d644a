from importlib.metadata import entry_points

import pytest

from vllm_mlx_caches import hooks
from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheSpec, UsageError


def test_the_policy_that_is_chosen_by_default_exists():
    names = {entry_point.name for entry_point in entry_points(group="vllm_mlx.cache_policies")}
    assert hooks.vllm_mlx_choose_cache() in names


def test_a_policy_without_options_says_so():
    with pytest.raises(UsageError, match="'off' has no option 'x'"):
        OffCache(CacheSpec(options={"x": "1"}))


def test_a_cache_that_is_off_says_so_in_its_misses():
    cache = OffCache(CacheSpec())
    assert cache.match((1, 2, 3)) is None
    miss = cache.stats().last_miss
    assert miss is not None
    assert miss.reason == "the prefix cache is off"
