"""Command line of the fleet: `python -m workshop.experience --out resources/experience [--only sql=5]`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from workshop.experience.generate import FleetError, generate
from workshop.experience.plan import plan


def _only(items: list[str]) -> dict[Domain, int] | None:
    """`["sql=5", ...]` -> sessions per domain; None for all. Raises InputError for anything else."""
    counts = {}
    for item in items:
        name, _, number = item.partition("=")
        if name not in DOMAINS or not number.isdigit():
            raise InputError(f"--only {item}: expected DOMAIN=COUNT with DOMAIN one of {', '.join(DOMAINS)}")
        counts[Domain(name)] = int(number)
    return counts or None


def _report(done: int, total: int) -> None:
    print(f"\r{done}/{total} sessions", end="" if done < total else "\n", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets e2b_logs/")
    parser.add_argument("--only", action="append", default=[], metavar="DOMAIN=N", help="only N sessions of a domain")
    parser.add_argument("--workers", type=int, default=2, help="sandboxes at a time")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        files = generate(plan(_only(options.only)), options.out, workers=options.workers, report=_report)
    except (InputError, FleetError) as error:
        print(error, file=sys.stderr)
        return 2
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {size:,} bytes, {time.monotonic() - began:.0f} s, in {options.out / 'e2b_logs'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
