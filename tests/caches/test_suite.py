"""The built-in policies pass the suite that plugin authors use."""

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_caches.off import OffCache
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
