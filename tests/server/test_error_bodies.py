"""Whatever a route raises, its client learns nothing about the inside of the server."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, HTTPException
from starlette.responses import JSONResponse, Response

from vllm_mlx_core.api import EngineFailed, ProtocolFrontend, UsageError
from vllm_mlx_core.testing.protocols import connect

pytestmark = pytest.mark.anyio
SECRET = "hush-hush"
PATH = "/home/somebody/model.safetensors"


def failures():
    yield RuntimeError(f"{SECRET} {PATH}")
    yield FileNotFoundError(2, "No such file", PATH)
    yield KeyError(SECRET)
    yield AssertionError(f"{SECRET} {PATH}")
    yield RecursionError(SECRET)
    yield MemoryError(SECRET)
    yield UsageError(f"{SECRET} {PATH}")
    yield ExceptionGroup(SECRET, [ValueError(PATH)])
    yield UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, PATH)
    chained = EngineFailed("The engine failed.")
    chained.__cause__ = RuntimeError(f"{SECRET} {PATH}")
    yield chained


class Raising(ProtocolFrontend):
    """Raises the failure with the number in the path."""

    paths = ("/raise",)

    def router(self):
        router = APIRouter()

        @router.get("/raise/http")
        async def http() -> Response:
            raise HTTPException(503, "Busy.")

        @router.get("/raise/unsendable")
        async def unsendable() -> Response:
            return JSONResponse({SECRET: object()})

        @router.get("/raise/{number}")
        async def fail(number: int) -> Response:
            raise list(failures())[number]

        return router

    def render_error(self, error):
        return JSONResponse({"message": error.message}, error.status)


@pytest.fixture
def app(make_app):
    return make_app(frontends=[Raising], api_keys=[SECRET + "-key"])


@pytest.mark.parametrize("which", [*range(len(list(failures()))), "unsendable"])
async def test_no_failure_of_a_route_shows_a_secret_a_path_or_a_traceback(app, which, caplog):
    async with connect(app) as client:
        answer = await client.get(f"/raise/{which}", headers={"x-api-key": SECRET + "-key"})
    assert answer.status_code == 500
    assert set(answer.json()) == {"message"}
    everything = answer.text + str(answer.headers)
    for inside in (SECRET, PATH, "somebody", "Traceback", ".py", "Error"):
        assert inside not in everything
    assert SECRET + "-key" not in caplog.text


async def test_a_refusal_of_the_framework_keeps_its_status_and_the_protocols_shape(app):
    async with connect(app) as client:
        answer = await client.get("/raise/http", headers={"x-api-key": SECRET + "-key"})
    assert (answer.status_code, answer.json()) == (503, {"message": "Busy."})


async def test_no_refusal_shows_a_key(app):
    async with connect(app) as client:
        for headers in ({}, {"x-api-key": "hush"}, {"authorization": "Basic " + SECRET}):
            answer = await client.get("/raise/0", headers=headers)
            assert answer.status_code == 401
            assert SECRET not in answer.text + str(answer.headers)
