"""Attestation: what no rule and no vote may see; each with its figure, none of it an exception."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.election.attestation import Limits, Verdict, attest, majority_shapes, read_submission
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.low_rank import merge_adapters
from capibara_assets.training.voter_manifest import VoterManifest
from capibara_assets_tests.consensus.conftest import Tokens, changed
from capibara_assets_tests.consensus.in_process import hold_here

Writer = Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]


def adapter(seed: int, size: float = 1.0, rank: int = 2, **config: Any) -> LoraAdapter:
    """Two modules of 6 x 5, with factors drawn at random."""
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for module in ("m.one", "m.two"):
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(rank, 5, generator=random)
        tensors[f"base_model.model.{module}.lora_B.weight"] = size * torch.randn(6, rank, generator=random)
    return LoraAdapter({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"} | config, tensors)


def with_tensors(given: LoraAdapter, change: Callable[[str, torch.Tensor], torch.Tensor]) -> LoraAdapter:
    return LoraAdapter(given.config, {name: change(name, tensor) for name, tensor in given.tensors.items()})


def judged(odd: LoraAdapter, sound: int = 3) -> Verdict:
    """The verdict on an adapter beside sound ones, which are all accepted."""
    verdicts = attest({"odd": odd} | {f"v{n}": adapter(n) for n in range(sound)}, None)
    assert all(verdict.accepted and verdict.votes for name, verdict in verdicts.items() if name != "odd")
    return verdicts["odd"]


def test_sound_adapters_are_accepted_and_those_of_other_ranks_too() -> None:
    assert judged(adapter(9)).accepted
    assert judged(adapter(9, rank=4)).accepted
    assert judged(adapter(9, use_rslora=True)).accepted


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0.0, "norm 0: it changes nothing"),
        (1e-4, "times the median of the others"),
        (1e-30, "the least is 0.001"),
        (1e-42, "the least is 0.001"),  # subnormal factors
        (20.0, "the limit is 5"),
        (1e6, "the limit is 5"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        (-float("inf"), "not finite"),
    ],
)
def test_outlandish_norms(size: float, words: str) -> None:
    verdict = judged(adapter(9, size))
    assert not verdict.accepted and words in verdict.reason


def test_zeros_do_not_hide_a_huge_norm_among_them() -> None:
    """Two voters of norm 0 beside two: the median is that of those that change anything."""
    verdicts = attest({"a": adapter(1, 0.0), "b": adapter(2, 0.0), "c": adapter(3), "d": adapter(4, 1e6)}, None)
    assert [name for name, verdict in verdicts.items() if verdict.accepted] == []
    verdicts = attest({"a": adapter(1, 0.0), "b": adapter(2), "c": adapter(3), "d": adapter(4)}, None)
    assert [name for name, verdict in verdicts.items() if verdict.accepted] == ["b", "c", "d"]


def test_finite_factors_whose_product_overflows() -> None:
    def huge(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 1e30

    overflowing = with_tensors(adapter(9), huge)
    assert not torch.isfinite(overflowing.delta("m.one")).all(), "that is what a rule would have seen"
    verdict = judged(overflowing)
    assert not verdict.accepted and "overflows float32" in verdict.reason
    assert not judged(adapter(9, lora_alpha=1e35)).accepted
    # float64 holds it, float32 does not
    wide = with_tensors(adapter(9), lambda name, tensor: tensor.double() * (1e60 if "lora_A" in name else 1e-60))
    assert "overflows float32" in judged(wide).reason


@pytest.mark.parametrize("size", [1e4, 1e15, 1e25])
def test_factors_that_cancel(size: float) -> None:
    """A product of the usual norm, made of huge opposite parts: in float32 nothing or NaN is left of it."""
    usual = adapter(9)

    def hidden(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if "lora_A" in name:
            return torch.cat([tensor, torch.full((2, 5), size)])
        return torch.cat([tensor, torch.full((6, 1), size), torch.full((6, 1), -size)], dim=1)

    odd = with_tensors(usual, hidden)
    odd = LoraAdapter(odd.config | {"r": 4, "lora_alpha": 4}, odd.tensors)
    verdict = judged(odd)
    assert not verdict.accepted
    assert "its factors cancel" in verdict.reason or "overflows" in verdict.reason or "median" in verdict.reason


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_wrong_dtypes(dtype: torch.dtype) -> None:
    odd = with_tensors(adapter(9), lambda _, tensor: tensor.to(dtype))
    verdict = judged(odd)
    assert not verdict.accepted and f"is {str(dtype).removeprefix('torch.')}, expected a float" in verdict.reason


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_fine(dtype: torch.dtype) -> None:
    assert judged(with_tensors(adapter(9), lambda _, tensor: tensor.to(dtype))).accepted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda name, tensor: tensor[0] if "lora_A" in name else tensor, "expected a matrix"),
        (lambda name, tensor: tensor[0, 0], "expected a matrix"),
        (lambda name, tensor: tensor[None], "expected a matrix"),
        (lambda name, tensor: tensor[:0] if "lora_A" in name else tensor[:, :0], "expected a matrix"),
        (lambda name, tensor: tensor[:, :4] if "lora_A" in name else tensor, "m.one: A is (2, 4)"),
        (lambda name, tensor: tensor[:1] if "lora_A" in name else tensor, "m.one: A is (1, 5), B is (6, 2)"),
        (lambda name, tensor: tensor[:1] if "lora_A" in name else tensor[:, :1], "states rank 2, A has 1"),
    ],
)
def test_odd_shapes(change: Callable[[str, torch.Tensor], torch.Tensor], words: str) -> None:
    verdict = judged(with_tensors(adapter(9), change))
    assert not verdict.accepted and words in verdict.reason
    # Alone it is its own majority, so only what fits no model at all is refused
    alone = attest({"odd": with_tensors(adapter(9), change)}, None)["odd"]
    assert alone.accepted is words.startswith("m.one: A is (2")


@pytest.mark.parametrize(
    "config",
    [
        {"r": 0}, {"r": -2}, {"r": 2.5}, {"r": "2"}, {"r": None}, {"r": True}, {"r": 10**400},
        {"lora_alpha": float("nan")}, {"lora_alpha": float("inf")}, {"lora_alpha": "16"}, {"lora_alpha": None},
        {"rank_pattern": {"m.one": 0}}, {"rank_pattern": {"(m+)+x": 2}}, {"rank_pattern": {"m.[": 2}},
        {"alpha_pattern": {"m.one": float("inf")}}, {"alpha_pattern": [1]},
    ],
)  # fmt: skip
def test_configs_that_no_scale_can_be_computed_from(config: dict[str, Any], tmp_path: Path) -> None:
    odd = adapter(9, **config)
    assert not judged(odd).accepted
    write_adapter(adapter(9), tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(odd.config))
    found = read_submission("odd", tmp_path, "base")
    assert found.adapter is None and "adapter_config.json" in found.problem


def test_files_that_are_no_adapter(tmp_path: Path) -> None:
    def problem(name: str) -> str:
        found = read_submission(name, tmp_path / name, "base")
        assert found.adapter is None and str(tmp_path) not in found.problem, "no path in what a certificate says"
        return found.problem

    assert "adapter_config.json is missing" in problem("none")
    for name, text in (("list", "[]"), ("deep", "[" * 100_000), ("cut", "{"), ("binary", "\x00\x01")):
        write_adapter(adapter(1), tmp_path / name)
        (tmp_path / name / "adapter_config.json").write_text(text)
        assert "adapter_config.json" in problem(name) or "recursion" in problem(name)
    for name, data in (("empty", b""), ("short", b"\x10"), ("header", (2).to_bytes(8, "little") + b"[]")):
        write_adapter(adapter(1), tmp_path / name)
        (tmp_path / name / "adapter_model.safetensors").write_bytes(data)
        assert "damaged" in problem(name)
    write_adapter(adapter(1), tmp_path / "extra")
    tensors = adapter(1).tensors | {"base_model.model.lm_head.weight": torch.zeros(2, 2)}
    save_file(tensors, tmp_path / "extra" / "adapter_model.safetensors")
    assert "not LoRA pairs only: base_model.model.lm_head.weight" in problem("extra")
    raw = json.dumps({"x": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}).encode()
    write_adapter(adapter(1), tmp_path / "kind")
    (tmp_path / "kind" / "adapter_model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"\0" * 4)
    assert "unreadable" in problem("kind")


@given(
    st.binary(max_size=200),
    st.integers(0, 400),
    st.sampled_from(["adapter_config.json", "adapter_model.safetensors", "manifest.json"]),
)
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int, name: str) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    write_adapter(adapter(1), folder)
    (folder / "manifest.json").write_text("{}")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:start] + data + whole[start + len(data) :])
    found = read_submission("odd", folder, "base")
    assert found.problem or found.adapter is not None
    if found.adapter is not None and not found.problem:
        attest({"odd": found.adapter, "v0": adapter(2)}, None)
    shutil.rmtree(folder)


def rewritten(given: LoraAdapter) -> LoraAdapter:
    """The same deltas in other bytes: rows in another order, a factor moved from B to A."""
    return with_tensors(given, lambda name, t: t.flip(0) * 4.0 if "lora_A" in name else t.flip(1) / 4.0)


@pytest.mark.parametrize("copy", [lambda a: a, rewritten])
@pytest.mark.parametrize("thief", ["a", "z"])
def test_a_copy_counts_once_and_none_of_its_owners_votes(
    copy: Callable[[LoraAdapter], LoraAdapter], thief: str
) -> None:
    voters = {"m": adapter(1), "n": adapter(2), "o": adapter(3), thief: copy(adapter(1))}
    verdicts = attest(voters, None, Limits(), {"m": "5", thief: "5", "n": "1", "o": "2"})
    kept, gone = ("a", "m") if thief == "a" else ("m", "z")
    assert [name for name, verdict in verdicts.items() if not verdict.accepted] == [gone]
    assert verdicts[gone].reason == f"its weight change is that of {kept}: a copy, only one of which was trained"
    assert [name for name, verdict in verdicts.items() if not verdict.votes] == sorted([kept, gone])
    least = attest(voters, None, Limits(), {"m": "9", thief: "0"})
    assert least[thief].accepted and not least["m"].accepted, "the bytes decide which stays, not the name"


def test_a_nearby_adapter_is_no_copy() -> None:
    near = with_tensors(adapter(1), lambda _, tensor: tensor * 1.0001)
    verdicts = attest({"a": adapter(1), "b": near, "c": adapter(3)}, None)
    assert all(verdict.accepted and verdict.votes for verdict in verdicts.values())


def noisy(given: LoraAdapter, share: float, seed: int = 99) -> LoraAdapter:
    """A copy with noise of this share of each factor's spread."""
    random = torch.Generator().manual_seed(seed)
    return with_tensors(given, lambda _, t: t + share * t.std() * torch.randn(t.shape, generator=random))


