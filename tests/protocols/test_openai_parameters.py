"""Every parameter of OpenAI's own client is declared or refused: none is dropped in silence."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from openai.types import completion_create_params as text
from openai.types.chat import completion_create_params as chat

from vllm_mlx_protocols.openai.refused import UNSUPPORTED
from vllm_mlx_protocols.openai.schema import ChatCompletionRequest, CompletionRequest


@pytest.mark.parametrize(
    ("params", "body"),
    [
        (chat.CompletionCreateParamsStreaming, ChatCompletionRequest),
        (text.CompletionCreateParamsStreaming, CompletionRequest),
    ],
)
def test_the_clients_parameters_are_known(params, body):
    assert set(get_type_hints(params)) - set(body.model_fields) - set(UNSUPPORTED) == set()


@pytest.mark.parametrize("body", [ChatCompletionRequest, CompletionRequest])
def test_nothing_is_both_honoured_and_refused(body):
    assert set(body.model_fields) & set(UNSUPPORTED) == set()
