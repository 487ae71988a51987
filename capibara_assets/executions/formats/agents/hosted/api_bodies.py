"""Bodies of model providers' APIs, wherever a document keeps them: as they are, listed, as text, or as streams."""

import json
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.event_streams import events, is_stream
from capibara_assets.executions.formats.agents.hosted import (
    anthropic_bodies,
    bedrock_bodies,
    gemini_bodies,
    openai_bodies,
)
from capibara_assets.executions.formats.agents.hosted.api_items import Item
from capibara_assets.executions.formats.agents.hosted.api_streams import assembled, is_event
from capibara_assets.executions.formats.strict_json import Fault

_PROVIDERS = (bedrock_bodies, gemini_bodies, openai_bodies, anthropic_bodies)
# what holds a body: requests come before what answers them. `result` and `message` are of batches, `data` is of lists
# of items, the last ones are of HAR files
_HOLDERS = (
    "request", "response", "parsed_body", "body", "string", "result", "message", "data",
    "log", "entries", "postData", "content", "text",
)  # fmt: skip
_DEPTH = 8


def bodies(value: Any) -> Iterator[dict[str, Any] | Fault]:
    """The bodies in a value, in order; a stream that is damaged gives faults."""
    return _bodies(value, 0, set())


def _bodies(value: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Any] | Fault]:
    if isinstance(value, dict | list):
        if depth > _DEPTH or id(value) in seen:  # YAML's aliases can make an absurd lot, or a ring, of a few lines
            return
        seen.add(id(value))
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        yield from _of_text(value, depth)
    elif isinstance(value, list):
        yield from _of_list(value, depth, seen)
    elif isinstance(value, dict):
        if any(provider.is_body(value) for provider in _PROVIDERS):
            yield value
            return
        for holder in _HOLDERS:
            if holder in value:
                yield from _bodies(value[holder], depth + 1, seen)


def items(body: dict[str, Any]) -> Iterator[Item]:
    """The calls of hosted interpreters in a body, their answers and the user's words."""
    for provider in _PROVIDERS:
        if provider.is_body(body):
            yield from provider.items(body)
            return


def is_request(body: dict[str, Any]) -> bool:
    """Whether a body was sent, so that its calls may have been seen before."""
    return any(field in body for field in ("messages", "contents", "input"))


def _of_text(said: str, depth: int) -> Iterator[dict[str, Any] | Fault]:
    if is_stream(said):
        found = list(events(said))
        yield from (event for event in found if isinstance(event, Fault))
        yield from assembled([event for event in found if isinstance(event, dict)])
    elif said.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(said, strict=False)
        except (ValueError, RecursionError) as error:
            yield Fault("invalid_json", f"a body: {error}", said)
            return
        yield from _bodies(value, depth + 1, set())


def _of_list(values: list[Any], depth: int, seen: set[int]) -> Iterator[dict[str, Any] | Fault]:
    if any(isinstance(value, dict) and is_event(value) for value in values):
        yield from assembled([value for value in values if isinstance(value, dict)])
        return
    for value in values:
        yield from _bodies(value, depth + 1, seen)
