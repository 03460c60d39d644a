import pytest

from vllm_mlx_core.testing import CachePolicySuite, ModelFamilySuite


def test_an_inherited_test_cannot_be_overridden_quietly():
    with pytest.raises(TypeError, match="overrides test_salts_are_worlds_of_their_own without a reason"):
        type("TestMine", (CachePolicySuite,), {"test_salts_are_worlds_of_their_own": lambda self: None})


def test_an_inherited_test_cannot_be_switched_off_quietly():
    with pytest.raises(TypeError, match="overrides test_a_chat_is_rendered without a reason"):
        type("TestMine", (ModelFamilySuite,), {"test_a_chat_is_rendered": None})


def test_a_mixin_cannot_shadow_an_inherited_test():
    mixin = type("Mixin", (), {"test_a_chat_is_rendered": lambda self: None})
    with pytest.raises(TypeError, match="test_a_chat_is_rendered"):
        type("TestMine", (mixin, ModelFamilySuite), {})


def test_a_reason_makes_an_override_legal():
    body = {"test_a_chat_is_rendered": None, "waived": {"test_a_chat_is_rendered": "the template hides questions"}}
    suite = type("TestMine", (ModelFamilySuite,), body)
    assert vars(suite)["test_a_chat_is_rendered"] is None


def test_an_empty_reason_is_none():
    body = {"test_a_chat_is_rendered": None, "waived": {"test_a_chat_is_rendered": " "}}
    with pytest.raises(TypeError, match="without a reason"):
        type("TestMine", (ModelFamilySuite,), body)


def test_a_waiver_for_a_test_that_does_not_exist_is_a_mistake():
    with pytest.raises(TypeError, match=r"waived names test_nothing, which is not an inherited test"):
        type("TestMine", (ModelFamilySuite,), {"waived": {"test_nothing": "gone"}})


def test_tests_of_ones_own_may_be_added():
    type("TestMine", (CachePolicySuite,), {"test_more": lambda self: None})
