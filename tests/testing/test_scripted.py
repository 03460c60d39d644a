"""The scripted family says what it is told, however its cache is sliced."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chat, Checkpoint, InvalidRequest, LoadOptions, ModelFamily
from vllm_mlx_core.engine import states
from vllm_mlx_core.engine.detokenizer import Detokenizer
from vllm_mlx_core.testing import ModelFamilySuite, scripted
from vllm_mlx_core.testing.scripted_family import ScriptedFamily

CHECKPOINT = scripted.vllm_mlx_resolve_model("scripted") or Checkpoint(Path())
END = "<|end|>"


class TestScriptedFamily(ModelFamilySuite):
    family = ScriptedFamily

    @pytest.fixture
    def checkpoint(self):
        return CHECKPOINT


@pytest.fixture(scope="module")
def processor():
    return ScriptedFamily(CHECKPOINT, LoadOptions()).load_processor()


@pytest.fixture(scope="module")
def generator():
    return ScriptedFamily(CHECKPOINT, LoadOptions()).load_generator()


def user(content, *before, **options):
    return Chat(messages=[*before, {"role": "user", "content": content}], **options)


def reply(generator, token_ids, chunk=64):
    """Decode greedily up to the end token, and return the tokens before it."""
    layers = generator.make_cache()
    for start in range(0, len(token_ids), chunk):
        logits = generator.forward(mx.array([token_ids[start : start + chunk]]), layers)
    answer = []
    while (token := int(mx.argmax(logits[0, -1]).item())) != 1:
        answer.append(token)
        logits = generator.forward(mx.array([[token]]), layers)
    return answer


def said(processor, generator, chat, **options):
    return processor.tokenizer.decode(reply(generator, processor.render(chat).token_ids, **options))


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=30), chunk=st.integers(1, 40))
def test_the_reply_is_the_text_of_the_last_user_message(processor, generator, text, chunk):
    earlier = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "not this"})
    assert said(processor, generator, user(f"\n{text}", *earlier), chunk=chunk) == f"\n{text}"


@pytest.mark.parametrize("text", ["<|end|>", "<|user|>x<|assistant|>", "<think>\nhm</think>", "# Title", "#chunk=0\nx"])
def test_nothing_in_the_text_is_special(processor, generator, text):
    assert said(processor, generator, user(text)) == text


def test_every_character_is_one_token(processor, generator):
    assert len(reply(generator, processor.render(user("héllo 😀")).token_ids)) == 7


def test_a_directive_makes_tokens_wider(processor, generator):
    answer = reply(generator, processor.render(user("#chunk=7\nabcdefghij")).token_ids)
    assert [processor.tokenizer.decode([token]) for token in answer] == ["abcdefg", "hij"]


def test_a_directive_opens_a_thinking_block(processor, generator):
    chat = user("#open-think\n#chunk=3\nplan</think>done")
    assert processor.render(chat).text.endswith("<think>\n")
    assert said(processor, generator, chat) == "plan</think>done"


def test_directives_count_only_at_the_start(processor, generator):
    text = "first\n#chunk=7\nlast"
    assert said(processor, generator, user(text)) == text
    assert len(reply(generator, processor.render(user(text)).token_ids)) == len(text)


def test_a_directive_makes_tool_results_the_reply(processor, generator):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "user", "content": "#echo-results\n#chunk=2\ncall f"}
    called = {"role": "assistant", "content": "call f", "tool_calls": [call]}
    results = [{"role": "tool", "tool_call_id": "1", "content": text} for text in ("first", "#chunk=1\nlast")]
    turns = [
        Chat(messages=[asked]),
        Chat(messages=[asked, called, *results[:1]]),
        Chat(messages=[asked, called, *results]),
    ]
    assert [said(processor, generator, turn) for turn in turns] == ["call f", "first", "#chunk=1\nlast"]
    first, second = (processor.render(turn).token_ids for turn in turns[:2])
    assert second[: len(first)] == first
    assert said(processor, generator, user("next", *turns[2].messages)) == "next"


@pytest.mark.parametrize("content", ["", None, [], "#chunk=7", "#open-think\r\n", "#echo-results"])
def test_an_empty_message_is_answered_with_the_end_token_at_once(processor, generator, content):
    assert reply(generator, processor.render(user(content)).token_ids) == []


def test_content_parts_are_joined(processor, generator):
    parts = [{"type": "text", "text": "#chunk=2\nab"}, {"type": "text", "text": "c"}]
    assert said(processor, generator, user(parts)) == "abc"


def test_a_raw_prompt_is_the_script_as_a_whole(processor, generator):
    text = "#chunk=7\nall of it"
    assert processor.tokenizer.decode(reply(generator, processor.tokenize(text).token_ids)) == text


def test_messages_after_the_last_user_message_change_nothing(processor, generator):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "say this"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    assert said(processor, generator, Chat(messages=messages)) == "say this"


def test_an_assistant_message_that_is_continued_is_the_beginning_of_the_reply(processor, generator):
    messages = [{"role": "user", "content": "#chunk=2\nhello world"}, {"role": "assistant", "content": "hello "}]
    chat = Chat(messages=messages, continue_final_message=True, add_generation_prompt=False)
    assert said(processor, generator, chat) == "world"


def test_without_a_user_message_nothing_is_said(processor, generator):
    assert (
        reply(generator, processor.render(Chat(messages=[{"role": "system", "content": "Be brief."}])).token_ids) == []
    )


def test_the_next_turn_begins_with_the_tokens_of_this_one(processor, generator):
    first = {"role": "user", "content": "#chunk=3\nhello there"}
    prompt = processor.render(Chat(messages=[first])).token_ids
    answer = reply(generator, prompt)
    spoken = {"role": "assistant", "content": "hello there"}
    following = processor.render(user("and now this", first, spoken))
    assert list(following.token_ids[: len(prompt) + len(answer) + 1]) == [*prompt, *answer, 1]
    assert processor.tokenizer.decode(reply(generator, following.token_ids)) == "and now this"


def test_rows_of_different_lengths_that_are_prefilled_together_keep_apart(processor, generator):
    texts = ["abc", "a much longer text than the others", "x"]
    prompts = [list(processor.tokenize(text).token_ids) for text in texts]
    longest = max(map(len, prompts))
    (batch,) = states.merge([generator.make_cache() for _ in prompts])
    batch.prepare(lengths=[*map(len, prompts)], right_padding=[longest - len(prompt) for prompt in prompts])
    padded = mx.array([prompt + [3] * (longest - len(prompt)) for prompt in prompts])
    logits = generator.forward(padded, [batch])
    batch.finalize()
    tokens = [int(mx.argmax(logits[row, len(prompt) - 1]).item()) for row, prompt in enumerate(prompts)]
    answers = [[token] for token in tokens]
    for _ in range(longest):
        tokens = mx.argmax(generator.forward(mx.array(tokens)[:, None], [batch])[:, -1], axis=-1).tolist()
        for answer, token in zip(answers, tokens, strict=True):
            answer.append(token)
    assert [processor.tokenizer.decode(answer).split(END)[0] for answer in answers] == texts


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (7, r"messages\[0\].content must be a string"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}], r"messages\[0\].content\[1\] is not text"),
        (["a"], r"messages\[0\].content\[0\] is not text"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_what_is_not_text_is_refused(processor, content, where):
    with pytest.raises(InvalidRequest, match=where):
        processor.render(user(content))


def test_an_id_keeps_its_meaning_and_pieces_beyond_the_vocabulary_are_read_byte_by_byte():
    tokenizer = ScriptedFamily(CHECKPOINT, LoadOptions()).load_processor().tokenizer
    old = tokenizer.encode("old")
    for start in (0x4E00, 0x6E00):
        text = "".join(map(chr, range(start, start + 8000)))
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("old") == old
    assert len(tokenizer.encode("\N{WAVING HAND SIGN}")) == 4


def test_an_id_that_came_up_before_it_stood_for_anything_is_shown_once_it_does():
    tokenizer = ScriptedFamily(CHECKPOINT, LoadOptions()).load_processor().tokenizer
    next_id = tokenizer.encode("a")[0] + 1
    assert Detokenizer(tokenizer, ()).push(next_id) == ""
    assert tokenizer.encode("b") == [next_id]
    detokenizer = Detokenizer(tokenizer, ())
    assert detokenizer.push(next_id) + detokenizer.finish() == "b"


def test_markers_of_special_tokens_are_encoded_as_such(processor):
    ids = processor.tokenizer.encode("a<|end|>b")
    assert len(ids) == 3
    assert processor.tokenizer.special_token(ids[1]) == END
    assert processor.tokenizer.special_token(ids[0]) is None
    assert processor.tokenizer.token_id(END) == ids[1]
    assert processor.tokenizer.token_id("a") == ids[0]


def test_the_plugin_knows_one_model():
    assert CHECKPOINT.model_type == CHECKPOINT.name == "scripted"
    assert scripted.vllm_mlx_resolve_model("else") is None
    assert scripted.vllm_mlx_resolve_model(None) is None


def test_the_plugin_offers_the_family_by_its_import_path():
    offered = []

    class Registrar:
        def add(self, *offer):
            offered.append(offer)

    scripted.vllm_mlx_register(Registrar())
    ((kind, name, target),) = offered
    module, _, cls = target.partition(":")
    assert (kind, name, module, cls) == ("model_families", "scripted", ScriptedFamily.__module__, "ScriptedFamily")
    assert issubclass(ScriptedFamily, ModelFamily)


def test_the_plugin_detects_its_own_checkpoint_only():
    other = Checkpoint(Path("/nowhere"), overrides={"model_type": "llama"})
    assert scripted.vllm_mlx_detect_family(CHECKPOINT, ["text", "scripted"]) == "scripted"
    assert scripted.vllm_mlx_detect_family(CHECKPOINT, ["text"]) is None
    assert scripted.vllm_mlx_detect_family(other, ["scripted"]) is None
