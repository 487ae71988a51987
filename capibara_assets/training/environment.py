"""What a machine computes with: decides whether a resumed run can promise the same bits."""

import os
import platform
from importlib.metadata import version
from typing import Any

import torch


def pick_device() -> torch.device:
    """The accelerator where there is one, else the CPU."""
    return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


def fingerprint(device: torch.device, precision: str, attention: str) -> dict[str, Any]:
    """Everything that may change a bit of the result: with an equal one, a resumed run equals an uninterrupted one."""
    return {
        "attention": attention,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "peft": version("peft"),
        "precision": precision,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
    }
