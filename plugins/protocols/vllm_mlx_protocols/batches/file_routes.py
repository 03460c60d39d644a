"""The routes of files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from vllm_mlx_protocols.http import JSONBytes

from .files import Files
from .objects import file_object, page
from .owner import owner
from .upload import UPLOAD, reading_upload

_MAX_PAGE = 10_000
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes of the file.", "content": {"application/octet-stream": {}}}
}


class _Content(StreamingResponse):
    """The bytes of a file. They are a client's own, so browsers must not show them as if they were the server's."""

    media_type = "application/octet-stream"


def add_file_routes(router: APIRouter, files: Files) -> None:
    """Add the routes of files to those of ``/v1``."""

    @router.post("/files", operation_id="createFile", openapi_extra=UPLOAD)
    async def create_file(request: Request) -> Response:
        """Upload a file."""
        async with reading_upload(request) as upload:
            file = await files.add(owner(request), upload.name, upload.source, upload.size, upload.lifetime_s)
        return JSONBytes(file_object(file))

    @router.get("/files", operation_id="listFiles")
    async def list_files(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = _MAX_PAGE,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
        purpose: str | None = None,
    ) -> Response:
        """List files."""
        found, has_more = await files.page(
            owner(request), purpose=purpose, after=after, limit=limit, newest_first=order == "desc"
        )
        return JSONBytes(page([file_object(each) for each in found], has_more=has_more))

    @router.get("/files/{file_id}", operation_id="retrieveFile")
    async def retrieve_file(request: Request, file_id: str) -> Response:
        """Return what a file is."""
        return JSONBytes(file_object(await files.get(owner(request), file_id)))

    @router.delete("/files/{file_id}", operation_id="deleteFile")
    async def delete_file(request: Request, file_id: str) -> Response:
        """Forget a file."""
        await files.delete(owner(request), file_id)
        return JSONBytes({"id": file_id, "object": "file", "deleted": True})

    @router.get("/files/{file_id}/content", operation_id="downloadFile", response_class=_Content, responses=_CONTENT)
    async def download_file(request: Request, file_id: str) -> Response:
        """Return the content of a file."""
        file = await files.get(owner(request), file_id)
        headers = {"content-length": str(file.bytes), "content-disposition": "attachment"}
        return _Content(files.content(file), headers=headers)
