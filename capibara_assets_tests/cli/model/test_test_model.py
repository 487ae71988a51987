"""`capibara test-model` in real processes and in this one: prompts, a conversation, Ctrl-C, and the wrong base."""

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from capibara_assets.checkpoints.formats import FORMATS
from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.cli.main import main
from capibara_assets.cli.model.test_model import test_model as command
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.files import base_digest
from capibara_assets_tests.forked import Forked, Say
from capibara_assets_tests.modeling.tiny import save_tiny

MODULE = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "tiny", tokenizer_of=nano)


@pytest.fixture
def adapter(tmp_path: Path, base: Path) -> Path:
    torch.manual_seed(0)
    tensors = {
        f"base_model.model.{MODULE}.lora_A.weight": torch.randn(2, 32),
        f"base_model.model.{MODULE}.lora_B.weight": torch.randn(32, 2),
    }
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": str(base)}
    write_adapter(LoraAdapter(config, tensors), tmp_path / "adapter")
    (tmp_path / "adapter" / "training_info.json").write_text(json.dumps({"base_digest": base_digest(base)}))
    return tmp_path / "adapter"


def ask(*arguments: object, code: int = 0, said: str = "") -> str:
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(command, words, input=said, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_shipped_prompts_by_domain_as_json_and_the_same_again(base: Path) -> None:
    words = ("--model", base, "--batch", "--domain", "sql", "--max-new-tokens", 6, "--json", "--temperature", 1)
    found: list[dict[str, Any]] = [json.loads(ask(*words)) for _ in range(2)]
    assert [row["id"] for row in found[0]["answers"]] == ["sql-1", "sql-2"]
    assert all(row["tokens"] == 6 and row["finish"] == "length" for row in found[0]["answers"])
    assert found[0]["base_digest"] == base_digest(base) and found[0]["decoding"]["temperature"] == 1
    assert found[0]["answers"] == found[1]["answers"]


def test_a_file_of_prompts_as_text_and_one_that_is_too_long(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Say one.\n" + "too long " * 400 + "\n")
    said = ask("--model", base, "--prompts", file, "--max-new-tokens", 3, code=1)
    assert "[line-1] Say one." in said and "[cut after 3 tokens]" in said and "error: the conversation has" in said
    with pytest.raises(InputError, match="no prompt of domain 'cobol'"):
        ask("--model", base, "--domain", "cobol")


def rotating_wrongly(folder: Path) -> None:
    """A rotary embedding that can be built, and not be used on more than one token."""
    file = folder / "config.json"
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 1}
    longrope |= {"short_factor": [1.0] * 8, "long_factor": [1.0] * 3, "factor": 1.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rope_parameters": longrope}))


def infinite(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = float("inf")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def template(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "chat_template.jinja").write_text(text)


SILENT: dict[str, tuple[Callable[[Path], object], str]] = {
    "infinite weights": (infinite, "logits are not finite"),
    "rotary embedding": (rotating_wrongly, "the model that its config states cannot be run"),
    "template nested": (template("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}"), "nested too deeply"),
    "template raises": (template('{{ raise_exception("no\\nsuch turn") }}'), r"(no\nsuch turn)"),
    "template too long": (template("x" * 1_000_000), "has 1000000 characters"),
    "template recursive": (template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "recursion"),
}


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_model_that_answers_nothing_is_refused(name: str, form: tuple[str, ...], base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    harm, words = SILENT[name]
    harm(folder)
    (tmp_path / "prompts.txt").write_text("one\ntwo\n")
    given = ["--model", str(folder), "--prompts", str(tmp_path / "prompts.txt"), "--max-new-tokens", "1", *form]
    result = CliRunner().invoke(command, given)
    assert isinstance(result.exception, InputError) and not result.stdout
    said = str(result.exception)
    assert words in said and str(folder) in said and said.endswith("none of 2 prompts was answered")


def test_an_adapter_finds_its_base_and_answers_otherwise(base: Path, adapter: Path) -> None:
    words = ("--domain", "sql", "--max-new-tokens", 6, "--json")
    own, plain = json.loads(ask("--model", adapter, *words)), json.loads(ask("--model", base, *words))
    assert own["base"] == str(base) and own["base_digest"] == plain["base_digest"]
    assert own["answers"] != plain["answers"]


def test_another_base_than_its_own_is_refused(adapter: Path, base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(base, other)
    (other / "chat_template.jinja").write_text((base / "chat_template.jinja").read_text() + "{# another #}")
    with pytest.raises(InputError, match=r"was trained on the base \w{12} \(training_info.json\), but .*--base"):
        ask("--model", adapter, "--base", other, "--domain", "sql")
    with pytest.raises(InputError, match=r"holds neither config.json nor adapter_config.json: give one of .*adapter"):
        ask("--model", tmp_path)


def test_a_checkpoint_of_the_store(adapter: Path, base: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", work=tmp_path / "work")
    about = {"model": "sql/consensus", "step": 3, "code_version": "1"}
    for digest in (base_digest(base), "0" * 64):
        store.write(FORMATS["huggingface"].read(adapter), About(**about, base_digest=digest))
    words = ("--store", tmp_path / "store", "--domain", "sql", "--max-new-tokens", 4, "--json")
    by_name = json.loads(ask("--model", "sql/consensus@v1", *words))
    assert by_name["answers"] == json.loads(ask("--model", adapter, *words[2:]))["answers"]
    assert by_name["answers"] == json.loads(ask("--model", "checkpoint:sql/consensus@v1", *words))["answers"]
    with pytest.raises(InputError, match="the checkpoint store"):
        ask("--model", "sql/consensus@v2", "--base", base, *words)


def test_a_conversation_from_a_file_of_turns(base: Path) -> None:
    turns = "Hello\n\nAgain\n/reset\nHello\n/system Be brief.\nHello\n/nonsense\n/quit\nnever read\n"
    said = ask("--model", base, "--interactive", "--json", "--max-new-tokens", 5, said=turns)
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["prompt"] for row in rows] == ["Hello", "Again", "Hello", "Hello"]
    assert rows[0]["answer"] == rows[2]["answer"]  # a new conversation knows nothing of the one before
    assert rows[1]["answer"] != rows[0]["answer"] and rows[3]["answer"] != rows[0]["answer"]
    with pytest.raises(InputError, match="--interactive goes without"):
        ask("--model", base, "--interactive", "--domain", "sql")


class Talk:
    """A process of `capibara` with pipes: forked from this one, which has imported what it needs, or a new one."""

    def __init__(self, words: Sequence[str], *, new: bool) -> None:
        told, self.stdin = (os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        self.stdout, said = (os.fdopen(fd, mode, 0) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))

        def work(_: Say) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(told.fileno(), 0)
            os.dup2(said.fileno(), 1)
            os.close(self.stdin.fileno())
            if new:
                os.execve(sys.executable, [sys.executable, "-m", "capibara_assets.cli", *words], ENVIRONMENT)
            sys.stdin, sys.stdout = os.fdopen(0), io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
            sys.argv = ["capibara", *words]
            torch.set_num_threads(1)
            main()

        self.process = Forked(work)
        told.close()
        said.close()


ENVIRONMENT = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("new", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_ctrl_c_ends_the_answer_and_the_conversation_goes_on(nano: Path, new: bool) -> None:
    """A real process, interrupted while it writes a long answer; the next turn is answered, and it ends with 0."""
    # the nano model's greedy answer to this is a loop: it does not end
    talk = Talk(["test-model", "--model", str(nano), "--interactive", "--max-new-tokens", "1900"], new=new)
    try:
        talk.stdin.write(b"Explain what a list is.\n")
        said = talk.stdout.read(1)
        os.kill(talk.process.pid, signal.SIGINT)
        while not said.endswith(b" tokens]\n"):
            piece = talk.stdout.read(1)
            assert piece, f"it ended with the answer: {said!r}"
            said += piece
        assert b"\n[interrupted, " in said
        talk.stdin.write(b"/quit\n")
        assert talk.process.wait() == 0
    finally:
        talk.process.kill()
        talk.process.wait()
