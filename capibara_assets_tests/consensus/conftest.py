"""A tiny base model, a task it can learn in seconds, and voters that really learnt it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets_tests.consensus.small_checkpoints import model, saved

VOCABULARY = 64
_STEPS = {Domain.PYTHON: 5, Domain.SQL: 7, Domain.API: 11}
_TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Tokens:
    """A tokenised example as votes and merges read it."""

    input_ids: list[int]
    labels: list[int]
    supervised: int


def counting(step: int, examples: int, seed: int) -> list[Tokens]:
    """Sequences that add `step` again and again (modulo the vocabulary); all but the first three tokens supervised."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for start in torch.randint(0, VOCABULARY, (examples,), generator=random).tolist():
        ids = [(start + step * position) % VOCABULARY for position in range(12)]
        made.append(Tokens(ids, [-100] * 3 + ids[3:], len(ids) - 3))
    return made


def learnt(
    base: Base,
    examples: list[Tokens],
    seed: int,
    steps: int = 60,
    rank: int = 8,
    targets: tuple[str, ...] = _TARGETS,
) -> LoraAdapter:
    """A LoRA adapter for the examples: fine-tune a copy, then the best factors of what changed."""
    random = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(base.model).train()
    weights = {name: module.weight for name, module in model.named_modules() if name.rsplit(".", 1)[-1] in targets}
    for weight in weights.values():
        weight.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-2)
    rows = torch.tensor([example.input_ids for example in examples])
    labels = torch.tensor([example.labels for example in examples])
    for _ in range(steps):
        part = torch.randint(0, len(rows), (16,), generator=random)
        optimizer.zero_grad()
        model(input_ids=rows[part], labels=labels[part]).loss.backward()
        optimizer.step()
    tensors = {}
    for name, weight in weights.items():
        change = (weight - base.model.get_submodule(name).weight).detach()
        left, singular, right = torch.linalg.svd(change, full_matrices=False)
        tensors[f"base_model.model.{name}.lora_A.weight"] = right[:rank].contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = (left[:, :rank] * singular[:rank] / 2).contiguous()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": list(targets)}
    return LoraAdapter(config, tensors)


def _base(folder: Path, layers: int) -> Base:
    """A random Llama with a word-level tokenizer, on disk and loaded."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1").save_pretrained(folder)
    return load_base(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Of one layer, for votes: what they cost here is a call for each module."""
    return _base(tmp_path_factory.mktemp("tiny"), layers=1)


@pytest.fixture(scope="session")
def deeper(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Of two layers, for merges and mixtures."""
    return _base(tmp_path_factory.mktemp("deeper"), layers=2)


@pytest.fixture(scope="session")
def honest(tiny: Base) -> dict[str, LoraAdapter]:
    """Four voters that learnt the same task from different examples."""
    return {f"voter-{n}": learnt(tiny, counting(5, 64, seed=n), seed=n) for n in range(4)}


@pytest.fixture(scope="session")
def folders(honest: dict[str, LoraAdapter], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The honest voters' adapters on disk, to be read."""
    folder = tmp_path_factory.mktemp("voters")
    for name, adapter in honest.items():
        write_adapter(adapter, folder / name)
    return {name: folder / name for name in honest}


@pytest.fixture(scope="session")
def validation() -> list[Tokens]:
    return counting(5, 32, seed=100)


@pytest.fixture(scope="session")
def shards() -> dict[str, list[int]]:
    return {f"voter-{n}": list(range(n, 32, 4)) for n in range(4)}


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]:
    """Writes adapters, one folder each."""

    def write(adapters: Mapping[str, LoraAdapter]) -> dict[str, Path]:
        for name, adapter in adapters.items():
            write_adapter(adapter, tmp_path / "voters" / name)
        return {name: tmp_path / "voters" / name for name in adapters}

    return write


def changed(adapter: LoraAdapter, factor: float) -> LoraAdapter:
    """The adapter with every B (and so its delta) multiplied."""
    return LoraAdapter(adapter.config, {n: t * factor if ".lora_B." in n else t for n, t in adapter.tensors.items()})


@pytest.fixture(scope="session")
def experts(deeper: Base) -> dict[Domain, LoraAdapter]:
    """Three domains: sequences that step by 5, 7 and 11."""
    return {domain: learnt(deeper, counting(step, 64, seed=step), seed=step) for domain, step in _STEPS.items()}


@pytest.fixture(scope="session")
def domain_validation() -> dict[Domain, list[Tokens]]:
    return {domain: counting(step, 24, seed=1000 + step) for domain, step in _STEPS.items()}


@pytest.fixture
def checkpoints(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A base and three models that were trained from it."""
    base = model(0)
    folders = [saved(tmp_path / f"m{n}", model(n, base)) for n in (1, 2, 3)]
    return saved(tmp_path / "base", base), folders
