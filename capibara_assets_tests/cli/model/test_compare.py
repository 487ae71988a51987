"""`capibara compare` and `evaluate` on files: graded for real, decided, refused, resumed; exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capibara_assets.cli.model.compare import compare
from capibara_assets.cli.model.evaluate import evaluate
from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.storage.records import table
from capibara_assets_tests.cli.model.test_test_model import rotating_wrongly
from capibara_assets_tests.evaluation.contenders.test_contenders import example
from capibara_assets_tests.modeling.tiny import save_tiny

TASKS = 10
WRONG = "    return None"


def body(number: int) -> str:
    return f"    return x * {number + 2}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in HumanEval's format."""
    lines = [
        {
            "task_id": f"Toy/{number}",
            "prompt": f'def times{number}(x):\n    """Return x times {number + 2}."""\n',
            "canonical_solution": body(number),
            "entry_point": f"times{number}",
            "test": f"def check(candidate):\n    assert candidate(3) == {3 * (number + 2)}\n",
        }
        for number in range(TASKS)
    ]
    file = tmp_path_factory.mktemp("tasks") / "toy.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def answers(file: Path, right: int) -> Path:
    """A former run that solved the first so many tasks."""
    rows = []
    for number in range(TASKS):
        code = f"def times{number}(x):\n{body(number) if number < right else WRONG}"
        rows.append({"item_id": f"toy/Toy/{number}", "text": f"```python\n{code}\n```"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(command: Any, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def compared(tasks: Path, folder: Path, right: tuple[int, int], *more: object) -> Result:
    folder.mkdir(exist_ok=True)
    base, tuned = (answers(folder / f"{name}.jsonl", n) for name, n in zip(("base", "tuned"), right, strict=True))
    return run(compare, "--baseline", base, "--finetuned", tuned, "--dataset", tasks, "--output", folder / "out", *more)


@pytest.fixture(scope="module")
def promoted(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A comparison that promotes, and its folder of results."""
    folder = tmp_path_factory.mktemp("promoted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPIBARA_HOME", str(folder / "home"))
        patch.setenv("DAGSTER_HOME", "")
        found = compared(tasks, folder, (2, TASKS), "--json", "--rule", lenient(folder))
    return found, folder / "out"


def test_a_model_that_solves_all_is_promoted_with_figures_and_a_page(promoted: tuple[Result, Path]) -> None:
    found, out = promoted
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert result["decision"]["verdict"] == "promote" and result["decision"]["metric"] == "pass@1"
    figure = result["metrics"]["figures"]["finetuned"]["pass@1"]
    assert (figure["estimate"], figure["n"]) == (1.0, TASKS)
    page = Path(result["report"]).read_text()
    assert "promote" in page and "no training data is known here" in page
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    assert sum(row["score"] for row in rows if row["contender"] == "baseline") == 2


def test_a_worse_model_is_kept_out_and_the_exit_code_says_decided(tasks: Path, tmp_path: Path):
    found = compared(tasks, tmp_path, (TASKS, 1))
    assert found.exit_code == 0 and "reject" in found.output and "overfit" in found.output, found.output


@pytest.mark.extended
def test_too_few_items_are_inconclusive_with_an_exit_code_of_their_own(tasks: Path, tmp_path: Path):
    found = compared(tasks, tmp_path, (8, TASKS))
    assert found.exit_code == 3 and "inconclusive" in found.output, found.output


def test_former_scores_are_a_reference(tasks: Path, tmp_path: Path, promoted: tuple[Result, Path]) -> None:
    former = f"{promoted[1] / 'scores.jsonl'}#baseline"
    tuned = answers(tmp_path / "tuned.jsonl", TASKS)
    options = ("--baseline", former, "--finetuned", tuned, "--dataset", tasks, "--output", tmp_path / "b")
    with pytest.raises(InputError, match="baseline holds scores alone"):
        CliRunner().invoke(compare, [*map(str, options)], catch_exceptions=False)
    found = run(compare, *options, "--metric", "pass@1", "--json")
    figures = json.loads(found.stdout)["metrics"]["figures"]
    assert figures["baseline"]["pass@1"]["estimate"] == pytest.approx(2 / TASKS) and found.exit_code in (0, 3)


def test_training_items_are_refused_by_name(tasks: Path, tmp_path: Path):
    solution = f"def times3(x):\n{body(3)}\n" + "\n".join(f"    # word{n} of a long solution" for n in range(20))
    turns = [{"role": "user", "content": "Write it."}, {"role": "assistant", "content": solution}]
    trained = tmp_path / "trained.parquet"
    table(Example, [example(1, split="train", messages=json.dumps(turns))]).write_parquet(trained)
    task = {"task_id": "Toy/3", "prompt": "", "canonical_solution": solution, "entry_point": "times3"}
    leaky = tmp_path / "leaky.jsonl"
    leaky.write_text(json.dumps(task | {"test": "def check(f):\n    assert f(3) == 15\n"}) + "\n")
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"item_id": "leaky/Toy/3", "text": "x"}) + "\n")
    found = run(
        compare, "--baseline", held, "--finetuned", held, "--dataset", leaky, "--output", tmp_path / "out",
        "--training", trained,
    )  # fmt: skip
    assert isinstance(found.exception, InputError) and "leaky/Toy/3" in str(found.exception), found.output


def test_a_missing_contender_is_named_with_its_forms(tasks: Path, tmp_path: Path):
    options = ("--baseline", "nowhere", "--finetuned", "nowhere", "--dataset", tasks, "--output", tmp_path / "out")
    found = run(compare, *options)
    assert isinstance(found.exception, InputError) and "nowhere" in str(found.exception)


def test_an_optimised_prompt_belongs_to_the_baselines_model(tasks: Path, tmp_path: Path, nano: Path):
    model = save_tiny(tmp_path / "model", tokenizer_of=nano)
    program = tmp_path / "program.json"
    fields = [{"prefix": "Question:", "description": "${question}"}, {"prefix": "Answer:", "description": "${answer}"}]
    signature = {"instructions": "Write the function.", "fields": fields}
    program.write_text(json.dumps({"signature": signature, "demos": []}))
    tuned = answers(tmp_path / "tuned.jsonl", TASKS)
    found = run(
        compare, "--baseline", model, "--optimized", program, "--finetuned", tuned, "--dataset", tasks,
        "--output", tmp_path / "out", "--max-new-tokens", 4, "--max-items", 3, "--json",
    )  # fmt: skip
    assert found.exit_code == 3, found.output  # three items
    assert json.loads(found.stdout)["decision"]["verdict"] == "inconclusive"
    figures = json.loads(found.stdout)["metrics"]["figures"]
    assert set(figures) == {"baseline", "optimized", "finetuned"}
    assert set(figures["baseline"]) == {"loss_per_assistant_token", "perplexity", "pass@1"} == set(figures["optimized"])
    assert figures["finetuned"]["pass@1"]["estimate"] == 1.0 and figures["optimized"]["pass@1"]["estimate"] == 0.0


def test_a_model_that_cannot_be_run_is_refused_by_name(tasks: Path, tmp_path: Path, nano: Path):
    model = save_tiny(tmp_path / "model", tokenizer_of=nano)
    rotating_wrongly(model)
    few = ("--dataset", tasks, "--max-items", 2)
    found = run(evaluate, "--model", f"mine={model}", *few, "--output", tmp_path / "out")
    tuned = ("--finetuned", answers(tmp_path / "tuned.jsonl", TASKS), "--max-new-tokens", 4)
    other = run(compare, "--baseline", model, *tuned, *few, "--output", tmp_path / "two")
    said = f"{model}: the model that its config states cannot be run"
    assert isinstance(found.exception, InputError) and said in str(found.exception), found.output
    assert other.exit_code == 3 and f"baseline crashed: {said}" in other.output  # nothing was compared


def test_figures_of_one_model_need_no_decision(tasks: Path, tmp_path: Path):
    solved = answers(tmp_path / "solved.jsonl", 4)
    found = run(evaluate, "--model", f"mine={solved}", "--dataset", tasks, "--output", tmp_path / "out", "--json")
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert "decision" not in result
    assert result["metrics"]["figures"]["mine"]["pass@1"]["estimate"] == pytest.approx(4 / TASKS)


def test_what_to_evaluate_has_to_be_said(tasks: Path):
    for options in ((), ("--dataset", tasks), ("--domain", "sql", "--dataset", tasks)):
        assert isinstance(run(evaluate, *options).exception, InputError)


def lenient(folder: Path) -> Path:
    """A rule that so few tasks can meet."""
    file = folder / "decision.yaml"
    file.write_text("default: {metric: pass@1, min_score: 0.6}\n")
    return file
