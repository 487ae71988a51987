"""Settings of a deployment from CAPIBARA_* environment variables: folders, recipes, hardware, launcher."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError

DEFAULT_BASE_MODEL = "capibara-nano"
TPU = "tpu-"  # with which the names of TPU slices begin


class LaunchMode(Enum):
    """Place in which training processes are started."""

    LOCAL = "local"
    K8S = "k8s"


@dataclass(frozen=True)
class Deployment:
    """Settings that differ between a laptop and a cluster, except credentials (those are EnvVar resources)."""

    home: Path
    store: str
    work: Path
    experience: str
    redact_also: tuple[str, ...]
    base_model: str
    target: str
    tpu_target: str
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

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Deployment":
        """Read the CAPIBARA_* variables, each with the default that `.env.example` names; empty counts as absent.

        Raises:
            InputError: a seed or `parallel` that is no such number, a launcher that does not exist, or a fault that is
                no VOTER=FAULT.
        """

        def read(name: str, default: str) -> str:
            return environment.get(f"CAPIBARA_{name}") or default

        home = Path(read("HOME", ".capibara")).expanduser().resolve()
        target = read("TARGET", "cpu-laptop")
        base_model = read("BASE_MODEL", str(resources_root() / "base_models" / DEFAULT_BASE_MODEL))
        return cls(
            home=home,
            store=read("STORE", str(home / "store")),
            work=Path(read("WORK", str(home / "work"))),
            experience=read("EXPERIENCE", str(resources_root() / "experience")),
            redact_also=tuple(name for name in read("REDACT_ALSO", "").split(",") if name),
            base_model=base_model,
            target=target,
            # What is trained on is what is planned for.
            tpu_target=read("TPU_TARGET", target if target.startswith(TPU) else "tpu-v5e-64"),
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
        )


def _launcher(text: str) -> LaunchMode:
    known = [mode.value for mode in LaunchMode]
    if text not in known:
        raise InputError(f"CAPIBARA_LAUNCHER is {text!r}: one of {', '.join(known)}")
    return LaunchMode(text)


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