@pytest.mark.parametrize("share", [1e-4, 0.01, 0.05, 0.1])
@pytest.mark.parametrize("n", [4, 7])
def test_a_near_copy_is_a_copy(share: float, n: int) -> None:
    """Noise hides nothing: one of the two stays, neither votes, the others are as they were."""
    honest = {f"v{seed}": adapter(seed) for seed in range(n - 1)}
    voters = {**honest, "rider": noisy(honest["v1"], share)}
    verdicts = attest(voters, None, digests={"rider": "0", "v1": "1"}, f=(n - 1) // 3)
    assert verdicts["rider"].accepted and not verdicts["v1"].accepted, "the least digest stays"
    assert "of the usual distance between voters from that of rider, the limit is 0.25" in verdicts["v1"].reason
    assert {name for name, verdict in verdicts.items() if not verdict.votes} == {"rider", "v1"}
    assert all(attest(voters, None, f=0)[name].accepted for name in voters), "with no liar only equal ones are copies"
    assert attest(voters, None, Limits(copy_ratio=0.0), f=1)["v1"].accepted


def test_all_liars_around_one_voter_are_found() -> None:
    """f of them who copy one: the usual distance is beyond their nest."""
    honest = {f"v{seed}": adapter(seed) for seed in range(5)}
    liars = {f"liar-{number}": noisy(honest["v0"], 0.05, seed=number) for number in range(2)}
    verdicts = attest({**honest, **liars}, None, f=2)
    assert sum(verdicts[name].accepted for name in ("v0", *liars)) == 1
    assert all(verdicts[f"v{seed}"].accepted and verdicts[f"v{seed}"].votes for seed in range(1, 5))


def test_a_common_start_makes_no_copies() -> None:
    """Trained from one start, so that what they have in common outweighs what sets them apart."""
    start = adapter(0, size=10.0)
    voters = {f"v{seed}": noisy(start, 0.05, seed) for seed in range(4)}
    assert all(verdict.accepted and verdict.votes for verdict in attest(voters, None, f=1).values())


def test_two_who_changed_little_are_no_copies() -> None:
    """Near to each other beside the long ones, but in directions of their own."""
    voters = {f"v{seed}": adapter(seed, size=0.3 if seed < 2 else 1.4) for seed in range(4)}
    assert all(verdict.accepted and verdict.votes for verdict in attest(voters, None, f=1).values())


@given(
    st.sampled_from([4, 7, 10]),
    st.integers(0, 1000),
    st.lists(st.sampled_from(["copy", "huge", "small", "between"]), max_size=3),
)
def test_no_liar_makes_copies_of_two_honest_voters(n: int, seed: int, tricks: list[str]) -> None:
    """Of any two honest voters at most those are named copies that a liar itself came near to, one for each liar."""
    f = (n - 1) // 3
    tricks = tricks[:f]
    honest = [adapter(1000 * seed + number, rank=4) for number in range(n - len(tricks))]
    liars = []
    for number, trick in enumerate(tricks):
        one, other = honest[number], honest[number + 1]
        made = {
            "copy": lambda one=one, number=number: noisy(one, 0.03, number),
            "huge": lambda one=one: with_tensors(one, lambda _, t: 2.0 * t),
            "small": lambda one=one: with_tensors(one, lambda _, t: 0.2 * t),
            "between": lambda one=one, other=other: merge_adapters([one, other], [0.5, 0.5]),
        }[trick]
        liars.append(made())
    voters = {f"v{number}": one for number, one in enumerate([*honest, *liars])}
    verdicts = attest(voters, None, f=f)
    gone = [
        name for name in list(voters)[: len(honest)] if not verdicts[name].accepted and "copy" in verdicts[name].reason
    ]
    assert len(gone) <= tricks.count("copy")
    assert sum(not verdict.accepted for verdict in verdicts.values() if "copy" in verdict.reason) == tricks.count(
        "copy"
    )


def test_nothing_to_judge() -> None:
    assert attest({}, None) == {} and majority_shapes({}) == {}
    assert attest({"alone": adapter(1)}, None)["alone"].accepted


def test_a_free_rider_is_named_and_the_agreement_stands(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    voters = on_disk({**honest, "voter-0": honest["voter-3"]})
    agreement = agree(tiny, voters, validation, shards, ConsensusRecipe(), {}, hold=hold_here)
    certificate = agreement.certificate
    assert certificate.accepted == ("voter-0", "voter-1", "voter-2")
    assert "a copy, only one of which was trained" in certificate.voters[3].reason
    assert "it has no vote itself" in certificate.voters[0].reason
    assert {ballot.voter for ballot in certificate.ballots} == {"voter-1", "voter-2"}
    assert verify_certificate(certificate, voters).problems == ()


def test_a_noisy_free_rider_is_named_and_the_certificate_stands(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    voters = on_disk({**honest, "voter-0": noisy(honest["voter-3"], 0.02)})
    certificate = agree(tiny, voters, validation, shards, ConsensusRecipe(), {}, hold=hold_here).certificate
    assert len(certificate.accepted) == 3 and {"voter-1", "voter-2"} < set(certificate.accepted)
    (gone,) = (voter for voter in certificate.voters if not voter.accepted)
    assert gone.name in ("voter-0", "voter-3") and "a near copy" in gone.reason
    assert {ballot.voter for ballot in certificate.ballots} == {"voter-1", "voter-2"}
    assert verify_certificate(certificate, voters).problems == ()
    assert "copy_ratio" in certificate.model_dump(mode="json")["thresholds"]

    alone = agree(
        tiny, voters, validation, shards, ConsensusRecipe(copy_ratio=0.0), {}, hold=hold_here
    ).certificate  # fmt: skip
    assert len(alone.accepted) == 4, "the recipe may ask for equal copies alone"
    assert "copy_ratio" not in alone.model_dump(mode="json")["thresholds"], "as certificates before it were written"
    assert verify_certificate(alone, voters).problems == ()


def test_voters_that_trained_apart_from_one_start_are_no_copies(honest: dict[str, LoraAdapter]) -> None:
    """One start, shards of their own: really trained ones stand far beyond the limit."""
    for f in (1, 2):
        verdicts = attest(honest, None, Limits(copy_ratio=0.5), f=f)
        assert all(verdict.accepted and verdict.votes for verdict in verdicts.values())


def test_no_rule_meets_what_attestation_rejects(honest: dict[str, LoraAdapter]) -> None:
    """What is left combines to something finite under every rule that needs no more than three voters."""
    bad = {"nan": changed(honest["voter-0"], float("nan")), "huge": changed(honest["voter-0"], 1e6)}
    verdicts = attest({**honest, **bad}, None)
    left = [(honest | bad)[name] for name, verdict in verdicts.items() if verdict.accepted]
    assert len(left) == 4
    for rule in ("mean", "median", "trimmed_mean", "geometric_median", "mda", "caf"):
        found = combine(left, rule, f=1).adapter
        assert all(bool(torch.isfinite(tensor).all()) for tensor in found.tensors.values())


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\xff", '{"shard": 2}'])
def test_a_manifest_that_cannot_be_read_states_nothing_and_stops_nobody(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text, "latin-1")
    assert VoterManifest.readable(tmp_path).stated == ({"shard": 2} if "shard" in text else {})
    assert VoterManifest.readable(tmp_path / "missing").stated == {}
