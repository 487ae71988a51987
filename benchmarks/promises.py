"""What a line of evidence is made of: a promise, the command that shows it, and when its figure holds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TESTS = "capibara_assets_tests"  # the folder of the tests


@dataclass(frozen=True)
class Line:
    """One promise: the command that shows it, what to read off its output, and when it holds."""

    promise: str
    command: tuple[str, ...]
    figure: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    needs_shared: bool = False


def bench(*arguments: str) -> tuple[str, ...]:
    """The command of a bench."""
    return ("python", "-m", "benchmarks", *arguments, "--json")


def tests(*names: str, marker: str = "", without: str = "") -> tuple[str, ...]:
    """The command that runs test modules, given by their place below the tests' folder.

    Args:
        without: part of the names of tests that need what this machine has not; `make gpu` runs those of a GPU.
    """
    chosen = (*(("-m", marker) if marker else ()), *(("-k", f"not {without}") if without else ()))
    return ("pytest", "-q", "--no-header", "-p", "no:cacheprovider", *chosen, *(f"{TESTS}/{name}" for name in names))


def passed(output: str) -> str:
    """The closing line of pytest."""
    return output.strip().splitlines()[-1].strip("= ")


def all_passed(summary: str) -> bool:
    return " passed" in summary and "failed" not in summary and "error" not in summary and "skipped" not in summary
