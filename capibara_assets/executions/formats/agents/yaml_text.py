"""YAML of logs, which anyone may have written: neither absurd nesting nor aliases that multiply end the process."""

import re
from typing import Any

import yaml

# what a constructor of PyYAML raises for a value that is not of its tag, beside YAML's own errors
DAMAGED = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError, OverflowError)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast
_OPENED = re.compile(r"[\[\]{}]|^ {400}|(?:[-?] ){100}", re.MULTILINE)
_DEEP = 400


def load_yaml(text: str) -> Any:
    """YAML's value; its aliases are the same objects, so that it may hold more values than the text, or itself.

    Raises:
        any of `DAMAGED`: no YAML, a value that is not of its tag, or nesting that is too deep.
    """
    depth = 0
    for opened in _OPENED.finditer(text):
        depth = max(depth + {"[": 1, "{": 1, "]": -1, "}": -1}.get(opened[0], _DEEP), 0)
        if depth >= _DEEP:  # libyaml's loader overflows the stack; PyYAML's own raises an error
            return yaml.load(text, yaml.SafeLoader)
    return yaml.load(text, _LOADER)


def holds_at_most(value: Any, most: int) -> bool:
    """Whether a value, with what its aliases repeat, holds at most so many values."""
    waiting = [value]
    while waiting:
        held = waiting.pop()
        inner = list(held.values()) if isinstance(held, dict) else held if isinstance(held, list) else []
        most -= len(inner)
        if most < 0:
            return False
        waiting += inner
    return True
