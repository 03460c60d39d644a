"""Chat templates: compiled in a sandbox, with the helpers that published templates use. Knows nothing of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vllm_mlx_core.api import ModelError

MAX_SOURCE = 1 << 20
"""Longest template that is accepted, in characters; the longest published ones have some 40,000."""


class TemplateRefusal(TemplateError):
    """The template called ``raise_exception``: it does not accept this conversation."""


_LIST_METHODS = frozenset({"append", "extend", "insert", "pop"})


class _GenerationExtension(Extension):
    """``{% generation %}`` marks what to train on. It does not change the text."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, in which a template may grow and shrink a list: some build or sort their sections that way.

    Harmless, because everything a template is given is a copy made for it.
    """

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if type(obj) is list and attr in _LIST_METHODS:
            return True
        return super().is_safe_attribute(obj, attr, value)


def _raise_exception(message: object = "") -> NoReturn:
    raise TemplateRefusal(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter: no HTML escapes, keys in their order, text as it is, what ``map`` gives as a list."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=_as_list
    )


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON.")


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _GenerationExtension]
    )
    helpers: dict[str, Callable[..., Any]] = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.globals.update(helpers)
    environment.filters["tojson"] = _tojson
    environment.filters["safe"] = str  # jinja2's would escape the text it is joined with for HTML
    return environment


@lru_cache(maxsize=32)
def compile_template(source: str) -> Template:
    """Return the compiled template. Raises ModelError if it is too long or not valid."""
    if len(source) > MAX_SOURCE:
        raise ModelError(f"The chat template has {len(source)} characters; at most {MAX_SOURCE} are accepted.")
    try:
        return _environment().from_string(source)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise ModelError(
            f"The chat template is not valid{f' (line {line})' if line else ''}: {error.message}. "
            "--chat-template replaces it."
        ) from error


@lru_cache(maxsize=32)
def _variables(source: str) -> frozenset[str]:
    return frozenset(meta.find_undeclared_variables(_environment().parse(source)))


class ChatTemplate:
    """A compiled template with the special tokens it may print. Does not mutate; any thread."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._template = compile_template(source)
        self._special_tokens = {"bos_token": "", "eos_token": ""} | dict(special_tokens)
        self.variables = _variables(source)
        """Names that the template reads and does not define itself."""

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises whatever the template provokes, TemplateRefusal if it refuses on purpose."""
        return self._template.render(self._special_tokens | dict(variables))

    def mentions(self, *words: str) -> bool:
        """Return whether the source contains any of ``words``."""
        return any(word in self.source for word in words)
