"""The fit finds what made-up runs were made with, says what it does not know, and never scores what it saw."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.planning.assessment import assess, regret
from benchmarks.planning.crossvalidation import leave_out, naive_errors, quantile_of, speed_errors
from benchmarks.planning.fit import calibrate, estimate, problem, solve, step_seconds, write_calibration
from benchmarks.planning.machines import machine
from benchmarks.planning.plan import SHARED, measure
from benchmarks.planning.published import PublishedRun, Table, model_groups
from capibara_assets.errors import InputError
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.calibration import (
    EfficiencyCalibration,
    rates,
    read_calibration,
    shipped,
    with_bubble,
)
from capibara_assets.planning.prediction.effects import effects, expected_logs
from capibara_assets.planning.prediction.roofline import TERMS, work
from capibara_assets.planning.prediction.step_time import predict
from capibara_assets.planning.workload import EVERYTHING, NOTHING, Workload

CHIPS = (("tpu-v5e", 64), ("tpu-v6e", 64), ("h100-80gb", 8), ("a100-80gb", 8))
WIDTHS = (1024, 1536, 2048, 3072, 4096, 6144, 8192)
PROVENANCE = {"command": "made up", "rows": "made up", "sha256": "0"}


def made(seed: int = 0, noise: float = 0.02) -> list[PublishedRun]:
    """Runs whose speeds follow the model's form: products cost 1.2 times the expected, memory 1.5, H100 5 % more."""
    generator = np.random.default_rng(seed)
    runs = []
    for width in WIDTHS:
        shape = ModelShape(
            name=f"made-{width}",
            architecture="llama",
            layers=24,
            hidden=width,
            heads=width // 128,
            kv_heads=width // 128,
            head_dim=128,
            intermediate=4 * width,
            vocabulary=32000,
        )
        for family, chips in CHIPS:
            for sequence, recompute in ((1024, NOTHING), (4096, EVERYTHING)):
                load = Workload(
                    shape=shape,
                    sequence=sequence,
                    global_batch=8192 * chips / sequence,
                    mesh=Mesh(data=1, fsdp=chips, tensor=1),
                    recompute=recompute,
                    software="maxtext" if family.startswith("tpu") else "llm-foundry",
                )
                where = machine(family, chips)
                logs = np.array(expected_logs(load, where))
                logs[TERMS.index("matmul")] += np.log(1.2)
                logs[TERMS.index("elementwise")] += np.log(1.5)
                seconds = float((np.exp(logs) * with_bubble(work(load, where))).sum())
                seconds *= 1.05 if family.startswith("h100") else 1.0
                seconds *= exp(generator.normal(0, noise))
                speed = load.tokens / chips / seconds
                row = f"{width}-{family}-{sequence}"
                runs.append(PublishedRun(row, shape.name, load, where, speed, "tokens_per_s_per_chip"))
    return runs


RUNS = made()
MODELS = [run.model for run in RUNS]


def test_the_fit_predicts_models_and_chips_it_has_not_seen() -> None:
    by_model = leave_out(problem(RUNS), MODELS)
    assert np.median(speed_errors(by_model.logs, RUNS)) < 0.03
    by_chip = leave_out(problem(RUNS), [run.machine.family for run in RUNS])
    assert np.median(speed_errors(by_chip.logs, RUNS)) < 0.10
    assert np.median(naive_errors(RUNS, MODELS)) > 1.5 * np.median(speed_errors(by_model.logs, RUNS))


def test_intervals_cover_what_they_are_made_to_cover() -> None:
    held = leave_out(problem(RUNS), MODELS)
    inside = held.covered(problem(RUNS).logs)
    assert 0.8 <= inside.mean() <= 1.0


def test_the_held_out_group_touches_nothing_that_predicts_it() -> None:
    """A model's rows made ten times slower change the predictions of all others, never their own."""
    slowed = [
        replace(run, tokens_per_second=(run.tokens_per_second or 1) / 10) if run.model == "made-4096" else run
        for run in RUNS
    ]
    before, after = (leave_out(problem(runs), MODELS).logs for runs in (RUNS, slowed))
    own = [index for index, run in enumerate(RUNS) if run.model == "made-4096"]
    others = [index for index, run in enumerate(RUNS) if run.model != "made-4096"]
    assert np.array_equal(before[own], after[own])
    assert not np.allclose(before[others], after[others], atol=1e-4)


def test_one_outlier_does_not_carry_the_fit_away() -> None:
    wild = [replace(RUNS[0], tokens_per_second=(RUNS[0].tokens_per_second or 1) * 20), *RUNS[1:]]
    task = problem(RUNS)
    plain, _ = estimate(task, solve(task))
    robust, _ = estimate(task, solve(problem(wild)))
    assert np.abs(plain[1:] - robust[1:]).max() < 0.10


