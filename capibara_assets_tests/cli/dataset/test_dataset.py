"""`capibara dataset` on a deployment of its own: validate, import, list, remove, export."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.dataset import dataset
from capibara_assets.cli.graph.run import run
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets_tests.conftest import sandboxes_of
from capibara_assets_tests.datasets.imported.test_join import SECRET, pair_of
from capibara_assets_tests.home import MadeHome, quick_recipes

ROW = {"prompt": "What is 1+1?", "completion": "2"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick_recipes(tmp_path / "recipes")
    for name in ("home", "experience", "recipes"):
        monkeypatch.setenv(f"CAPIBARA_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str, code: int = 0, command: Any = dataset) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def document(*arguments: str, code: int = 0) -> Any:
    return json.loads(invoke(*arguments, "--json", code=code))


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(*numbers: int) -> list[dict[str, str]]:
    return [{"prompt": question, "completion": answer} for question, answer in map(pair_of, numbers)]


def texts_of(*numbers: int) -> list[dict[str, str]]:
    return [{"text": f"<s>[INST] {question} [/INST] {answer} </s>"} for question, answer in map(pair_of, numbers)]


def test_faults_name_file_and_line_and_nothing_is_imported(home: Path):
    good, bad = write(home / "good.jsonl", ROW), write(home / "bad.jsonl", ROW, {"prompt": "x"}, {"text": "no marks"})
    text = invoke("validate", bad, code=2)
    assert f"{bad}:2: no_format: fields are prompt" in text and f"{bad}:3: unrecoverable: " in text
    assert "2 faults (no_format 1, unrecoverable 1): nothing is imported until they are fixed" in text
    found = document("import", good, bad, "--domain", "python", code=2)
    assert found["faults"] == 2 and [(p["line"], p["reason"]) for p in found["problems"]] == [
        (2, "no_format"),
        (3, "unrecoverable"),
    ]
    assert document("list") == []


def test_a_files_name_makes_no_line_of_its_own(home: Path):
    bad = write(home / "x.jsonl: 1 lines, text\ncapibara: 1 example imported.jsonl", {"prompt": "x"})
    text = invoke("validate", bad, code=2)
    assert not any(line.startswith("capibara: 1 example") for line in text.splitlines())
    assert "x.jsonl: 1 lines, text\\ncapibara: 1 example imported.jsonl:1: no_format" in text


def test_validate_counts(home: Path):
    train = write(home / "train.jsonl", *texts_of(1, 2, 2, 3), {"text": f"<s>[INST] key {SECRET} [/INST] b </s>"})
    val = write(home / "val.jsonl", *rows_of(3, 4))
    found = document("validate", "--train", train, "--val", val)
    expected = {
        "faults": 0,
        "examples": 5,  # 1, 2, the key; 3 and 4 validate
        "turns": 7,
        "duplicates": 1,
        "left_out": {"too close to an example in validation, which stays": 1},
        "secrets": 1,
        "lines_with_secrets": 1,
        "imported": {"train": 3, "validation": 2},
    }
    assert {key: found[key] for key in expected} == expected
    assert found["tokens"] > 1000 and [file["format"] for file in found["files"]] == ["text", "prompt-completion"]
    assert "1 secrets in 1 lines" in invoke("validate", "--train", train)


def test_import_list_and_remove(home: Path):
    own = write(home / "own.jsonl", *rows_of(1, 2, 3), {"prompt": f"key {SECRET}", "completion": "yes"})
    assert document("import", own, "--domain", "sql", "--dry-run")["imported"]
    assert document("list") == []
    first = document("import", own, "--domain", "sql", "--licence", "MIT", "--tenant", "acme")
    assert first["changed"] and first["examples"] == 4 and first["secrets"] == 1
    again = document("import", own, "--domain", "sql")
    assert not again["changed"] and again["digest"] == first["digest"] and again["known_files"] == 1
    second = document("import", "--test", write(home / "test.jsonl", *texts_of(3, 4)), "--domain", "sql")
    assert second["changed"]
    listed = document("list")
    assert [(row["file"], row["domain"], row["split"], row["lines"]) for row in listed] == [
        ("own.jsonl", "sql", None, 4),
        ("test.jsonl", "sql", "test", 2),
    ]
    assert re.search(r"own\.jsonl +prompt-completion +by group +4 +4 +0\n", invoke("list"))
    with pytest.raises(InputError, match="is imported already"):
        invoke("import", "--train", own, "--domain", "sql")
    with pytest.raises(InputError, match="names nothing among the imports"):
        invoke("remove", "absent.jsonl")
    (removed,) = document("remove", "test.jsonl")
    assert removed["domain"] == "sql" and removed["digest"] == first["digest"]
    replaced = document("import", write(home / "new.jsonl", ROW), "--domain", "sql", "--replace")
    assert replaced["changed"] and [row["file"] for row in document("list")] == ["new.jsonl"]
    assert not any(SECRET.encode() in path.read_bytes() for path in (home / "home").rglob("*") if path.is_file())


def test_what_a_user_can_mend_is_said(home: Path):
    with pytest.raises(InputError, match="no file given: name a file of examples"):
        invoke("validate")
    with pytest.raises(InputError, match=r"absent\.jsonl is no file"):
        invoke("validate", "absent.jsonl")
    with pytest.raises(InputError, match="unknown --format 'poem': one of text, messages"):
        invoke("validate", write(home / "a.jsonl", ROW), "--format", "poem")
    with pytest.raises(InputError, match=r"moe_dataset\[python\] is not materialized yet"):
        invoke("export", "python", "--format", "text", "--out", "out")


def bring_own(folder: Path) -> None:
    """Import own examples for python."""
    train = write(folder / "train.jsonl", *texts_of(*range(30)))
    val = write(folder / "val.jsonl", *rows_of(*range(40, 46)))
    invoke("import", "--train", train, "--val", val, "--domain", "python", "--licence", "CC-BY-4.0")


def make_datasets(home: Path, domains: str, sandboxes: int) -> None:
    """Import own examples for python, and run the graph up to the datasets."""
    (home / "experience" / "e2b_logs").mkdir(parents=True)
    log = home / "experience" / "e2b_logs" / "sessions.jsonl"
    log.write_text("".join(sandboxes_of(resources_root() / "experience", per_domain=sandboxes)))
    bring_own(home)
    stages = "e2b_logs,ace_playbooks,e2b_executions,e2b_patterns,consolidated_playbook,example_groups,moe_dataset"
    invoke("--select", stages, "--domains", domains, command=run)


def go_out_again(home: Path, *templates: str) -> None:
    """Export python's dataset as text; what was exported may be imported elsewhere: the same conversations."""
    for template in templates:
        out = home / template
        options = ["--format", "text", "--template", template, "--out", str(out)]
        summary = document("export", "python", *options)
        assert summary["examples"]["train"] >= 30 and summary["licences"]["CC-BY-4.0"] == 36
        splits = [f"--{flag}={out / name}.jsonl" for flag, name in (("train", "train"), ("val", "validation"))]
        back = document("validate", *splits, f"--test={out / 'test.jsonl'}")
        assert back["faults"] == 0
        assert [file["lines"] for file in back["files"]] == list(summary["examples"].values())


def test_own_examples_go_through_the_graph_and_out_again(made: MadeHome, tmp_path: Path):
    """Into a home whose experience was read already."""
    bring_own(tmp_path)
    invoke("--select", "example_groups,moe_dataset", "--domains", "python", command=run)
    go_out_again(tmp_path, "mistral")


@pytest.mark.extended
def test_own_examples_of_two_domains_in_both_templates_and_one_more_of_the_last(home: Path):
    """Of what is imported later, only its own domain's dataset is made again."""
    domains, last = "python,sql", "sql"
    make_datasets(home, domains, sandboxes=12)
    output = invoke("--select", "moe_dataset", "--domains", domains, command=run)
    assert "2 asset partitions were current" in output
    go_out_again(home, "mistral", "base")
    extra = write(home / "extra.jsonl", *rows_of(99))
    invoke("import", extra, "--domain", last)
    output = invoke("--select", "moe_dataset", "--domains", domains, command=run)
    made = [line.split()[1] for line in output.splitlines() if " moe_dataset in " in line]
    assert made == [last], "of the others nothing is made again"
