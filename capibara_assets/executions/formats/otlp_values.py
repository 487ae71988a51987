"""Attributes of OpenTelemetry's spans, log records and resources as plain values."""

import re
from typing import Any

_DEPTH = 4  # of attributes whose names are nested instead of dotted


def attributes_of(holder: Any) -> dict[str, Any]:
    """The attributes of an object, by their names: `[{key, value: {stringValue: …}}]`, or an object, also nested."""
    attributes = holder.get("attributes") if isinstance(holder, dict) else None
    if isinstance(attributes, dict):
        return {**_dotted(attributes, "", _DEPTH), **attributes}
    named: dict[str, Any] = {}
    for item in attributes if isinstance(attributes, list) else ():
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            named[item["key"]] = _value(item.get("value"))
    return named


def _dotted(attributes: dict[str, Any], before: str, depth: int) -> dict[str, Any]:
    """Nested attributes under their dotted names."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        found[before + name] = value
        if isinstance(value, dict) and depth:
            found |= _dotted(value, f"{before}{name}.", depth - 1)
    return found


def _value(value: Any) -> Any:
    """An OTLP AnyValue as a plain one; 64-bit integers come as text."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, held),) = value.items()
    match kind:
        case "intValue" | "int_value":
            return int(held) if isinstance(held, str) and re.fullmatch(r"-?\d{1,20}", held) else held
        case "arrayValue" | "array_value":
            items = held.get("values", []) if isinstance(held, dict) else []
            return [_value(item) for item in items] if isinstance(items, list) else []
        case "kvlistValue" | "kvlist_value":
            items = held.get("values", []) if isinstance(held, dict) else []
            return attributes_of({"attributes": items})
    return held
