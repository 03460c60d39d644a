"""What a folder holds of a prompt's beginning. The reader's thread."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mlx_core.api import TOKEN_BYTES, Tensors

from . import names
from .folder import Folder
from .names import SEGMENT_TOKENS, SegmentName, SnapshotName
from .part_file import DamagedFile, StoredPart, decode

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """The parts of the state after ``num_tokens`` tokens, in order, and the names of their files."""

    num_tokens: int
    segments: Sequence[Tensors]
    snapshot: Tensors | None
    files: Sequence[str]


class _Path(NamedTuple):
    """A way to a point at which a prompt can resume: its segments, and where each begins and ends in the prompt."""

    num_tokens: int
    segments: Sequence[SegmentName]
    snapshot: SnapshotName | None


class Lookup:
    """Finds the longest beginning of a prompt that a folder holds and that can be read."""

    def __init__(self, folder: Folder, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._model = names.model_tag(identity)

    def find(self, tokens: bytes, salt: str, *, more_than: int, max_bytes: int | None) -> Found | None:
        """Return what is held of packed tokens, if that is more than so many and not too large.

        Damaged files are removed. Raises OSError if the folder cannot be read.
        """
        parts: dict[str, StoredPart | None] = {}
        for path in self._paths(tokens, names.origin(self._identity, salt)):
            if path.num_tokens <= more_than:
                return None
            found = self._read(path, tokens, parts, max_bytes)
            if found is not None:
                self._folder.touch(found.files)
                return found
        return None

    def _paths(self, tokens: bytes, point: str) -> list[_Path]:
        """Return the ways to all points at which a prompt can resume, the longest first."""
        segments: defaultdict[str, list[SegmentName]] = defaultdict(list)
        snapshots: set[str] = set()
        for name in map(names.parse, self._folder.names()):
            match name:
                case SegmentName(model=self._model):
                    segments[name.start].append(name)
                case SnapshotName(model=self._model):
                    snapshots.add(name.point)
        paths: list[_Path] = []
        walked: list[SegmentName] = []
        position, num_tokens = 0, len(tokens) // TOKEN_BYTES
        while True:
            whole = None
            for segment in segments[point]:
                stop = position + segment.num_tokens
                if stop > num_tokens or names.beyond(point, names.part(tokens, position, stop)) != segment.end:
                    continue
                if segment.num_tokens == SEGMENT_TOKENS:
                    whole = segment
                if not segment.needs_snapshot:
                    paths.append(_Path(stop, [*walked, segment], None))
                elif segment.end in snapshots:
                    paths.append(_Path(stop, [*walked, segment], SnapshotName(self._model, segment.end)))
            if whole is None:
                return sorted(paths, key=lambda path: path.num_tokens, reverse=True)
            walked.append(whole)
            point, position = whole.end, position + SEGMENT_TOKENS

    def _read(
        self, path: _Path, tokens: bytes, parts: dict[str, StoredPart | None], max_bytes: int | None
    ) -> Found | None:
        """Return the parts along a path, or None if one is missing or they are too large. Remembers what it reads."""
        files = [str(name) for name in (*path.segments, *([path.snapshot] if path.snapshot else ()))]
        read: list[StoredPart] = []
        room = max_bytes
        for name in files:
            if name not in parts:
                parts[name] = self._read_file(name)
            part = parts[name]
            if part is None:
                return None
            if room is not None:
                room -= sum(len(tensor.data) for tensor in part.tensors.values())
                if room < 0:
                    return None
            read.append(part)
        expected = tokens[: path.num_tokens * TOKEN_BYTES]
        if b"".join(part.tokens for part in read) != expected:  # a snapshot's file holds none
            return None
        tensors = [part.tensors for part in read]
        if path.snapshot is None:
            return Found(path.num_tokens, tensors, None, files)
        return Found(path.num_tokens, tensors[:-1], tensors[-1], files)

    def _read_file(self, name: str) -> StoredPart | None:
        try:
            return decode(self._folder.read(name), name, self._identity)
        except OSError as error:
            log.debug("A stored part cannot be read: %s", error)
        except DamagedFile as error:
            log.debug("A stored part is damaged and removed: %s", error)
            self._remove(name)
        return None

    def _remove(self, name: str) -> None:
        try:
            self._folder.delete(name)
        except OSError as error:  # then it is read and found damaged again
            log.debug("A damaged part cannot be removed: %s", error)
