"""The optimizer step: gradients clipped and cleared, nothing that is not finite gets into weights, state comes back."""

import math
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.stepper import PlainStepper, all_finite

RECIPE = {
    "name": "test", "seed": 1, "voters": [{"name": "v", "seed": 1, "shard": 0}],
    "training": {"evaluate_every": 1, "betas": (0.9, 0.95)}, "checkpoint": {"every": 1},
}  # fmt: skip


def stepper(parameters: dict[str, nn.Parameter], *, scaled: bool = False, **guards: object) -> PlainStepper:
    return PlainStepper(parameters, TrainingRecipe.model_validate(RECIPE | {"guards": guards}), scaled=scaled)


def weights(**values: list[float]) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.tensor(value)) for name, value in values.items()}


def test_gradients_are_clipped_by_their_norm_and_gone_afterwards() -> None:
    parameters = weights(a=[1.0, 1.0])
    one = stepper(parameters)
    one.backward((parameters["a"] * torch.tensor([30.0, 40.0])).sum())
    assert one.step(0.1) == pytest.approx(50.0)  # the norm before clipping
    assert parameters["a"].grad is None  # set to none, not to zero
    torch.testing.assert_close(one.state()["a.exp_avg"], torch.tensor([0.06, 0.08]))  # (1 - 0.9) * gradient / 50
    torch.testing.assert_close(parameters["a"].detach(), torch.tensor([0.9, 0.9]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_change_nothing(bad: float) -> None:
    parameters = weights(a=[1.0, 1.0], b=[2.0])
    one = stepper(parameters)
    one.backward(parameters["a"].sum() * bad + parameters["b"].sum())
    assert one.step(0.1) is None
    assert parameters["a"].tolist() == [1.0, 1.0] and parameters["b"].tolist() == [2.0] and not one.state()


def test_a_step_into_infinity_is_taken_back() -> None:
    parameters = weights(a=[1.0, -3e38], b=[2.0])
    one = stepper(parameters)
    one.backward(parameters["a"].sum() + parameters["b"].sum())
    before = [value.detach().clone() for value in parameters.values()]
    assert one.step(3e38) is None
    assert all(torch.equal(value, old) for value, old in zip(parameters.values(), before, strict=True))
    one.backward(parameters["a"].sum() + parameters["b"].sum())
    assert one.step(0.5) is not None and parameters["b"].item() < 2.0  # and it goes on


def test_finite_is_told_from_not_finite_whatever_the_size() -> None:
    assert all_finite([torch.full((9,), 3e38), torch.zeros(2, 3)])
    for bad in (math.nan, math.inf, -math.inf):
        assert not all_finite([torch.zeros(3), torch.tensor([[1.0, bad]])])


def test_what_is_restored_from_stays_as_it_is() -> None:
    """A snapshot may be gone back to twice; and a parameter that never had a gradient has no state."""
    parameters = weights(a=[1.0, 1.0], unused=[5.0])
    one = stepper(parameters)

    def train(steps: int) -> None:
        for _ in range(steps):
            one.backward((parameters["a"] ** 2).sum())
            one.step(0.1)

    train(2)
    snapshot = {name: value.clone() for name, value in one.state().items()}
    held = {name: value.detach().clone() for name, value in parameters.items()}
    assert {name.partition(".")[0] for name in snapshot} == {"a"}
    ends = []
    for _ in range(2):
        given = {name: value.clone() for name, value in snapshot.items()}
        one.restore(held, given)
        train(3)
        assert all(torch.equal(given[name], snapshot[name]) for name in snapshot)
        ends.append(parameters["a"].detach().clone())
    assert torch.equal(*ends)


def test_the_loss_scale_comes_back_exactly() -> None:
    scaler = {"init_scale": 3.0, "growth_factor": 1.1, "backoff_factor": 0.3, "growth_interval": 2}

    def run(cut: int | None) -> dict[str, torch.Tensor]:
        parameters = weights(a=[1.0, 1.0])
        one = stepper(parameters, scaled=True, scaler=scaler)
        for number in range(9):
            if number == cut:
                state, held = one.state(), {name: value.detach().clone() for name, value in parameters.items()}
                parameters = weights(a=[0.0, 0.0])
                one = stepper(parameters, scaled=True, scaler=scaler)
                one.restore(held, state)
            factor = math.inf if number in (2, 5) else 1.0
            one.backward((parameters["a"] * factor).sum())
            one.step(0.1)
        return one.state() | {"a": parameters["a"].detach()}

    whole = run(None)
    assert float(whole["loss_scaler.scale"]) != 3.0
    for cut in (1, 3, 6, 8):
        found = run(cut)
        assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)


def test_looking_for_what_is_not_finite_costs_under_a_hundredth_of_a_step() -> None:
    """Against the products alone of one small step: 2,048 tokens through 56 modules of 512 x 512, thrice each."""
    tensors = [torch.randn(8, 512) for _ in range(112)]  # their LoRA weights
    before = [torch.empty_like(tensor) for tensor in tensors]
    left, right = torch.randn(2048, 512), torch.randn(512, 512)

    def check() -> None:
        torch._foreach_copy_(before, tensors)
        all_finite(tensors)

    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(10):
            begun = time.process_time()
            work()
            times.append(time.process_time() - begun)
        return min(times)

    assert best(check) < 0.01 * 3 * 56 * best(lambda: left @ right)
