"""Attribution of training examples: counts per licence and source, and the credits that licences require."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

NONE_STATED = "none stated"
COLUMNS = ["licence", "source", "tenants", "language", "domain", "execution_ids", "bullet_ids", "provenance"]
"""Columns of Example that an attribution reads."""
_SEPARATOR = "; "  # between the licences of several executions of one example
_ASKS = ("cc-by", "cc by", "creative commons attribution", "odc-by")


@dataclass(frozen=True)
class Attribution:
    """Counts of a set of examples by domain, language, licence, source and tenant."""

    examples: int
    executions: int
    bullets: int
    domains: Mapping[str, int]
    languages: Mapping[str, int]
    licences: Mapping[str, int]
    """Licence as it was stated -> examples that hold such code."""
    sources: Mapping[tuple[str, str], int]
    """(source, licence) -> examples."""
    tenants: Mapping[str, int]

    @property
    def credits(self) -> tuple[str, ...]:
        """One line for each source whose licence requires attribution."""
        required = sorted((source, licence) for source, licence in self.sources if asks_for_attribution(licence))
        return tuple(f"{source} ({licence})" for source, licence in required)


def asks_for_attribution(licence: str) -> bool:
    """Whether a licence requires attribution (the CC-BY family, ODC-BY)."""
    return any(name in licence.lower() for name in _ASKS)


def attribution(examples: pl.DataFrame) -> Attribution:
    """Count examples (rows with COLUMNS of Example); counts are sorted by name, so that equal data gives equal text."""
    licences, sources = Counter[str](), Counter[tuple[str, str]]()
    for licence, source in examples.select("licence", "source").iter_rows():
        stated = licence.split(_SEPARATOR) if licence else [NONE_STATED]
        licences.update(stated)
        sources.update((origin, licence or NONE_STATED) for origin in (source or NONE_STATED).split(_SEPARATOR))
    return Attribution(
        examples=examples.height,
        executions=examples["execution_ids"].explode().drop_nulls().n_unique(),
        bullets=examples["bullet_ids"].explode().drop_nulls().n_unique(),
        domains=_counted(examples["domain"]),
        languages=_counted(examples["language"]),
        licences=dict(sorted(licences.items())),
        sources=dict(sorted(sources.items())),
        tenants=_counted(examples["tenants"].explode().drop_nulls()),
    )


def _counted(values: pl.Series) -> dict[str, int]:
    return dict(sorted(Counter(values.to_list()).items()))
