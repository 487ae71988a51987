"""Input and output locations of a JAX training: local folders directly, gs:// through a local folder."""

import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_CONFIG, CONFIG
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.mirror import file_system, is_remote, mirror, remove, upload
from capibara_assets.training.jax.saved import MANIFEST

SCRATCH = "CAPIBARA_JAX_SCRATCH"  # folder for copies of what lies on gs://; default: below the system's temporary one
POINTS, RESULT, METRICS, ADAPTER, MODEL = "points", "result.json", "metrics.jsonl", "adapter", "model"
"""What lies in the output; the result is written last."""


@dataclass(frozen=True)
class JaxPlaces:
    """The local folders and files of a run, and the remote output that they are copied to, if there is one.

    Attributes:
        remote: location of the output on an object store; None where it is a local folder.
    """

    base: Path
    data: Path
    validation: Path | None
    start: Path | None
    output: Path
    remote: str | None

    @classmethod
    def of(cls, config: JaxConfig) -> "JaxPlaces":
        """The locations of a configuration; inputs and resume points on an object store are fetched.

        Raises:
            InputError: a location that does not exist or cannot be opened.
        """
        remote = config.output if is_remote(config.output) else None
        output = _scratch(remote) if remote else Path(config.output)
        if remote:
            _fetch_points(remote, output)
        return cls(
            base=_folder(config.base, CONFIG),
            data=_file(config.data),
            validation=_file(config.validation) if config.validation else None,
            start=_folder(config.start, ADAPTER_CONFIG) if config.start else None,
            output=output,
            remote=remote,
        )

    def save_point(self, point: Path) -> None:
        """Copy a resume point to the remote output, and drop those there that are no longer here."""
        if self.remote is None:
            return
        upload(point, f"{self.remote}/{POINTS}/{point.name}", last=MANIFEST)
        here = {place.name for place in (self.output / POINTS).glob("step-*")}
        system, root = file_system(f"{self.remote}/{POINTS}")
        for there in system.ls(root, detail=False):
            name = there.rstrip("/").rsplit("/", 1)[-1]
            if name.startswith("step-") and name not in here:
                remove(f"{self.remote}/{POINTS}/{name}")

    def publish(self, last: str) -> None:
        """Copy metrics, weights and the result to the remote output; `last` is written when all else is there."""
        if self.remote is None:
            return
        for folder in (place for place in self.output.iterdir() if place.is_dir() and place.name != POINTS):
            upload(folder, f"{self.remote}/{folder.name}")
        system, root = file_system(self.remote)
        files = sorted(place for place in self.output.iterdir() if place.is_file())
        for file in sorted(files, key=lambda one: one.name == last):
            system.put_file(str(file), f"{root}/{file.name}")


def _folder(location: str, holds: str) -> Path:
    folder = mirror(location.rstrip("/"), _scratch(location)) if is_remote(location) else Path(location)
    if not (folder / holds).is_file():
        raise InputError(f"{location} holds no {holds}: copy the model's or adapter's folder there")
    return folder


def _file(location: str) -> Path:
    if not is_remote(location):
        return Path(location)
    system, path = file_system(location)
    if not system.exists(path):
        raise InputError(f"{location} does not exist; `capibara dataset export DOMAIN --storage ROOT` writes it")
    target = _scratch(location) / location.rsplit("/", 1)[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    system.get_file(path, str(target))
    return target


def _fetch_points(remote: str, output: Path) -> None:
    system, root = file_system(f"{remote}/{POINTS}")
    if system.exists(root):
        mirror(f"{remote}/{POINTS}", output / POINTS)


def _scratch(location: str) -> Path:
    root = os.environ.get(SCRATCH) or str(Path(tempfile.gettempdir()) / "capibara-jax")
    return Path(root) / sha256(location.encode()).hexdigest()[:16]
