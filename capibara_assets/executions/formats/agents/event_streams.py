"""Server-sent events, as servers stream their answers: `data:` lines, in blocks that an empty line ends."""

import json
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.strict_json import Fault


def is_stream(said: str) -> bool:
    """Whether text is a stream of server-sent events."""
    return said.lstrip().startswith(("data:", "event:"))


def events(said: str) -> Iterator[dict[str, Any] | Fault]:
    """The events of a stream's text; one that is no JSON is a fault."""
    for block in said.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        data = "\n".join(lines).strip()
        if not data or data == "[DONE]":
            continue
        try:
            value = json.loads(data, strict=False)
        except (ValueError, RecursionError) as error:
            yield Fault("invalid_json", f"an event of a stream: {error}", data)
            continue
        if isinstance(value, dict):
            yield value
