import argparse
import math
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
        ({"use_paged_cache": True}, "paged:block_size=64,max_blocks=1000"),
        ({"use_paged_cache": True, "paged_cache_block_size": 16}, "paged:block_size=16,max_blocks=1000"),
        ({"use_paged_cache": True, "max_cache_blocks": 9}, "paged:block_size=64,max_blocks=9"),
    ],
)
def test_the_short_options_name_a_policy(options, expected):
    assert choose(**options) == expected


def cover(cache, **options):
    return hooks.vllm_mlx_cover_cache(cache, Settings(plugin_options=options))


def test_a_folder_covers_whatever_policy_is_chosen():
    assert cover("radix") is None
    assert cover("radix", ssd_cache_dir="/x") == "disk:dir=/x,max_gb=10,over=radix"
    lru = "lru:max_entries=7"
    assert cover(lru, ssd_cache_dir="/x", ssd_cache_max_gb=0.5) == "disk:dir=/x,max_gb=0.5,over=lru:max_entries=7"


@pytest.mark.parametrize("options", [{"cache": "off"}, {"cache": "disk:dir=x"}, {"enable_prefix_cache": False}])
def test_a_folder_needs_a_policy_that_keeps_states_in_memory(options, tmp_path):
    with pytest.raises(UsageError, match="--ssd-cache-dir does not go with the cache policy"):
        choose(**options, ssd_cache_dir=str(tmp_path))


def test_a_folder_that_cannot_be_used_is_refused_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be kept in .*file: it is not a folder\."):
        choose(ssd_cache_dir=str(tmp_path / "file"))
    with pytest.raises(UsageError, match="--ssd-cache-max-gb needs --ssd-cache-dir"):
        choose(ssd_cache_max_gb=3.0)
    assert choose(ssd_cache_dir=str(tmp_path / "new")) == "radix"
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("max_gb", [1e300, math.inf, math.nan, 0, 0.0, -1.0])
def test_a_size_that_no_folder_can_have_is_refused_at_once(max_gb, tmp_path):
    with pytest.raises(UsageError, match="--ssd-cache-max-gb must be a number above 0"):
        choose(ssd_cache_dir=str(tmp_path), ssd_cache_max_gb=max_gb)


@pytest.mark.parametrize(
    "argv",
    [
        ["--ssd-cache-dir", "a,b"],
        ["--ssd-cache-dir", ""],
        ["--ssd-cache-max-gb", "0"],
        ["--ssd-cache-max-gb", "-1"],
        ["--ssd-cache-max-gb", "inf"],
        ["--ssd-cache-max-gb", "nan"],
        ["--ssd-cache-max-gb", "1e300"],
        ["--ssd-cache-max-gb", "much"],
    ],
)
def test_a_bad_value_of_a_folder_is_refused_by_the_parser(argv, capsys):
    parser = argparse.ArgumentParser()
    hooks.vllm_mlx_add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(argv)
    assert f"argument {argv[0]}: must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "radix", "enable_prefix_cache": False}, "--disable-prefix-cache and --cache radix"),
        ({"cache": "off", "no_memory_aware_cache": True}, "--no-memory-aware-cache and --cache off"),
        ({"enable_prefix_cache": False, "no_memory_aware_cache": True}, "contradict each other"),
        ({"prefix_cache_size": 7}, "--prefix-cache-size needs --no-memory-aware-cache"),
        ({"cache": "paged", "use_paged_cache": True}, "--use-paged-cache and --cache paged"),
        ({"enable_prefix_cache": False, "use_paged_cache": True}, "contradict each other"),
        ({"no_memory_aware_cache": True, "use_paged_cache": True}, "contradict each other"),
        ({"paged_cache_block_size": 16}, "--paged-cache-block-size needs --use-paged-cache"),
        ({"max_cache_blocks": 9}, "--max-cache-blocks needs --use-paged-cache"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        choose(**options)


def parse(*argv):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    hooks.vllm_mlx_add_options(parser)
    return vars(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("", "radix"),
        ("--enable-prefix-cache", "radix"),
        ("--disable-prefix-cache", "off"),
        ("--no-memory-aware-cache --prefix-cache-size 7", "lru:max_entries=7"),
        ("--use-paged-cache", "paged:block_size=64,max_blocks=1000"),
        ("--use-paged-cache --paged-cache-block-size 16 --max-cache-blocks 9", "paged:block_size=16,max_blocks=9"),
    ],
)
def test_the_command_line_names_a_policy_that_takes_its_options(argv, expected):
    choice = choose(**parse(*argv.split()))
    assert choice == expected
    name, _, options = choice.partition(":")
    policies = {entry_point.name: entry_point for entry_point in entry_points(group="vllm_mlx.cache_policies")}
    pairs = dict(pair.split("=") for pair in options.split(",") if pair)
    policies[name].load()(CacheSpec(options=pairs)).close()


@pytest.mark.parametrize("option", ["--prefix-cache-size", "--paged-cache-block-size", "--max-cache-blocks"])
def test_a_number_of_none_is_refused(option, capsys):
    with pytest.raises(SystemExit):
        parse(option, "0")
    assert f"argument {option}: must be a whole number from 1" in capsys.readouterr().err
