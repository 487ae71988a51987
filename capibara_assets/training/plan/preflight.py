"""Checks before a training starts: base, data, disk and memory against its plan, in well under a second.

Every check returns findings: pass, warn or fail, what was found, and what to do. `machine.py` has the slower checks
of `capibara doctor`.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import validate_base
from capibara_assets.modeling.heads import HEADS
from capibara_assets.planning.accounting import size
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.training.callbacks import callback_problem
from capibara_assets.training.plan.memory import target_budget
from capibara_assets.training.plan.packages import missing_packages
from capibara_assets.training.plan.plan import memory_problem, on_a_gpu, plan_training
from capibara_assets.training.plan.schema import MeasuredSpeed, TrainingPlan
from capibara_assets.training.plan.slices import on_the_slice, slice_problems
from capibara_assets.training.request import TrainingRequest

Status = Literal["pass", "warn", "fail"]
_MARGIN = 0.02  # of the disk must stay free: file systems slow down and fail before they are full
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class CheckFinding:
    """The result of a check.

    Attributes:
        check: its name.
        found: what was found, with figures.
        todo: what to do about it; empty where it passed.
    """

    check: str
    status: Status
    found: str
    todo: str = ""

    @property
    def line(self) -> str:
        """The finding as a line for people."""
        return f"{self.status:<4}  {self.check:<12} {self.sentence}"

    @property
    def sentence(self) -> str:
        return f"{self.found}; {self.todo}" if self.todo else self.found

    def document(self) -> dict[str, Any]:
        return asdict(self)


def require_ready(request: TrainingRequest) -> TrainingPlan:
    """Plan a run on this machine and check that it can work.

    Raises:
        InputError: a check failed; the message names all that failed.
    """
    validate_base(request.base_model, HEADS)
    plan = plan_training(request)
    if request.tpu is not None:
        plan = on_the_slice(plan, TpuPlan.model_validate(request.tpu))
    failed = [finding for finding in run_findings(request, plan) if finding.status == "fail"]
    if failed:
        raise InputError(f"{request.domain}: " + "; ".join(f"{one.check}: {one.sentence}" for one in failed))
    return plan


def quick_findings(
    request: TrainingRequest, target: HardwareTarget | None = None, *, speed: MeasuredSpeed | None = None
) -> tuple[list[CheckFinding], TrainingPlan | None]:
    """The findings of all quick checks, and the plan if one can be made."""
    findings = [check_base(request.base_model)]
    if findings[0].status == "fail":
        return findings, None
    try:
        plan = plan_training(request, target, speed=speed)
    except InputError as error:
        return [*findings, CheckFinding("plan", "fail", str(error), "mend it: the run would end with this")], None
    return findings + run_findings(request, plan, target), plan


def run_findings(
    request: TrainingRequest, plan: TrainingPlan, target: HardwareTarget | None = None
) -> list[CheckFinding]:
    """Check data, installed packages, disk and memory against the plan."""
    if request.tpu is not None:
        return [check_data(plan), *check_callbacks(request), *check_disk(request, plan), check_slice(request, plan)]
    here = [*check_packages(request, plan), *check_callbacks(request)] if target is None else []
    return [check_data(plan), *here, *check_disk(request, plan), *check_memory(plan, target)]


def check_base(path: Path) -> CheckFinding:
    """Check the base's config, tokenizer and weight files, without loading them."""
    try:
        validate_base(path, HEADS)
    except InputError as error:
        return CheckFinding("base", "fail", str(error), "give --model a whole model in Transformers' format")
    return CheckFinding("base", "pass", f"{path} is whole and readable")


def check_packages(request: TrainingRequest, plan: TrainingPlan) -> list[CheckFinding]:
    """Check that the packages that the run needs are installed."""
    return [CheckFinding("packages", "fail", *line.split(": ", 1)) for line in missing_packages(request.recipe, plan)]


def check_callbacks(request: TrainingRequest) -> list[CheckFinding]:
    """Check that the recipe's callbacks can be found; they are imported only when used."""
    problems = filter(None, map(callback_problem, request.recipe.report.callbacks))
    return [CheckFinding("callbacks", "fail", problem, "mend report.callbacks") for problem in problems]


def check_data(plan: TrainingPlan) -> CheckFinding:
    """Check how many examples can be trained on, by their lengths."""
    left = plan.examples_left_out
    detail = f"{plan.examples - left:,} of {plan.examples:,} examples can be used ({plan.tokens_source})"
    if left:
        return CheckFinding("data", "warn", detail, f"{left:,} are too long or faulty and will be left out by name")
    return CheckFinding("data", "pass", detail)


