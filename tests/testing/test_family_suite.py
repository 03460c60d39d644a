"""The family suite catches families that are wrong in one way each."""

import inspect

import mlx.core as mx
import msgspec
import pytest

from vllm_mlx_core.api import LoadOptions, RenderedPrompt
from vllm_mlx_core.testing import ModelFamilySuite, scripted
from vllm_mlx_core.testing._scripted_model import ScriptedModel, scripted_tokens
from vllm_mlx_core.testing.scripted_family import ScriptedFamily, ScriptedProcessor


class TakesRowsForEquallyLong(ScriptedModel):
    """Takes what stands behind the end of a row for a part of it."""

    def forward(self, tokens, layers):
        entry = tokens.astype(mx.float32)[:, None, :, None]
        keys, _ = layers[0].update_and_fetch(entry, entry)
        history = keys[:, 0, :, 0].astype(mx.int32)
        ends = mx.full((len(history),), history.shape[1])
        following = scripted_tokens(history, ends, tokens.shape[1])
        return mx.where(mx.arange(self.vocab_size) == following[..., None], 50.0, 0.0)


class ForgetsEarlierChunks(ScriptedModel):
    def forward(self, tokens, layers):
        return super().forward(tokens, self.make_cache())


class SharesOneCache(ScriptedModel):
    def __init__(self):
        self.layers = super().make_cache()

    def make_cache(self):
        return self.layers

    def forward(self, tokens, layers):
        logits = super().forward(tokens, layers)
        return logits + layers[0].size()


class GivesOnlyTheLastLogits(ScriptedModel):
    def forward(self, tokens, layers):
        return super().forward(tokens, layers)[:, -1:]


class DropsTheQuestion(ScriptedProcessor):
    def render(self, chat):
        return RenderedPrompt(text="", token_ids=[2, 3])


class CountsFromTheEnd(ScriptedProcessor):
    def render(self, chat):
        return msgspec.structs.replace(super().render(chat), boundaries=[-1])


class NeverStops(ScriptedProcessor):
    stop_token_ids = ()


def family_of(processor=ScriptedProcessor, generator=ScriptedModel):
    class Family(ScriptedFamily):
        def load_processor(self):
            return processor()

        def load_generator(self):
            return generator()

    return Family


def fails(family, name, **attributes):
    """Return whether ``family`` fails one test of the suite."""
    suite = type("Suite", (ModelFamilySuite,), {"family": family, **attributes})()
    loaded = family(scripted.vllm_mlx_resolve_model("scripted"), LoadOptions())
    processor = loaded.load_processor()
    arguments = {
        "processor": processor,
        "generator": loaded.load_generator(),
        "prompts": [list(processor.tokenize(text).token_ids) for text in ("Hello", "The quick brown fox.", "What?")],
        "chunk": 5,
    }
    test = getattr(suite, name)
    try:
        test(**{parameter: arguments[parameter] for parameter in inspect.signature(test).parameters})
    except (AssertionError, AttributeError, ValueError):
        return True
    return False


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        ({"generator": TakesRowsForEquallyLong}, "test_rows_of_a_batch_equal_the_rows_alone"),
        ({"generator": ForgetsEarlierChunks}, "test_prefill_in_chunks_equals_prefill_in_one"),
        ({"generator": ForgetsEarlierChunks}, "test_decoding_continues_what_prefill_read"),
        ({"generator": SharesOneCache}, "test_every_cache_is_new"),
        ({"generator": GivesOnlyTheLastLogits}, "test_forward_gives_one_row_of_logits_for_each_token"),
        ({"processor": DropsTheQuestion}, "test_a_chat_is_rendered"),
        ({"processor": CountsFromTheEnd}, "test_boundaries_rise_and_lie_in_the_prompt"),
        ({"processor": NeverStops}, "test_stop_tokens_exist_and_are_tokens"),
    ],
)
def test_a_wrong_family_is_caught(broken, caught_by):
    assert fails(family_of(**broken), caught_by)
    assert not fails(family_of(), caught_by)


def test_a_family_that_says_it_cannot_batch_must_refuse():
    assert fails(family_of(), "test_rows_of_a_batch_equal_the_rows_alone", can_batch=False)
