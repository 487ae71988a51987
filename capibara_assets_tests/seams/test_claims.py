"""`docs/claims.md` is what `capibara plan --claims --measure` writes, with every claim judged that can be."""

import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.planning.claims.table import claims, render_markdown
from capibara_assets.planning.recipe import PlanningRecipe

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "claims.md"


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if " | " in line]
    return {row[0]: row for row in cells[1:]}


def check(document: dict[str, list[str]]) -> None:
    """What the specification's figures come to, whatever the machine."""
    hours, kernels = (
        document["Mistral-7B on a CPU in 73.5 h"],
        document["Kernels (attention, matrix product, softmax): 10-50x faster"],
    )
    assert hours[3] in ("**holds**", "**holds in part**") and "294 micro-steps of 15 minutes" in hours[1]
    assert "98 examples x 3 epochs" in hours[4]
    compute = document["Gradient checkpointing: 20 % more compute"]
    assert "Every second layer alone" in compute[1] and "every second layer" in compute[4]
    assert kernels[2] == "measured" and "over plain Python attention" in kernels[1] and "over NumPy at 64" in kernels[1]


def test_the_document_is_what_the_command_writes() -> None:
    document = rows(DOCUMENT.read_text("utf-8"))
    check(document)
    computed = rows(render_markdown(claims(shipped_recipe("planning", PlanningRecipe))))
    assert list(document) == list(computed)
    assert {name: row for name, row in computed.items() if document[name][2] == "computed"} == {
        name: row for name, row in document.items() if row[2] == "computed"
    }


@pytest.mark.extended
def test_a_measured_table_is_written(tmp_path: Path) -> None:
    words = ["plan", "--claims", "--measure", "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "capibara_assets.cli", *words], check=True, capture_output=True, timeout=600)
    check(rows((tmp_path / "claims.md").read_text("utf-8")))
