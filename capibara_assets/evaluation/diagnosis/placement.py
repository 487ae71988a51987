"""Checks of device placement: several devices at once, parameters without storage, device_map under DeepSpeed."""

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from capibara_assets.errors import InputError
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.jsonfiles import read_object

DeviceMap = str | Mapping[str, Any]


def check_placement(model: nn.Module) -> list[Diagnosis]:
    """Check the devices of parameters and buffers, and the map by which parts were dispatched (`hf_device_map`)."""
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    parameters = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in parameters.items():
        kind = tensor.device.type
        sizes[kind] = sizes.get(kind, 0) + tensor.numel()
        first.setdefault(kind, name)
    parts: dict[str, list[str]] = {}
    for name, device in dict(getattr(model, "hf_device_map", {})).items():
        parts.setdefault(_kind(device), []).append(name)
    if len(parts) > 1 or len(sizes.keys() - {"meta"}) > 1:
        shares = parts or {kind: [first[kind]] for kind in sizes}
        words = "; ".join(f"{kind}: {len(names)} parts ({', '.join(names[:2])})" for kind, names in shares.items())
        evidence = {"parts": {kind: len(names) for kind, names in shares.items()}, "values": sizes}
        return [Diagnosis("split_devices", f"the model lies on {' and '.join(shares)} at once: {words}", evidence)]
    if sizes.get("meta"):
        words = f"{sizes['meta']:,} values are without storage (meta), {first['meta']} the first"
        return [Diagnosis("meta_parameters", words, {"values": sizes["meta"], "first": first["meta"]})]
    return []


def check_deepspeed(device_map: DeviceMap | None, deepspeed: Path | None, script: Path | None) -> list[Diagnosis]:
    """Check for a device_map under DeepSpeed: both given here, or both in one training script.

    Args:
        device_map: that the model is loaded with.
        deepspeed: DeepSpeed's settings (JSON); None: whether accelerate's environment turns it on.
        script: source of a training in Python.

    Raises:
        InputError: a file that cannot be read.
    """
    launched = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() in ("1", "true", "yes")
    stage = "unknown" if deepspeed is None else _stage(deepspeed)
    if device_map is not None and (deepspeed is not None or launched):
        by = str(deepspeed) if deepspeed is not None else "ACCELERATE_USE_DEEPSPEED"
        words = f"device_map {device_map!r} is given and DeepSpeed is on ({by}, ZeRO stage {stage}): both place weights"
        evidence = {"device_map": device_map, "stage": stage, "deepspeed": by}
        return [Diagnosis("device_map_under_deepspeed", words, evidence)]
    if script is None:
        return []
    maps, users = _in_script(script)
    if not users and (deepspeed is not None or launched):
        users = [f"{deepspeed or 'ACCELERATE_USE_DEEPSPEED'}"]
    if not maps or not users:
        return []
    line, call = maps[0]
    words = f"{script.name}:{line} gives {call} a device_map, and DeepSpeed is on ({users[0]})"
    evidence = {"script": str(script), "line": line, "call": call, "deepspeed": users}
    return [Diagnosis("device_map_under_deepspeed", words, evidence)]


def _in_script(script: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """Lines of calls that get a device_map (not None), and what turns DeepSpeed on."""
    try:
        tree = ast.parse(read_document(script), str(script))
    except OSError as error:
        raise InputError(f"cannot read {script}: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        raise InputError(f"{script} is no Python: {error}") from error
    maps, users = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            users += [f"import, line {node.lineno}" for name in names if name.split(".")[0] == "deepspeed"]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            for keyword in node.keywords:
                given = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
                if keyword.arg == "device_map" and given:
                    maps.append((node.lineno, called))
                elif keyword.arg in ("deepspeed", "deepspeed_plugin", "deepspeed_config") and given:
                    users.append(f"{called}({keyword.arg}=…), line {node.lineno}")
            if called.rpartition(".")[2] in ("HfDeepSpeedConfig", "DeepSpeedPlugin"):
                users.append(f"{called}, line {node.lineno}")
    return maps, users


def _stage(file: Path) -> Any:
    settings = read_object(file, "DeepSpeed's settings, a JSON object")
    zero = settings.get("zero_optimization") or {}
    if not isinstance(zero, dict):
        raise InputError(
            f"{file}: zero_optimization is {str(zero)[:80]!r}, DeepSpeed takes an object with a stage there"
        )
    return zero.get("stage", 0)


def _kind(device: Any) -> str:
    """cuda for 0, "0", "cuda:1" and torch.device("cuda"); cpu, disk, meta as they are."""
    text = str(device)
    return "cuda" if text.isdigit() else text.split(":")[0]
