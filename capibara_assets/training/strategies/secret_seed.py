"""The secret seed of a private training's sampling and noise: drawn once, kept while the training goes on."""

import json
import secrets
import shutil
from pathlib import Path

from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.ranks import Ranks

_FOLDER = "secret"


def secret_seed(folder: Path, declared: int | None, ranks: Ranks) -> int:
    """A seed of 128 bits from the system's entropy, or the declared one.

    A resumed training reads the same seed, so that it never draws two different noises for one sum: their difference
    would be another observation.

    Args:
        folder: the voter's folder of work; the seed lies below it, readable by its owner only.
        declared: by the recipe, for tests: anyone who knows it can remove the noise.
    """
    if declared is not None:
        return declared
    file = folder / _FOLDER / "seed.json"
    if ranks.main and not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_json_atomic(file, secrets.randbits(128))
    ranks.wait()
    return int(json.loads(file.read_text("utf-8")))


def drop_secret(folder: Path) -> None:
    """Delete the seed of a finished training."""
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)
