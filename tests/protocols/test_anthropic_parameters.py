"""Every parameter of Anthropic's own client is declared: none is dropped in silence."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from anthropic.types import message_count_tokens_params as counting
from anthropic.types import message_create_params as creating
from anthropic.types.beta import message_count_tokens_params as beta_counting
from anthropic.types.beta import message_create_params as beta_creating

from vllm_mlx_protocols.anthropic.schema import CountTokensRequest, MessagesRequest

HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""The client sends these as headers."""


@pytest.mark.parametrize(
    ("params", "body"),
    [
        (creating.MessageCreateParamsStreaming, MessagesRequest),
        (beta_creating.MessageCreateParamsStreaming, MessagesRequest),
        (counting.MessageCountTokensParams, CountTokensRequest),
        (beta_counting.MessageCountTokensParams, CountTokensRequest),
    ],
)
def test_the_clients_parameters_are_known(params, body):
    assert set(get_type_hints(params)) - set(body.model_fields) - HEADERS == set()
