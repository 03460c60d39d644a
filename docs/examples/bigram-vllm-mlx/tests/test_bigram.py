from pathlib import Path

import mlx.core as mx
import pytest
from bigram_vllm_mlx import BigramFamily

from vllm_mlx_core.api import Chat, Checkpoint, InvalidRequest, LoadOptions, ModelError
from vllm_mlx_core.testing import ModelFamilySuite

MODEL = Path(__file__).parent.parent / "model"


class TestBigram(ModelFamilySuite):
    family = BigramFamily

    @pytest.fixture
    def checkpoint(self):
        return Checkpoint(MODEL)


def test_the_most_likely_byte_is_the_one_that_follows_most_often(tmp_path):
    (tmp_path / "corpus.txt").write_text("abab ac\n")
    model = BigramFamily(Checkpoint(tmp_path), LoadOptions()).load_generator()
    logits = model.forward(mx.array([[ord("a")]]), model.make_cache())
    assert mx.argmax(logits[0, 0]).item() == ord("b")


def test_a_folder_without_a_corpus_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match=r"holds no corpus\.txt"):
        BigramFamily(Checkpoint(tmp_path), LoadOptions()).load_generator()


def test_pictures_are_refused():
    processor = BigramFamily(Checkpoint(MODEL), LoadOptions()).load_processor()
    with pytest.raises(InvalidRequest, match="reads only text"):
        processor.render(Chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]))
