"""What both sides of the bench `train` are given: the same base, tokens, LoRA, batch, rate and schedule."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.experience_input import BenchInput
from capibara_assets.deployment.locations import resources_root
from capibara_assets.modeling.files import base_digest
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.request import TrainingRequest

NANO = resources_root() / "base_models" / "capibara-nano"
MODULES = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
VOCABULARY = 32_000
MAX_LENGTH = 512
RANK, ALPHA, SEED = 8, 16, 11
WINDOW = 50  # batches whose examples are sorted by length together: as many as TRL sorts in "group_by_length"
_VALIDATION_SHARE = 0.1


def write_examples(given: BenchInput, folder: Path, most: int) -> Path:
    """The experience's own examples as a dataset, and their tokens beside it for whoever does not tokenise.

    An example's request decides its split by digest, so that no request is in both. `tokens.parquet` has the very ids
    and masks that training here uses: `input_ids`, `completion_mask`, `split`.

    Args:
        most: of the train split, lowest digests first.
    """
    import polars as pl
    from transformers import AutoTokenizer

    from benchmarks.datasets.tokenizing import example_messages
    from capibara_assets.datasets.tokens.tokenising import IGNORED, encode_examples

    rows = {}
    for messages in example_messages(given.folder):
        text = json.dumps(messages)
        group = hashlib.sha256(messages[-2]["content"].encode()).hexdigest()[:16]
        split = "validation" if int(group, 16) < _VALIDATION_SHARE * 16**16 else "train"
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        rows[name] = {"example_id": name, "group_id": group, "split": split, "messages": text}
    frame = pl.DataFrame(list(rows.values())).sort("example_id")
    encoded = encode_examples(frame, AutoTokenizer.from_pretrained(NANO), MAX_LENGTH)
    frame = frame.filter(pl.col("example_id").is_in(encoded.example_ids))
    train = frame.filter(pl.col("split") == "train").head(most)
    frame = pl.concat([train, frame.filter(pl.col("split") == "validation").head(max(2, most // 4))])
    frame = frame.sort("example_id")
    frame.write_parquet(folder / "examples.parquet")
    chosen = encoded.select(frame["example_id"])
    pl.DataFrame(
        {
            "input_ids": [each.input_ids for each in chosen],
            "completion_mask": [[int(label != IGNORED) for label in each.labels] for each in chosen],
            "split": frame["split"],
        }
    ).write_parquet(folder / "tokens.parquet")
    return folder / "examples.parquet"


def write_wide_base(folder: Path, *, layers: int = 6) -> Path:
    """The shipped base's shape with random weights and a vocabulary of 32,000, under the shipped tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    shape = json.loads((NANO / "config.json").read_text("utf-8")) | {
        "vocab_size": VOCABULARY,
        "num_hidden_layers": layers,
    }
    LlamaForCausalLM(LlamaConfig(**shape)).to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(NANO / name, folder / name)
    return folder


def make_request(
    base: Path, dataset: Path, work: Path, changes: Mapping[str, Any], voters: int = 1, seed: int = 0
) -> TrainingRequest:
    """One voter (or several) on the whole train split, validated when it starts and at its end.

    Args:
        changes: of the recipe, by section.
    """
    recipe: dict[str, Any] = {
        "name": "bench",
        "seed": SEED + seed,
        "voters": [{"name": f"voter-{number}", "seed": seed + number, "shard": number} for number in range(voters)],
        "model": {"lora": {"rank": RANK, "alpha": ALPHA, "dropout": 0.0, "use_rslora": False}},
        "data": {"max_length": MAX_LENGTH, "max_validation_examples": 10, "length_window": WINDOW},
        "training": {
            "epochs": 1.0,
            "global_batch": 8,
            "learning_rate": 3e-3,
            "final_learning_rate": 0.0,
            "warmup": 0.1,
            "betas": [0.9, 0.999],
            "evaluate_every": 100_000,
        },
        "hardware": {"threads": 2, "parallel": 1},
        "checkpoint": {"every": 100_000},
        "report": {"every": 100_000},
    }
    for section, values in changes.items():
        recipe[section] = recipe.get(section, {}) | values
    return TrainingRequest.model_validate(
        {
            "domain": "python",
            "base_model": base,
            "base_digest": base_digest(base),
            "dataset": dataset,
            "dataset_digest": sha256_file(dataset),
            "lora": {"modules": list(MODULES), "max_length": MAX_LENGTH, "quantization": "none"},
            "recipe": recipe,
            "seed": SEED + seed,
            "work": work,
            "out": work / "out",
        }
    )
