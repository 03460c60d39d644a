"""Who may share cached beginnings with whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import GenerateRequest, Settings
from vllm_mlx_core.engine.client import cache_salt

WHO = st.tuples(st.none() | st.text(max_size=6), st.text(max_size=6))


def salt(isolation, user, given_salt):
    request = GenerateRequest(request_id="r", model="m", prompt="p", user=user, cache_salt=given_salt)
    return cache_salt(request, Settings(cache_isolation=isolation))


@given(WHO, WHO)
def test_only_the_same_key_and_salt_share(first, second):
    same = (first[0] or "", first[1]) == (second[0] or "", second[1])
    assert (salt("key", *first) == salt("key", *second)) == same


@pytest.mark.parametrize("user", [None, "ann", "bob"])
def test_without_isolation_the_salt_is_what_the_client_said(user):
    assert salt("none", user, "mine") == "mine"
