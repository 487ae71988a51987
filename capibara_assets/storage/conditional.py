"""Objects of gs:// that change only from the state in which they were seen, by generation preconditions.

A bucket takes the last of several writes, in the order in which they arrive: a request that was sent long ago and is
delivered late would put a pointer back. Here each write names the generation that it replaces (`ifGenerationMatch`), so
it has an effect once, or none. Other object stores have no such precondition that fsspec can send.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from upath import UPath

from capibara_assets.errors import InputError

NEVER = "0"
"""The generation of an object that is not there."""
_TRIES = 20
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Seen:
    """An object's content and generation when it was read.

    Attributes:
        generation: changes with each write; `NEVER` where there is none.
        data: None where there is none.
    """

    generation: str
    data: bytes | None


def has_generations(path: UPath) -> bool:
    """Whether the object store can hold a write back by the generation that it replaces."""
    return path.protocol in ("gs", "gcs")


def seen(path: UPath) -> Seen:
    """An object's generation and bytes."""
    bucket, key, _ = path.fs.split_path(path.path)
    try:
        # The generation first: bytes of a later write do no harm, since nothing replaces this generation any more.
        generation = str(path.fs.call("GET", "b/{}/o/{}", bucket, key, json_out=True)["generation"])
        return Seen(generation, bytes(path.fs.cat_file(path.path)))
    except FileNotFoundError:
        return Seen(NEVER, None)


def replace_seen(path: UPath, former: Seen, data: bytes) -> bool:
    """Overwrite the generation that was read; False, without effect, if the object has changed since.

    The client repeats a request whose answer was lost, and is then refused by its own write: the same bytes are ours.
    """
    bucket, key, _ = path.fs.split_path(path.path)
    location = path.fs.base.removesuffix("/storage/v1/")
    try:
        path.fs.call(
            "POST",
            f"{location}/upload/storage/v1/b/{quote(bucket, safe='')}/o",
            uploadType="media",
            name=key,
            ifGenerationMatch=former.generation,
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )
    except FileExistsError:  # 412
        return seen(path).data == data
    path.fs.invalidate_cache(path.path)
    return True


def delete_seen(path: UPath, former: Seen) -> bool:
    """Delete the generation that was read; False, without effect, if the object has changed since."""
    bucket, key, _ = path.fs.split_path(path.path)
    try:
        path.fs.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=former.generation)
    except FileNotFoundError:
        return True
    except FileExistsError:  # 412
        return seen(path).generation == NEVER
    path.fs.invalidate_cache(path.path)
    return True


def move(path: UPath, change: Callable[[bytes | None], bytes | None], tries: int = _TRIES) -> None:
    """Replace an object by `change` of its content (compare and swap); retries after concurrent writes.

    Args:
        change: receives the object's bytes (None if it does not exist); returns the new ones, or None for no change.

    Raises:
        InputError: others came first `tries` times.
    """
    for attempt in range(tries):
        former = seen(path)
        data = change(former.data)
        if data is None or replace_seen(path, former, data):
            return
        time.sleep(random.uniform(0, _PAUSE_S * (attempt + 1)))
    raise InputError(f"others changed {path} {tries} times meanwhile: nothing was changed, try again")
