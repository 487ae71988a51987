"""Unit costs of the simulation: each with the figure, its source, and the command that measures it again."""

import gzip
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_json, write_json_atomic

FILE = Path(__file__).with_name("units.json")
MODEL, TARGET, GPUS = "llama2-7b", "h100-8", 8
CORES = 2  # of the machines on which the evidence was measured


@dataclass(frozen=True)
class Unit:
    """One unit cost.

    Attributes:
        source: what measured it, and how it was worked out of that.
    """

    value: float
    unit: str
    source: str


Units = Mapping[str, Unit]


def read_units() -> Units:
    """The unit costs as they were measured last. Raises InputError: the file is damaged."""
    try:
        return {name: Unit(**one) for name, one in read_json(FILE).items()}
    except (TypeError, AttributeError) as error:
        raise InputError(f"{FILE} has no units: measure them again (python -m benchmarks scale --measure)") from error


def write_units(voters: int, partitions: Path | None) -> Units:
    """Measure the unit costs again; those of ten thousand partitions come from that bench's JSON, if it is given."""
    units = {**_ingest(), **_shipped(), **_plan(voters), **_events()}
    units |= _ticks(partitions) if partitions is not None else {n: u for n, u in read_units().items() if n in _TICKS}
    write_json_atomic(FILE, {name: asdict(unit) for name, unit in sorted(units.items())})
    return read_units()  # in the order of the file, as every later run has them


def _evidence(stage: str, start: str) -> dict[str, Any]:
    lines = read_json(ROOT / "docs" / "evidence" / f"{stage}.json")
    found = [line for line in (lines["lines"] if isinstance(lines, dict) else lines) if line["line"].startswith(start)]
    if len(found) != 1:
        raise InputError(f"docs/evidence/{stage}.json has no line that begins with {start!r}: make evidence")
    line: dict[str, Any] = found[0]
    return line


def _ingest() -> dict[str, Unit]:
    memory, told = _evidence("experience", "memory flat"), _evidence("experience", "classification and patterns")
    sensor = _evidence("experience", "sensor: a tick")
    records = int(memory["command"].partition("--records ")[2].split()[0])
    where = "docs/evidence/experience.json"
    return {
        "ingest": Unit(
            records / memory["seconds"] / CORES, "records/s on a core",
            f"{where}: {memory['command']}, {memory['seconds']} s on {CORES} cores with making the records",
        ),
        "classify": Unit(told["figure"] / CORES, "records/s on a core", f"{where}: {told['command']}, {CORES} cores"),
        "list": Unit(sensor["figure"] / 100_000, "s a file", f"{where}: {sensor['command']}, a tick of 100,000 files"),
    }  # fmt: skip


def _shipped() -> dict[str, Unit]:
    """Bytes of an execution: as logs, as gzip, and as a Parquet table of the lines."""
    import polars as pl

    logs = sorted((resources_root() / "experience" / "e2b_logs").glob("*.jsonl.gz"))
    lines = [line for file in logs for line in gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "lines.parquet")
        pl.DataFrame({"line": lines}).write_parquet(table, compression="zstd")
        stored = table.stat().st_size
    source = f"the {len(lines):,} lines of the shipped logs: python -m benchmarks scale --measure"
    return {
        "raw": Unit(sum(len(line.encode()) + 1 for line in lines) / len(lines), "bytes an execution", source),
        "gzip": Unit(sum(file.stat().st_size for file in logs) / len(lines), "bytes an execution", source),
        "table": Unit(stored / len(lines), "bytes an execution", f"{source}, as Parquet with zstd"),
    }


def _plan(voters: int) -> dict[str, Unit]:
    """What a voter's training takes, and a token in a vote, at the training's rate."""
    from click.testing import CliRunner

    from capibara_assets.cli.training.plan import plan
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.deployment.declarations import shipped_recipe

    arguments = ["--model", MODEL, "--hardware", TARGET, "--voters", str(voters), "--json"]
    document = json.loads(CliRunner().invoke(plan, arguments, catch_exceptions=False).stdout)
    low, middle, high = document["cost"]["adapter"]["seconds"]
    estimates, recipe = document["plan"]["estimates"], shipped_recipe("consensus", ConsensusRecipe)
    forward = 2 * estimates["parameters"] / estimates["flops_per_token"]
    token = forward * middle / estimates["tokens_at_most"]
    source = f"capibara plan {' '.join(arguments)}"
    return {
        "train_low": Unit(low, f"s of {TARGET} a voter", source),
        "train_high": Unit(high, f"s of {TARGET} a voter", source),
        "vote_token": Unit(
            token, f"s of {TARGET}", f"{source}: 2 floating-point operations a weight, at the same rate"
        ),
        "shard": Unit(recipe.tokens_per_shard, "tokens a voter", "resources/recipes/consensus.yaml, tokens_per_shard"),
        "adapter": Unit(estimates["adapter_bytes"], "bytes", source),
    }


def _events() -> dict[str, Unit]:
    """Rows and bytes of Dagster's event log for a run of one asset and its blocking check."""
    import dagster as dg
    from dagster._serdes import serialize_value

    @dg.asset  # type: ignore[untyped-decorator]
    def one() -> None:
        """An asset that does nothing."""

    @dg.asset_check(asset=one, blocking=True)  # type: ignore[untyped-decorator]
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([one, holds], instance=instance)
        events = instance.all_logs(run.run_id)
        size = sum(len(serialize_value(event)) for event in events) / len(events)
    source = "a run of one asset with its blocking check: python -m benchmarks scale --measure"
    return {
        "rows": Unit(len(events), "rows of the event log a run", source),
        "row": Unit(size, "bytes a row", f"{source}, text of the event alone"),
    }


_TICKS = ("tick", "tick_partitions")


def _ticks(partitions: Path) -> dict[str, Unit]:
    found = read_json(partitions)
    sizes = " ".join(f"--{name} {found[name]}" for name in ("domains", "days", "made"))
    source = f"python -m benchmarks partitions {sizes} --json"
    return {
        "tick": Unit(
            max(value for name, value in found.items() if name.endswith("tick_cpu_s")), "s of a processor",
            f"{source}, the slowest of three",
        ),
        "tick_partitions": Unit(found["partitions"], "partitions in that tick", source),
    }  # fmt: skip
