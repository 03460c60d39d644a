from __future__ import annotations

import math

import pytest

from vllm_mlx_core.api import (
    EngineFailed,
    Infill,
    InvalidRequest,
    Output,
    Overloaded,
    PromptToken,
    Settings,
    TextDelta,
    TokenLogprob,
    Usage,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import connect, end, text_reply
from vllm_mlx_protocols.openai import OpenAIFrontend

from .openai_asking import TEXT, ask, error, stream, token

pytestmark = pytest.mark.anyio


async def test_text_completions_in_one_piece(client, engine):
    engine.reply = text_reply("ab", prompt_tokens=3)
    answer = await ask(client, TEXT, prompt=["x", "y"], n=2, echo=True)
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert [(c["index"], c["text"], c["finish_reason"], c["logprobs"]) for c in answer["choices"]] == [
        (0, "xab", "stop", None),
        (1, "xab", "stop", None),
        (2, "yab", "stop", None),
        (3, "yab", "stop", None),
    ]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (6, 12)
    assert [request.prompt for request in engine.requests] == ["x", "y"]


async def test_text_completions_streamed(client, engine):
    engine.reply = text_reply("ab", prompt_tokens=3)
    fields = {"prompt": ["x", "y"], "echo": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = await stream(client, TEXT, **fields)
    assert done == "[DONE]"
    assert {c["object"] for c in chunks} == {"text_completion"}
    assert all(c["id"] == chunks[0]["id"] for c in chunks)
    for index, text in enumerate(("xab", "yab")):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(c["text"] for c in mine) == text
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]
    assert (usage["choices"], usage["usage"]["prompt_tokens"]) == ([], 6)
    assert all(stream.closed.is_set() for stream in engine.streams)


async def test_legacy_logprobs_are_columns_with_offsets(client, engine):
    engine.reply = [
        [Output(choice=0, events=[TextDelta("ab")], logprobs=[token(b"ab", top=[(b"ab", -0.5)])])],
        [Output(choice=0, events=[TextDelta("c")], logprobs=[token(b"c", top=[(b"d", -0.1)])])],
        end("length"),
    ]
    expected = {
        "tokens": ["ab", "c"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"ab": -0.5}, {"d": -0.1, "c": -0.5}],
        "text_offset": [0, 2],
    }
    assert (await ask(client, TEXT, prompt="x", logprobs=1))["choices"][0]["logprobs"] == expected
    *chunks, _, _ = await stream(client, TEXT, prompt="x", logprobs=1)
    parts = [c["choices"][0]["logprobs"] for c in chunks]
    assert {key: [each for part in parts for each in part[key]] for key in expected} == expected
    assert (await ask(client, TEXT, prompt="x", logprobs=0))["choices"][0]["logprobs"] == {
        **expected,
        "top_logprobs": None,
    }


def scored(*texts, top=()):
    """Return the tokens of a prompt, numbered from 1."""
    first, *others = enumerate(texts, 1)
    return [PromptToken(*first), *(PromptToken(i, text, -float(i), top) for i, text in others)]


async def echoed(client, prompt, **fields):
    """Return text, columns and finish reason of a completion with an echo, which are the same streamed and whole."""
    fields = {"prompt": prompt, "echo": True, "logprobs": 1, **fields}
    (choice,) = (await ask(client, TEXT, **fields))["choices"]
    *chunks, _ = await stream(client, TEXT, **fields)
    parts = [each["choices"][0] for each in chunks]
    assert "".join(each["text"] for each in parts) == choice["text"]
    assert [each["finish_reason"] for each in parts if each["finish_reason"]] == [choice["finish_reason"]]
    columns = [each["logprobs"] for each in parts if each["logprobs"]]
    joined = {key: [value for part in columns for value in part[key] or ()] for key in choice["logprobs"]}
    assert joined == {key: value or [] for key, value in choice["logprobs"].items()}
    return choice["text"], choice["logprobs"], choice["finish_reason"]


async def test_offsets_are_those_of_the_text_where_a_character_has_several_tokens(client, engine):
    cat = "🐈".encode()
    parts = [b"a", cat[:2], cat[2:], b"b"]
    engine.reply = [
        *[[Output(choice=0, events=[], logprobs=[token(part)])] for part in parts[:2]],
        [Output(choice=0, events=[TextDelta("a🐈b")], logprobs=[token(part) for part in parts[2:]])],
        end("length"),
    ]
    (choice,) = (await ask(client, TEXT, prompt="Hi", logprobs=0))["choices"]
    assert choice["logprobs"]["tokens"] == ["a", "", "🐈", "b"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]
    *chunks, _ = await stream(client, TEXT, prompt="Hi", logprobs=0)
    columns = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [offset for part in columns for offset in part["text_offset"]] == choice["logprobs"]["text_offset"]


