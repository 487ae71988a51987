"""`capibara merge soup`: models and adapters on disk, measured on a file of chats, become one that others can load."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from capibara_assets.cli.checkpoint.merge import merge
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets_tests.home import command
from capibara_assets_tests.modeling.tiny import save_tiny

MODULES = tuple(f"model.layers.{layer}.self_attn.{name}_proj" for layer in (0, 1) for name in "qv")
NOISE = (0.02, 0.02, 0.6)  # of the models and adapters beside the base: two near it, and one that is far off


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "held-out.jsonl"
    turns = [("Add two numbers.", "def add(a, b):\n    return a + b"), ("Count rows.", "SELECT count(*) FROM rows")]
    turns += [(f"Name number {n}.", f"The name of number {n} is n{n}.") for n in range(6)]
    messages = [[{"role": "user", "content": u}, {"role": "assistant", "content": a}] for u, a in turns]
    file.write_text("".join(json.dumps({"messages": one}) + "\n" for one in messages))
    return file


@pytest.fixture(scope="module")
def base(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "base", tokenizer_of=nano)


@pytest.fixture(scope="module")
def models(base: Path, nano: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three whole models around the base."""
    folders, weights = [], load_file(base / "model.safetensors")
    for number, noise in enumerate(NOISE):
        random = torch.Generator().manual_seed(number)
        folder = save_tiny(tmp_path_factory.mktemp("models") / f"m{number}", tokenizer_of=nano)
        changed = {n: t + noise * torch.randn(t.shape, generator=random) for n, t in weights.items()}
        save_file(changed, folder / "model.safetensors", {"format": "pt"})
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three adapters of different ranks."""
    folders = []
    for number, noise in enumerate(NOISE):
        random, rank = torch.Generator().manual_seed(number), 2 + number
        tensors = {}
        for module in MODULES:
            name = f"base_model.model.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, 32, generator=random)
            tensors[f"{name}.lora_B.weight"] = 3 * noise * torch.randn(32, rank, generator=random)
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj", "v_proj"]}
        folders.append(tmp_path_factory.mktemp("adapters") / f"a{number}")
        write_adapter(LoraAdapter(config, tensors), folders[-1])
    return folders


def perplexity(model: Any, base: Path, chats: Path) -> float:
    """Of the assistant's tokens, by Transformers alone: what the prompt lacks, the end of the turn included."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    total, count = 0.0, 0
    for line in chats.read_text().splitlines():
        messages = json.loads(line)["messages"]
        prompt = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
        first = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        ids = torch.tensor([tokenizer(whole, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, first - 1 : -1].double()
        total += float(torch.nn.functional.cross_entropy(logits, ids[0, first:], reduction="sum"))
        count += ids.shape[1] - first
    return math.exp(total / count)


def soup(*arguments: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(merge, ["soup", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    summary: dict[str, Any] = json.loads(done.output.splitlines()[-1])
    return summary


def test_whole_models_become_one_that_transformers_loads(
    models: list[Path], base: Path, chats: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made = soup(*models, "--metric", "perplexity", "--data", chats, "--out", out)
    assert made["weights"][2] == 0.0 and sum(made["weights"]) == 1.0  # the one that is far off stays out
    assert made["loss"] <= min(made["losses"])
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert perplexity(loaded, base, chats) == pytest.approx(made["perplexity"], rel=1e-4)
    record = json.loads((out / "soup.json").read_text())
    for entry, folder in zip(record["models"], models, strict=True):
        alone = AutoModelForCausalLM.from_pretrained(folder)
        assert perplexity(alone, base, chats) == pytest.approx(entry["perplexity"], rel=1e-4)
    weighted = soup(*models, "--average", "weighted", "--data", chats, "--out", tmp_path / "weighted")
    inverse = [math.exp(-loss) for loss in weighted["losses"]]
    assert weighted["weights"] == pytest.approx([one / sum(inverse) for one in inverse])
    norms = torch.stack([load_file(model / "model.safetensors")["model.norm.weight"] for model in models])
    found = load_file(tmp_path / "weighted" / "model.safetensors")["model.norm.weight"]
    assert torch.allclose(found, torch.tensor(weighted["weights"]) @ norms, atol=1e-6)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]  # nothing half made stays


def test_adapters_become_one_that_peft_loads(adapters: list[Path], base: Path, chats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--base", base, "--data", chats, "--average", "uniform", "--metric", "loss")
    made = soup(*adapters[:2], *options, "--out", out)
    assert made["weights"] == [0.5, 0.5]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), out)
    assert perplexity(model, base, chats) == pytest.approx(made["perplexity"], rel=1e-4)
    assert json.loads((out / "adapter_config.json").read_text())["r"] == 2 + 3  # exact: the ranks add up


@pytest.mark.extended
def test_bare_files_in_a_process_of_their_own(models: list[Path], base: Path, chats: Path, tmp_path: Path) -> None:
    files = [str(model / "model.safetensors") for model in models]
    arguments = ("--base", str(base), "--metric", "perplexity", "--data", str(chats), "--out", str(tmp_path / "out"))
    told = command({}, "merge", "soup", *files, *arguments)
    assert f"{tmp_path / 'out'}: perplexity" in told and "0.000  " in told
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.vocab_size == 4096


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("m0", "m1"), "name a file of them with --data"),
        (("m0", "--data", "chats"), "two models at least"),
        (("m0", "gone", "--data", "chats"), "gone does not exist"),
        (("m0", "a0", "--data", "chats"), "a0 is an adapter, .*m0 is none"),
        (("a0", "a1", "--data", "chats"), r"the model that it was trained on \(--base\)"),
        (("m0", "m1", "--data", "chats", "--density", "0.5"), "--density is no option of a soup"),
        (("m0", "m1", "--data", "none.jsonl"), "none.jsonl is no file"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: tuple[str, ...], words: str, models: list[Path], adapters: list[Path], chats: Path, tmp_path: Path
) -> None:
    places = {path.name: str(path) for path in (*models, *adapters)} | {"chats": str(chats)}
    given = [places.get(one, one) for one in arguments]
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(merge, ["soup", *given, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="--metric is an option of `capibara merge soup`, not of linear"):
        options = ["--metric", "loss", "--out", str(tmp_path / "out")]
        CliRunner().invoke(merge, ["linear", *map(str, models), *options], catch_exceptions=False)
