"""From the body of a text completion request to what the engine is asked, one request per prompt."""

from __future__ import annotations

from typing import cast

from vllm_mlx_core.api import GenerateRequest, InvalidRequest, Settings

from .chat_request import check_text_only
from .sampling import check, to_sampling
from .schema import CompletionRequest


def to_generate(
    body: CompletionRequest, settings: Settings, *, request_id: str, user: str | None = None
) -> list[GenerateRequest]:
    """Return the engine's requests. Pure. Raises InvalidRequest naming the field."""
    check(body, settings)
    check_text_only(body.response_format)
    n = body.n or 1
    prompts = _prompts(body)
    if len(prompts) * n > settings.max_completions:
        raise InvalidRequest(
            f"{len(prompts)} prompts with n = {n} make more than {settings.max_completions} completions.", param="n"
        )
    if body.best_of is not None and body.best_of != n:
        raise InvalidRequest("best_of must be equal to n: completions are not ranked.", param="best_of")
    if body.suffix:
        raise InvalidRequest(
            "suffix is not supported: write the model's own infill markers into the prompt.", param="suffix"
        )
    if body.echo:
        if body.logprobs is not None:
            raise InvalidRequest("echo with logprobs is not supported: the prompt's are not computed.", param="echo")
        if not all(isinstance(prompt, str) for prompt in prompts):
            raise InvalidRequest("echo needs prompts that are text.", param="echo")
    sampling = to_sampling(body, settings, max_tokens=("max_tokens", body.max_tokens), logprobs=body.logprobs)
    return [
        GenerateRequest(
            request_id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            model=body.model,
            prompt=prompt,
            sampling=sampling,
            n=n,
            priority=body.priority or 0,
            user=user,
        )
        for index, prompt in enumerate(prompts)
    ]


def echoes(body: CompletionRequest) -> list[str]:
    """Return what each completion starts with, in the order of the choices."""
    prompts = _prompts(body)
    return [cast("str", prompt) if body.echo else "" for prompt in prompts for _ in range(body.n or 1)]


def _prompts(body: CompletionRequest) -> list[str | list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return cast("list[str | list[int]]", prompt)
