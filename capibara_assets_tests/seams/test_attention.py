"""Attention from the recipe to the plan, the doctor, the launch scripts and the start: one choice, by what there is."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capibara_assets.cli.training.doctor import diagnose
from capibara_assets.cli.training.train import train
from capibara_assets.modeling.attention import AttentionPlace, chosen_attention, declared_attention
from capibara_assets.training.standalone.choices import RunOptions
from capibara_assets.training.standalone.run import prepare
from capibara_assets.training.standalone.scripts import write_scripts
from capibara_assets_tests.modeling.tiny import save_tiny

RECIPE = ("--recipe", "mistral7b_8xh100")


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "m", tokenizer_of=nano, kind="mistral", positions=2048)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    rows = [{"prompt": f"What is {n} + {n}?", "completion": f"It is {2 * n}."} for n in range(300)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def flash_attn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As pip leaves it behind: a distribution that says its name and version."""
    folder = tmp_path / "site" / "flash_attn-2.8.3.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: flash-attn\nVersion: 2.8.3\n")
    monkeypatch.syspath_prepend(folder.parent)
    yield folder


def invoke(mistral: Path, data: Path, output: Path, *arguments: str) -> Result:
    command = [*RECIPE, "--model", str(mistral), "--data", str(data), "--output", str(output), *arguments]
    return CliRunner().invoke(train, command, catch_exceptions=False)


def test_the_plan_states_what_is_taken_and_why(mistral: Path, data: Path, tmp_path: Path) -> None:
    for target in ((), ("--target", "h100-8")):
        said = invoke(mistral, data, tmp_path / "out", "--plan", *target).output
        (line,) = (line for line in said.splitlines() if line.startswith("computing"))
        assert "attention sdpa (PyTorch's own kernels" in line, "short rows or not, flash-attn is not needed"
    assert "flash-attn is not installed there, for all that is known" in line


def test_flash_attention_that_cannot_be_is_refused_before_the_start_everywhere(
    mistral: Path, data: Path, tmp_path: Path
) -> None:
    output, wish = tmp_path / "out", "model.attention=flash_attention_2"
    refused = invoke(mistral, data, output, "--set", wish, "--set", "hardware.processes=2", "--grad-accum", "8")
    assert refused.exit_code == 2
    assert (
        "attention flash_attention_2 needs a CUDA GPU, and there is none: set model.attention: auto" in refused.output
    )
    assert not list(output.rglob("events.jsonl")), "no voter was started"

    request, _ = prepare(
        RunOptions(recipe=RECIPE[1], model=str(mistral), data=(data,), output=output, settings=(wish,))
    )
    findings, _ = diagnose(request, None, place=output, port=8080, quick=True)
    assert [finding.check for finding in findings if finding.status == "fail"] == ["plan"]

    scripts = write_scripts(tmp_path / "launch", request)
    check = ["bash", scripts / "check.sh", scripts / "request.json"]
    done = subprocess.run(
        check, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr == "flash-attn is not installed: install flash-attn\n"

    there = invoke(mistral, data, tmp_path / "there", "--set", wish, "--plan", "--target", "h100-8").output
    assert "warning     flash-attn has to be installed on h100-8" in there


def test_it_is_taken_where_it_is_installed_and_can_be_used(mistral: Path, flash_attn: Path) -> None:
    config = json.loads((mistral / "config.json").read_text())
    gpu = AttentionPlace(cuda=True, precision="bf16")
    assert chosen_attention("auto", config, gpu, 2048).name == "flash_attention_2"
    assert "2.8.3 is installed" in chosen_attention("auto", config, gpu, 2048).reason
    for elsewhere in (
        AttentionPlace(cuda=False, precision="bf16"),
        AttentionPlace(cuda=True, precision="fp32"),
        AttentionPlace(cuda=True, precision="bf16", here=False),
    ):
        assert chosen_attention("auto", config, elsewhere, 2048).name == "sdpa"
    assert chosen_attention("auto", {"model_type": "t5"}, gpu, 2048).name == "sdpa"
    metadata = flash_attn / "METADATA"
    metadata.write_text(metadata.read_text().replace("2.8.3", "2.1.0"))
    flash_attn.rename(flash_attn.with_name("flash_attn-2.1.0.dist-info"))
    assert chosen_attention("auto", config, gpu, 2048).name == "sdpa", "too old for Transformers"


def test_an_architecture_without_sdpa_is_computed_eagerly() -> None:
    """What is read from Transformers' sources is what its classes say."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssPreTrainedModel
    from transformers.models.mistral.modeling_mistral import MistralPreTrainedModel

    assert MistralPreTrainedModel._supports_sdpa and MistralPreTrainedModel._supports_flash_attn
    assert declared_attention("mistral") == {"eager", "sdpa", "flash_attention_2"}
    assert not GptOssPreTrainedModel._supports_sdpa
    assert declared_attention("gpt_oss") == {"eager"}
    chosen = chosen_attention("auto", {"model_type": "gpt_oss"}, AttentionPlace(True, "bf16"), 2048)
    assert chosen.name == "eager" and "gpt_oss has no other" in chosen.reason
