import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import TOKEN_BYTES, common_prefix, pack_tokens

TOKENS = st.lists(st.integers(0, 300), max_size=40)
BLOCK = 4096


def naive(left, right):
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


@given(TOKENS, TOKENS, TOKENS)
def test_the_common_prefix_is_what_a_loop_finds(start, left, right):
    left, right = start + left, start + right
    assert common_prefix(pack_tokens(left), pack_tokens(right)) == naive(left, right)


@given(st.integers(0, 3 * BLOCK), st.integers(0, 3 * BLOCK), st.integers(0, 3 * BLOCK))
def test_differences_are_found_at_any_place_of_any_block(length, other_length, position):
    left, right = [256] * length, [256] * other_length
    if position < other_length:
        right[position] = 1  # shares three of its bytes with 256 + 1
    expected = min(length, other_length, position)
    assert common_prefix(pack_tokens(left), pack_tokens(right)) == expected


def test_a_negative_id_cannot_be_packed():
    with pytest.raises(OverflowError):
        pack_tokens([-1])


def test_every_token_takes_the_same_room():
    assert len(pack_tokens([0, 2**32 - 1])) == 2 * TOKEN_BYTES
