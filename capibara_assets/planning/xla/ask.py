"""Ask XLA about a TPU plan: lower its step for the slice without devices, and compile it where libtpu is installed.

Lowering (jax alone) shows that every sharding divides; only the compiler (extra `aot`, x86-64 Linux) tells the memory.
What was not compiled is called "not compiled", in so many words. The compiler's `optimal_seconds` is never shown: with
loops and kernels in the program it is negative.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.sizes import check_supported
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.tpu.plan import NOT_COMPILED, TpuPlan
from capibara_assets.planning.xla.cache import VerdictCache
from capibara_assets.planning.xla.case import XlaCase, case_digest, case_of, versions
from capibara_assets.planning.xla.compile import SETTINGS
from capibara_assets.planning.xla.verdict import XlaVerdict

TIME_LIMIT_S = 600.0


def libtpu_is_there() -> bool:
    """Whether this machine can compile for TPUs."""
    return find_spec("libtpu") is not None


def check_plan(
    plan: TpuPlan,
    *,
    compile_program: bool | None = None,
    whole: bool = True,
    timeout_s: float = TIME_LIMIT_S,
    cache: VerdictCache | None = None,
) -> XlaVerdict:
    """Lower the plan's step and, where possible, compile it for the slice; arguments as in `check_case`."""
    return check_case(case_of(plan), compile_program=compile_program, whole=whole, timeout_s=timeout_s, cache=cache)


def check_case(
    case: XlaCase,
    *,
    compile_program: bool | None = None,
    whole: bool = True,
    timeout_s: float = TIME_LIMIT_S,
    cache: VerdictCache | None = None,
) -> XlaVerdict:
    """XLA's verdict on a step.

    Args:
        case: the step and its slice.
        compile_program: None compiles where libtpu is installed; False never; True insists.
        whole: False stops the compiler when it has assigned the buffers, seconds instead of minutes: memory and fits or
            does not fit are decided by then; what code generation might still refuse (a kernel) is not.
        timeout_s: limit for the compiler's process; beyond it the verdict is "not compiled".
        cache: where verdicts of the compiler are kept; None compiles every time.

    Raises:
        InputError: `compile_program` is True and libtpu is not installed.
    """
    try:
        check_supported(case.shape)
        _check_mesh(case.mesh)
        case.settings  # noqa: B018 (raises for what the step does not have)
    except InputError as refused:
        return XlaVerdict(status=NOT_COMPILED, lowered=False, detail=f"{NOT_COMPILED}, not even lowered: {refused}")
    if not find_spec("jax"):
        why = "jax is not installed (extra tpu)"
        return XlaVerdict(status=NOT_COMPILED, lowered=False, detail=f"{NOT_COMPILED}, not even lowered: {why}")
    installed = libtpu_is_there()
    if compile_program and not installed:
        raise InputError("compiling for a TPU slice needs libtpu: pip install 'capibara-assets[aot]' (x86-64 Linux)")
    if compile_program is False or not installed:
        lowered = _ask(case, "lower", timeout_s)
        if lowered.status == "does not lower":
            return lowered
        why = "compiling was not asked for" if installed else "libtpu is not installed (extra aot)"
        return lowered.model_copy(update={"detail": f"{NOT_COMPILED}: {why}; {lowered.detail}"})
    digest = case_digest(case, versions())
    found, note = (None, None) if cache is None else _kept(cache, digest)
    if found is not None and (found.status != "fits" or not whole):
        return found
    try:
        verdict = _ask(case, "compile" if whole else "place", timeout_s)
    except subprocess.TimeoutExpired:
        detail = f"{NOT_COMPILED}: the compiler was stopped after {timeout_s:g} s"
        return XlaVerdict(status=NOT_COMPILED, lowered=False, detail=detail, versions=versions(), note=note)
    if cache is not None and verdict.fits is not None:
        cache.keep(digest, case.model_dump(mode="json"), verdict.model_dump(mode="json", exclude={"cached", "note"}))
    return verdict.model_copy(update={"note": note})


def _kept(cache: VerdictCache, digest: str) -> tuple[XlaVerdict | None, str | None]:
    document, note = cache.find(digest)
    if document is None:
        return None, note
    try:
        return XlaVerdict.model_validate(document).model_copy(update={"cached": True}), None
    except ValidationError as odd:
        return None, f"the cached verdict {digest} has another form ({odd.error_count()} errors); compiled again"


def _check_mesh(mesh: Mesh) -> None:
    odd = {name: getattr(mesh, name) for name in ("pipeline", "expert", "slices") if getattr(mesh, name) > 1}
    if odd:
        named = ", ".join(f"{name} {length}" for name, length in odd.items())
        raise InputError(f"the JAX step is sharded over data, fsdp and tensor within one slice; the mesh has {named}")


def with_verdict(plan: TpuPlan, verdict: XlaVerdict) -> TpuPlan:
    """The plan with XLA's answer in place of "not compiled"."""
    return plan.model_copy(update={"xla": verdict.document()})


def _ask(case: XlaCase, action: Literal["lower", "place", "compile"], timeout_s: float) -> XlaVerdict:
    """Have a process of its own lower, place buffers or compile.

    Raises:
        RuntimeError: the process failed in a way that is no verdict; its last words are in the message.
    """
    search = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.planning.xla.compile", action],
        input=case.model_dump_json(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **SETTINGS, "PYTHONPATH": search},
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"asking XLA to {action} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return XlaVerdict.model_validate_json(done.stdout.splitlines()[-1])
