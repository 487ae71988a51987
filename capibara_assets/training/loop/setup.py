"""Set-up of a voter's training: device, model, optimizer, examples and log."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from capibara_assets.training.data.voter_examples import VoterExamples
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import compute_settings, fingerprint, pick_device, settings_on
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.monitoring.usage import held_mib
from capibara_assets.training.parallel.backends import make_stepper
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject, load_subject


@dataclass(frozen=True)
class TrainingSetup:
    """What a voter's training needs before its first step.

    Attributes:
        began: `time.monotonic()` when the set-up began.
        memory_before_mib: memory held before the model was loaded.
        environment: its fingerprint.
    """

    run: VoterRun
    began: float
    log: EventLog
    device: torch.device
    settings: Settings
    memory_before_mib: float
    environment: dict[str, Any]
    subject: Subject
    stepper: Stepper
    examples: VoterExamples


def set_up(run: VoterRun) -> TrainingSetup:
    """Load the base with its LoRA weights, and the voter's examples.

    Raises:
        Interrupted: stopped; there is nothing to save yet.
        InputError: the base, the dataset or the plan cannot be trained on.
    """
    began = time.monotonic()
    recipe = run.request.recipe
    device = pick_device(run.ranks)
    settings = settings_on(run.request, device)
    compute_settings(recipe.hardware, device)
    memory_before_mib = held_mib(device)
    environment = fingerprint(device, settings, recipe.hardware, run.ranks)
    if run.request.asked is not None:  # other passes round in another way
        environment["micro_batch"] = recipe.training.micro_batch or f"{recipe.training.micro_batch_tokens} tokens"
    log = run.log()
    subject = load_subject(run.request, settings, device)
    stepper = make_stepper(recipe, subject, settings, run.ranks)
    if run.initial is not None:
        stepper.restore(run.initial, {})
    run.poll_all()
    examples = VoterExamples.read(run, settings, subject.base.tokenizer)
    return TrainingSetup(run, began, log, device, settings, memory_before_mib, environment, subject, stepper, examples)
