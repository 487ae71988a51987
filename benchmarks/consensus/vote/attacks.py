"""The bad voters of the bench `vote`: adapters made by someone who knows every honest voter's adapter, the rule and f.

Every attack works on the deltas scale * B @ A. The strengths are those of the literature, and games go through them in
turn: sign flipping and inner-product manipulation (Xie et al. 2020, arXiv 1903.03936), ALIE (Baruch et al. 2019,
arXiv 1902.06156), mimic (Karimireddy et al. 2022, arXiv 2006.09365).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.consensus.vote.losses import key_of
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.low_rank import from_factors, inner_products, merge_adapters, stacked

Random = np.random.Generator
NOISE = "noise"
BACKDOOR = "backdoor"  # judged by its trigger: loss cannot see it
_APART = 0.3  # share of what each one's own training adds, so that bad voters who act as one are no near copies


@dataclass(frozen=True)
class Named:
    """An adapter and what it is made of, as one name: equal names are equal deltas."""

    key: str
    adapter: LoraAdapter


@dataclass(frozen=True)
class Drawn:
    """Who plays a game.

    Attributes:
        honest: the honest voters' adapters.
        own: what the bad voters would have submitted had they been honest, one each.
        noise, backdoor: adapters trained on shuffled answers and on a trigger, one for each bad voter.
    """

    honest: Sequence[Named]
    own: Sequence[Named]
    noise: Sequence[Named]
    backdoor: Sequence[Named]


@dataclass(frozen=True)
class Attack:
    """One attack: what the bad voters submit.

    Attributes:
        strengths: figures that games go through in turn; what they mean is the attack's own.
        make: (drawn, strength, random) -> one adapter for each bad voter.
        needs: kind of trained adapters that it is made of, beside the honest ones.
    """

    name: str
    strengths: tuple[float, ...]
    make: Callable[[Drawn, float, Random], list[Named]]
    needs: str | None = None


def sign_flip(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Each its own delta, turned round and `strength` times as long."""
    return [mixed([one], [-strength]) for one in drawn.own]


def alie(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """A little is enough: the honest mean less `strength` standard deviations in every coordinate of the delta.

    The standard deviation is no combination of the deltas, so the adapter has full rank. Several bad voters add a share
    of what sets their own training apart, or attestation would know them for near copies of each other.
    """
    means, spreads = {}, {}
    for module in drawn.honest[0].adapter.modules:
        deltas = np.stack([np.matmul(*stacked([(one.adapter, 1.0)], module)) for one in drawn.honest])
        means[module], spreads[module] = deltas.mean(axis=0), deltas.std(axis=0, ddof=1)
    made = []
    apart = _apart(drawn)
    for one in drawn.own:
        key = key_of("alie", strength, sorted(each.key for each in drawn.honest), *([apart, one.key] if apart else []))
        dense = {}
        for module, mean in means.items():
            own = np.matmul(*stacked([(one.adapter, 1.0)], module)) - mean if apart else 0.0
            dense[module] = mean - strength * spreads[module] + apart * own
        made.append(Named(key, from_factors(_factors(dense), drawn.honest[0].adapter.config)))
    return made


def inner_product(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Inner-product manipulation: the honest mean times -`strength`; several bad voters differ as those of ALIE do."""
    honest = sorted(drawn.honest, key=lambda one: one.key)
    apart = strength * _apart(drawn)
    share = -(strength + apart) / len(honest)
    return [
        mixed([*honest, *([one] if apart else [])], [*([share] * len(honest)), *([apart] if apart else [])])
        for one in drawn.own
    ]


def label_noise(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Adapters really trained on shuffled answers, their deltas `strength` times as long."""
    return [one if strength == 1 else mixed([one], [strength]) for one in drawn.noise]


def _apart(drawn: Drawn) -> float:
    """One bad voter alone is nobody's copy."""
    return _APART if len(drawn.own) > 1 else 0.0


def mimic(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """All of them copy the honest voter farthest from the honest mean, with noise as a free rider's."""
    gram = inner_products([one.adapter for one in drawn.honest])
    farthest = drawn.honest[int(np.argmax(np.diag(gram) - 2 * gram.mean(axis=1)))]
    return copies([farthest] * len(drawn.own), strength)


def not_a_number(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """One number of each adapter is NaN (0) or infinite (1)."""
    number = float("nan") if strength == 0 else float("inf")
    return [Named(key_of("with number", str(number), one.key), with_number(one.adapter, number)) for one in drawn.own]


def huge(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Each its own delta, `strength` times as long."""
    return [mixed([one], [strength]) for one in drawn.own]


def free_rider(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Each copies an honest voter, with noise of `strength` times each factor's spread; 0 copies the bytes."""
    copied = [drawn.honest[int(i)] for i in random.integers(len(drawn.honest), size=len(drawn.own))]
    return copies(copied, strength)


def backdoor(drawn: Drawn, strength: float, random: Random) -> list[Named]:
    """Adapters really trained on a trigger; what sets them apart from the honest mean, `strength` times as long."""
    if strength == 1:
        return list(drawn.backdoor)
    honest = sorted(drawn.honest, key=lambda one: one.key)
    shares = [(1 - strength) / len(honest)] * len(honest)
    return [mixed([one, *honest], [strength, *shares]) for one in drawn.backdoor]


def mixed(parts: Sequence[Named], weights: Sequence[float]) -> Named:
    """The sum of weighted deltas."""
    key = key_of("sum", sorted(zip((one.key for one in parts), weights, strict=True)))
    return Named(key, merge_adapters([one.adapter for one in parts], weights))


def copies(voters: Sequence[Named], strength: float) -> list[Named]:
    """The voters themselves, or with noise so that no copy is exact."""
    return list(voters) if strength == 0 else [noisy(one, strength, number) for number, one in enumerate(voters)]


def noisy(one: Named, strength: float, number: int) -> Named:
    """A copy with Gaussian noise on its factors."""
    key = key_of("noisy", one.key, strength, number)
    generator = torch.Generator().manual_seed(int(key[:12], 16))
    tensors = {}
    for name, tensor in sorted(one.adapter.tensors.items()):
        tensors[name] = tensor + strength * tensor.std() * torch.randn(tensor.shape, generator=generator)
    return Named(key, LoraAdapter(one.adapter.config, tensors))


def _factors(dense: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Two factors of each matrix: it and an identity of its smaller side."""
    return {
        module: (np.eye(len(one)), one) if len(one) < one.shape[1] else (one, np.eye(one.shape[1]))
        for module, one in dense.items()
    }


def with_number(adapter: LoraAdapter, number: float) -> LoraAdapter:
    """The adapter with its first number replaced."""
    name = min(adapter.tensors)
    spoilt = adapter.tensors[name].clone()
    spoilt.view(-1)[0] = number
    return LoraAdapter(adapter.config, {**adapter.tensors, name: spoilt})


ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("sign_flip", (1.0, 4.0), sign_flip),
        Attack("alie", (0.5, 1.0, 1.5, 0.25), alie),
        Attack("inner_product", (0.1, 0.5, 2.0, 4.0), inner_product),
        Attack("label_noise", (1.0, 2.0), label_noise, needs=NOISE),
        Attack("mimic", (0.0, 0.01, 0.05, 0.3), mimic),
        Attack("nan", (0.0, 1.0), not_a_number),
        Attack("huge_norm", (1e6,), huge),
        Attack("free_rider", (0.0, 0.01, 0.05, 0.3), free_rider),
        Attack(BACKDOOR, (1.0, 2.0), backdoor, needs=BACKDOOR),
    )
}
