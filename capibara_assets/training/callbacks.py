"""Calls a user's functions during a training: after steps, validations and saves, in the voter's first process.

They are named in the recipe (`report.callbacks`), by an entry point of the group `capibara.callbacks`, as
`package.module:name`, or as `file.py:name`; a name may be left out for the module itself. What is named has at least
one of `on_step`, `on_evaluate` and `on_save`, each a function of one mapping; a class is made without arguments.
"""

import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.events import Report

GROUP = "capibara.callbacks"
SAVED = "saved"  # the event of a resume point, an epoch's adapter or a result that lies whole on disk
METHODS = {"step": "on_step", "validation": "on_evaluate", SAVED: "on_save"}


@dataclass(frozen=True)
class Callback:
    """A loaded callback and the name that the recipe has for it."""

    name: str
    methods: Any

    def call(self, event: Mapping[str, Any]) -> None:
        """Call the function of this event, if there is one."""
        function = getattr(self.methods, METHODS.get(str(event["event"]), ""), None)
        if function is not None:
            function(event)


def load_callbacks(names: Sequence[str]) -> list[Callback]:
    """Import the callbacks that a recipe names.

    Raises:
        InputError: it cannot be found or imported, or has none of the functions.
    """
    return [Callback(name, _methods(name)) for name in names]


def calling(callbacks: Sequence[Callback], report: Report, about: Mapping[str, Any]) -> Report:
    """A function that passes events on, and calls callbacks with them.

    A callback that raises is said with its traceback and not called again; the training goes on, because no adapter
    depends on it.

    Args:
        about: entries that every mapping has besides the event's own.
    """
    active = list(callbacks)

    def both(event: dict[str, Any]) -> None:
        report(event)
        for callback in list(active):
            try:
                callback.call({**about, **event})
            except Exception as error:  # noqa: BLE001 - of anybody's code; said, and not called again
                active.remove(callback)
                traceback.print_exc()
                text = f"callback {callback.name} failed and is not called again: {type(error).__name__}: {error}"
                report({"event": "warning", "step": event.get("step", 0), "text": text})

    return both if active else report


def callback_problem(name: str) -> str | None:
    """Why a callback cannot be found, without importing it; None if it can."""
    place, _, _ = name.partition(":")
    if _entry_point(name) or (place.endswith(".py") and Path(place).is_file()):
        return None
    if not place.endswith(".py") and all(part.isidentifier() for part in place.split(".")):
        with _current_folder():
            if find_spec(place.partition(".")[0]) is not None:
                return None
    known = ", ".join(sorted(one.name for one in entry_points(group=GROUP))) or "none"
    return (
        f"callback {name} is neither an entry point of {GROUP} (there are: {known}) nor a module that can be imported "
        "nor a file"
    )


def _methods(name: str) -> Any:
    if problem := callback_problem(name):
        raise InputError(problem)
    try:
        hook = point.load() if (point := _entry_point(name)) else _imported(name)
        if inspect.isclass(hook):
            hook = hook()
    except Exception as error:
        raise InputError(f"callback {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not any(callable(getattr(hook, method, None)) for method in METHODS.values()):
        raise InputError(f"callback {name} has none of {', '.join(METHODS.values())}: give it one of them")
    return hook


def _entry_point(name: str) -> Any:
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _imported(name: str) -> Any:
    place, _, attribute = name.partition(":")
    if place.endswith(".py"):
        module = _from_file(Path(place).absolute())
    else:
        with _current_folder():
            module = import_module(place)
    return getattr(module, attribute) if attribute else module


def _from_file(file: Path) -> ModuleType:
    spec = spec_from_file_location(f"capibara_callback_{file.stem}", file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _current_folder() -> Iterator[None]:
    """Context in which modules of the current folder can be imported, as `python -m` has it."""
    before = list(sys.path)
    sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before
