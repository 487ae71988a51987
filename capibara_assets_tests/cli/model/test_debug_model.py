"""`capibara debug-model`: exit codes, what it prints, and what the guide says against what the code knows."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.model import test_model as of_test_model
from capibara_assets.cli.model.debug_model import debug_model
from capibara_assets.errors import InputError
from capibara_assets.evaluation.diagnosis.catalogue import CATALOGUE, Diagnosis, table
from capibara_assets_tests.conftest import REPOSITORY
from capibara_assets_tests.modeling.tiny import save_tiny

GUIDE = REPOSITORY / "docs" / "debugging-models.md"


def debug(*arguments: object, code: int) -> str:
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(debug_model, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_sound_model_is_healthy_and_exits_with_0(nano: Path) -> None:
    said = debug("--model", nano, code=0)
    assert said.endswith("healthy\n") and "pass  end of turn" in said and "fail" not in said


def test_a_sick_one_exits_with_1_and_says_what_to_do(tmp_path: Path, nano: Path) -> None:
    model = save_tiny(tmp_path / "tiny", tokenizer_of=nano)
    (model / "chat_template.jinja").unlink()
    script = tmp_path / "train.py"
    script.write_text("import deepspeed\nmodel = Auto.from_pretrained('x', device_map='auto')\n")
    said = debug("--model", model, "--script", script, code=1)
    assert "fail  template         template_missing: " in said and "-> copy chat_template.jinja" in said
    assert "skip  behaviour" in said and "train.py:2" in said and said.endswith("2 errors, 0 warnings\n")
    document = json.loads(debug("--model", model, "--json", code=1))
    assert not document["healthy"] and document["diagnoses"][0]["id"] == "template_missing"
    with pytest.raises(InputError, match="--device-map"):
        debug("--model", model, "--device-map", "nonsense", code=2)


def test_settings_that_say_a_stage_twice_are_refused(tmp_path: Path, nano: Path) -> None:
    settings = tmp_path / "deepspeed.json"
    settings.write_text('{"zero_optimization": {"stage": 2}, "zero_optimization": {"stage": 3}}')
    for option, value in (
        ("--deepspeed", settings),
        ("--device-map", settings),
        ("--device-map", settings.read_text()),
    ):
        with pytest.raises(InputError, match="is ambiguous: 'zero_optimization' is there twice"):
            debug("--model", nano, option, value, code=2)
    settings.write_text('{"zero_optimization": {"stage": 2}}')
    assert "healthy" in debug("--model", nano, "--deepspeed", settings, code=0)


@pytest.mark.parametrize(
    "stated",
    [*({"eos_token_id": ends} for ends in ("x", [[2]], [-1], 10**20, [10**12], 4096)), {"pad_token_id": [1]}],
    ids=str,
)
def test_ids_that_are_no_tokens_of_the_model_are_refused(stated: dict[str, object], tmp_path: Path, nano: Path) -> None:
    shutil.copytree(nano, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(stated))
    for command in (debug_model, of_test_model.test_model):
        result = CliRunner().invoke(command, ["--model", str(tmp_path / "model")])
        assert isinstance(result.exception, InputError), (command.name, result.output)
        field = next(iter(stated))
        assert str(result.exception).startswith(f"{tmp_path / 'model' / 'generation_config.json'}: {field} is ")


def test_no_end_is_none_not_a_token(tmp_path: Path, nano: Path) -> None:
    shutil.copytree(nano, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": -1}')
    assert "generation stops at nothing" in debug("--model", tmp_path / "model", code=1)


def test_an_artifact_whose_weights_lie_in_the_store_is_followed_there(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"checkpoints": {"adapter": {"id": "ab" * 32}}}))
    with pytest.raises(InputError, match="no checkpoint"):
        debug("--model", tmp_path, "--store", tmp_path, code=2)


def test_the_guide_lists_exactly_what_can_be_found() -> None:
    """`python -m capibara_assets_tests.cli.model.test_debug_model` prints the table as the guide has to have it."""
    assert table() in GUIDE.read_text()
    assert all(f"| `{name}` |" in table() for name in CATALOGUE)
    assert Diagnosis("end_of_turn_not_eos", "x", {"end_id": 5}).remedy.endswith("add 5 to eos_token_id")


if __name__ == "__main__":
    print(table())