def test_effects_without_runs_keep_their_prior() -> None:
    task = problem(RUNS)
    solution = solve(task)
    spread = dict(zip(task.names, zip(solution.values, solution.spreads, task.spreads, strict=True), strict=True))
    value, after, prior = spread["term exchange"]  # no run has experts
    assert value == pytest.approx(0, abs=1e-9) and after == pytest.approx(prior)
    _, after, prior = spread["term matmul"]
    assert after < prior


def test_the_fit_finds_what_the_runs_were_made_with() -> None:
    fitted = calibrate(made(noise=0.0), width=1.0, noise=0.03, coverage=0.9, provenance=PROVENANCE)
    for run in RUNS[::5]:
        found = rates(run.workload, run.machine, fitted).logs
        moved = np.array(found) - np.array(expected_logs(run.workload, run.machine))
        factor = 1.05 if run.machine.family.startswith("h100") else 1.0
        assert exp(moved[TERMS.index("matmul")]) == pytest.approx(1.2 * factor, rel=0.06)


def test_a_calibration_survives_its_file_and_predicts_as_the_fit_does(tmp_path: Path) -> None:
    fitted = calibrate(RUNS, width=1.6, noise=0.03, coverage=0.9, provenance=PROVENANCE)
    write_calibration(fitted, tmp_path / "c.yaml")
    assert read_calibration(tmp_path / "c.yaml") == fitted
    write_calibration(calibrate(RUNS, width=1.6, noise=0.03, coverage=0.9, provenance=PROVENANCE), tmp_path / "d.yaml")
    assert (tmp_path / "c.yaml").read_bytes() == (tmp_path / "d.yaml").read_bytes()
    task = problem(RUNS)
    logs, spreads = estimate(task, solve(task))
    for run, expected, spread in zip(RUNS[::7], logs[::7], spreads[::7], strict=True):
        found = predict(run.workload, run.machine, fitted)
        assert found.step_seconds[1] == pytest.approx(exp(expected), rel=2e-3)
        _, middle, high = found.step_seconds
        assert log(high / middle) / 1.6 == pytest.approx(np.hypot(spread, 0.03), rel=0.02)


def test_an_unmeasured_run_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="no measured speed"):
        step_seconds(replace(RUNS[0], tokens_per_second=None))


def table(runs: Sequence[PublishedRun]) -> Table:
    return Table(runs=tuple(runs), refused={"x": "row x, column chips: is empty"})


def test_every_run_is_scored_by_a_fit_without_its_model_however_few_there_are() -> None:
    half = [run for run in RUNS if int(run.model[5:]) > 2000]
    fitted = calibrate(half, width=1.6, noise=0.03, coverage=0.9, provenance=PROVENANCE)
    found = assess(table(RUNS), fitted, half)
    assert found["fitted_runs"] == found["runs_scored"] == len(RUNS) == found["rows"] - 1
    assert found["rows_refused"] == {"x": "row x, column chips: is empty"} and found["rows_refused_count"] == 1
    assert found["median_error"] < 0.05 and found["chip_left_out"]["median_error"] < 0.10
    assert found["shipped_on_unseen"]["runs"] == len(RUNS) - len(half)
    one = assess(table(half[:1]), fitted, half)  # a run that the calibration itself was fitted to
    assert one["runs_scored"] == 1 and one["fitted_runs"] == len(half) and one["median_error"] < 0.10
    assert all(one[name] is not None for name in ("p90_error", "naive_median_error", "coverage", "false_oom"))
    assert json.dumps(found) and all("step_time_s" in row for row in found["predictions"])


def test_without_the_calibrations_runs_it_stands_for_them_where_it_never_saw_the_model() -> None:
    seen = [run for run in RUNS if run.model != "made-4096"]
    fitted = calibrate(seen, width=1.6, noise=0.03, coverage=0.9, provenance=PROVENANCE)
    unseen = [run for run in RUNS if run.model == "made-4096"][:1]
    found = assess(table(unseen), fitted, [])
    assert found["runs_scored"] == found["fitted_runs"] == found["shipped_on_unseen"]["runs"] == 1
    assert found["median_error"] == pytest.approx(found["shipped_on_unseen"]["median_error"], abs=1e-3)
    assert found["median_error"] < 0.05 and found["coverage"] == 1 and found["naive_median_error"] is None
    # Of a model that it was fitted to it must tell nothing: the run is judged by what is expected of any.
    known, unfitted = (assess(table(seen[:1]), one, []) for one in (fitted, fitted.model_copy(update={"effects": {}})))
    assert known["median_error"] == unfitted["median_error"] > 0.05
    assert "runs" not in known["shipped_on_unseen"] or known["shipped_on_unseen"]["runs"] == 0


def test_many_runs_of_one_model_are_judged_without_any_other_run() -> None:
    """No other group is there to say how wide an interval is: the calibration does."""
    fitted = calibrate(RUNS, width=1.6, noise=0.03, coverage=0.9, provenance=PROVENANCE)
    own = [
        replace(
            run,
            row=f"{run.row}-{copy}",
            model="one-model",
            workload=replace(run.workload, shape=RUNS[0].workload.shape),
        )
        for copy in range(6)
        for run in RUNS[:8]
    ]
    found = assess(table(own), fitted, [])
    assert found["runs_scored"] == found["fitted_runs"] == len(own) >= 40
    assert found["median_error"] is not None and found["naive_median_error"] is None


