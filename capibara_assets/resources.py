"""Dagster resources: stores, recipes, models and hardware of a deployment; only these differ between deployments."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg
import pydantic

from capibara_assets.deployment.declarations import declared, read_mapping
from capibara_assets.deployment.file import DomainHardware
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError, unknown
from capibara_assets.storage.digests import canonical_json, sha256_bytes

if TYPE_CHECKING:
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.planning.options import HardwareOptions
    from capibara_assets.planning.writers.launch import CloudPlace
    from capibara_assets.processes.ray_map import RayCluster
    from capibara_assets.storage.store import ArtifactStore

RecipeModel = TypeVar("RecipeModel", bound=pydantic.BaseModel)

EVERY_DOMAIN = "*"  # in `Hardware.preferences`: the domains without their own


class Store(dg.ConfigurableResource[Any]):
    """The artifact store of this deployment, and its checkpoints."""

    root: str = pydantic.Field(description="Folder or gs://bucket/prefix that holds the artifacts.")
    work: str = pydantic.Field(description="Local folder for work in progress: resume points and caches.")

    def open(self) -> "ArtifactStore":
        """Open the artifact store, with the checkpoint store beside it."""
        from capibara_assets.checkpoints.artifacts import open_artifacts

        return open_artifacts(self.root, Path(self.work))


class Experience(dg.ConfigurableResource[Any]):
    """The folder or bucket where agents' playbooks and execution logs arrive."""

    folder: str = pydantic.Field(
        description="Folder or gs://bucket/prefix with e2b_logs/ and playbooks/, or with any such files."
    )
    mirror: str = pydantic.Field(default="", description="Local folder for a copy of a remote one.")
    redact_also: list[str] = pydantic.Field(default=[], description="Personal data redacted beside secrets: email, ip.")

    @property
    def path(self) -> Path:
        """The local folder; for a remote one an updated local copy.

        Raises:
            InputError: the folder does not exist or is none, or it is remote and no mirror is given.
        """
        from capibara_assets.storage.mirror import is_remote, mirror

        if is_remote(self.folder):
            if not self.mirror:
                raise InputError(f"the experience folder {self.folder} is remote: name a local folder for its mirror")
            return mirror(self.folder, Path(self.mirror).expanduser().absolute())
        path = Path(self.folder).expanduser()
        if not path.is_dir():
            what = "is no folder" if path.exists() else "does not exist"
            raise InputError(
                f"experience folder {path} {what}: give a folder of playbooks and execution logs (--experience, or"
                " CAPIBARA_EXPERIENCE)"
            )
        return path


class Recipes(dg.ConfigurableResource[Any]):
    """The recipes (parameters of all stages) of a profile, as validated YAML."""

    profile: str = pydantic.Field(
        default="demo", description="demo (limited steps), laptop, full, or a strategy's name."
    )
    folder: str = pydantic.Field(default="", description="Folder of recipes; empty: those that ship.")
    overrides: dict[str, Any] = pydantic.Field(default={}, description="Recipe name → values that replace the file's.")
    faults: dict[str, Any] = pydantic.Field(
        default={}, description="Fault injection for tests: voter → sign_flip, nan or norm_100x."
    )

    def load(self, name: str, model: type[RecipeModel]) -> RecipeModel:
        """Read and validate a recipe (see `file`).

        Raises:
            InputError: no such file, not a YAML mapping, or an unknown key or invalid value.
        """
        return declared(model, self._read(name), self.file(name))

    def file(self, name: str) -> Path:
        """The recipe's file: `name-<profile>.yaml`, for training `strategies/<profile>.yaml`, else `name.yaml`.

        Raises:
            InputError: none of these exists.
        """
        folder = Path(self.folder) if self.folder else resources_root() / "recipes"
        strategies = [folder / "strategies" / f"{self.profile}.yaml"] if name == "training" else []
        for candidate in (folder / f"{name}-{self.profile}.yaml", *strategies, folder / f"{name}.yaml"):
            if candidate.is_file():
                return candidate
        if (known := self._profiles(folder)) and self.profile not in known:
            raise unknown("profile", self.profile, known)
        raise InputError(
            f"no recipe {name!r} for profile {self.profile!r} in {folder}: copy it there from the shipped recipes, or "
            "unset CAPIBARA_RECIPES"
        )

    @staticmethod
    def _profiles(folder: Path) -> list[str]:
        """The profiles for which a folder has a recipe of training."""
        own = [file.stem.removeprefix("training-") for file in folder.glob("training-*.yaml")]
        return [*sorted(own), *sorted(file.stem for file in (folder / "strategies").glob("*.yaml"))]

    def digest(self, name: str) -> str:
        """Digest of the recipe's values, overrides included; recorded as an input of artifacts."""
        plain = json.loads(
            json.dumps(self._read(name), default=lambda date: date.isoformat())
        )  # YAML has dates of its own
        return sha256_bytes(canonical_json(plain))

    def _read(self, name: str) -> dict[str, Any]:
        return read_mapping(self.file(name)) | self.overrides.get(name, {})


