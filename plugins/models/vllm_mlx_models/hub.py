"""Models from a hub: downloaded once into the hub's own cache, resumed where a download broke off.

Only transient failures are tried again (no connection, time-outs, 429, 5xx, a body cut short), with growing pauses.
The token comes from ``HF_TOKEN``, the server's address from ``HF_ENDPOINT``, the cache folder from ``HF_HOME``.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, errors, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelError, ModelNotFound

from .hub_progress import progress_bar

FILES = (
    "*.json",
    "*.jinja",
    "*.jsonl",
    "*.model",
    "*.py",
    "*.tiktoken",
    "*.txt",
    "model*.safetensors",
)
"""What a language model needs; other formats of the same weights stay where they are."""

_TransportError: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]  # that of the client's own client
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_METADATA_TIMEOUT_S = 30.0
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


def hub_checkpoint(repo_id: str, options: LoadOptions, *, sleep: Callable[[float], None] = time.sleep) -> Checkpoint:
    """Return the checkpoint of a hub id, downloading what is not cached yet.

    Raises ModelNotFound for an unknown id or revision, ModelError for anything else that stands in the way.
    """
    offline = options.offline or constants.HF_HUB_OFFLINE
    attempts = 1 if offline else 1 + max(0, options.download_retries)
    pause = _FIRST_PAUSE_S
    for attempt in range(1, attempts + 1):
        try:
            folder = _download(repo_id, options, offline)
            break
        except Exception as error:
            if attempt == attempts or not _is_transient(error):
                raise _explain(error, repo_id, options, offline, attempt) from error
            options.progress(f"download of {repo_id} failed ({_reason(error)}); trying again in {pause:.0f} s", None)
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{repo_id} holds no model that can be loaded here: there is no config.json in it.")
    return Checkpoint(path=folder, name=repo_id)


def _download(repo_id: str, options: LoadOptions, offline: bool) -> Path:
    with _read_timeout(options.download_timeout_s):
        folder = snapshot_download(
            repo_id,
            revision=options.revision,
            allow_patterns=list(FILES),
            local_files_only=offline,
            etag_timeout=min(options.download_timeout_s, _METADATA_TIMEOUT_S),
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            cache_dir=os.environ.get("HF_HUB_CACHE") or None,
            tqdm_class=progress_bar(f"downloading {repo_id}", options.progress),
        )
    return Path(folder)


@contextmanager
def _read_timeout(seconds: float) -> Iterator[None]:
    """Limit how long a download may stand still. The hub client has no argument for it, only this setting."""
    before = constants.HF_HUB_DOWNLOAD_TIMEOUT
    constants.HF_HUB_DOWNLOAD_TIMEOUT = seconds  # type: ignore[assignment]  # any number of seconds is accepted
    try:
        yield
    finally:
        constants.HF_HUB_DOWNLOAD_TIMEOUT = before


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _root(error: BaseException) -> BaseException:
    """Return what made the client fall back to its cache, if that is what happened."""
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _is_transient(error: BaseException) -> bool:
    error = _root(error)
    if isinstance(error, HfHubHTTPError):
        return _status(error) in _TRANSIENT_STATUSES
    if isinstance(error, _TransportError):  # no connection, time-outs, a connection that broke
        return True
    return isinstance(error, OSError) and "Consistency check failed" in str(error)


def _reason(error: BaseException) -> str:
    error = _root(error)
    status = _status(error)
    if status is not None:
        return f"the server answered {status}"
    if "Consistency check failed" in str(error):
        return "a file arrived incomplete"
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _explain(error: Exception, repo_id: str, options: LoadOptions, offline: bool, attempts: int) -> ModelError:
    """Return the error to show for what the hub client raised, most specific first."""
    root: Any = _root(error)
    status = _status(root)
    if offline or isinstance(root, OfflineModeIsEnabled):
        revision = f" (revision {options.revision})" if options.revision else ""
        return ModelNotFound(
            f"{repo_id}{revision} is not in the cache, or not all of it, and downloads are switched off. "
            "Run once without --offline and HF_HUB_OFFLINE."
        )
    if isinstance(root, GatedRepoError) or status in (401, 403):
        known = "The token in HF_TOKEN has no access to it" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
        if status == 401 and not isinstance(root, GatedRepoError):
            # The hub answers alike for what does not exist and what may not be seen.
            return ModelNotFound(
                f"The hub has no model {repo_id}, or does not show it: check the name. "
                f"If it is private or gated, set HF_TOKEN ({known})."
            )
        return ModelError(
            f"Access to {repo_id} is restricted. {known}: accept the model's terms on its page, "
            "then set HF_TOKEN to a token of that account."
        )
    if isinstance(root, RevisionNotFoundError):
        return ModelNotFound(f"{repo_id} has no revision {options.revision!r}.")
    if isinstance(root, RepositoryNotFoundError) or status == 404:
        return ModelNotFound(f"The hub has no model {repo_id}: check the name, or set HF_TOKEN if it is private.")
    if isinstance(root, OSError) and root.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"The disk is full: {repo_id} does not fit. Free space, or set HF_HOME to a folder on another disk. "
            "The download resumes where it stopped."
        )
    if _is_transient(error):
        times = "once" if attempts == 1 else f"{attempts} times"
        return ModelError(
            f"Cannot download {repo_id}: {_reason(error)} (tried {times}). Check the connection; "
            "the download resumes where it stopped. --offline uses the cache only."
        )
    return ModelError(f"Cannot download {repo_id}: {_reason(error)}")
