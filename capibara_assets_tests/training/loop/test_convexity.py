"""Group lasso on rank components: its proximal map against a solver, and what it does to a training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftModel
from pydantic import ValidationError
from scipy.optimize import minimize

from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter, write_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.training.loop.convexity import project, proximal_step, without_dead
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import QUIET, digests, manifest, train, train_stopped, voters

LENGTH_A, LENGTH_B = 4, 3
COMPONENT = LENGTH_A + LENGTH_B


def convex(**choice: float | bool) -> list[dict]:
    return voters({"kind": "convexity", **choice})


def objective(x: np.ndarray, start: np.ndarray, threshold: float) -> float:
    """|x - start|^2 / 2 + threshold |a| |b| with x = (a, b)."""
    return float(
        0.5 * np.square(x - start).sum() + threshold * np.linalg.norm(x[:LENGTH_A]) * np.linalg.norm(x[LENGTH_A:])
    )


def by_solver(start: np.ndarray, threshold: float) -> tuple[float, np.ndarray]:
    """The least objective that SciPy finds from several places, those with a or b at zero among them."""
    without_a, without_b = start.copy(), start.copy()
    without_a[:LENGTH_A], without_b[LENGTH_A:] = 0.0, 0.0
    best = (np.inf, start)
    for place in (start, without_a, without_b, 0.5 * start):
        for method in ("Powell", "L-BFGS-B"):
            found = minimize(objective, place, args=(start, threshold), method=method, options={"maxiter": 5_000})
            best = min(best, (float(found.fun), found.x), key=lambda pair: pair[0])
    return best


@pytest.mark.parametrize(
    "threshold", [0.0, 0.05, 1.0, *(pytest.param(more, marks=pytest.mark.extended) for more in (0.4, 0.95, 3.0))]
)
def test_the_proximal_map_is_the_least_that_a_solver_finds(threshold: float) -> None:
    random = np.random.default_rng(3)
    components = 4
    starts = random.normal(size=(components, COMPONENT)) * random.choice([0.05, 1.0, 3.0], size=(components, 1))
    starts[0, LENGTH_A:] *= 0.01  # B near its start
    starts[1, LENGTH_A:] = 0.0
    a = torch.tensor(starts[:, :LENGTH_A].copy())
    b = torch.tensor(starts[:, LENGTH_A:].T.copy())
    proximal_step(a, b, torch.full((components,), threshold, dtype=torch.float64))
    for number, start in enumerate(starts):
        ours = np.concatenate([a[number].numpy(), b[:, number].numpy()])
        least, where = by_solver(start, threshold)
        value = objective(ours, start, threshold)
        assert value <= least + 1e-9
        if threshold < 1:  # one minimum only
            assert np.abs(ours - where).max() < 1e-3 and least <= value + 1e-6
    if threshold == 0.0:
        assert np.array_equal(a.numpy(), starts[:, :LENGTH_A]) and np.array_equal(b.numpy().T, starts[:, LENGTH_A:])
    if threshold >= 1.0:
        assert not (a.norm(dim=1) * b.norm(dim=0)).any()


@given(
    st.lists(st.floats(-5, 5), min_size=COMPONENT, max_size=COMPONENT),
    st.lists(st.floats(-5, 5), min_size=COMPONENT, max_size=COMPONENT),
    st.floats(0.1, 4),
)
def test_the_projection_is_onto_the_ball_and_nearest(start: list[float], other: list[float], radius: float) -> None:
    x = torch.tensor(start, dtype=torch.float64)
    a, b = x[None, :LENGTH_A].clone(), x[LENGTH_A:, None].clone()
    project(a, b, radius)
    y = torch.cat([a.flatten(), b.flatten()])
    assert float(y.norm()) <= radius * (1 + 1e-12)
    if float(x.norm()) <= radius:
        assert torch.equal(x, y)
    z = torch.tensor(other, dtype=torch.float64)
    z = z * min(1.0, radius / max(1e-9, float(z.norm())))  # any point of the ball
    assert float((x - y) @ (z - y)) <= 1e-9 * (1 + float(x.norm()))  # what makes y the projection on a convex set


def random_adapter(folder: Path, rank: int = 4) -> LoraAdapter:
    base = load_base(folder).model
    random = torch.Generator().manual_seed(5)
    tensors = {}
    for name, module in base.named_modules():
        if name.endswith(("q_proj", "up_proj", "down_proj")):
            rows, columns = module.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, columns, generator=random) / 6
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(rows, rank, generator=random) / 6
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 7, "bias": "none", "task_type": "CAUSAL_LM",
              "target_modules": ["q_proj", "up_proj", "down_proj"]}  # fmt: skip
    return LoraAdapter(config, tensors)


@pytest.mark.parametrize("use_rslora", [False, True])
def test_dead_components_are_cut_and_the_deltas_are_the_same(
    two_layers: Path, tmp_path: Path, use_rslora: bool
) -> None:
    whole = random_adapter(two_layers)
    whole.config["use_rslora"] = use_rslora
    dead = {0: [1], 1: [0, 2, 3], 2: [0, 1, 2, 3], 3: [], 4: [1], 5: [1]}
    for number, module in enumerate(whole.modules):
        whole.b(module)[:, dead[number]] = 0.0
    cut, counts = without_dead(whole)
    assert list(counts.values()) == [3, 1, 0, 4, 3, 3]
    assert [cut.a(module).shape[0] for module in cut.modules] == [3, 1, 1, 4, 3, 3]
    assert cut.config["r"] == 3
    for module in whole.modules:
        assert torch.allclose(cut.delta(module), whole.delta(module), atol=1e-6)
    write_adapter(cut, tmp_path)
    ids = torch.arange(2, 12)[None]
    base = load_base(two_layers).model.eval()
    with torch.no_grad(), applied(base, whole):
        expected = base(ids).logits
    with torch.no_grad():
        found = PeftModel.from_pretrained(base, tmp_path).eval()(ids).logits
    assert torch.allclose(found, expected, atol=1e-4)


def test_an_adapter_without_dead_components_stays_as_it_is(tiny_folder: Path) -> None:
    whole = random_adapter(tiny_folder)
    assert without_dead(whole)[0] is whole


def sum_of_norms(adapter: LoraAdapter) -> float:
    """Of all components, scale |b| |a|."""
    parts = [
        adapter.scale(module) * adapter.b(module).norm(dim=0) * adapter.a(module).norm(dim=1)
        for module in adapter.modules
    ]
    return float(torch.cat(parts).double().sum())


def test_a_stronger_penalty_leaves_fewer_components_alive(make_request: MakeRequest, two_layers: Path) -> None:
    """0 changes nothing but the strategy's name; a huge one leaves the base."""
    lora = QUIET | {"rank": 4, "alpha": 8}
    longer = {"base": two_layers, "epochs": 9, "max_steps": 6, "evaluate_every": 6}
    plain = train(make_request(work="plain", lora=lora, voters=voters({"kind": "plain"}), **longer))
    alive = []
    unpenalised = read_adapter(plain)
    for number, weight in enumerate((0.0, 0.1, 100.0)):
        choice = convex(regularization=weight, convex_constraint=False)
        events: list[dict] = []
        result = train(make_request(work=f"convex-{number}", lora=lora, voters=choice, **longer), events=events)
        found = manifest(result)
        report = found["published"]
        assert report["components"] == 14 * 4
        assert report["components_alive"] == sum(report["effective_rank"].values())
        said = next(event for event in events if event["event"] == "published")
        assert said["components_alive"] == report["components_alive"]
        adapter = read_adapter(result)
        for module in adapter.modules:
            assert adapter.a(module).shape[0] == max(1, report["effective_rank"][module])
        alive.append(report["components_alive"])
        if weight == 0.0:
            assert all(torch.equal(value, unpenalised.tensors[name]) for name, value in adapter.tensors.items())
        assert report["penalty"] == pytest.approx(weight * sum_of_norms(adapter), rel=1e-5)
        if weight == 0.1:  # what it minimises is less than where nothing is penalised
            without = manifest(plain)["validation_loss"] + weight * sum_of_norms(unpenalised)
            assert found["validation_loss"] + report["penalty"] < without
        if weight == 100.0:
            assert found["validation_loss"] == pytest.approx(found["base_validation_loss"], rel=1e-6)
    assert alive[0] == 14 * 4 > alive[1] > alive[2] == 0


