"""How long the definitions take to load beside `import dagster`, and whether that loads a heavy library."""

import subprocess
import sys

import click

from benchmarks.output import print_result
from capibara_assets.domains import DOMAINS

HEAVY = ("torch", "jax", "transformers", "peft", "deepspeed")


# More domains than there are, before anything reads them: as if each had its line in `domains.py`.
MORE = """
import enum
from capibara_assets import domains
named = {one.name: one.value for one in domains.Domain}
named |= {f"DOMAIN_{number}": f"domain-{number}" for number in range(int(sys.argv[1]) - len(named))}
domains.Domain = enum.StrEnum("Domain", named)
domains.DOMAINS = tuple(domains.Domain)
"""


@click.command("load")
@click.option("--repeats", default=5, show_default=True)
@click.option("--domains", default=len(DOMAINS), show_default=True, type=click.IntRange(min=len(DOMAINS)))
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def load(repeats: int, domains: int, as_json: bool) -> None:
    """Loading the definitions beside `import dagster`, in interleaved fresh processes."""
    code = (
        "import sys, time; t = time.perf_counter()\n{}import {}; "
        "print(time.perf_counter() - t, *[m for m in {!r} if m in sys.modules])"
    )
    more = MORE if domains > len(DOMAINS) else ""
    dagster_seconds: list[float] = []
    our_seconds: list[float] = []
    heavy: list[str] = []
    for _ in range(repeats):
        for first_of_all, module, seconds in (
            ("", "dagster", dagster_seconds),
            (more, "capibara_assets.definitions", our_seconds),
        ):
            command = [sys.executable, "-c", code.format(first_of_all, module, HEAVY), str(domains)]
            first, *found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            seconds.append(float(first))
            heavy += found
    result = {
        "domains": domains,
        "dagster_s": round(min(dagster_seconds), 3),
        "definitions_s": round(min(our_seconds), 3),
        "ratio": round(min(our_seconds) / min(dagster_seconds), 3),
        "heavy": sorted(set(heavy)),
    }
    print_result(result, as_json)
