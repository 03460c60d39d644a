from __future__ import annotations

import json
import logging

import pytest

from vllm_mlx_core.api import ApiKey
from vllm_mlx_core.cli.logs import JSONFormatter
from vllm_mlx_core.testing.protocols import connect

pytestmark = pytest.mark.anyio
ACCESS = "vllm_mlx_core.server.access"


async def logged(app, caplog, method, target, **request):
    with caplog.at_level(logging.INFO, ACCESS):
        async with connect(app) as client:
            answer = await client.request(method, target, **request)
    (record,) = [record for record in caplog.records if record.name == ACCESS]
    return answer, record


async def test_a_record_tells_who_asked_for_what_and_what_came_of_it(make_app, caplog):
    app = make_app(api_keys=[ApiKey("hush", "alice")])
    headers = {"x-api-key": "hush", "x-request-id": "my-id"}
    answer, record = await logged(app, caplog, "POST", "/plain/whole?q=hush", json={"text": "prompt"}, headers=headers)
    access = record.access
    assert (access.method, access.path, access.status) == ("POST", "/plain/whole", 200)
    assert (access.request_id, access.user, access.client) == ("my-id", "alice", "127.0.0.1")
    assert access.bytes == len(answer.content)
    assert access.duration_s >= 0
    for line in (record.getMessage(), JSONFormatter().format(record)):
        assert "alice" in line
        assert "hush" not in line
        assert "prompt" not in line


async def test_json_is_one_object_a_line_with_the_fields_of_the_record(make_app, caplog):
    _, record = await logged(make_app(api_keys=["k"]), caplog, "GET", '/x%0a"y\u2028?z=1')
    line = JSONFormatter().format(record)
    assert len(line.splitlines()) == 1
    fields = json.loads(line)
    assert (
        fields.items() >= {"level": "info", "logger": ACCESS, "message": "request", "status": 401, "user": None}.items()
    )
    assert fields["path"].startswith("/x%0a")
    assert fields["time"].endswith("+00:00")


async def test_an_exception_stays_in_its_line(caplog):
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("any").exception("it\nfailed %s", "badly")
    line = JSONFormatter().format(caplog.records[-1])
    assert len(line.splitlines()) == 1
    fields = json.loads(line)
    assert fields["message"] == "it\nfailed badly"
    assert fields["exception"].endswith("ValueError: two\nlines")
