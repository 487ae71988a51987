"""Validation of XLA flags by libtpu, which rejects unknown names and values when it is loaded.

An unknown flag would end the job on the TPU host at its start; the check takes about 1.5 seconds.
"""

import difflib
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.xla.compile import SETTINGS

VARIABLE = "LIBTPU_INIT_ARGS"
NOT_CHECKED = "libtpu is not installed (extra aot, x86-64 Linux): the flags are not checked"
# The smallest program that loads libtpu, which then parses its arguments.
_LOAD = (
    "from jax.experimental import topologies;"
    "topologies.get_topology_desc('v5e:2x2', platform='tpu');"
    "print('libtpu took its arguments')"
)
_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_]*(=\S*)?")
_UNKNOWN = re.compile(r"Unknown command line flag '(\w+)'")
_ILLEGAL = re.compile(r"Illegal value '(.*)' specified for flag '(\w+)'")
_NAME = re.compile(rb"\0(xla_[a-z0-9_]{3,100})(?=\0)")


class FlagVerdict(BaseModel):
    """Result of a check; flags that libtpu rejects raise instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["accepted", "not checked", "no flags"]
    flags: tuple[str, ...]
    detail: str
    libtpu: str | None = Field(default=None, description="version that was asked")


def check_xla_flags(flags: Sequence[str], *, timeout_s: float = 120.0) -> FlagVerdict:
    """Check flags with libtpu in a separate process.

    Args:
        flags: such as "--xla_tpu_enable_async_collective_fusion=true".
        timeout_s: time limit for that process.

    Raises:
        InputError: malformed flags, or names or values unknown to libtpu; the message lists all of them, with the
            nearest known names.
    """
    return _checked(tuple(flags), timeout_s)


def with_flags(plan: TpuPlan, flags: Sequence[str], *, ask: bool = True) -> TpuPlan:
    """A copy of the plan with libtpu's verdict on its flags under `xla["flags"]`; raises like `check_xla_flags`.

    Args:
        plan: a TPU plan.
        flags: such as "--xla_tpu_enable_async_collective_fusion=true".
        ask: False skips the check, for quick answers, and records that.
    """
    if ask or not flags:
        verdict = check_xla_flags(flags)
    else:
        verdict = FlagVerdict(status="not checked", flags=tuple(flags), detail="libtpu was not asked about the flags")
    return plan.model_copy(update={"xla": {**plan.xla, "flags": verdict.model_dump(mode="json")}})


@cache
def _checked(flags: tuple[str, ...], timeout_s: float) -> FlagVerdict:
    odd = [flag for flag in flags if not _FLAG.fullmatch(flag)]
    if odd:
        raise InputError(f"XLA flags {odd} are not written as --name=value")
    if not flags:
        return FlagVerdict(status="no flags", flags=flags, detail="the plan sets no XLA flags")
    if find_spec("libtpu") is None or find_spec("jax") is None:
        return FlagVerdict(status="not checked", flags=flags, detail=NOT_CHECKED)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        env={**os.environ, **SETTINGS, VARIABLE: " ".join(flags)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    installed = version("libtpu")
    unknown, illegal = _UNKNOWN.findall(done.stderr), _ILLEGAL.findall(done.stderr)
    if unknown or illegal:
        problems = [f"it has no {name}{_near(name)}" for name in unknown]
        problems += [f"{name} does not take {value!r}" for value, name in illegal]
        raise InputError(f"libtpu {installed} refuses XLA flags: {'; '.join(problems)}")
    if done.returncode != 0:
        raise RuntimeError(f"asking libtpu about flags ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return FlagVerdict(
        status="accepted", flags=flags, detail=f"libtpu {installed} accepts all {len(flags)}", libtpu=installed
    )


def _near(name: str) -> str:
    close = difflib.get_close_matches(name, known_names(), n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""


@cache
def known_names() -> tuple[str, ...]:
    """Flag names found as text in the installed libtpu library; used only for hints in errors."""
    spec = find_spec("libtpu")
    if spec is None or spec.origin is None:
        return ()
    library = Path(spec.origin).with_name("libtpu.so")
    if not library.is_file():
        return ()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return tuple(sorted({match.group(1).decode() for match in _NAME.finditer(text)}))
