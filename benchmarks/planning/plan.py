"""The bench `plan`: every row of a file of published runs predicted, and how wrong the predictions are."""

from pathlib import Path
from typing import Any

import click

from benchmarks.output import print_result
from capibara_assets.errors import InputError

SHARED = Path("../shared/data/hardware/published_training.csv")
WORDS = "published training runs: {runs} measured rows of {file}, chips {chips}, frameworks {frameworks}"


@click.command("plan")
@click.option("--rows", "file", help="CSV with the columns of published_training.csv; default: the shared one.")
@click.option("--calibrate", help="Also fit the efficiencies to all measured rows and write them to this YAML file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line, with every row's prediction.")
def plan(file: str | None, calibrate: str | None, as_json: bool) -> None:
    """Predicted against published step times, by model and chip left out; coverage, regret and memory verdicts."""
    result = measure(Path(file) if file else None, Path(calibrate) if calibrate else None)
    if not as_json:
        result = {name: value for name, value in result.items() if name != "predictions"}
    print_result(result, as_json)


def measure(file: Path | None = None, calibrate: Path | None = None) -> dict[str, Any]:
    """The assessment of a file's rows (default: the shared ones); with `calibrate` the fit to them is renewed first.

    Raises:
        InputError: the file is missing or lacks a needed column, or has too few measured rows to fit.
    """
    from benchmarks.planning.assessment import assess
    from benchmarks.planning.fit import file_digest
    from benchmarks.planning.published import only_measured, read_published
    from capibara_assets.planning.prediction.calibration import shipped

    file = file or SHARED
    if not file.exists():
        raise InputError(f"no file {file}: name a CSV of published runs with --rows")
    table = read_published(file)
    calibration = shipped() if calibrate is None else _renew(file, calibrate)
    digest, fitted_to = file_digest(file), calibration.provenance.sha256
    beside = SHARED.is_file() and file_digest(SHARED) == fitted_to
    source = table if digest == fitted_to else read_published(SHARED) if beside else None
    known = only_measured(source.runs) if source else []
    result = {
        "file": file.name,
        "sha256": digest,
        "calibration_sha256": fitted_to,
        "calibrated_on_this_file": digest == fitted_to,
        "calibration_runs_at_hand": source is not None,
    }
    return result | assess(table, calibration, known)


def _renew(file: Path, output: Path) -> Any:
    """Fit to all measured rows; the interval's width and the noise come from leaving models out."""
    from benchmarks.planning.crossvalidation import COVERAGE, ENOUGH_MODELS, ENOUGH_RUNS, leave_out
    from benchmarks.planning.fit import calibrate, file_digest, problem, write_calibration
    from benchmarks.planning.published import model_groups, only_measured, read_published

    runs = only_measured(read_published(file).runs)
    if len(runs) < ENOUGH_RUNS or len({run.model for run in runs}) < ENOUGH_MODELS:
        raise InputError(f"{file}: {len(runs)} measured rows are too few to fit on; {ENOUGH_RUNS} are needed")
    held = leave_out(problem(runs), model_groups(runs))
    words = WORDS.format(
        runs=len(runs),
        file=file.name,
        chips=", ".join(sorted({run.machine.family for run in runs})),
        frameworks=", ".join(sorted({run.workload.software for run in runs})),
    )
    fitted = calibrate(
        runs,
        width=held.width,
        noise=held.noise,
        coverage=COVERAGE,
        provenance={
            "command": f"python -m benchmarks plan --rows {file.name} --calibrate resources/planning/calibration.yaml",
            "rows": words,
            "sha256": file_digest(file),
        },
    )
    write_calibration(fitted, output)
    return fitted
