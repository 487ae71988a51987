"""Base models from the Hugging Face Hub: the size is checked before a download, and a missing network fails at once."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError, named

# Weights only as safetensors; pickled ones are never downloaded. Documentation and other frameworks' files neither.
_WANTED = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.model", "*.txt", "*.jinja"]
_TIMEOUT_S = 10.0
_HUB_ID = re.compile(r"(?P<id>[\w.-]+(?:/[\w.-]+)?)@(?P<revision>[\w./-]+)")


def resolve_base(location: str) -> Path:
    """Local folder of a base model, given as a folder or as a Hub `id@revision`; without network access.

    Raises:
        InputError: neither an existing folder nor a model in the local Hub cache.
    """
    place = _existing(location)
    if place is not None and place.is_dir():
        return place
    hub = _HUB_ID.fullmatch(location)
    if hub is None:
        what = "is a file" if place is not None and place.is_file() else "does not exist"
        raise InputError(
            f"base model folder {named(location)} {what}: give a folder in Transformers' format (for a model of the "
            "Hub id@revision)"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(hub["id"], revision=hub["revision"], allow_patterns=_WANTED, local_files_only=True)
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(f"base model {location} is not here: run `capibara model fetch {location}`") from error


def _existing(location: str) -> Path | None:
    """The file or folder of this name; None where there is none, as of 100,000 characters or of an unknown user."""
    try:
        place = Path(location).expanduser()
        return place if place.exists() else None
    except (OSError, RuntimeError):
        return None


def fetch_base(location: str, max_bytes: int) -> Path:
    """Local folder of a base model, as `resolve_base`; one of the Hub that is not here is fetched if it may be.

    Raises:
        InputError: as `resolve_base` and `fetch`.
    """
    hub = None if (place := _existing(location)) and place.is_dir() else _HUB_ID.fullmatch(location)
    return fetch(hub["id"], hub["revision"], max_bytes) if hub else resolve_base(location)


def fetch(model_id: str, revision: str, max_bytes: int) -> Path:
    """Download a model's weights, config and tokenizer, after checking its size; returns its local folder.

    A model in the local cache is not downloaded again. A gated model needs HF_TOKEN.

    Args:
        model_id: `owner/name` on the Hub.
        revision: commit, tag or branch.
        max_bytes: largest download allowed.

    Raises:
        InputError: offline, no such model or revision, no permission, no safetensors, or larger than `max_bytes`.
    """
    where = f"{model_id}@{revision}"
    if not _HUB_ID.fullmatch(where):
        raise InputError(f"{where!r} is no Hub model id: expected owner/name@revision")
    with suppress(InputError):  # not here yet
        return resolve_base(where)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        token = os.environ.get("HF_TOKEN") or None
        info = HfApi(token=token).model_info(model_id, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
        size = _download_size(info.siblings or [], where)
        if size > max_bytes:
            raise InputError(f"{where} is {size:,} bytes, {max_bytes:,} are allowed: raise the limit to fetch it")
        folder = snapshot_download(
            model_id, revision=revision, allow_patterns=_WANTED, token=token, etag_timeout=_TIMEOUT_S
        )
    except HfHubHTTPError as error:
        raise InputError(f"the Hub refused {where}: {error} (a private or gated model needs HF_TOKEN)") from error
    except Exception as error:
        if not _is_transport(error):
            raise
        raise InputError(
            f"cannot reach the Hub for {where} ({type(error).__name__}): go online, or give a local folder"
        ) from error
    return Path(folder)


def _is_transport(error: Exception) -> bool:
    """Whether an error means that the network cannot be reached, whatever HTTP library the Hub's client uses."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0].startswith(("httpx", "httpcore"))


def _download_size(siblings: Sequence[Any], where: str) -> int:
    """Bytes of the files that would be downloaded."""
    wanted = [file for file in siblings if any(fnmatch(file.rfilename, pattern) for pattern in _WANTED)]
    if not any(file.rfilename.endswith(".safetensors") for file in wanted):
        raise InputError(f"{where} has no safetensors weights: pickled weights are never read")
    return sum(file.size or 0 for file in wanted)
