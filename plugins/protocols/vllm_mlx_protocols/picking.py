"""How tokens are picked, in the words that OpenAI's protocols and the clients of local servers have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from .limits import MIN_REPETITION_PENALTY


class PickingFields(BaseModel):
    """Fields of a request. Null means "not said"."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """0 and -1 switch it off."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=10)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    def picking(self) -> dict[str, Any]:
        """Return them under the names that ``SamplingParams`` has for them."""
        return {name: getattr(self, name) for name in PickingFields.model_fields}
