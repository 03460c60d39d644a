"""The conformance suite finds the faults it is there for."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from vllm_mlx_core.api import Chat, GenerateRequest, ProtocolFrontend
from vllm_mlx_core.testing.protocols import Exchange, ProtocolSuite


class Naive(ProtocolFrontend):
    """Looks right in a browser: leaves outputs open, ignores clients that leave, invents its own statuses."""

    paths = ("/naive",)

    def router(self):
        router = APIRouter()

        @router.post("/naive")
        async def answer(body: dict[str, Any]) -> Response:
            if "crash" in body:
                raise KeyError
            chat = Chat(messages=[])
            outputs = await self.engine.generate(GenerateRequest(request_id="r", model="default", prompt=chat))

            async def texts():
                async for step in outputs:
                    for output in step:
                        for event in output.events:
                            yield getattr(event, "text", "")

            if body.get("stream"):
                return StreamingResponse(texts())
            return PlainTextResponse("".join([text async for text in texts()]))

        return router

    def render_error(self, error):
        return JSONResponse({"detail": error.message}, 200)


class NaiveSuite(ProtocolSuite):
    frontend = Naive
    whole = Exchange("/naive", {})
    streamed = Exchange("/naive", {"stream": True})


class Unowned(Naive):
    paths = ("/elsewhere",)


FAULTS = [
    "test_the_answer_holds_the_text_of_the_model",
    "test_the_stream_is_an_event_stream_and_ends",
    "test_every_error_has_its_status_and_the_protocols_shape",
    "test_unknown_routes_methods_and_keys_are_errors_of_this_protocol",
    "test_a_body_that_is_not_an_object_is_the_clients_fault",
    "test_an_unexpected_exception_is_a_500_that_tells_nothing",
    "test_a_failure_midway_is_an_error_if_nothing_was_sent",
]


@pytest.mark.parametrize("test", FAULTS)
def test_a_naive_front_end_is_caught(test):
    with pytest.raises(AssertionError):
        getattr(NaiveSuite(), test)()


def test_routes_outside_of_the_own_paths_are_caught():
    class Suite(NaiveSuite):
        frontend = Unowned

    with pytest.raises(AssertionError, match="/naive is under none of"):
        Suite().test_it_owns_the_paths_of_its_routes()


def test_outputs_that_stay_open_when_the_client_leaves_are_caught():
    class Suite(NaiveSuite):
        whole = NaiveSuite.streamed

    with pytest.raises(AssertionError, match="left open"):
        Suite().test_a_client_that_leaves_stops_the_engine()
