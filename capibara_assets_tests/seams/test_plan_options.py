"""Every option of `capibara plan`, in every mode: what it plans changes, or it is refused by name; never dropped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from capibara_assets.cli.training.plan import plan
from capibara_assets.deployment.declarations import read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.planning.claims.test_table import MEASURED
from capibara_assets_tests.planning.shapes import statistics

MODES = {
    "claims": ["--claims"],
    "preset": ["--preset", "mistral7b_8xh100", "--examples", "900"],
    "lora": ["--model", "qwen3-0.6b", "--hardware", "h100-8", "--examples", "900"],
    "tpu": ["--model", "qwen3-0.6b", "--hardware", "tpu-v5e-4", "--examples", "900"],
}
PRINTING = {"json", "help", "q"}  # as every answer here is asked for, and the option that all commands have
TESTED_WITH_LIBTPU = {("tpu", "--compile")}  # minutes; capibara_assets_tests/planning/xla compiles


def options() -> list[str]:
    return [param.opts[0] for param in plan.params if param.opts[0].strip("-") not in PRINTING]


def values_of(option: str, folder: Path) -> list[str]:
    """An option with a value that is not what a plan would take by itself."""
    figures, recipe = folder / "statistics.json", folder / "planning.yaml"
    figures.write_text(json.dumps(statistics(train=700, p95_chars=300)))
    shipped = (resources_root() / "recipes" / "planning.yaml").read_text()
    recipe.write_text(shipped.replace("level: balanced", "level: aggressive").replace("dropout: 0.05", "dropout: 0.2"))
    given = {
        "--model": "capibara-nano", "--hardware": "a100-8", "--dataset-statistics": str(figures), "--examples": "1200",
        "--sequence": "192", "--target-throughput": "2000 tokens/s", "--level": "aggressive", "--preset": "120b",
        "--domain": "sql", "--quantization": "nf4", "--voters": "7", "--recipe": str(recipe),
        "--xla-flag": "--xla_tpu_enable_async_collective_fusion=false", "--out": str(folder / "out"),
    }  # fmt: skip
    return [option, given[option]] if option in given else [option]


def answer(arguments: list[str]) -> dict[str, Any]:
    done = CliRunner().invoke(plan, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return {name: value for name, value in document.items() if name != "seconds"}


@pytest.mark.parametrize(
    "mode", ["preset", "lora", *(pytest.param(slow, marks=pytest.mark.extended) for slow in ("claims", "tpu"))]
)
def test_each_option_is_used_or_refused_by_name(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capibara_assets.planning.claims.measured.measure", lambda base: MEASURED)  # half a minute
    base, plain = MODES[mode], answer(MODES[mode])
    used, refused = set(), set()
    for option in options():
        if (mode, option) in TESTED_WITH_LIBTPU or (option in base and len(base) == 1):
            continue
        given = values_of(option, tmp_path)
        at = base.index(option) if option in base else None
        if (mode, option) == ("preset", "--dataset-statistics"):  # in the place of --examples, whose number they have
            at = base.index("--examples")
        line = [*base, *given] if at is None else [*base[:at], *given, *base[at + 2 :]]
        try:
            changed = answer(line)
        except InputError as error:
            told = str(error)
            assert option.strip("-") in told or "--claims" in told, f"{mode}: {option} is refused, but not named"
            refused.add(option)
            continue
        if option == "--claims":  # another mode, which refuses what this one was given
            pytest.fail(f"--claims after {base}")
        written = option == "--out" and any((tmp_path / "out").iterdir())
        assert changed != plain or written, f"{mode}: {option} is dropped silently"
        used.add(option)
    assert {"--recipe", "--out"} <= used and "--xla-flag" in refused | used
    assert list((tmp_path / "out").iterdir())
    assert ("--level" in used) == (mode != "claims")
    if mode in ("preset", "lora"):
        assert {"--compile", "--xla-flag", "--measure"} <= refused
        assert {"--voters", "--domain", "--target-throughput", "--sequence"} <= used


def test_a_preset_writes_the_recipe_that_was_planned(tmp_path: Path) -> None:
    """In a process of its own: what is written is the preset's recipe with the changes, and the trainer reads it."""
    folder = tmp_path / "plan"
    words = ["--preset", "mistral7b_8xh100", "--quantization", "int8", "--sequence", "1024", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", "plan", *words], capture_output=True, text=True, check=True
    )
    assert str(folder) in done.stdout
    stated = read_declared(resources_root() / "recipes" / "mistral7b_8xh100.yaml", TrainingRecipe)
    written = read_declared(folder / "recipe.yaml", TrainingRecipe)
    assert (written.model.quantization, written.data.max_length) == ("int8", 1024)
    assert written.training == stated.training and written.hardware == stated.hardware
    deepspeed = json.loads((folder / "deepspeed.json").read_text())
    assert deepspeed["train_batch_size"] == stated.training.global_batch
    assert "launch.sh" in {file.name for file in folder.iterdir()}
    assert json.loads((folder / "plan.json").read_text())["max_length"] == 1024


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--out .* cannot be made"):
        answer([*MODES["preset"], "--out", str(tmp_path / "file" / "below")])
    with pytest.raises(InputError, match="runs 8 processes, a device each, but h100-2 has 2"):
        answer([*MODES["preset"], "--hardware", "h100-2"])
    with pytest.raises(InputError, match="TPU slice, which the PyTorch trainer cannot use"):
        answer([*MODES["preset"], "--hardware", "tpu-v5e-4"])


@pytest.mark.extended
def test_the_files_of_a_preset_train(tmp_path: Path, nano: Path) -> None:
    """`bash launch.sh MODEL DATA OUTPUT` with what `plan --preset` wrote, to the adapter."""
    model = save_tiny(tmp_path / "tiny", tokenizer_of=nano)
    words = ["--preset", "mistral7b_cpu", "--model", str(model), "--hardware", "cpu-laptop", "--sequence", "128"]
    answer([*words, "--quantization", "none", "--out", str(tmp_path / "plan")])
    rows = [{"prompt": f"Write a function number {n}", "completion": f"def f{n}(): return {n}"} for n in range(12)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = tmp_path / "plan" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: auto", "epochs: 1").replace("threads: 32", "threads: 1"))
    subprocess.run(
        ["bash", tmp_path / "plan" / "launch.sh", model, tmp_path / "data.jsonl", tmp_path / "trained"],
        env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=600,
    )  # fmt: skip
    assert (tmp_path / "trained" / "adapter_model.safetensors").is_file()