class DataEngine(dg.ConfigurableResource[Any]):
    """What reads logs and code and executes code again: this process and others here, or a Ray cluster."""

    engine: str = pydantic.Field(default="local", description="local or ray; all else is for Ray.")
    address: str = pydantic.Field(default="local", description="local, auto, HOST:PORT or ray://…")
    workers: int | None = pydantic.Field(default=None, description="Tasks at a time; None: processors of this machine.")
    memory_gib: float | None = pydantic.Field(default=None, description="That Ray reserves for each worker.")
    from_mib: float = pydantic.Field(default=24, description="Of logs, from which workers read.")
    from_texts: int = pydantic.Field(default=500_000, description="From which workers search for near-duplicates.")
    from_sessions: int = pydantic.Field(default=64, description="Of a batch, from which workers execute them again.")

    @contextmanager
    def started(self) -> "Iterator[RayCluster | None]":
        """Meanwhile the cluster starts with the first work that is worth it, and lasts; None: everything runs here."""
        from capibara_assets.processes.cores import cores_here
        from capibara_assets.processes.ray_map import RayCluster, lasting

        if self.engine == "local":
            yield None
            return
        cluster = RayCluster(
            self.address,
            self.workers or cores_here(),
            self.memory_gib,
            self.from_mib,
            self.from_texts,
            self.from_sessions,
        )
        with lasting():
            yield cluster


class BaseModel(dg.ConfigurableResource[Any]):
    """The causal language model that adapters are trained for."""

    location: str = pydantic.Field(
        description="Directory of a Transformers causal LM, or a Hub id@revision fetched before."
    )

    fetch_gib: float = pydantic.Field(
        default=0.0, description="Largest model that is fetched from the Hub when it is not here; 0: none is."
    )

    @property
    def path(self) -> Path:
        """Local directory of the model, validated.

        Raises:
            InputError: the model does not exist, is damaged, cannot be fetched, or is larger than may be fetched.
        """
        from capibara_assets.modeling.files import validate_base
        from capibara_assets.modeling.hub import fetch_base, resolve_base

        most = int(self.fetch_gib * 2**30)
        path = fetch_base(self.location, most) if most else resolve_base(self.location)
        validate_base(path)
        return path

    @property
    def card_name(self) -> str:
        """The model's name in model cards: its id on the Hub, else the name of its folder."""
        from capibara_assets.lineage.card import base_name

        return base_name(self.location, self.path)


class Hardware(dg.ConfigurableResource[Any]):
    """Hardware targets of the domains: files of `resources/hardware`, or any slice of a chip family."""

    name: str = pydantic.Field(description="Target of every domain that has none of its own.")
    by_domain: dict[str, str] = pydantic.Field(default={}, description="Domain → name of its own target.")
    preferences: dict[str, Any] = pydantic.Field(
        default={},
        description="Domain, or `*` → its targets in order of preference, `max_usd` and `max_hours`.",
    )

    @property
    def target(self) -> "HardwareTarget":
        """The declaration of the target for all domains.

        Raises:
            InputError: no file and no chip family has this name.
        """
        from capibara_assets.planning.hardware.targets import find_target

        return find_target(self.name)

    def target_of(self, domain: Domain) -> "HardwareTarget":
        """The declaration of a domain's preferred target; raises as `target`."""
        from capibara_assets.planning.hardware.targets import find_target

        return find_target(self.by_domain.get(domain.value, self.name))

    def options_of(self, domain: Domain | None) -> "HardwareOptions":
        """The targets of a domain (None: of those without their own) and its budget; raises as `target`."""
        from capibara_assets.planning.options import HardwareOptions

        own = domain.value if domain is not None and domain.value in self.by_domain else None
        given = self.preferences.get(own or EVERY_DOMAIN, {"targets": [self.by_domain[own] if own else self.name]})
        return HardwareOptions.of(DomainHardware.model_validate(given))


class GoogleCloud(dg.ConfigurableResource[Any]):
    """Google Cloud project and zone: for gs:// stores, and written into the launch files of TPU plans."""

    project: str = ""
    zone: str = ""

    def place(self) -> "CloudPlace":
        """Project and zone for launch files. Raises InputError: one that Google Cloud would not take."""
        from capibara_assets.planning.writers.launch import CloudPlace

        named = {"project": self.project, "zone": self.zone}
        return declared(CloudPlace, named, "GOOGLE_CLOUD_PROJECT or GOOGLE_CLOUD_ZONE")

    def check_bucket(self, store: str) -> None:
        """Check that the bucket of a gs:// store is readable, before anything runs.

        Raises:
            InputError: it does not exist or is not readable.
        """
        from dagster_gcp import GCSResource
        from google.cloud.exceptions import GoogleCloudError

        bucket = store.removeprefix("gs://").partition("/")[0]
        try:
            GCSResource(project=self.project).get_client().get_bucket(bucket)
        except GoogleCloudError as error:
            raise InputError(
                f"bucket {bucket} of the store {store} cannot be read in project {self.project}: {error}"
            ) from error