def test_a_model_under_another_name_is_left_out_with_its_own() -> None:
    """A wrong copy of a run must not reach its prediction: equal sizes are one model, and so are spellings."""
    own = RUNS[0]
    wrong = replace(own, row="copy", model="something-else", tokens_per_second=(own.tokens_per_second or 1) / 10)
    spelled = replace(own, row="spelled", model=f"org/{own.model.upper().replace('-', '_')}")
    groups = model_groups([own, wrong, *RUNS[8:], spelled])
    assert groups[0] == groups[1] == groups[-1] not in groups[2:-1]
    plain, copied = (assess(table([own, *more]), shipped(), RUNS[8:]) for more in ([], [wrong]))
    assert plain["predictions"][0]["step_time_s"] == copied["predictions"][0]["step_time_s"]


def test_a_framework_that_only_the_file_knows_is_learned_from_its_other_models() -> None:
    slow = [
        replace(
            run,
            workload=replace(run.workload, software="another"),
            tokens_per_second=(run.tokens_per_second or 1) / 1.4,
        )
        for run in RUNS
        if run.machine.family == "h100-80gb"
    ]
    found = assess(table(slow), shipped(), RUNS)
    assert found["median_error"] < 0.5 * found["shipped_on_unseen"]["median_error"]


def test_blank_measurements_are_predicted_and_not_scored() -> None:
    blank = [replace(run, tokens_per_second=None) for run in RUNS[:3]]
    found = assess(table([*blank, *RUNS[3:]]), shipped(), RUNS)
    assert found["rows_predicted"] == len(RUNS) and found["runs_measured"] == len(RUNS) - 3
    assert all("error" not in one and one["step_time_s"] > 0 for one in found["predictions"][:3])


def test_regret_is_what_following_our_ranking_costs() -> None:
    base = RUNS[0]
    fast = replace(base, row="fast", workload=replace(base.workload, recompute=NOTHING), tokens_per_second=110.0)
    slow = replace(base, row="slow", workload=replace(base.workload, recompute=EVERYTHING), tokens_per_second=100.0)
    assert regret([fast, slow], np.array([0.0, 0.1]))["regret"] == 0
    assert regret([fast, slow], np.array([0.1, 0.0]))["regret"] == pytest.approx(0.1)
    assert regret([fast, fast], np.array([0.0, 0.0]))["regret_groups"] == 0


def test_the_conformal_quantile_is_the_next_larger_rank() -> None:
    assert quantile_of(np.arange(1.0, 20.0)) == 18  # 20 x 0.9
    assert quantile_of(np.array([1.0, 2.0])) == 2


def test_the_shipped_calibration_says_what_it_is_of() -> None:
    fitted: EfficiencyCalibration = shipped()
    assert "python -m benchmarks plan" in fitted.provenance.command and len(fitted.provenance.sha256) == 64
    assert fitted.provenance.runs >= 200 and len(fitted.provenance.seen) >= fitted.provenance.models >= 20
    known = {effect.name.split()[0] for run in RUNS for effect in effects(run.workload, run.machine)}
    assert {name.split()[0] for name in fitted.effects} <= known | {
        "generation",
        "format",
        "many",
        "eager",
        "overlapped",
    }
    # No factor leaves what physics allows: three spreads.
    assert all(abs(one.value) < 1.6 for one in fitted.effects.values())


needs_rows = pytest.mark.skipif(
    not SHARED.is_file(), reason="needs the shared published runs beside the repository, and to be run from its root"
)


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The assessment of the shared rows with a calibration made anew, and that calibration's file."""
    file = tmp_path_factory.mktemp("calibration") / "calibration.yaml"
    return measure(None, file), file


@needs_rows
def test_the_published_runs_are_predicted_as_promised(renewed: tuple[dict[str, Any], Path]) -> None:
    found, _ = renewed
    assert found["calibration_runs_at_hand"]
    assert found["runs_measured"] >= 200 and found["calibrated_on_this_file"]
    assert found["fitted_runs"] == found["runs_measured"], "a run of the file was fitted twice"
    assert found["median_error"] <= 0.06 and found["p90_error"] <= 0.18
    assert found["median_error"] < found["naive_median_error"]
    assert 0.80 <= found["coverage"] <= 0.95
    assert found["chip_left_out"]["median_error"] <= 0.15
    assert found["false_oom"] == 0 and found["false_oom_of"] >= 190
    assert found["regret"] <= 0.05 and found["regret_groups"] >= 10
    assert len(found["predictions"]) == found["rows_predicted"] == found["rows"] - len(found["rows_refused"])


@needs_rows
def test_the_shipped_calibration_is_the_one_that_the_command_makes(renewed: tuple[dict[str, Any], Path]) -> None:
    assert read_calibration(renewed[1]) == shipped()
