"""What the parts of the bench `gpu` are given: a random base, examples, the GPUs, and trainings with their figures."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.training.inputs import NANO, SEED, make_request
from benchmarks.training.runs import Beside, OutOfTime, Trained, run_request
from capibara_assets.training.devices import Gpus
from capibara_assets.training.request import TrainingRequest

BF16: Mapping[str, Mapping[str, Any]] = {"model": {"quantization": "bf16"}, "hardware": {"precision": "bf16"}}
# Shapes of the random base. 0.5b is Qwen2.5-0.5B's; tiny trains on a processor in seconds.
SHAPES: Mapping[str, Mapping[str, int]] = {
    "0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
    },
    "tiny": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 4096,
    },
}


@dataclass(frozen=True)
class Setting:
    """The setting of a run of the bench.

    Attributes:
        home: folder with `base` and `examples.parquet`, for everything that the parts write.
        gpus: of this machine.
        steps: optimizer steps of a training.
        deadline: `time.monotonic()` at which the bench ends.
    """

    home: Path
    gpus: Gpus
    steps: int
    deadline: float

    @property
    def base(self) -> Path:
        return self.home / "base"

    @property
    def left_s(self) -> float:
        """Seconds left.

        Raises:
            OutOfTime: none is.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime("the time of the bench is over")
        return left

    def request(self, name: str, changes: Mapping[str, Mapping[str, Any]], voters: int = 1) -> TrainingRequest:
        """A request that works in a folder of its own.

        Args:
            changes: of the recipe, by section.
        """
        sections: dict[str, Mapping[str, Any]] = {
            "training": {"max_steps": self.steps, "epochs": 8.0},
            "hardware": {"threads": 1, "parallel": None},
            "checkpoint": {"every": max(2, self.steps // 4), "restart_delay_s": 0.0},
        }
        merged = {key: {**sections.get(key, {}), **changes.get(key, {})} for key in sections.keys() | changes.keys()}
        return make_request(self.base, self.home / "examples.parquet", self.home / name, merged, voters)

    def train(
        self,
        name: str,
        changes: Mapping[str, Mapping[str, Any]],
        voters: int = 1,
        gpus: Gpus = (),
        beside: Beside = lambda _request, _process: None,
    ) -> Trained:
        """Train such a request; arguments and errors as `request` and `run_request`."""
        return run_request(self.request(name, changes, voters), self.left_s, gpus, beside)

    @cached_property
    def plain(self) -> Trained:
        """The training in bf16 on one GPU that several parts compare with."""
        return self.train("plain", BF16)


def write_base(folder: Path, shape: str) -> Path:
    """Write a base of a shape with random weights in bf16, under the shipped tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    own = json.loads((NANO / "config.json").read_text("utf-8"))
    tokens = {key: own[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in own}
    # A wide start, so that the head, which stays frozen, can tell tokens apart and a short training lowers the loss.
    config = LlamaConfig(
        **SHAPES[shape], **tokens, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.1
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(NANO / name, folder / name)
    return folder
