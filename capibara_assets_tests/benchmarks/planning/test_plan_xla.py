"""The bench `plan-xla` on the answers that ship: no compiler needed; every figure says of how many cases it is."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.planning.plan_xla import measure, plan_xla
from benchmarks.planning.xla_cases import known_cases
from capibara_assets.errors import InputError
from capibara_assets.planning.xla import ask as xla
from capibara_assets.planning.xla.case import XlaCase


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


def test_one_case_by_its_name() -> None:
    found = json.loads(CliRunner().invoke(plan_xla, ["--case", "V1", "--json"]).output)
    assert found["cases"] == 1 and found["memory"]["worst"] == "V1"
    with pytest.raises(InputError, match="no case named V999"):
        measure(names=("V999",))


def test_what_is_drawn_needs_the_compiler() -> None:
    for wanted in ({"seed": 3}, {"choosing": True}, {"save": Path("x.json")}):
        with pytest.raises(InputError, match="add --compile"):
            measure(**wanted)  # type: ignore[arg-type]


def test_every_answer_is_saved_right_or_wrong_and_what_was_not_answered_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[XlaCase] = []

    def answer(case: XlaCase, **_: object) -> xla.XlaVerdict:
        asked.append(case)
        if len(asked) == 2:
            return xla.XlaVerdict(status="not compiled", lowered=False, detail="not compiled: stopped after 600 s")
        return xla.XlaVerdict(status="fits", lowered=True, detail="as told", memory={"allotted": 7})

    monkeypatch.setattr(xla, "check_case", answer)
    saved = tmp_path / "cases.json"
    found = measure(compiling=True, seed=8, count=3, save=saved)
    assert found["drawn"] == 3 and found["verdicts"]["cases"] == 2 and len(found["unanswered"]) == 1
    cases = known_cases(saved)
    new = [one for one in cases.of("near the limit") if one.name.startswith("D8-")]
    assert [one.case for one in new] == [asked[0], asked[2]]
    assert len(cases.cases) == len(known_cases().cases) + 2
    assert cases.copies == known_cases().copies
