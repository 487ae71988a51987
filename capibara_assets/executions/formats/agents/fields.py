"""Fields of parsed JSON whose type a log does not promise: the value where it is of the type, or nothing."""

import json
import re
from typing import Any

_EXTENDED = re.compile(r'\{\s*"\$(?:oid|date|uuid|number(?:Int|Long|Double|Decimal))"\s*:')
_RAN_FLAGS = ("approved", "confirmed", "executed")
# Signals as Linux numbers them.
_SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "SEGV": 11, "PIPE": 13, "TERM": 15}
# Pandas makes floats of whole numbers where one is missing.
_CODE = re.compile(rf"\s*(?:(-?\d{{1,9}})(?:\.0)?|SIG({'|'.join(_SIGNALS)}))\s*", re.ASCII)
_MOST_CODE = 1e9
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,2})?")


def record(value: Any) -> dict[str, Any]:
    """The value where it is an object; an empty one where it is anything else."""
    return value if isinstance(value, dict) else {}


def word(value: Any) -> str | None:
    """The value where it is text that is not empty."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> float | None:
    """The value where it is a number that a float holds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
        return None
    return float(value)


def whole(value: Any) -> int | None:
    """The value where it is an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def at(value: Any, *path: str | int) -> Any:
    """What lies at a path of keys and places in nested objects and lists; None where nothing does."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at a path; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def name_at(value: Any, *path: str | int) -> str | None:
    """The text or whole number at a path, as text; None where there is none."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return str(found) or None


def code_at(value: Any, *path: str | int) -> int | None:
    """The whole number at a path, such as an exit code; None where there is none.

    Tables write it as text, MongoDB's shell as a float. The name of a signal is what a shell makes of it: 128 and its
    number.
    """
    found = at(value, *path)
    if isinstance(found, str) and (told := _CODE.fullmatch(found)):
        return int(told[1]) if told[1] else 128 + _SIGNALS[told[2]]
    if isinstance(found, float) and found.is_integer() and abs(found) < _MOST_CODE:
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def says_not_run(value: dict[str, Any]) -> bool:
    """Whether an answer's flags say that a person or a policy kept the call from running."""
    return value.get("rejected") is True or any(value.get(flag) is False for flag in _RAN_FLAGS)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def parse_json(text: str) -> Any:
    """The value that JSON text says, whose strings may hold control characters.

    What MongoDB's extended JSON writes as an object of one member (`{"$oid": ".."}`) is that member's value.

    Raises:
        ValueError, RecursionError: it is none, or nested too deeply.
    """
    return json.loads(text, strict=False, object_hook=_unwrapped if _EXTENDED.search(text) else None)


def of_json(text: str, otherwise: Any = None) -> Any:
    """The value that JSON text says; `otherwise` where it is none. See `parse_json`."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return otherwise


def _unwrapped(value: dict[str, Any]) -> Any:
    """The value of an object of MongoDB's extended JSON; any other object unchanged."""
    if len(value) != 1:
        return value
    ((name, told),) = value.items()
    if name in ("$oid", "$date", "$uuid"):
        return told
    if name in ("$numberInt", "$numberLong") and isinstance(told, str) and told.lstrip("-").isdecimal():
        return int(told)
    if name in ("$numberDouble", "$numberDecimal") and isinstance(told, str) and _NUMBER.fullmatch(told):
        return float(told)
    return value
