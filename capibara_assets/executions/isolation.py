"""What this machine offers to run untrusted code apart from everything else, and what is not isolated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from capibara_assets.errors import InputError

Aspect = Literal["network", "files", "processes"]


@dataclass(frozen=True)
class Isolation:
    """How sandboxed processes are started here, and what that keeps from them."""

    kind: Literal["bubblewrap", "namespaces", "processes"]
    isolated: tuple[str, ...]  # sentences for a person
    not_isolated: tuple[str, ...]
    aspects: frozenset[Aspect]

    @property
    def statement(self) -> str:
        """One line for reports and verdict batches."""
        return f"{self.kind}: isolated: {'; '.join(self.isolated)}. Not isolated: {'; '.join(self.not_isolated)}."


def best_isolation(demand: Collection[Aspect] = ()) -> Isolation:
    """The strongest isolation that works on this machine.

    Raises:
        InputError: it lacks an aspect that is demanded (fail closed), or such an aspect does not exist.
    """
    unknown = sorted(set(demand) - set(get_args(Aspect)))
    if unknown:
        raise InputError(f"unknown isolation demanded: {', '.join(unknown)}; known: {', '.join(get_args(Aspect))}")
    found = Isolation(
        "processes",
        ("environment", "resource limits of each process"),
        ("network", "files of this user", "other processes of this user"),
        frozenset(),
    )
    missing = sorted(set(demand) - found.aspects)
    if missing:
        raise InputError(
            f"this machine cannot isolate {', '.join(missing)} of re-executed code ({found.statement}): install "
            "bubblewrap, allow user namespaces, or do not demand it"
        )
    return found
