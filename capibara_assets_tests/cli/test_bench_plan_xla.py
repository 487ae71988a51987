"""`capibara bench plan-xla` on the answers that ship: no compiler needed; every figure says of how many cases it is."""

import json

from click.testing import CliRunner

from capibara_assets.cli.bench_plan_xla import plan_xla


def test_the_figures_of_the_shipped_answers() -> None:
    done = CliRunner().invoke(plan_xla, ["--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["answers"] == "shipped"
    assert found["memory"]["cases"] >= 12
    assert found["verdicts"]["cases"] == found["verdicts"]["fit"] + found["verdicts"]["do_not_fit"]
    assert found["choice"]["cases"] >= found["choice"]["taken_at_first_try"]
    assert found["memory_calibration"]["cases"] > 0
    assert set(found["versions"]) == {"jax", "jaxlib", "libtpu"}


def test_quick_takes_a_handful() -> None:
    found = json.loads(CliRunner().invoke(plan_xla, ["--quick", "--json"]).output)
    assert found["cases"] == found["memory"]["cases"] == 4
