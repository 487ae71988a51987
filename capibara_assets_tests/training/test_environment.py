"""The fingerprint holds what can change a bit, and generators of every library start alike."""

import random

import numpy as np
import torch

from capibara_assets.training.environment import differences, fingerprint, seed_all
from capibara_assets.training.ranks import Ranks
from capibara_assets.training.recipe import HardwareChoice
from capibara_assets.training.step.settings import Settings, resolve
from capibara_assets_tests.training.conftest import MakeRequest

CPU = torch.device("cpu")


def settings(make_request: MakeRequest) -> Settings:
    request = make_request()
    return resolve(request.recipe, request.lora, fastest="fp32")


def test_what_can_change_a_bit_changes_the_fingerprint(make_request: MakeRequest) -> None:
    chosen = settings(make_request)
    here = fingerprint(CPU, chosen, HardwareChoice())
    assert here == fingerprint(CPU, chosen, HardwareChoice())
    assert {"torch", "transformers", "peft", "numpy", "python", "kernels", "instructions", "threads"} <= here.keys()
    assert here["kernels"].count(".") >= 1 and here["instructions"] and here["device"]
    assert differences(here, fingerprint(CPU, chosen, HardwareChoice(), Ranks(0, 2))) == ["world_size"]
    zero = fingerprint(CPU, chosen, HardwareChoice(backend="zero2"))
    assert differences(here, zero) == ["backend", "deepspeed"]
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert differences(here, fingerprint(CPU, chosen, HardwareChoice())) == ["threads"]
    finally:
        torch.set_num_threads(threads)


def test_generators_of_every_library_start_alike() -> None:
    def draws(seed: int) -> tuple[float, float, float]:
        seed_all(seed)
        return float(torch.rand(())), float(np.random.random()), random.random()

    first = draws(2**59 + 7)
    assert draws(2**59 + 7) == first
    assert all(one != other for one, other in zip(first, draws(5), strict=True))