async def test_the_token_that_came_has_its_own_value_among_alternatives_that_read_the_same(client, engine):
    engine.reply = [
        [Output(choice=0, events=[TextDelta("\ufffd")], logprobs=[token(b"\xef\xbf\xbd", -5.0, [(b"\xff", -4.0)])])],
        end("length"),
    ]
    (choice,) = (await ask(client, TEXT, prompt="Hi", logprobs=1))["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-5.0]
    assert choice["logprobs"]["top_logprobs"] == [{"\ufffd": -5.0}]


async def test_an_echo_with_logprobs_begins_with_the_tokens_of_the_prompt(client, engine):
    prompt = scored(b"Hel", b"lo", top=[TokenLogprob(2, b"lo", -2.0), TokenLogprob(9, b"p", -3.0)])
    engine.reply = [
        [Output(choice=0, events=[TextDelta(" you")], logprobs=[token(b" you")], prompt_logprobs=prompt)],
        [Output(choice=0, events=[TextDelta("!")], logprobs=[token(b"!", top=[(b"?", -0.1)])])],
        end("length"),
    ]
    assert await echoed(client, "Hello") == (
        "Hello you!",
        {
            "tokens": ["Hel", "lo", " you", "!"],
            "token_logprobs": [None, -2.0, -0.5, -0.5],
            "top_logprobs": [None, {"lo": -2.0, "p": -3.0}, {" you": -0.5}, {"?": -0.1, "!": -0.5}],
            "text_offset": [0, 3, 5, 9],
        },
        "length",
    )
    assert (await echoed(client, "Hello", logprobs=0))[1]["top_logprobs"] is None
    assert all(request.sampling.prompt_logprobs is not None for request in engine.requests)


async def test_a_prompt_alone_is_an_answer(client, engine):
    engine.reply = [
        [Output(choice=0, finish="length", usage=Usage(prompt_tokens=3), prompt_logprobs=scored(b"a", b"b"))]
    ]
    text, columns, finish = await echoed(client, "ab", max_tokens=0)
    assert (text, columns["tokens"], columns["token_logprobs"], finish) == ("ab", ["a", "b"], [None, -2.0], "length")
    answer = await ask(client, TEXT, prompt="ab", echo=True, max_tokens=0)
    assert (answer["choices"][0]["text"], answer["choices"][0]["logprobs"]) == ("ab", None)
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 0)
    assert (await error(client, TEXT, prompt="ab", max_tokens=0))[1]["param"] == "max_tokens"


@pytest.mark.parametrize(
    ("texts", "prompt", "tokens", "offsets"),
    [
        ((b"<s>", b"ab", b"c"), "abc", ["<s>", "ab", "c"], [0, 0, 2]),
        ((b"<s>", b"<s>", b"c"), "<s>c", ["<s>", "<s>", "c"], [0, 0, 3]),
        ((b"<s>", b" ab", b"c"), "abc", ["<s>", " ab", "c"], [0, 0, 2]),
        ((b"ab", b"</s>"), "ab", ["ab", "</s>"], [0, 2]),
        ((b"\xf0\x9f", b"\x99", b"\x82!"), "🙂!", ["", "", "🙂!"], [0, 0, 0]),
        ((b"e\xcc", b"\x81x", b"\xff"), "e\u0301x\ufffd", ["e", "\u0301x", "\ufffd"], [0, 1, 3]),
        ((b"A", b"B"), "ab", ["A", "B"], [0, 1]),
    ],
)
async def test_the_tokens_of_a_prompt_join_to_the_text_that_is_echoed(client, engine, texts, prompt, tokens, offsets):
    output = Output(choice=0, events=[TextDelta("x")], logprobs=[token(b"x")], prompt_logprobs=scored(*texts))
    engine.reply = [[output], end("length")]
    text, columns, _ = await echoed(client, prompt)
    assert text == prompt + "x"
    assert columns["tokens"] == [*tokens, "x"]
    assert columns["text_offset"] == [*offsets, len(prompt)]


async def test_a_token_is_found_among_its_alternatives_whatever_part_of_a_character_it_is(client, engine):
    top = [TokenLogprob(2, b"\x9f", -2.0), TokenLogprob(8, b"\x98", -3.0), TokenLogprob(9, b"\x97", -4.0)]
    prompt = scored(b"\xf0", b"\x9f", b"\x99\x82", top=top)
    engine.reply = [[Output(choice=0, finish="length", usage=Usage(), prompt_logprobs=prompt)]]
    _, columns, _ = await echoed(client, "🙂", max_tokens=0, logprobs=3)
    assert columns["top_logprobs"][1:] == [{"": -2.0, "\ufffd": -3.0}, {"\ufffd": -2.0, "🙂": -3.0}]


