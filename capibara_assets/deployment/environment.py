"""Settings of a deployment: its file decides, and a CAPIBARA_* variable overrides the file."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from capibara_assets.deployment.file import (
    DEFAULT_DEPLOYMENT,
    TPU,
    AutomationChoice,
    DataChoice,
    DeploymentFile,
    DomainHardware,
    HardwareSection,
    NotificationChoice,
    read_deployment,
)
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError

DEFAULT_BASE_MODEL = "capibara-nano"
NAMED_BASES = {"20b": "MODEL_20B_PATH", "120b": "MODEL_120B_PATH"}
"""Short name of a base model -> the variable that says where it is."""
DEFAULT_SLICE = "tpu-v5e-64"

Value = TypeVar("Value")


class LaunchMode(Enum):
    """Place in which training processes are started."""

    LOCAL = "local"
    K8S = "k8s"


@dataclass(frozen=True)
class Setting:
    """One setting: its path in the deployment's file, its value, and its origin.

    Attributes:
        by: a variable, the file's name, or `default`.
    """

    name: str
    value: Any
    by: str


@dataclass(frozen=True)
class Deployment:
    """Settings that differ between a laptop and a cluster, except credentials (read when used).

    Attributes:
        name: of the deployment's file.
        history, compute_logs: where Dagster keeps runs and what steps print; None: as its own dagster.yaml says.
        hardware: of every domain that `hardware_of` leaves out.
        tpu_target: the slice planned for, of every domain that `tpu_targets` (domain -> name) leaves out.
        fetch_gib: largest base model that is fetched from the Hub without being asked; 0: none.
        audit: verdict files, instead of the dataset recipe's `exclusions`; none: those of the recipe.
        project, zone: of Google Cloud, for launch files and gs:// stores; empty: none.
        settings: each of these with who decided it.
    """

    name: str
    home: Path
    store: str
    work: Path
    history: str | None
    compute_logs: str | None
    experience: str
    redact_also: tuple[str, ...]
    base_model: str
    fetch_gib: float
    hardware: DomainHardware
    hardware_of: dict[str, DomainHardware]
    tpu_target: str
    tpu_targets: dict[str, str]
    project: str
    zone: str
    profile: str
    recipes: str
    data: DataChoice
    launcher: LaunchMode
    grace_seconds: float
    image: str
    gpu_image: str
    tpu_image: str
    namespace: str
    service_account: str
    secrets: tuple[str, ...]
    volume_claim: str
    volume_path: str
    priority_class: str
    start_minutes: float
    training_hours: float | None
    automation: AutomationChoice
    notifications: NotificationChoice
    seed: int | None
    faults: dict[str, str]
    parallel: int | None
    audit: tuple[str, ...]
    settings: tuple[Setting, ...] = field(compare=False)

    @property
    def target(self) -> str:
        """The preferred target of every domain that `targets` leaves out."""
        return self.hardware.first

    @property
    def targets(self) -> dict[str, str]:
        """Domain -> its preferred target, of the domains with hardware of their own."""
        return {domain: own.first for domain, own in self.hardware_of.items()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Deployment":
        """The deployment that CAPIBARA_DEPLOYMENT names; an empty variable counts as absent.

        Raises:
            InputError: no such deployment, a file that is none, or a variable that cannot be read: a seed, size or
                `parallel` that is no such number, a launcher that does not exist, a fault that is no VOTER=FAULT, a
                target that is no NAME or DOMAIN=NAME, or a named base model without its variable.
        """
        name = environment.get("CAPIBARA_DEPLOYMENT") or DEFAULT_DEPLOYMENT
        place, file = read_deployment(name)
        choose = _Chooser(environment, file, place)
        launcher = file.launcher
        home = Path(choose("HOME", "storage.home", file.storage.home)).expanduser().resolve()
        base = choose("BASE_MODEL", "model.base", file.model.base) or str(
            resources_root() / "base_models" / DEFAULT_BASE_MODEL
        )
        hardware, hardware_of = _hardware(choose, file.hardware)
        tpu_target, tpu_targets = _slices(choose, file.hardware, hardware, hardware_of)
        return cls(
            name=place.stem,
            home=home,
            store=choose("STORE", "storage.store", file.storage.store) or str(home / "store"),
            work=Path(choose("WORK", "storage.work", file.storage.work) or str(home / "work")),
            history=file.storage.history,
            compute_logs=file.storage.compute_logs,
            experience=choose("EXPERIENCE", "experience.folder", file.experience.folder)
            or str(resources_root() / "experience"),
            redact_also=choose("REDACT_ALSO", "experience.redact_also", file.experience.redact_also, _listed),
            base_model=_named_base(base, environment),
            fetch_gib=choose("FETCH_GIB", "model.fetch_gib", file.model.fetch_gib, _size),
            hardware=hardware,
            hardware_of=hardware_of,
            tpu_target=tpu_target,
            tpu_targets=tpu_targets,
            project=choose("GOOGLE_CLOUD_PROJECT", "google_cloud.project", file.google_cloud.project),
            zone=choose("GOOGLE_CLOUD_ZONE", "google_cloud.zone", file.google_cloud.zone),
            profile=choose("PROFILE", "recipes.profile", file.recipes.profile),
            recipes=choose("RECIPES", "recipes.folder", file.recipes.folder),
            data=file.data.model_copy(update={"address": choose("RAY_ADDRESS", "data.address", file.data.address)}),
            launcher=choose("LAUNCHER", "launcher.mode", LaunchMode(launcher.mode), _launcher),
            grace_seconds=launcher.grace_seconds,
            image=choose("IMAGE", "launcher.image", launcher.image),
            gpu_image=choose("GPU_IMAGE", "launcher.gpu_image", launcher.gpu_image),
            tpu_image=choose("TPU_IMAGE", "launcher.tpu_image", launcher.tpu_image),
            namespace=choose("NAMESPACE", "launcher.namespace", launcher.namespace),
            service_account=choose("SERVICE_ACCOUNT", "launcher.service_account", launcher.service_account),
            secrets=choose("SECRETS", "launcher.secrets", launcher.secrets, _listed),
            volume_claim=choose("VOLUME_CLAIM", "launcher.volume_claim", launcher.volume_claim),
            volume_path=choose("VOLUME_PATH", "launcher.volume_path", launcher.volume_path),
            priority_class=launcher.priority_class,
            start_minutes=launcher.start_minutes,
            training_hours=file.limits.training_hours,
            automation=file.automation,
            notifications=file.notifications,
            seed=choose("SEED", "", None, _seed),
            faults=choose("FAULTS", "", {}, _faults),
            parallel=choose("PARALLEL", "limits.domains_at_once", file.limits.domains_at_once, _parallel),
            audit=choose("AUDIT", "", (), _listed),
            settings=choose.settings(),
        )


class _Chooser:
    """Takes each setting from its variable or else from the deployment's file, and notes which."""

    def __init__(self, environment: Mapping[str, str], file: DeploymentFile, place: Path):
        self._environment, self._file, self._place = environment, file, place
        self._noted: dict[str, Setting] = {}

    def __call__(self, variable: str, path: str, of_file: Value, parse: Callable[[str], Any] = str) -> Value:
        """The value of a variable where it is set, else the file's.

        Args:
            path: the setting's place in the file; empty for what only a variable can say.
        """
        name = variable if variable.startswith("GOOGLE_") else f"CAPIBARA_{variable}"
        text = self._environment.get(name)
        value: Value = parse(text) if text else of_file
        if text or path:
            self.note(path or name, value, name if text else None)
        return value

    def note(self, path: str, value: Any, variable: str | None) -> None:
        """Record the origin of a setting: the variable, else the file if it states the setting."""
        self._noted[path] = Setting(path, value, variable or (self._place.name if self._file.says(path) else "default"))

    def text(self, variable: str) -> str:
        """Value of a variable; empty if it is not set."""
        return self._environment.get(f"CAPIBARA_{variable}") or ""

    def settings(self) -> tuple[Setting, ...]:
        """Recorded settings and those without a variable, in the order of the file."""
        for section, choice in type(self._file).model_fields.items():
            for name in choice.annotation.model_fields:  # type: ignore[union-attr]
                if (path := f"{section}.{name}") not in self._noted:
                    self.note(path, getattr(getattr(self._file, section), name), None)
        order = list(type(self._file).model_fields)
        place = {section: number for number, section in enumerate(order)}
        return tuple(sorted(self._noted.values(), key=lambda one: place.get(one.name.partition(".")[0], len(order))))


