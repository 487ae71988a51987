"""Step times: known answers of each term, and what must hold whatever the settings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning.machines import machine
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Method, Remat
from capibara_assets.planning.hardware.machine import Machine, machine_of
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.prediction.roofline import TERMS, padded, work
from capibara_assets.planning.prediction.step_time import predict
from capibara_assets.planning.workload import EVERYTHING, NOTHING, Workload, policy

LLAMA = read_shape("llama3.1-8b")
T5 = read_shape("t5_1_1-large")


def load(mesh: Mesh, **changes: object) -> Workload:
    base = Workload(shape=LLAMA, sequence=4096, global_batch=4 * mesh.batch_shards, mesh=mesh)
    return replace(base, **changes)  # type: ignore[arg-type]


def terms(one: Workload, where: Machine) -> dict[str, float]:
    return work(one, where).named()


V5E = machine("tpu-v5e", 64)
FSDP = Mesh(data=1, fsdp=64, tensor=1)


def test_products_are_flops_over_the_reachable_peak() -> None:
    weights = LLAMA.matmul_parameters
    tokens = 4 * 4096
    found = terms(load(FSDP), V5E)
    assert found["matmul"] == pytest.approx(6 * weights * tokens / (197e12 * 0.95))
    blocks = weights - LLAMA.head_parameters
    again = terms(load(FSDP, recompute=EVERYTHING), V5E)["matmul"] - found["matmul"]
    assert again == pytest.approx(2 * blocks * tokens / (197e12 * 0.95))


def test_attention_is_causal_two_products_forward_and_five_backward() -> None:
    tokens, width = 4 * 4096, 32 * 128
    flops = 32 * tokens * 4 * width * (4096 / 2) * 3.5
    assert terms(load(FSDP), V5E)["attention"] == pytest.approx(flops / 197e12)
    windowed = terms(load(FSDP, window=1024, windowed=1.0), V5E)["attention"]
    assert windowed == pytest.approx(flops / 197e12 / 2)


def test_weights_are_gathered_twice_and_gradients_scattered_once_in_each_pass() -> None:
    moved = 3 * 2 * LLAMA.parameters * 63 / 64
    found = terms(load(FSDP), V5E)
    assert found["gather"] == pytest.approx(moved / (2 * 45e9))
    assert terms(load(FSDP, micro_steps=2), V5E)["gather"] == pytest.approx(2 * found["gather"])
    assert terms(load(Mesh(data=64, fsdp=1, tensor=1)), V5E)["gather"] == 0


def test_slices_talk_over_the_network_and_only_of_gradients() -> None:
    pair = machine("tpu-v5e", 512, 2)
    found = terms(load(Mesh(data=1, fsdp=256, tensor=1, slices=2)), pair)
    held = 2 * LLAMA.parameters / 256
    assert found["network"] == pytest.approx(2 * held / 2 / (25e9 / 8))
    assert found["reduce"] == 0


def test_a_chip_reads_its_part_of_weights_and_moments() -> None:
    assert terms(load(FSDP), V5E)["optimizer"] == pytest.approx(28 * LLAMA.parameters / 64 / 819e9)


def test_pipelines_wait_for_their_first_and_last_stage() -> None:
    where = machine("h100-80gb", 32)
    staged = load(Mesh(data=1, fsdp=8, tensor=1, pipeline=4), micro_steps=8, software="torchtitan")
    assert work(staged, where).bubble == pytest.approx(3 / 8)
    # MaxText's stages hold eight layers each, one at a turn: the batch goes round eight times.
    assert work(replace(staged, software="maxtext"), where).bubble == pytest.approx(3 / 64)


@pytest.mark.parametrize(
    ("length", "tile", "factor"), [(128, 128, 1), (129, 128, 256 / 129), (1, 64, 64), (256, 256, 1)]
)
def test_sizes_are_filled_up_to_tiles(length: int, tile: int, factor: float) -> None:
    assert padded(length, tile) == pytest.approx(factor)


def test_lora_skips_the_frozen_weights_gradients_and_their_traffic() -> None:
    adapters = {"method": Method.LORA, "lora_rank": 16, "lora_modules": ("q_proj", "v_proj")}
    full, lora = terms(load(FSDP), V5E), terms(load(FSDP, **adapters), V5E)
    assert lora["matmul"] / full["matmul"] == pytest.approx(2 / 3)
    assert lora["optimizer"] < full["optimizer"] / 10
    assert lora["gather"] == pytest.approx(2 / 3 * full["gather"], rel=0.01)


def test_eight_bits_run_on_their_own_peak() -> None:
    where = machine("h100-80gb", 8)
    mesh = Mesh(data=1, fsdp=8, tensor=1)
    plain, small = terms(load(mesh), where), terms(load(mesh, precision="fp8-rowwise"), where)
    blocks = 6 * (LLAMA.matmul_parameters - LLAMA.head_parameters) * 4 * 4096
    assert small["matmul8"] == pytest.approx(blocks / (1978.9e12 * where.reachable))
    assert small["matmul"] + 2 * small["matmul8"] == pytest.approx(plain["matmul"], rel=1e-3)
    assert small["casts"] > 0 == plain["casts"]


def test_an_encoder_decoder_counts_both_its_lengths() -> None:
    one = load(FSDP, shape=T5, sequence=512, inputs=512)
    expected = T5.encoder_layers * 512 + T5.layers * (512 + 512)
    dense = 6 * (T5.parameters - T5.embedding_parameters - T5.vector_parameters)
    assert one.flops_per_token(causal=False) == pytest.approx(dense + 12 * 16 * 64 * expected, rel=1e-3)
    assert terms(one, V5E)["matmul"] > 0.9 * dense * one.tokens / 64 / 197e12


def test_terms_and_resources_add_up_to_the_step() -> None:
    found = predict(load(FSDP), V5E)
    low, middle, high = found.step_seconds
    assert low < middle < high and high / middle == pytest.approx(middle / low)
    assert sum(found.terms.values()) == pytest.approx(middle) == pytest.approx(sum(found.resources.values()))
    assert tuple(found.terms) == TERMS
    assert found.binds == max(found.resources, key=lambda name: found.resources[name])
    assert found.tokens_per_second[1] == pytest.approx(4 * 64 * 4096 / middle)
    flops = load(FSDP).flops_per_token(causal=True) * found.tokens_per_second[1] / 64
    rate = found.tflops_per_chip
    assert rate["causal"] == pytest.approx(flops / 1e12) and rate["causal"] < rate["full"]


def test_what_the_calibration_knows_narrows_the_interval() -> None:
    def width(of: Workload, where: Machine) -> float:
        _, middle, high = predict(of, where).step_seconds
        return high / middle

    known = width(load(FSDP), V5E)
    assert width(load(FSDP, software="unheard-of"), V5E) > known
    unknown = replace(V5E, family="tpu-v9", architecture="tpu-v9")
    assert width(load(FSDP), unknown) > known


def test_a_mesh_has_to_use_the_targets_chips() -> None:
    with pytest.raises(InputError, match="64 chips, the target 256"):
        predict(load(FSDP), find_target("tpu-v6e-256"))


@pytest.mark.parametrize("name", ["tpu-v4-64", "tpu-v5e-64", "tpu-v5p-128", "tpu-v6e-256", "h100-8", "a100-8"])
def test_no_prediction_is_above_the_peak(name: str) -> None:
    target = find_target(name)
    found = predict(load(Mesh(data=1, fsdp=target.chips, tensor=1)), target)
    assert 0.1 < found.tflops_per_chip["full"] * 1e12 / machine_of(target).peak("bf16") < 0.9


MESHES = [
    Mesh(data=1, fsdp=64, tensor=1),
    Mesh(data=8, fsdp=8, tensor=1),
    Mesh(data=2, fsdp=4, tensor=8),
    Mesh(data=1, fsdp=16, tensor=2, pipeline=2),
]


@given(
    mesh=st.sampled_from(MESHES),
    family=st.sampled_from(["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "h100-80gb", "a100-80gb", "mi300x"]),
    rows=st.integers(1, 16),
    sequence=st.sampled_from([128, 2048, 32768]),
    remat=st.sampled_from(list(Remat)),
    factor=st.floats(1.0, 4.0),
)
def test_more_is_never_worse(mesh: Mesh, family: str, rows: int, sequence: int, remat: Remat, factor: float) -> None:
    where = machine(family, 64)
    one = load(mesh, global_batch=rows * mesh.batch_shards, sequence=sequence, recompute=policy(remat, "maxtext"))
    seconds = predict(one, where).step_seconds[1]
    wider = replace(where, hbm=where.hbm * factor, link=where.link * factor, network=where.network * factor)
    assert predict(one, wider).step_seconds[1] <= seconds * (1 + 1e-12)
    stronger = replace(where, peaks=tuple((name, peak * factor) for name, peak in where.peaks))
    assert predict(one, stronger).step_seconds[1] <= seconds * (1 + 1e-12)
    # More recomputation is never faster, more tokens are never quicker, though never worse per token.
    assert predict(replace(one, recompute=NOTHING), where).step_seconds[1] <= seconds
    double = predict(replace(one, global_batch=2 * one.global_batch), where)
    assert seconds < double.step_seconds[1] <= 2 * seconds * (1 + 1e-9)
