"""A plugin that has the scripted model pretend to see: in ``PROMPT|NAME`` each ``#`` is a piece of the picture NAME."""

from __future__ import annotations

from vllm_mlx_core.api import Registrar, RenderedPrompt, TextProcessor, hookimpl, media_ids
from vllm_mlx_core.testing.scripted_family import ScriptedFamily, ScriptedProcessor


class PictureProcessor(ScriptedProcessor):
    def tokenize(self, text: str) -> RenderedPrompt:
        prompt, _, picture = text.partition("|")
        rendered = super().tokenize(prompt)
        (piece,) = self.tokenizer.encode("#")
        places = [i for i, token_id in enumerate(rendered.token_ids) if token_id == piece]
        cache_ids = list(rendered.token_ids)
        for place, media_id in zip(places, media_ids(picture.encode(), len(places)), strict=True):
            cache_ids[place] = media_id
        return RenderedPrompt(text=rendered.text, token_ids=rendered.token_ids, cache_ids=cache_ids)


class PictureFamily(ScriptedFamily):
    def load_processor(self) -> TextProcessor:
        return PictureProcessor()


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    registrar.add("model_families", "pictures", PictureFamily)


@hookimpl
def vllm_mlx_detect_family() -> str:
    return "pictures"
