"""Streamed API responses: the events of a stream, put together to the bodies that would have come without it."""

import json
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at
from capibara_assets.executions.formats.strict_json import Fault

_OF_ANTHROPIC = ("message_start", "content_block_start", "content_block_delta", "content_block_stop")


def is_event(value: dict[str, Any]) -> bool:
    """Whether an object is an event of a stream, as some programs note them one by one."""
    kind = text_at(value, "type")
    return kind in _OF_ANTHROPIC or (kind.startswith("response.") and kind.count(".") > 0)


def assembled(found: list[dict[str, Any]]) -> Iterator[dict[str, Any] | Fault]:
    """The bodies that events make: those of Gemini are bodies already."""
    blocks: dict[Any, dict[str, Any]] = {}
    done: list[Any] = []
    for event in found:
        kind = text_at(event, "type")
        if kind == "message_start":
            yield from _message(blocks)
            blocks, message = {}, event.get("message")
            blocks[None] = message if isinstance(message, dict) else {}
        elif kind in _OF_ANTHROPIC:
            _note(blocks, event)
        elif kind == "response.output_item.done":
            done.append(event.get("item"))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            whole = response if isinstance(response, dict) else {}
            yield whole if objects(whole.get("output")) else {**whole, "output": done}
            done = []
        elif not kind:
            yield event
    yield from _message(blocks)
    if done:
        yield {"output": done}  # the stream was cut before its end


def _note(blocks: dict[Any, dict[str, Any]], event: dict[str, Any]) -> None:
    index = event.get("index")
    if not isinstance(index, int):
        return
    if isinstance(block := event.get("content_block"), dict):
        blocks[index] = dict(block)
    delta = event.get("delta")
    if index in blocks and isinstance(delta, dict) and delta.get("type") == "input_json_delta":
        blocks[index]["json"] = text_at(blocks[index].get("json")) + text_at(delta, "partial_json")


def _message(blocks: dict[Any, dict[str, Any]]) -> Iterator[dict[str, Any] | Fault]:
    """The message of a stream of Anthropic's: a block's input came in pieces of JSON."""
    content: list[Any] = []
    for index, block in blocks.items():
        if index is None:
            continue
        pieces = block.pop("json", "")
        if pieces:
            try:
                block["input"] = json.loads(pieces, strict=False)
            except (ValueError, RecursionError) as error:
                yield Fault("invalid_json", f"the input of a streamed block: {error}", pieces)
                continue
        content.append(block)
    if content:
        yield {"role": "assistant", **blocks.get(None, {}), "content": content}
