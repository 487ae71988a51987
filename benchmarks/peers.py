"""Where the peers of the benches live: an environment of their own, and the scripts of this folder that run in it."""

import os
from pathlib import Path

from capibara_assets.errors import InputError

ROOT = Path(__file__).resolve().parents[1]


def peer_environment(name: str) -> tuple[Path, Path]:
    """The interpreter of the peers' environment, and the script "stage/peer_x.py" that runs in it.

    Raises:
        InputError: the environment was not built.
    """
    script = ROOT / "benchmarks" / name
    python = Path(os.environ.get("CAPIBARA_BENCH_ENV") or ROOT / ".benchmarks-venv") / "bin" / "python"
    if not python.is_file():
        raise InputError(f"the peers' environment is missing ({python}): run `make bench-env` first")
    return python, script
