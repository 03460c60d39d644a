"""Earlier calls and their results, shaped so that a template shows them.

Templates read an earlier call in ways of their own: only the first call of a message, only calls without text beside
them, only where the content is null. Some do not read calls at all, or know no message of the role ``tool``. Which
shape a template needs is found out once, by rendering a small conversation in each shape until one shows everything.
"""

from __future__ import annotations

from itertools import groupby, product

from .call_forms import CallForm
from .messages import Message
from .probes import PROBE_NAMES, Show, probe_call, probe_result
from .shapes import Shape, as_sent, one_after_another, result_text
from .single_calls import one_call_each


def text_apart(messages: list[Message]) -> list[Message]:
    """Put text that stands beside calls into a message of its own, before them."""
    done: list[Message] = []
    for message in messages:
        if "tool_calls" in message and message["content"]:
            done.append({key: value for key, value in message.items() if key != "tool_calls"})
            done.append({"role": message["role"], "content": "", "tool_calls": message["tool_calls"]})
        else:
            done.append(message)
    return done


def null_beside_calls(messages: list[Message]) -> list[Message]:
    """Put text apart, and make the content beside calls null."""
    return [{**m, "content": None} if "tool_calls" in m else m for m in text_apart(messages)]


def results_from_user(messages: list[Message]) -> list[Message]:
    """Make results messages of the user, those that follow one another a single one."""
    done: list[Message] = []
    for is_result, neighbours in groupby(messages, lambda message: message["role"] == "tool"):
        if is_result:
            content = "\n".join(result_text(message["content"]) for message in neighbours)
            done.append({"role": "user", "content": content})
        else:
            done += neighbours
    return done


def calls_as_text(form: CallForm) -> Shape:
    """Return the shape that writes calls into the content."""

    def shape(messages: list[Message]) -> list[Message]:
        done: list[Message] = []
        for message in messages:
            if "tool_calls" in message:
                text = "\n".join(filter(None, [message["content"], form(message["tool_calls"])]))
                message = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": text}
            done.append(message)
        return done

    return shape


def native_shape(show: Show) -> Shape | None:
    """Return the first shape in which the template shows calls by itself, and all else; None if it never does."""
    calls_shapes: list[Shape] = [as_sent, one_call_each, null_beside_calls, text_apart]
    calls_shapes += [one_after_another(apart, one_call_each) for apart in (text_apart, null_beside_calls)]
    for text, leads in ((_TEXT, True), (_TEXT, False), ("", False)):
        for results, calls in product((as_sent, results_from_user), calls_shapes):
            shape = one_after_another(calls, results)
            if _shows(show, shape(_loop(text)), text, leads=leads) and _shows(show, shape([*_loop(text), *_AFTER])):
                return shape
    return None


def written_shape(show: Show, form: CallForm, *, offers_tools: bool) -> Shape:
    """Return the shape for a template that shows no calls: written in this form.

    Results keep their role only where the template offers tools, and so was made for results, and shows them.
    """
    calls = calls_as_text(form)
    if offers_tools and _shows(show, calls(_loop())):
        return calls
    return one_after_another(calls, results_from_user)


def shows_tools(show: Show) -> bool:
    """Return whether the template tells the model what tools there are; a template that refuses is not doubted."""
    try:
        return PROBE_NAMES[0] in show([{"role": "user", "content": "."}])
    except Exception:
        return True


def call_sample(show: Show, shape: Shape) -> str | None:
    """Return two calls as the template writes them, cut out of a conversation; None if they cannot be found."""
    names = ("FIRST_FUNCTION", "SECOND_FUNCTION")
    calls = [probe_call(name, {"ARGUMENT_NAME": "ARGUMENT_VALUE"}, i) for i, name in enumerate(names)]
    start: Message = {"role": "user", "content": "."}
    try:
        plain = show([start, {"role": "assistant", "content": _TEXT}])
        with_calls = show(shape([start, {"role": "assistant", "content": "", "tool_calls": calls}]))
    except Exception:
        return None
    before, _, after = plain.partition(_TEXT)
    if not with_calls.startswith(before) or not all(name in with_calls for name in names):
        return None
    return with_calls.removeprefix(before).removesuffix(after).strip() or None


_VALUES = ("value-first", "value-second", "value-third")
_RESULTS = ("result-first", "result-second", "result-third")
_TEXT = "text-beside-the-call"
_AFTER: tuple[Message, ...] = ({"role": "assistant", "content": "."}, {"role": "user", "content": "."})


def _loop(text: str = "") -> list[Message]:
    """A question, two calls and their results, then another call with this text beside it."""
    values = zip(PROBE_NAMES, _VALUES, strict=True)
    calls = [probe_call(name, {"value": value}, i) for i, (name, value) in enumerate(values)]
    results = [probe_result(call, result) for call, result in zip(calls, _RESULTS, strict=True)]
    return [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": "", "tool_calls": calls[:2]},
        *results[:2],
        {"role": "assistant", "content": text, "tool_calls": calls[2:]},
        results[2],
    ]


def _shows(show: Show, messages: list[Message], text: str = "", *, leads: bool = False) -> bool:
    """Return whether the template shows all calls and results, and this text, if it leads before the call beside it."""
    try:
        shown = show(messages)
    except Exception:  # refusing is one of the answers this asks for
        return False
    if not all(mark in shown for mark in (*_VALUES, *_RESULTS, text)):
        return False
    return not leads or shown.index(text) < shown.index(_VALUES[-1])
