"""Where the peers of the benches live: an environment of their own, and scripts that run in it."""

import os
from pathlib import Path

from capibara_assets.errors import InputError


def peer_environment(name: str) -> tuple[Path, Path]:
    """The interpreter of the peers' environment and the script of that name that runs in it.

    Raises:
        InputError: the environment was not built, or this is no checkout.
    """
    root = Path(__file__).resolve().parents[2]
    script = root / "benchmarks" / name
    python = Path(os.environ.get("CAPIBARA_BENCH_ENV") or root / ".benchmarks-venv") / "bin" / "python"
    if not script.is_file():
        raise InputError("the peers' scripts are in a checkout of the repository: run this bench there")
    if not python.is_file():
        raise InputError(f"the peers' environment is missing ({python}): run `make bench-env` first")
    return python, script
