"""Settings of a deployment from CAPIBARA_* environment variables: folders, recipes, hardware, launcher."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError

DEFAULT_BASE_MODEL = "capibara-nano"
NAMED_BASES = {"20b": "MODEL_20B_PATH", "120b": "MODEL_120B_PATH"}
"""Short name of a base model -> the variable that says where it is."""
TPU = "tpu-"  # with which the names of TPU slices begin


class LaunchMode(Enum):
    """Place in which training processes are started."""

    LOCAL = "local"
    K8S = "k8s"


@dataclass(frozen=True)
class Deployment:
    """Settings that differ between a laptop and a cluster, except credentials (read where they are used).

    Attributes:
        target, tpu_target: hardware of every domain that `targets` or `tpu_targets` (domain -> name) leaves out.
        fetch_gib: largest base model that is fetched from the Hub without being asked; 0: none.
        audit: verdict files, instead of the dataset recipe's `exclusions`; none: those of the recipe.
        project, zone: of Google Cloud, for launch files and gs:// stores; empty: none.
    """

    home: Path
    store: str
    work: Path
    experience: str
    redact_also: tuple[str, ...]
    base_model: str
    fetch_gib: float
    target: str
    targets: dict[str, str]
    tpu_target: str
    tpu_targets: dict[str, str]
    project: str
    zone: str
    profile: str
    recipes: str
    launcher: LaunchMode
    image: str
    namespace: str
    service_account: str
    secrets: tuple[str, ...]
    volume_claim: str
    volume_path: str
    seed: int | None
    faults: dict[str, str]
    parallel: int | None
    audit: tuple[str, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Deployment":
        """Read the CAPIBARA_* variables, each with the default that `.env.example` names; empty counts as absent.

        Raises:
            InputError: a seed, size or `parallel` that is no such number, a launcher that does not exist, a fault that
                is no VOTER=FAULT, a target that is no NAME or DOMAIN=NAME, or a named base model without its variable.
        """

        def read(name: str, default: str) -> str:
            return environment.get(f"CAPIBARA_{name}") or default

        home = Path(read("HOME", ".capibara")).expanduser().resolve()
        base_model = read("BASE_MODEL", str(resources_root() / "base_models" / DEFAULT_BASE_MODEL))
        target, targets = _targets("CAPIBARA_TARGET", read("TARGET", ""), "cpu-laptop")
        # What is trained on is what is planned for.
        slices = {domain: name for domain, name in targets.items() if name.startswith(TPU)}
        planned = target if target.startswith(TPU) else "tpu-v5e-64"
        tpu_target, tpu_targets = _targets("CAPIBARA_TPU_TARGET", read("TPU_TARGET", ""), planned)
        tpu_targets = slices | tpu_targets
        return cls(
            home=home,
            store=read("STORE", str(home / "store")),
            work=Path(read("WORK", str(home / "work"))),
            experience=read("EXPERIENCE", str(resources_root() / "experience")),
            redact_also=tuple(name for name in read("REDACT_ALSO", "").split(",") if name),
            base_model=_named_base(base_model, environment),
            fetch_gib=_size(read("FETCH_GIB", "0")),
            target=target,
            targets=targets,
            tpu_target=tpu_target,
            tpu_targets=tpu_targets,
            project=environment.get("GOOGLE_CLOUD_PROJECT") or "",
            zone=environment.get("GOOGLE_CLOUD_ZONE") or "",
            profile=read("PROFILE", "demo"),
            recipes=read("RECIPES", ""),
            launcher=_launcher(read("LAUNCHER", "local")),
            image=read("IMAGE", ""),
            namespace=read("NAMESPACE", ""),
            service_account=read("SERVICE_ACCOUNT", ""),
            secrets=tuple(name for name in read("SECRETS", "").split(",") if name),
            volume_claim=read("VOLUME_CLAIM", ""),
            volume_path=read("VOLUME_PATH", ""),
            seed=_seed(read("SEED", "")),
            faults=_faults(read("FAULTS", "")),
            parallel=_positive("PARALLEL", read("PARALLEL", "")),
            audit=tuple(name for name in read("AUDIT", "").split(",") if name),
        )


def _launcher(text: str) -> LaunchMode:
    known = [mode.value for mode in LaunchMode]
    if text not in known:
        raise InputError(f"CAPIBARA_LAUNCHER is {text!r}: one of {', '.join(known)}")
    return LaunchMode(text)


def _targets(variable: str, text: str, default: str) -> tuple[str, dict[str, str]]:
    """`h100-8,sql=h200-1` -> (`h100-8`, {`sql`: `h200-1`}); without a name for all domains, the default."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    names = [part for part in parts if "=" not in part]
    own = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(names) > 1 or not all(own.values()):
        raise InputError(f"{variable} is {text!r}: expected one NAME for all domains, and DOMAIN=NAME for single ones")
    if unknown := sorted(set(own) - set(DOMAINS)):
        raise InputError(f"{variable} names {', '.join(unknown)}, no domain: choose from {', '.join(DOMAINS)}")
    return (names[0] if names else default), own


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


def _seed(text: str) -> int | None:
    try:
        return int(text) if text else None
    except ValueError as error:
        raise InputError(f"CAPIBARA_SEED is {text!r}: give a whole number") from error


def _positive(name: str, text: str) -> int | None:
    if text and not (text.isdecimal() and int(text) > 0):
        raise InputError(f"CAPIBARA_{name} is {text!r}: give a whole number above zero")
    return int(text) if text else None


def _faults(text: str) -> dict[str, str]:
    pairs = [pair for pair in text.split(",") if pair]
    if odd := [pair for pair in pairs if "=" not in pair]:
        raise InputError(f"CAPIBARA_FAULTS (--fault) has {odd[0]!r}: expected VOTER=FAULT, such as voter-3=sign_flip")
    return dict(pair.split("=", 1) for pair in pairs)
