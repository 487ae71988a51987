"""The pre-training loop, read from top to bottom."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from workshop.base_model.card import SUMMARY, write_card
from workshop.base_model.fast import cross_entropy, keep_freed_memory
from workshop.base_model.files import METRICS, record, replace_file, say, write_json
from workshop.base_model.model import (
    first_model,
    forward_pass,
    make_optimizers,
    rate,
    save_checkpoint,
)
from workshop.base_model.scoring import evaluate, held_out_losses
from workshop.base_model.settings import Settings
from workshop.base_model.streams import SOURCES, Streams, keep_apart, prepare

STATE = "state.pt"
_BRIEF_WINDOWS = 8  # held-out windows per language that a running training looks at


def train(settings: Settings, out: Path, state: Path) -> None:
    """Train for ``settings.minutes`` of wall-clock time in all (resumed runs included), evaluate, write the card.

    ``out`` holds a model that Transformers loads from the first minute on; ``state`` the tokens and the resume point.

    Raises:
        InputError: ``state`` lies in ``out``, or belongs to a run with other settings.
        RuntimeError: the gradient is not finite.
    """
    keep_apart(out, state)
    torch.set_num_threads(settings.threads)
    keep_freed_memory()
    bpe, streams = prepare(settings, out, state)
    model = first_model(bpe, settings)
    forward = forward_pass(model, settings)
    optimizers = make_optimizers(model, settings)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    full_rates = [group["lr"] for group in groups]
    step, spent_before = _resume(model, optimizers, out, state)
    parameters = sum(weight.numel() for weight in model.parameters())
    tokens_per_step = settings.batch * settings.sequence
    say(f"{parameters:,} parameters, {streams.training.size:,} training tokens, from step {step}")

    budget, spent = settings.minutes * 60, spent_before
    last_save = started = time.monotonic()
    while spent < budget:
        factor = rate(spent / budget)
        for group, full in zip(groups, full_rates, strict=True):
            group["lr"] = full * factor
        rows = np.arange(step * settings.batch, (step + 1) * settings.batch) % len(streams.training)
        batch = torch.from_numpy(streams.training[rows].astype(np.int64))
        loss = accumulate(forward, batch, torch.from_numpy(streams.learned[rows]), settings.micro_batch)
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        if not np.isfinite(norm):
            raise RuntimeError(f"the gradient is not finite at step {step} (loss {loss}): lower the rates")
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        step += 1
        spent = spent_before + time.monotonic() - started

        if step % 10 == 0:
            record(out, step=step, tokens=step * tokens_per_step, seconds=spent, loss=loss, norm=norm, rate=factor)
        if time.monotonic() - last_save > settings.save_minutes * 60:
            last_save = time.monotonic()
            brief = brief_losses(model, streams, settings.sequence)
            record(out, step=step, tokens=step * tokens_per_step, seconds=spent, held_out=brief)
            _save(model, optimizers, step, spent, out, state)

    _save(model, optimizers, step, spent, out, state)
    summary = {
        "parameters": parameters,
        "steps": step,
        "tokens": step * tokens_per_step,
        "training_tokens": int(streams.training[:, :-1].size),
        "seconds": spent,
        "settings": asdict(settings),
        "sources": json.loads((state / SOURCES).read_text()),
        "held_out": evaluate(model, bpe, streams, settings),
        "torch": torch.__version__,
    }
    if settings.start and (earlier := Path(settings.start) / SUMMARY).is_file():
        summary["before"] = json.loads(earlier.read_text())
    write_json(out / SUMMARY, summary)
    write_card(out)
    say("finished")


def measure(settings: Settings, out: Path, state: Path) -> None:
    """Add the held-out losses of the model in ``out`` to its summary, and write its card."""
    bpe, streams = prepare(settings, out, state)
    model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32)
    summary = json.loads((out / SUMMARY).read_text())
    write_json(out / SUMMARY, {**summary, "held_out": evaluate(model, bpe, streams, settings)})
    write_card(out)


def accumulate(forward: Callable[[Tensor], Tensor], batch: Tensor, learned: Tensor, micro_batch: int) -> float:
    """Add the gradients of the mean loss over the `learned` targets of a batch; returns that loss in nats.

    Args:
        batch: (sequences, tokens + 1) ids.
        learned: of its shape; which tokens are targets.
    """
    total, targets = 0.0, max(int(learned[:, 1:].sum()), 1)
    for part, counted in zip(batch.split(micro_batch), learned[:, 1:].split(micro_batch), strict=True):
        if not counted.any():
            continue
        loss = cross_entropy(forward(part[:, :-1])[counted], part[:, 1:][counted]) * (counted.sum() / targets)
        loss.backward()
        total += loss.item()
    return total


def brief_losses(model: LlamaForCausalLM, streams: Streams, sequence: int) -> dict[str, float]:
    """Mean held-out loss per language over the first windows: a glance, not the figure of the card."""
    return {
        language: float(held_out_losses(model, stream, sequence, limit=_BRIEF_WINDOWS).mean())
        for language, stream in streams.held_out.items()
        if len(stream) > sequence
    }


def _resume(
    model: LlamaForCausalLM, optimizers: Sequence[torch.optim.Optimizer], out: Path, state: Path
) -> tuple[int, float]:
    """Take up the last saved step, or save the initial weights; returns (steps done, seconds spent)."""
    if not (state / STATE).exists():
        (out / METRICS).unlink(missing_ok=True)
        save_checkpoint(model, out)
        return 0, 0.0
    saved = torch.load(state / STATE, weights_only=True)
    model.load_state_dict(saved["model"])
    for optimizer, content in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(content)
    if (out / METRICS).exists():
        # Steps after the save are trained again: their lines go.
        lines = [line for line in (out / METRICS).read_text().splitlines() if json.loads(line)["step"] <= saved["step"]]
        replace_file(out / METRICS, lambda part: part.write_text("".join(f"{line}\n" for line in lines)))
    return saved["step"], saved["spent"]


def _save(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    step: int,
    spent: float,
    out: Path,
    state: Path,
) -> None:
    content = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "step": step,
        "spent": spent,
    }
    replace_file(state / STATE, lambda part: torch.save(content, part))
    save_checkpoint(model, out)
