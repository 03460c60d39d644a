"""From the body of a text completion request to what the engine is asked, one request per prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from vllm_mlx_core.api import GenerateRequest, Infill, InvalidRequest, Settings

from .chat_request import check_text_only
from .sampling import check, to_sampling
from .schema import CompletionRequest


def to_generate(
    body: CompletionRequest,
    settings: Settings,
    *,
    request_id: str,
    user: str | None = None,
    trace_id: str | None = None,
) -> list[GenerateRequest]:
    """Return the engine's requests, each of as many completions as are ranked. Pure. Raises InvalidRequest."""
    check(body, settings)
    check_text_only(body.response_format)
    n = body.n or 1
    generated = _generated(body, n)
    prompts = _prompts(body)
    if len(prompts) * generated > settings.max_completions:
        field = "n" if generated == n else "best_of"
        raise InvalidRequest(
            f"{len(prompts)} prompts with {field} = {generated} make more than {settings.max_completions} completions.",
            param=field,
        )
    logprobs = body.logprobs if generated == n else body.logprobs or 0  # ranking needs them
    sampling = to_sampling(
        body,
        settings,
        max_tokens=("max_tokens", body.max_tokens),
        logprobs=logprobs,
        prompt_logprobs=_prompt_logprobs(body),
    )
    return [
        GenerateRequest(
            request_id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            model=body.model,
            prompt=_gap(prompt, body.suffix) if body.suffix else prompt,
            sampling=sampling,
            n=generated,
            add_special_tokens=body.add_special_tokens is not False,
            priority=body.priority or 0,
            cache_salt=body.cache_salt or "",
            user=user,
            trace_id=trace_id,
        )
        for index, prompt in enumerate(prompts)
    ]


def echoes(body: CompletionRequest, detokenize: Callable[[Sequence[int]], str]) -> list[str]:
    """Return what each completion starts with, in the order of the choices. Raises what ``detokenize`` raises."""
    prompts = _prompts(body)
    texts = [_text(prompt, detokenize) for prompt in prompts] if body.echo else [""] * len(prompts)
    return [text for text in texts for _ in range(body.n or 1)]


def _generated(body: CompletionRequest, n: int) -> int:
    """Return how many completions of each prompt are to be generated."""
    if body.best_of is None or body.best_of == n:
        return n
    if body.best_of < n:
        raise InvalidRequest("best_of must not be smaller than n.", param="best_of")
    if body.stream:
        raise InvalidRequest(
            "best_of must be equal to n in a stream: which are best is known at the end only.", param="best_of"
        )
    return body.best_of


def _prompt_logprobs(body: CompletionRequest) -> int | None:
    """Return how many alternatives are wanted for each token of the prompt, or None if only its text is.

    An answer of nothing but the prompt is something that only its log-probabilities give reason to.
    """
    if not body.echo or (body.logprobs is None and body.max_tokens != 0):
        return None
    if body.suffix:
        raise InvalidRequest("suffix cannot be combined with echo and logprobs, or max_tokens: 0.", param="suffix")
    return body.logprobs or 0


def _gap(prompt: str | list[int], suffix: str) -> Infill:
    if not isinstance(prompt, str):
        raise InvalidRequest("suffix needs prompts that are text.", param="suffix")
    return Infill(prefix=prompt, suffix=suffix)


def _text(prompt: str | list[int], detokenize: Callable[[Sequence[int]], str]) -> str:
    if isinstance(prompt, str):
        return prompt
    try:
        return detokenize(prompt)
    except InvalidRequest as error:
        raise InvalidRequest("prompt holds a token id that is not in the vocabulary.", param="prompt") from error


def _prompts(body: CompletionRequest) -> list[str | list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return cast("list[str | list[int]]", prompt)
