"""The built-in policies pass the suite that plugin authors use."""

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_caches.off import OffCache
from vllm_mlx_caches.paged import PagedCache
from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_core.testing import CachePolicySuite


class TestLRUCache(CachePolicySuite):
    policy = LRUCache


class TestCrowdedLRUCache(CachePolicySuite):
    policy = LRUCache
    options = {"max_entries": "6"}  # noqa: RUF012 - the suite declares it


class TestOffCache(CachePolicySuite):
    policy = OffCache
    keeps_nothing = True


class TestRadixCache(CachePolicySuite):
    policy = RadixCache


class TestPagedCache(CachePolicySuite):
    policy = PagedCache
    options = {"block_size": "4"}  # noqa: RUF012


class TestCrowdedPagedCache(CachePolicySuite):
    policy = PagedCache
    options = {"block_size": "4", "max_blocks": "18"}  # noqa: RUF012 - six prompts of three blocks


class TestPagedCacheOfSingleTokens(CachePolicySuite):
    policy = PagedCache
    options = {"block_size": "1"}  # noqa: RUF012
