"""Slices by name: known shapes, the laws of their geometry, and what is refused with what is possible."""

import json
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.families import TpuFamily, read_families
from capibara_assets.planning.hardware.targets import find_target

FAMILIES = read_families(resources_root() / "hardware" / "families")
TPUS = [family for family in FAMILIES.values() if isinstance(family, TpuFamily)]


@pytest.mark.parametrize(
    ("name", "chips", "axes", "wrap", "vms", "accelerator"),
    [
        ("tpu-v4-8", 4, (2, 2, 1), False, 1, "v4-8"),
        ("tpu-v4-128", 64, (4, 4, 4), True, 16, "v4-128"),
        ("tpu-v4-384", 192, (4, 4, 12), True, 48, "v4-384"),
        ("tpu-v4-4096", 2048, (8, 16, 16), True, 512, "v4-4096"),
        ("tpu-v5p-256", 128, (4, 4, 8), True, 32, "v5p-256"),
        ("tpu-v5p-768", 384, (4, 8, 12), True, 96, "v5p-768"),
        ("tpu-v5p-12288", 6144, (16, 16, 24), True, 1536, "v5p-12288"),
        ("tpu-v5e-1", 1, (1, 1), False, 1, "v5litepod-1"),
        ("tpu-v5e-8", 8, (2, 4), False, 1, "v5litepod-8"),
        ("tpu-v5e-16", 16, (4, 4), False, 4, "v5litepod-16"),
        ("tpu-v6e-8", 8, (2, 4), False, 1, "v6e-8"),
        ("tpu-v6e-64", 64, (8, 8), False, 16, "v6e-64"),
        ("tpu-v6e-256", 256, (16, 16), True, 64, "v6e-256"),
        ("tpu-v5p-4x4x8", 128, (4, 4, 8), True, 32, "v5p-256"),
    ],
)
def test_known_slices(name: str, chips: int, axes: tuple[int, ...], wrap: bool, vms: int, accelerator: str) -> None:
    target = find_target(name)
    assert target.topology is not None
    assert (target.name, target.chips, target.topology.axes, target.vms) == (name, chips, axes, vms)
    assert target.topology.wrap == (wrap,) * len(axes)
    assert target.accelerator_type == accelerator


def test_half_a_pod_wraps_round_on_one_axis_only() -> None:
    topology = find_target("tpu-v6e-128").topology
    assert topology is not None
    assert (topology.axes, topology.wrap) == ((8, 16), (False, True))


def test_what_the_compiler_is_asked_for() -> None:
    names = {name: find_target(name) for name in ("tpu-v4-128", "tpu-v5p-256", "tpu-v5e-64", "tpu-v6e-256")}
    assert [target.xla_topology for target in names.values()] == ["v4:4x4x4", "v5:4x4x8", "v5e:8x8", "v6e:16x16"]
    # Without it the compiler shows two devices for each v4 and v5p chip.
    assert names["tpu-v4-128"].xla_options == names["tpu-v5p-256"].xla_options == {"chip_config_name": "megacore"}
    assert names["tpu-v5e-64"].xla_options == names["tpu-v6e-256"].xla_options == {}


def test_a_pod_asks_for_the_slice() -> None:
    slice_16, host = find_target("tpu-v5e-16").kubernetes, find_target("tpu-v5e-8").kubernetes
    assert slice_16 is not None and host is not None
    assert slice_16.node_selector["cloud.google.com/gke-tpu-topology"] == "4x4"
    assert (slice_16.machine_type, slice_16.nodes, slice_16.limits) == ("ct5lp-hightpu-4t", 4, {"google.com/tpu": "4"})
    assert (host.machine_type, host.nodes, host.limits) == ("ct5lp-hightpu-8t", 1, {"google.com/tpu": "8"})


