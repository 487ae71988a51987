"""Pre-training on a GPU: files from the corpus beside skills that are drawn meanwhile, in one pass of a few minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from workshop.base_model.card import SUMMARY
from workshop.base_model.drawn import Drawing, Windows
from workshop.base_model.files import record, say, write_json
from workshop.base_model.model import first_model, make_optimizers, rate, save_checkpoint
from workshop.base_model.settings import Settings
from workshop.base_model.streams import FUNCTIONS, SOURCES, keep_apart, prepare

_IGNORED = -100  # a target that `cross_entropy` leaves out
_FIRST_BLOCKS = 40  # of drawn windows, before the first step
_POOL_TOKENS = 600_000_000  # of drawn windows that are kept: 3 GB, more than fifteen processes draw in ten minutes
_NOTED_STEPS = 50


class Pool:
    """Windows on the device: each is used once as soon as it is there, then again where newer ones are wanting."""

    def __init__(self, room: int, width: int, device: torch.device, seed: int) -> None:
        self._ids = torch.empty((room, width), dtype=torch.int32, device=device)
        self._targets = torch.empty((room, width), dtype=torch.bool, device=device)
        self._random = np.random.default_rng(seed)
        self.added = self.used = self.again = 0

    def add(self, blocks: list[Windows]) -> None:
        """Take windows in; where there is no room the oldest go."""
        for ids, targets in blocks:
            rows = torch.arange(self.added, self.added + len(ids), device=self._ids.device) % len(self._ids)
            self._ids[rows] = torch.from_numpy(ids.astype(np.int32)).to(self._ids.device)
            self._targets[rows] = torch.from_numpy(np.array(targets)).to(self._ids.device)
            self.added += len(ids)

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """Ids (int64) and targets of ``count`` windows."""
        new = np.arange(self.used, min(self.used + count, self.added))
        self.used += len(new)
        self.again += count - len(new)
        old = self._random.integers(max(0, self.added - len(self._ids)), self.added, count - len(new))
        rows = torch.from_numpy(np.concatenate([new, old]) % len(self._ids)).to(self._ids.device)
        return self._ids[rows].long(), self._targets[rows]


def pretrain(settings: Settings, out: Path, state: Path) -> None:
    """Train on ``settings.device`` for ``settings.minutes``; the card's held-out losses are measured afterwards.

    ``state`` holds what `prepare` made, or will. A share ``settings.skills`` of each batch are windows of skills from
    ``settings.workers`` processes, the rest files in the corpus's order. Weights at 1/16, 1/4 and 1/2 of the time go
    into ``out.parent / "at-…"``. How many windows are drawn depends on the machine, so two runs differ.

    Raises:
        InputError: ``state`` lies in ``out``, or belongs to a run with other settings.
        RuntimeError: the gradient is not finite, or a drawing process has ended.
    """
    keep_apart(out, state)
    device = torch.device(settings.device)
    torch.set_float32_matmul_precision("high")
    bpe, streams = prepare(settings, out, state)
    model = first_model(bpe, settings)
    model.set_attn_implementation("sdpa")
    model.to(device)
    optimizers = make_optimizers(model, settings)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    full_rates = [group["lr"] for group in groups]
    files = Pool(len(streams.training), settings.sequence + 1, device, settings.seed)
    files.add([(streams.training, streams.learned)])
    skills = Pool(_POOL_TOKENS // (settings.sequence + 1), settings.sequence + 1, device, settings.seed)
    loss_of = torch.compile(summed_loss, dynamic=False) if settings.compiled else summed_loss
    from_skills = round(settings.batch * settings.skills)
    step, passed, tokens, marks = 0, 0.0, 0, [1 / 16, 1 / 4, 1 / 2]
    with closing(
        Drawing(state / FUNCTIONS, state / "tokenizer.json", settings.sequence, settings.seed, settings.workers)
    ) as drawing:
        skills.add(drawing.drawn(_FIRST_BLOCKS))
        started = time.monotonic()
        while passed < 1:
            for group, full in zip(groups, full_rates, strict=True):
                group["lr"] = full * rate(passed)
            skills.add(drawing.drawn())
            if files.used + settings.batch - from_skills > files.added:
                files.used = 0  # another time through the files
            parts = [files.take(settings.batch - from_skills), skills.take(from_skills)]
            ids, targets = (torch.cat(each) for each in zip(*parts, strict=True))
            total, norm = learn(model, ids, targets, loss_of, settings.micro_batch)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
            tokens = step * settings.batch * settings.sequence
            passed = (time.monotonic() - started) / (settings.minutes * 60)
            if step % _NOTED_STEPS == 0:
                if not np.isfinite(float(norm)):
                    raise RuntimeError(f"the gradient is not finite at step {step}: lower the rates")
                record(out, step=step, tokens=tokens, seconds=passed * settings.minutes * 60, loss=float(total),
                       norm=float(norm), drawn=skills.added, again=skills.again)  # fmt: skip
            if marks and passed >= marks[0]:
                save_checkpoint(_on_cpu(model), out.parent / f"at-{tokens // 10**6}M")
                marks.pop(0)
    save_checkpoint(_on_cpu(model), out)
    summary = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": step,
        "tokens": tokens,
        "training_tokens": int(streams.training[:, :-1].size),
        "drawn_windows": skills.added,
        "windows_read_again": skills.again,
        "seconds": passed * settings.minutes * 60,
        "settings": asdict(settings),
        "sources": json.loads((state / SOURCES).read_text()),
        "torch": torch.__version__,
        "machine": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
    }
    write_json(out / SUMMARY, summary)
    say("finished")


def learn(
    model: LlamaForCausalLM, ids: Tensor, targets: Tensor, loss_of: Callable[..., Tensor], micro_batch: int
) -> tuple[Tensor, Tensor]:
    """Add the gradients of the mean loss over the targets of a batch, and clip them to 1; (loss in nats, their norm).

    Args:
        ids: (windows, tokens + 1).
        targets: of its shape; which tokens are to be foretold.
        loss_of: (model, ids, wanted ids) to the sum of the losses.
        micro_batch: windows per forward pass.
    """
    wanted = torch.where(targets[:, 1:], ids[:, 1:], _IGNORED)
    count, total = targets[:, 1:].sum(), torch.zeros((), device=ids.device)
    for some, right in zip(ids[:, :-1].split(micro_batch), wanted.split(micro_batch), strict=True):
        loss = loss_of(model, some, right) / count
        loss.backward()
        total += loss.detach()
    return total, nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def summed_loss(model: LlamaForCausalLM, ids: Tensor, wanted: Tensor) -> Tensor:
    """The sum in nats of -log P of the wanted ids."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits
    return nn.functional.cross_entropy(
        logits.float().flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED, reduction="sum"
    )


def _on_cpu(model: LlamaForCausalLM) -> LlamaForCausalLM:
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict({name: weight.cpu() for name, weight in model.state_dict().items()})
    return copy
