"""Single numbers out of a config, and how a value that is none is shown."""

from collections.abc import Mapping
from typing import Any

_MOST_SHOWN = 60  # characters of a value


def whole_number(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number; the default also where it is null or 0. Raises ValueError: another value."""
    value = config[key] if default is None else config.get(key) or default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} is {shown(value)}, expected one whole number")
    return value


def real_number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number; the default where it is null or 0. Raises ValueError: another value."""
    value = config.get(key) or default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {shown(value)}, expected one number")
    return float(value)


def shown(value: Any) -> str:
    """A value for a message, cut."""
    if isinstance(value, int) and abs(value) >= 10**_MOST_SHOWN:  # Python writes no number of thousands of digits
        return f"a number of more than {_MOST_SHOWN} digits"
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]} …"