def test_the_subgradient_shrinks_the_components_and_kills_none(make_request: MakeRequest) -> None:
    penalties = []
    for number, weight in enumerate((0.0, 0.3)):
        choice = convex(regularization=weight, use_proximal_gradient=False, convex_constraint=False)
        result = train(make_request(work=f"sub-{number}", lora=QUIET, voters=choice, max_steps=5, evaluate_every=5))
        adapter = read_adapter(result)
        assert manifest(result)["published"]["components_alive"] == 14
        norms = [adapter.b(module).norm(dim=0) * adapter.a(module).norm(dim=1) for module in adapter.modules]
        penalties.append(float(torch.cat(norms).sum()))
    assert penalties[1] < 0.9 * penalties[0]


def test_components_stay_in_the_ball(make_request: MakeRequest) -> None:
    result = train(make_request(lora=QUIET, voters=convex(regularization=0.0, radius=0.5)))
    adapter = read_adapter(result)
    for module in adapter.modules:
        norms = (adapter.a(module).square().sum(dim=1) + adapter.b(module).square().sum(dim=0)).sqrt()
        assert float(norms.max()) <= 0.5 * (1 + 1e-6)


@pytest.mark.resume
@pytest.mark.parametrize("proximal", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, proximal: bool) -> None:
    choice = convex(regularization=0.02, use_proximal_gradient=proximal)
    expected = digests(train(make_request(work="whole", voters=choice, max_steps=5)))
    result = train_stopped(make_request(work="stopped", voters=choice, max_steps=5), calls=11, times=2)
    assert digests(result) == expected


def test_what_does_not_go_together_is_refused(make_request: MakeRequest) -> None:
    for changes, reason in (
        ({"backend": "fsdp2", "processes": 2}, "use single, ddp or accelerate"),
        ({"backend": "zero2"}, "use single, ddp or accelerate"),
        ({"ema": {"decay": 0.9}}, "leave ema out"),
        ({"optimizer": "adamw_8bit"}, "use adamw"),
        ({"lora": {"use_dora": True}}, "set use_dora: false"),
    ):
        with pytest.raises(ValidationError, match=reason):
            make_request(voters=convex(), **changes)
    with pytest.raises(ValidationError, match="a subgradient cannot be added"):
        make_request(voters=convex(use_proximal_gradient=False), precision="fp16")