def check_disk(request: TrainingRequest, plan: TrainingPlan) -> list[CheckFinding]:
    """Check free disk space against the remaining output of the run."""
    needs: dict[int, tuple[Path, int]] = {}
    there = _bytes_in(request.work)
    for file in plan.files:
        root = request.out.parent if file.where.startswith("<output>") else request.work
        if file.where.startswith("<store>"):
            if request.checkpoints is None or "://" in request.checkpoints:
                continue  # a bucket is not limited
            root = Path(request.checkpoints)
        folder = existing_part(root)
        device = folder.stat().st_dev
        needs[device] = (folder, needs.get(device, (folder, 0))[1] + file.bytes)
    findings = []
    for folder, wanted in needs.values():
        usage = shutil.disk_usage(folder)
        missing = max(0, wanted - there)
        free = usage.free - int(_MARGIN * usage.total)
        detail = f"{size(usage.free)} free at {folder}, the run writes up to {size(missing)}"
        if missing > usage.free:
            todo = f"free {size(missing - usage.free)}, lower checkpoint.keep, or write elsewhere (--output)"
            findings.append(CheckFinding("disk", "fail", detail, todo))
        elif missing > free:
            todo = f"under {_MARGIN:.0%} of the disk would stay free: make room, or write elsewhere (--output)"
            findings.append(CheckFinding("disk", "warn", detail, todo))
        else:
            findings.append(CheckFinding("disk", "pass", detail))
    return findings


def check_slice(request: TrainingRequest, plan: TrainingPlan) -> CheckFinding:
    """Check that the JAX trainer supports the request; the plan has checked the slice's memory."""
    if problems := slice_problems(request):
        return CheckFinding("tpu", "fail", "; ".join(problems), "or train on a CPU or GPU target")
    return CheckFinding("tpu", "pass", plan.memory.arithmetic)


def check_memory(plan: TrainingPlan, target: HardwareTarget | None) -> list[CheckFinding]:
    """Check the predicted memory against the target's, or against this machine's."""
    memory = plan.memory
    note = f" ({memory.note})" if memory.note else ""
    if target is not None:
        if problem := memory_problem(memory, target):
            return [CheckFinding("memory", "fail", problem + note, "change the recipe, or name another --target")]
        return [CheckFinding("memory", "pass", f"{memory.arithmetic}{note}; {target_budget(target)}")]
    if on_a_gpu(None):
        detail = f"{memory.arithmetic}{note}, on the GPU"
        return [CheckFinding("memory", "pass", f"{detail}; capibara doctor compares it with what is free there")]
    total, available = host_memory()
    several = f" x {memory.processes} processes" if memory.processes > 1 else ""
    detail = f"{memory.arithmetic}{several}{note}; this machine has {size(total)}, {size(available)} of it free"
    if memory.together > total:
        todo = "run fewer voters at a time (hardware.parallel), hold the base quantised, or lower micro_batch"
        return [CheckFinding("memory", "fail", detail, todo)]
    if memory.together > available:
        return [
            CheckFinding("memory", "warn", detail, "end other programs first: the system would swap, or kill the run")
        ]
    return [CheckFinding("memory", "pass", detail)]


def host_memory(limits: Iterable[Path] = _CGROUP_LIMITS) -> tuple[int, int]:
    """(total, available) bytes of memory: the machine's, or a container's limit if that is lower."""
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for file in limits:
        text = file.read_text().strip() if file.is_file() else "max"
        if text.isdigit() and int(text) < total:
            used = total - available
            total = int(text)
            available = min(available, max(0, total - used))
    return total, available


def existing_part(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def guarded(name: str, check: Callable[[], CheckFinding | list[CheckFinding]]) -> list[CheckFinding]:
    """Run a check; an exception becomes a finding, so that the other checks still run."""
    try:
        result = check()
    except InputError as error:
        return [CheckFinding(name, "fail", str(error), "commands that need it would end with this")]
    except Exception as error:  # noqa: BLE001 - reported as a finding
        return [
            CheckFinding(name, "warn", f"could not be checked: {type(error).__name__}: {error}", "check it by hand")
        ]
    return result if isinstance(result, list) else [result]


def _bytes_in(folder: Path) -> int:
    return sum((Path(root) / name).lstat().st_size for root, _, names in os.walk(folder) for name in names)
