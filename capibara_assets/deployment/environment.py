"""Settings of a deployment: its file decides, and a CAPIBARA_* variable overrides the file."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from capibara_assets.deployment.file import (
    DEFAULT_DEPLOYMENT,
    TPU,
    AutomationChoice,
    DataChoice,
    DeploymentFile,
    DomainHardware,
    HardwareSection,
    NotificationChoice,
    StepResources,
    read_deployment,
)
from capibara_assets.deployment.home import kept_experience
from capibara_assets.deployment.locations import resources_root, shipped_experience
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError, clause, printable

DEFAULT_BASE_MODEL = "capibara-nano"
NAMED_BASES = {"20b": "MODEL_20B_PATH", "120b": "MODEL_120B_PATH"}
"""Short name of a base model -> the variable that says where it is."""
DEFAULT_SLICE = "tpu-v5e-64"
_SEEDS = 2**63  # PyTorch's are numbers of 64 bits

Value = TypeVar("Value")


class LaunchMode(Enum):
    """Place in which training processes are started."""

    LOCAL = "local"
    K8S = "k8s"


@dataclass(frozen=True)
class Setting:
    """One setting: its path in the deployment's file, its value, and its origin.

    Attributes:
        by: a variable, the file's name, `home` (what its latest run read), or `default`.
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
        automation_on: whether sensors and automation run without being switched on in the UI.
        tick_seconds: interval of their ticks.
        patience_seconds: how long the sensor waits for a run before it asks for another.
        project, zone: of Google Cloud, for launch files and gs:// stores; empty: none.
        account: service account of TPU VMs and custom jobs; empty: the project's own.
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
    account: str
    profile: str
    recipes: str
    data: DataChoice
    launcher: LaunchMode
    executor: str
    steps: dict[str, StepResources]
    slices: str
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
    automation_on: bool
    tick_seconds: int
    patience_seconds: float
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
            InputError: no such deployment, a file that is none, or a variable that cannot be read: a value that the
                deployment's file could not have in its place, a number that is none, a fault that is no VOTER=FAULT, a
                target that is no NAME or DOMAIN=NAME, or a named base model without its variable.
            IntegrityError: the home's record of the experience that it was made from is damaged.
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
            experience=_experience(choose, file, home),
            redact_also=choose("REDACT_ALSO", "experience.redact_also", file.experience.redact_also, _listed),
            base_model=_named_base(base, environment),
            fetch_gib=choose("FETCH_GIB", "model.fetch_gib", file.model.fetch_gib, _size),
            hardware=hardware,
            hardware_of=hardware_of,
            tpu_target=tpu_target,
            tpu_targets=tpu_targets,
            project=choose("GOOGLE_CLOUD_PROJECT", "google_cloud.project", file.google_cloud.project),
            zone=choose("GOOGLE_CLOUD_ZONE", "google_cloud.zone", file.google_cloud.zone),
            account=file.google_cloud.service_account,
            profile=choose("PROFILE", "recipes.profile", file.recipes.profile),
            recipes=choose("RECIPES", "recipes.folder", file.recipes.folder),
            data=file.data.model_copy(update={"address": choose("RAY_ADDRESS", "data.address", file.data.address)}),
            launcher=LaunchMode(choose("LAUNCHER", "launcher.mode", launcher.mode)),
            executor=launcher.executor,
            steps=launcher.steps,
            slices=launcher.slices,
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
            automation_on=choose("AUTOMATION", "", True, _on),
            tick_seconds=choose("TICK_SECONDS", "", 20, _above_zero),
            patience_seconds=choose("RUN_PATIENCE_SECONDS", "", 1800.0, _seconds),
            notifications=file.notifications,
            seed=choose("SEED", "", None, _seed),
            faults=choose("FAULTS", "", {}, _faults),
            parallel=choose("PARALLEL", "limits.domains_at_once", file.limits.domains_at_once, _above_zero),
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
            parse: raises ValueError with the form that is expected.
        """
        name = variable if variable.startswith("GOOGLE_") else f"CAPIBARA_{variable}"
        text, value = self._environment.get(name), of_file
        if text:
            try:
                value = self._checked(path, parse(text))
            except pydantic.ValidationError as error:
                words = "; ".join(clause({**one, "loc": ()}) for one in error.errors(include_url=False))
                raise InputError(f"{name} is {text!r}: {words}") from error
            except ValueError as error:
                raise InputError(f"{name} is {text!r}: {error}") from error
        if text or path:
            self.note(path or name, value, name if text else None)
        return value

    def _checked(self, path: str, value: Any) -> Any:
        """A variable's value, if the file could have it in its place; raises ValidationError."""
        section, _, name = path.partition(".")
        if not name:
            return value
        return getattr(type(getattr(self._file, section)).model_validate({name: value}), name)

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


def _experience(choose: _Chooser, file: DeploymentFile, home: Path) -> str:
    """The experience that is named, else that of the home's runs, else what ships."""
    folder = choose("EXPERIENCE", "experience.folder", file.experience.folder)
    if not folder and (folder := kept_experience(home)):
        choose.note("experience.folder", folder, "home")
    return folder or shipped_experience()


def _hardware(choose: _Chooser, section: HardwareSection) -> tuple[DomainHardware, dict[str, DomainHardware]]:
    """The hardware of all domains, and of those with their own; CAPIBARA_TARGET stands for all targets of the file.

    Budgets stay those of the file.
    """
    default, own = section.default, {domain.value: one for domain, one in section.domains.items()}
    text = choose.text("TARGET")
    if text:
        if not text.isprintable():  # bytes that are no UTF-8 among them
            raise InputError(f"no hardware target '{printable(text)}': a name has characters that can be printed")
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


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


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
        raise ValueError("give a number of GiB") from error


def _seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < _SEEDS):
        raise ValueError(f"give a whole number from 0 to {_SEEDS - 1}")
    return int(text)


def _above_zero(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise ValueError("give a whole number above zero")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError("give a number of seconds above zero")
    return seconds


def _on(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("choose from on, off")
    return text == "on"


def _faults(text: str) -> dict[str, str]:
    pairs = [pair for pair in text.split(",") if pair]
    if odd := [pair for pair in pairs if "=" not in pair]:
        raise InputError(f"CAPIBARA_FAULTS (--fault) has {odd[0]!r}: expected VOTER=FAULT, such as voter-3=sign_flip")
    return dict(pair.split("=", 1) for pair in pairs)
