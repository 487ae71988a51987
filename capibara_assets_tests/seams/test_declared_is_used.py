"""What is declared serves a command or a stage: modules, settings of tokenising, packing in a real training."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.datasets.tokens.preprocessing import DataPreprocessor
from capibara_assets_tests.modeling.tiny import save_tiny

ROOT = Path(__file__).resolve().parents[2]
ENTRANCES = ("capibara_assets.cli.main", "capibara_assets.definitions")
OF_DAGSTER = ("dagster.yaml", "workspace.yaml")  # name classes by their paths


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole package."""
    files = (ROOT / "capibara_assets").rglob("*.py")
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def by_ending() -> dict[str, set[str]]:
    """What a module may be called in a string (`lora.recipe`, `recipe`) -> the modules that are."""
    found: dict[str, set[str]] = {}
    for name in modules():
        parts = name.split(".")
        for at in range(1, len(parts)):
            found.setdefault(".".join(parts[at:]), set()).add(name)
    return found


def named(file: Path) -> Iterator[str]:
    """Modules that a file imports, or names in a string that is no docstring: commands and formats load by name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""  # a docstring uses nothing; `walk` sees its parent first
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in re.findall(r"[\w.]+", node.value):
                yield from by_ending().get(word.removesuffix(".py").strip("."), (word,))


def test_every_module_is_reached_from_a_command_or_a_stage() -> None:
    reached, waiting = set[str](), list(ENTRANCES)
    for name in OF_DAGSTER:
        waiting += re.findall(r"capibara_assets[\w.]+", (ROOT / name).read_text(encoding="utf-8"))
    while waiting:
        name = waiting.pop()
        waiting += [name.rpartition(".")[0]] if "." in name else []
        if name in reached or name not in modules():
            continue
        reached.add(name)
        waiting += named(modules()[name])
    assert sorted(set(modules()) - reached - {"capibara_assets.cli.__main__"}) == []


def test_every_setting_of_tokenising_is_set_by_a_stage() -> None:
    """`tokens_of` is what training calls, and it passes the recipe's threads on; other callers take the defaults."""
    given = set[str]()
    texts = [file.read_text(encoding="utf-8") for file in modules().values()]
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "DataPreprocessor(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DataPreprocessor":
                given |= {"tokenizer", "max_length"} | {str(keyword.arg) for keyword in node.keywords}
    assert given == {field.name for field in fields(DataPreprocessor)}


def test_no_sandbox_without_isolation_is_in_the_package() -> None:
    """`run_code` with this user's rights is for authored tasks, in the workshop, and in no wheel."""
    own = [name for name, file in modules().items() if "LocalSandbox" in file.read_text(encoding="utf-8")]
    assert own == []


def trained(base: Path, data: Path, output: Path, *settings: str) -> dict[str, Any]:
    """`capibara train` in a process of its own; its training_info.json."""
    every = (
        "training.max_steps=3", "training.global_batch=8", "model.lora.dropout=0.0", "hardware.threads=1",
        "hardware.precision=fp32", "data.max_length=96", "data.length_window=1",
        "training.micro_batch_tokens=96", *settings,
    )  # fmt: skip
    chosen = [part for one in every for part in ("--set", one)]
    command = ["train", "--base-model", str(base), "--data", str(data), "--output", str(output), *chosen]
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((output / "training_info.json").read_text()))


@pytest.mark.extended  # its sibling in `make test`: training/test_right.py::test_packing_changes_the_layout_only
def test_a_packed_training_learns_what_an_unpacked_one_does(nano: Path, tmp_path: Path) -> None:
    base, data = save_tiny(tmp_path / "base", tokenizer_of=nano), tmp_path / "data.jsonl"
    rows = [{"prompt": f"Say {'no ' * (8 * (n % 8))}{n}.", "completion": f"{n}!"} for n in range(40)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = trained(base, data, tmp_path / "plain")
    packed = trained(base, data, tmp_path / "packed", "data.packing=true")
    assert packed["validation_loss"] == pytest.approx(plain["validation_loss"], abs=1e-4)
    assert passes(tmp_path / "packed") < passes(tmp_path / "plain")  # a row is filled by several examples


def passes(output: Path) -> int:
    """Forward passes of a training."""
    events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
    return sum(event["micro_steps"] for event in events if event["event"] == "step")