async def test_every_choice_of_every_prompt_has_the_logprobs_of_its_prompt(client, engine):
    def reply(request):
        usage = Usage(prompt_tokens=3, completion_tokens=1)
        return [
            [
                Output(
                    choice=choice,
                    events=[TextDelta(str(choice))],
                    logprobs=[token(str(choice).encode(), logprob=-float(choice))],
                    prompt_logprobs=scored(*(each.encode() for each in request.prompt)),
                    finish="length",
                    usage=usage,
                )
                for choice in range(request.n)
            ]
        ]

    engine.reply = reply
    fields = {"prompt": ["ab", "cd"], "echo": True, "logprobs": 0}
    choices = (await ask(client, TEXT, n=2, **fields))["choices"]
    assert [each["logprobs"]["tokens"] for each in choices] == [[*p, c] for p in ("ab", "cd") for c in "01"]
    assert {tuple(each["logprobs"]["text_offset"]) for each in choices} == {(0, 1, 2)}
    *chunks, _ = await stream(client, TEXT, n=2, **fields)
    streamed = sorted((each["choices"][0] for each in chunks), key=lambda choice: choice["index"])
    assert [each["logprobs"]["tokens"] for each in streamed] == [each["logprobs"]["tokens"] for each in choices]
    best = (await ask(client, TEXT, n=1, best_of=3, **fields))["choices"]
    assert [each["text"] for each in best] == ["ab0", "cd0"]
    assert [each["logprobs"]["token_logprobs"] for each in best] == [[None, -2.0, 0.0]] * 2


async def test_the_best_completions_are_sent_and_all_are_counted(client, engine):
    def reply(request):
        likely = {0: (-3.0,), 1: (-0.5, -0.7), 2: (-1.0,), 3: (math.nan,), 4: ()}
        usage = Usage(prompt_tokens=3, completion_tokens=2)
        outputs = []
        for choice, logprobs in likely.items():
            events, tokens = [TextDelta(f"{request.prompt}{choice}")], [token(b"t", each) for each in logprobs]
            outputs.append(Output(choice=choice, events=events, logprobs=tokens, finish="stop", usage=usage))
        return [outputs]

    engine.reply = reply
    answer = await ask(client, TEXT, prompt="a", n=3, best_of=5, echo=True)
    assert [(c["index"], c["text"], c["logprobs"]) for c in answer["choices"]] == [
        (0, "aa1", None),
        (1, "aa2", None),
        (2, "aa0", None),
    ]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 10)
    (choice,) = (await ask(client, TEXT, prompt="a", best_of=5, logprobs=0))["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5, -0.7]


@pytest.mark.parametrize("n", [1, 2])
async def test_best_of_ranks_within_each_prompt(client, engine, n):
    def reply(request):
        outputs = []
        for choice in range(3):
            tokens = [token(b"t", -1.0 - choice if request.prompt == "up" else -9.0 + choice)]
            events = [TextDelta(str(choice))]
            outputs.append(Output(choice=choice, events=events, logprobs=tokens, finish="stop", usage=Usage()))
        return [outputs]

    engine.reply = reply
    settings = Settings(max_completions=8)
    async with connect(assemble(engine, [OpenAIFrontend(engine, settings)], settings)) as client:
        answer = await ask(client, TEXT, prompt=["up", "down"], n=n, best_of=3)
    assert [c["text"] for c in answer["choices"]] == ["0", "1"][:n] + ["2", "1"][:n]


async def test_token_ids_are_echoed_as_their_text(client, engine):
    engine.reply = text_reply("!")
    assert [c["text"] for c in (await ask(client, TEXT, prompt=[72, 105], echo=True, n=2))["choices"]] == ["Hi!"] * 2
    *chunks, _ = await stream(client, TEXT, prompt=[[72], [105]], echo=True)
    texts = ["".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i) for i in range(2)]
    assert texts == ["H!", "i!"]
    status, body = await error(client, TEXT, prompt=[0x110000], echo=True)
    assert (status, body["param"]) == (400, "prompt")
    assert all(stream.closed.is_set() for stream in engine.streams)


async def test_a_suffix_that_the_model_cannot_take_is_refused_by_name(client, engine):
    def refuse(request):
        raise InvalidRequest("suffix is not supported here.", param="suffix")

    engine.reply = refuse
    status, body = await error(client, TEXT, prompt="a", suffix="z")
    assert (status, body["param"]) == (400, "suffix")
    assert engine.requests[0].prompt == Infill(prefix="a", suffix="z")


async def test_one_prompt_that_is_refused_closes_the_others(client, engine):
    def reply(request):
        if request.prompt == "bad":
            raise Overloaded("Full.")
        return text_reply("x")

    engine.reply = reply
    status, _ = await error(client, TEXT, prompt=["good", "bad"])
    assert status == 503
    assert [stream.closed.is_set() for stream in engine.streams] == [True]


async def test_a_failure_of_one_prompt_ends_the_whole_stream(client, engine):
    engine.reply = lambda request: [EngineFailed("Broken.")] if request.prompt == "bad" else text_reply("x" * 50)
    events = await stream(client, TEXT, prompt=["good", "bad"])
    assert events[-1]["error"]["message"] == "Broken."
    assert all(stream.closed.is_set() for stream in engine.streams)