def _hardware(choose: _Chooser, section: HardwareSection) -> tuple[DomainHardware, dict[str, DomainHardware]]:
    """The hardware of all domains, and of those with their own; CAPIBARA_TARGET stands for all targets of the file.

    Budgets stay those of the file.
    """
    default, own = section.default, {domain.value: one for domain, one in section.domains.items()}
    text = choose.text("TARGET")
    if text:
        name, names = _targets("CAPIBARA_TARGET", text)
        default = default.on(name) if name else default
        own = {domain: one.on(name) for domain, one in own.items()} if name else own
        own |= {domain: own.get(domain, default).on(one) for domain, one in names.items()}
    variable = "CAPIBARA_TARGET" if text else None
    choose.note("hardware.default", default, variable)
    choose.note("hardware.domains", own, variable)
    return default, own


def _slices(
    choose: _Chooser, section: HardwareSection, hardware: DomainHardware, own: Mapping[str, DomainHardware]
) -> tuple[str, dict[str, str]]:
    """The slices that `tpu_config` plans for: what is trained on is what is planned for, where it is a slice."""
    trained = {domain: one.first for domain, one in own.items() if one.first.startswith(TPU)}
    named = {domain.value: name for domain, name in section.tpu.domains.items()}
    text = choose.text("TPU_TARGET")
    name, names = _targets("CAPIBARA_TPU_TARGET", text)
    default = name or (hardware.first if hardware.first.startswith(TPU) else section.tpu.default or DEFAULT_SLICE)
    slices = trained | ({} if name else named) | names
    choose.note("hardware.tpu", {"default": default, "domains": slices}, "CAPIBARA_TPU_TARGET" if text else None)
    return default, slices


