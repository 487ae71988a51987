"""How long the definitions take to load beside `import dagster`, and whether that loads a heavy library."""

import subprocess
import sys

import click

from benchmarks.output import print_result

HEAVY = ("torch", "jax", "transformers", "peft", "deepspeed")


@click.command("load")
@click.option("--repeats", default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def load(repeats: int, as_json: bool) -> None:
    """Loading the definitions beside `import dagster`, in interleaved fresh processes."""
    code = (
        "import sys, time; t = time.perf_counter(); import {}; "
        "print(time.perf_counter() - t, *[m for m in {!r} if m in sys.modules])"
    )
    dagster_seconds: list[float] = []
    our_seconds: list[float] = []
    heavy: list[str] = []
    for _ in range(repeats):
        for module, seconds in (("dagster", dagster_seconds), ("capibara_assets.definitions", our_seconds)):
            command = [sys.executable, "-c", code.format(module, HEAVY)]
            first, *found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            seconds.append(float(first))
            heavy += found
    result = {
        "dagster_s": round(min(dagster_seconds), 3),
        "definitions_s": round(min(our_seconds), 3),
        "ratio": round(min(our_seconds) / min(dagster_seconds), 3),
        "heavy": sorted(set(heavy)),
    }
    print_result(result, as_json)
