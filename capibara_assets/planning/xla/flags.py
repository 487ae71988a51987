"""XLA flags for TPU held against libtpu itself, which refuses a name or value it does not know before anything else.

A flag that libtpu does not know ends the job on the TPU host at its first line; asking takes a second and a half here.
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
# The smallest thing that loads libtpu and so has it read its arguments.
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
    """What became of the check; flags that libtpu refuses raise instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["accepted", "not checked", "no flags"]
    flags: tuple[str, ...]
    detail: str
    libtpu: str | None = Field(default=None, description="version that was asked")


def check_xla_flags(flags: Sequence[str], *, timeout_s: float = 120.0) -> FlagVerdict:
    """Have libtpu read the flags in a process of its own.

    Args:
        flags: such as "--xla_tpu_enable_async_collective_fusion=true".
        timeout_s: limit for that process.

    Raises:
        InputError: not written as flags, or names or values that libtpu does not know: all of them, with the nearest
            names that it has.
    """
    return _checked(tuple(flags), timeout_s)


def with_flags(plan: TpuPlan, flags: Sequence[str], *, ask: bool = True) -> TpuPlan:
    """The plan with what libtpu said of its flags, under `xla["flags"]`; raises as `check_xla_flags`.

    Args:
        ask: False leaves libtpu alone, for answers that have to be quick, and says so.
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
    """Names of flags that the installed libtpu's library holds as text: for hints only, libtpu itself decides."""
    spec = find_spec("libtpu")
    if spec is None or spec.origin is None:
        return ()
    library = Path(spec.origin).with_name("libtpu.so")
    if not library.is_file():
        return ()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return tuple(sorted({found.group(1).decode() for found in _NAME.finditer(text)}))
