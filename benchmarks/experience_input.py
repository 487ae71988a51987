"""Where a bench of experience finds records and labels: what was asked for, else `../shared`, else what ships."""

import os
from dataclasses import dataclass
from pathlib import Path

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError

_LABELS = "labels.jsonl.gz"


@dataclass(frozen=True)
class BenchInput:
    """A folder of experience, its name for the result, and the labels that belong to it."""

    folder: Path
    name: str
    labels: Path | None

    def needed_labels(self) -> Path:
        """The labels.

        Raises:
            InputError: there are none, so nothing can be judged.
        """
        if self.labels is None:
            raise InputError(
                f"{self.folder} has no {_LABELS}, so nothing in it can be judged: name the labels with --labels FILE"
            )
        return self.labels


def bench_input(experience: str | None, labels: str | None) -> BenchInput:
    """The input of a bench.

    Args:
        experience: folder that was asked for; None looks for `data/experience` in $CAPIBARA_SHARED, then in `shared`
            beside the working directory, then takes the shipped experience.
        labels: labels file that was asked for; None takes `labels.jsonl.gz` in the folder, where there is one.

    Raises:
        InputError: the folder or the labels that were asked for do not exist.
    """
    ships = resources_root() / "experience"
    if experience is not None:
        folder, name = Path(experience), "shipped" if Path(experience) == ships else experience
    else:
        shared = Path(os.environ.get("CAPIBARA_SHARED", Path.cwd().parent / "shared")) / "data" / "experience"
        folder, name = (shared, "shared") if shared.is_dir() else (ships, "shipped")
    if not folder.is_dir():
        raise InputError(f"no experience folder at {folder}")
    if labels is not None and not Path(labels).is_file():
        raise InputError(f"no labels file at {labels}")
    beside = folder / _LABELS
    return BenchInput(folder, name, Path(labels) if labels is not None else beside if beside.is_file() else None)