def _targets(variable: str, text: str) -> tuple[str, dict[str, str]]:
    """`h100-8,sql=h200-1` -> (`h100-8`, {`sql`: `h200-1`}); the name for all domains may be missing."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    names = [part for part in parts if "=" not in part]
    own = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(names) > 1 or not all(own.values()):
        raise InputError(f"{variable} is {text!r}: expected one NAME for all domains, and DOMAIN=NAME for single ones")
    if unknown := sorted(set(own) - set(DOMAINS)):
        raise InputError(f"{variable} names {', '.join(unknown)}, no domain: choose from {', '.join(DOMAINS)}")
    return (names[0] if names else ""), own


def _launcher(text: str) -> LaunchMode:
    known = [mode.value for mode in LaunchMode]
    if text not in known:
        raise InputError(f"CAPIBARA_LAUNCHER is {text!r}: one of {', '.join(known)}")
    return LaunchMode(text)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _named_base(name: str, environment: Mapping[str, str]) -> str:
    """The location of a base model that may be given by a short name."""
    if name not in NAMED_BASES:
        return name
    variable = NAMED_BASES[name]
    if not (location := environment.get(variable)):
        raise InputError(f"base model {name}: set {variable} to its folder, or to its id@revision on the Hub")
    return location


def _size(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"CAPIBARA_FETCH_GIB is {text!r}: give a number of GiB") from error


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"CAPIBARA_SEED is {text!r}: give a whole number") from error


def _parallel(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise InputError(f"CAPIBARA_PARALLEL is {text!r}: give a whole number above zero")
    return int(text)


def _faults(text: str) -> dict[str, str]:
    pairs = [pair for pair in text.split(",") if pair]
    if odd := [pair for pair in pairs if "=" not in pair]:
        raise InputError(f"CAPIBARA_FAULTS (--fault) has {odd[0]!r}: expected VOTER=FAULT, such as voter-3=sign_flip")
    return dict(pair.split("=", 1) for pair in pairs)
