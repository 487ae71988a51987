"""`python -m capibara_assets.training.jax CONFIG`: train by a JAX configuration (`planning/writers/jax_config.py`)."""

import os
import sys
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.escaping.terminal import print_plainly
from capibara_assets.training.causes import explained


def main(arguments: list[str]) -> int:
    """Train; returns 0, or, with an error on stderr, 2 for invalid configuration or data, 1 where a device fails."""
    if len(arguments) != 1:
        print("usage: python -m capibara_assets.training.jax CONFIG.yaml", file=sys.stderr)
        return 2
    from capibara_assets.planning.writers.jax_config import read_jax_config
    from capibara_assets.training.jax.trainer import train

    try:
        config = read_jax_config(Path(arguments[0]))
        if config.xla_flags:  # libtpu reads them when jax loads it, later
            os.environ["LIBTPU_INIT_ARGS"] = " ".join(
                filter(None, [os.environ.get("LIBTPU_INIT_ARGS"), *config.xla_flags])
            )
        train(config)
    except InputError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if (said := explained(error)) == f"{type(error).__name__}: {error}":
            raise
        print(f"error: {said}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    print_plainly()
    sys.exit(main(sys.argv[1:]))
