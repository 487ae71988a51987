"""What a domain's executions teach: patterns and repair pairs, with the executions that are their evidence."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.patterns.extract import extract_patterns
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import Execution, Pattern, RepairPair
from capibara_assets.executions.selection import evidence, in_window
from capibara_assets.storage.kept import keeping
from capibara_assets.storage.records import Record


@dataclass(frozen=True)
class Extracted:
    """Tables of `Execution` (those that later stages draw on), `Pattern` and `RepairPair`.

    Attributes:
        read: how many executions of the recipe's window they were found in.
    """

    executions: pl.DataFrame
    patterns: pl.DataFrame
    repairs: pl.DataFrame
    read: int

    def tables(self) -> dict[str, tuple[type[Record], pl.DataFrame]]:
        """Name -> (row type, table)."""
        return {
            "executions": (Execution, self.executions),
            "patterns": (Pattern, self.patterns),
            "repairs": (RepairPair, self.repairs),
        }


def extract(executions: pl.DataFrame, domain: Domain, recipe: ExperienceRecipe, texts: Path) -> Extracted:
    """Patterns and repair pairs of one domain's executions.

    Args:
        executions: all of the domain (table of `Execution`); the recipe says which are read.
        texts: folder that keeps what was read off each text, for the next run; the result is the same without.
    """
    inside = in_window(executions, recipe)
    with keeping(texts):
        patterns = extract_patterns(inside, domain, recipe)
    repairs = find_repairs(inside)
    return Extracted(evidence(inside, repairs, recipe), patterns, repairs, inside.height)