def test_collected_slices_have_the_collected_shapes(shared_data: Path) -> None:
    chips = json.loads((shared_data / "hardware" / "chips.json").read_text())
    compared = 0
    for family in ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"):
        known = chips[family]
        for name, shape in known["slices"].items():
            target = find_target(f"tpu-{name}")
            assert target.topology is not None
            assert "x".join(map(str, target.topology.axes)) == shape
            assert target.memory.total_gib == known["hbm_gib"]
            assert target.memory.usable_gib == known["hbm_usable_gib_xla"]
            assert target.links is not None and target.links.links_per_chip == known["ici_links_per_chip"]
            compared += 1
        assert FAMILIES[family].memory.bandwidth_gb_per_s == known["hbm_gbps"]
    assert compared >= 35


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tpu-v5e-48", r"no tpu-v5e-48: N counts chips: 1, 4, 8, 16, 32, 64, 128, 256; the nearest: tpu-v5e-32 and"),
        ("tpu-v5e-512", r"no tpu-v5e-512: .* the nearest: tpu-v5e-256"),
        (
            "tpu-v4-100",
            r"N counts cores, 2 a chip: 8, 16, 32, 64, or a multiple of 128 up to 8192; the nearest: tpu-v4",
        ),
        ("tpu-v4-7", r"no tpu-v4-7: .*the nearest: tpu-v4-8"),
        ("tpu-v5p-16384", r"up to 12288; the nearest: tpu-v5p-12288"),
        ("tpu-v6e-4x16", r"no TPU v6e \(Trillium\) slice has the shape 4x16: there are 1x1, 2x2"),
        ("tpu-v4-4x4x6", r"no TPU v4 slice has the shape 4x4x6: .* multiples of 4 with at most 4096 chips"),
        ("tpu-v4-0", "no tpu-v4-0"),
        ("h100-3", r"no h100-3: 1, 2, 4, 8 GPUs, or a multiple of 8"),
        ("h100-20", "no h100-20"),
        ("tpu-v9-64", r"no hardware target 'tpu-v9-64'; did you mean .*or any slice of .*tpu-v6e-N"),
    ],
)
def test_an_impossible_slice_is_refused_with_the_possible_ones(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_target(name)


def test_gpus_come_in_parts_of_a_host_or_whole_hosts() -> None:
    two, many = find_target("h100-2"), find_target("a100-512")
    assert two.links is not None and two.links.host_network_gb_per_s == 25
    assert (many.chips, many.hosts, many.memory.usable_gib) == (512, 64, 78)
    assert many.peak("bf16") == 312e12


def test_a_price_is_of_the_whole_target_and_dated() -> None:
    target = find_target("tpu-v5e-64")
    assert target.price.usd_per_hour == pytest.approx(64 * 1.2) and target.price.date == "2025-02-03"
    assert "64 x 1.2 USD a chip and hour" in target.price.note
    assert find_target("tpu-v6e-64").price.usd_per_hour is None


@given(family=st.sampled_from(TPUS), data=st.data())
def test_every_slice_of_every_family_is_sound(family: TpuFamily, data: st.DataObject) -> None:
    chips = data.draw(st.sampled_from(list(family.counts_to())))
    target = find_target(f"{family.name}-{chips * family.per_count}")
    assert target.topology is not None and target.chips == chips == prod(target.topology.axes)
    assert family.has(target.topology.axes)
    assert target.vms * min(chips, family.chips_per_host) >= chips
    shape = "x".join(map(str, target.topology.axes))
    same = find_target(f"{family.name}-{shape}")
    assert same.topology is not None and same.topology == target.topology
    assert same.accelerator_type == target.accelerator_type


@given(family=st.sampled_from(TPUS), count=st.integers(1, 20_000))
def test_a_count_is_a_slice_exactly_where_the_family_says_so(family: TpuFamily, count: int) -> None:
    possible = {number * family.per_count for number in family.counts_to()}
    try:
        find_target(f"{family.name}-{count}")
    except InputError:
        assert count not in possible
    else:
        assert count in possible
