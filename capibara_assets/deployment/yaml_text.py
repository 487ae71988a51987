"""YAML that anyone may have written: neither absurd nesting nor aliases that multiply end the process."""

import re
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast
_OPENED = re.compile(r"[\[\]{}]|^ {400}|(?:[-?] ){100}", re.MULTILINE)
_DEEP = 400


def load_yaml(text: str, loader: Any = _LOADER) -> Any:
    """YAML's value; its aliases are the same objects, so that it may hold more values than the text, or itself.

    Args:
        loader: another one on libyaml, for texts that nobody nests deep.

    Raises:
        yaml.YAMLError: no YAML, a value that is not of its tag (a thirteenth month), or nesting that is too deep.
    """
    try:
        if not _may_be_deep(text):
            return yaml.load(text, loader)
        if loader is _LOADER:
            return yaml.load(text, yaml.SafeLoader)  # raises an error where libyaml overflows the stack
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise yaml.YAMLError(f"a value that is not of its type: {' '.join(str(error).split())}") from error
    except RecursionError:
        pass
    raise yaml.YAMLError("lists and mappings are nested too deep")


def _may_be_deep(text: str) -> bool:
    depth = 0
    for opened in _OPENED.finditer(text):
        depth = max(depth + {"[": 1, "{": 1, "]": -1, "}": -1}.get(opened[0], _DEEP), 0)
        if depth >= _DEEP:
            return True
    return False


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
