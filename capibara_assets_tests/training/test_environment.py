"""The fingerprint holds what can change a bit, and generators of every library start alike."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from capibara_assets.training.environment import (
    compute_settings,
    differences,
    fingerprint,
    has_no_order,
    one_order,
    seed_all,
)
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


@pytest.fixture
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads, environment and flags of torch are afterwards as before."""
    for name in ("FLASH_ATTENTION_DETERMINISTIC", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, ":4096:8")
    threads = torch.get_num_threads()
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict, warn_only=warns)


@pytest.mark.usefixtures("_own_settings")
def test_on_a_gpu_sums_are_in_one_order_where_it_is_asked_for() -> None:
    gpu = torch.device("cuda")  # its settings can be made without one
    compute_settings(HardwareChoice(), gpu)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    places, values = torch.tensor([0, 0]), torch.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError) as caught, one_order(gpu):
        torch.zeros(2).put_(places, values)  # an operation that has no order on a processor either
    assert has_no_order(caught.value)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not has_no_order(RuntimeError("CUDA error: an illegal memory access was encountered"))


@pytest.mark.usefixtures("_own_settings")
def test_on_a_processor_they_always_are() -> None:
    compute_settings(HardwareChoice(), CPU)
    with one_order(CPU):
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
