"""Command line of the fleet: `python -m workshop.experience --out resources/experience [--only sql=5] [--changed]`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from workshop.experience.generate import FleetError, generate
from workshop.experience.plan import plan
from workshop.experience.standing import changed, standing_lines


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
    parser.add_argument(
        "--changed", action="store_true", help="run only sessions whose tasks or code differ from what stands in --out"
    )
    parser.add_argument("--workers", type=int, default=2, help="sandboxes at a time")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        sessions, kept = plan(_only(options.only)), list[str]()
        if options.changed:
            standing = standing_lines(options.out / "e2b_logs", plan())
            sessions = changed(sessions, standing)
            again = {session.sandbox_id for session in sessions}
            kept = [line for sandbox, lines in standing.items() if sandbox not in again for line in lines]
        files = generate(sessions, options.out, workers=options.workers, report=_report, kept=kept)
    except (InputError, FleetError) as error:
        print(error, file=sys.stderr)
        return 2
    size = sum(path.stat().st_size for path in files)
    print(
        f"{len(sessions)} sessions run, {len(files)} files, {size:,} bytes, {time.monotonic() - began:.0f} s, in {options.out / 'e2b_logs'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
