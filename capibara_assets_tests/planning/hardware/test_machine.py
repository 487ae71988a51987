"""Machines: families by any name a table uses, islands and toruses as the cloud cuts them, rings and collectives."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning.machines import machine
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.collectives import (
    AxisPlacement,
    exchange_seconds,
    gather_seconds,
    place_axis,
    reduce_seconds,
    ring_rate,
)
from capibara_assets.planning.hardware.machine import accelerators, find_family, machine_of
from capibara_assets.planning.hardware.targets import find_target

TARGETS = ["tpu-v4-64", "tpu-v5e-64", "tpu-v6e-256", "h100-8", "h200-1"]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("tpu-v6e", "tpu-v6e"),
        ("TPU v5p", "tpu-v5p"),
        ("v5e", "tpu-v5e"),
        ("tpu7x", "tpu7x"),
        ("H100", "h100-80gb"),
        ("NVIDIA H100-80GB-SXM", "h100-80gb"),
        ("a100-80gb", "a100-80gb"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("A100 40G", "a100-40gb"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("GB200 NVL72", "gb200"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("Ironwood", "tpu7x"),
        ("TPU v7x", "tpu7x"),
        ("Trillium", "tpu-v6e"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v5", "tpu-v5p"),
        ("v3-8", "tpu-v3"),
        ("L40S", "l40s"),
        ("RTX 4090", "rtx-4090"),
    ],
)
def test_a_family_has_many_names(name: str, family: str) -> None:
    assert find_family(name) == family


def test_an_unknown_accelerator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown accelerator 'abacus'; known: .*tpu-v5e"):
        find_family("abacus")


@pytest.mark.parametrize("name", sorted(accelerators()))
def test_every_accelerator_makes_a_machine(name: str) -> None:
    found = machine(name, 8)
    assert found.family == name and found.chips == 8
    assert found.peak("bf16") > found.hbm > found.link and found.exponentials < found.peak("bf16") / 25
    assert 0.4 < found.reachable <= 1


@pytest.mark.parametrize(
    ("family", "chips", "axes", "wraps"),
    [
        ("tpu-v5e", 64, (8, 8), (False, False)),
        ("tpu-v6e", 256, (16, 16), (True, True)),
        ("tpu-v5e", 128, (8, 16), (False, True)),
        ("tpu-v4", 64, (4, 4, 4), (True, True, True)),
        ("tpu-v5p", 128, (4, 4, 8), (True, True, True)),
        ("tpu-v4", 32, (2, 4, 4), (False, False, False)),
        ("h100-80gb", 512, (), ()),
    ],
)
def test_slices_have_the_clouds_shapes(family: str, chips: int, axes: tuple[int, ...], wraps: tuple[bool, ...]) -> None:
    found = machine(family, chips)
    assert (found.axes, found.wraps) == (axes, wraps)


def test_slices_and_hosts_are_islands() -> None:
    assert machine("tpu-v5e", 512, 2).island == 256
    assert machine("h100-80gb", 512, 64).island == 8 and machine("h100-80gb", 512).hosts == 64


@pytest.mark.parametrize("name", TARGETS)
def test_a_declared_target_is_the_machine_of_its_family(name: str) -> None:
    target = find_target(name)
    found = machine_of(target)
    published = machine(found.family, target.chips)
    assert (found.axes, found.wraps, found.peaks) == (published.axes, published.wraps, tuple(sorted(published.peaks)))
    assert (found.hbm, found.link, found.tile) == (published.hbm, published.link, published.tile)


def test_a_target_without_a_peak_cannot_be_predicted() -> None:
    with pytest.raises(InputError, match="axion-c4a-32 declares no bf16 peak"):
        machine_of(find_target("axion-c4a-32"))


def test_a_torus_has_twice_the_ring_bandwidth_of_a_mesh() -> None:
    mesh, torus = machine("tpu-v6e", 64), machine("tpu-v6e", 256)
    assert ring_rate(mesh, 64) == 2 * 90e9
    assert ring_rate(torus, 256) == 2 * 2 * 90e9
    assert ring_rate(torus, 16) == 2 * 90e9
    # Half an axis is no ring, even where the whole axis is one.
    assert ring_rate(torus, 8) == 90e9


def test_axes_lie_inside_islands_first() -> None:
    hosts = machine("h100-80gb", 64)
    assert place_axis(hosts, [8, 8], 0) == AxisPlacement(inner=8, outer=1, members=8)
    assert place_axis(hosts, [8, 8], 1) == AxisPlacement(inner=1, outer=8, members=8)
    assert place_axis(hosts, [1, 64], 1) == AxisPlacement(inner=8, outer=8, members=64)
    assert place_axis(hosts, [2, 32], 1) == AxisPlacement(inner=4, outer=8, members=32)


def test_collectives_take_what_their_bytes_need() -> None:
    host = machine("h100-80gb", 8)
    inside = AxisPlacement(8, 1, 8)
    assert gather_seconds(host, inside, 450e9) == pytest.approx(7 / 8)
    assert reduce_seconds(host, inside, 450e9) == pytest.approx(2 * 7 / 8)
    assert exchange_seconds(host, inside, 450e9) == pytest.approx(7 / 8)
    # Eight hosts: each chip fetches its eighth of the seven others' parts over the network, 50 GB/s a chip.
    cluster = machine("h100-80gb", 64)
    assert gather_seconds(cluster, AxisPlacement(8, 8, 64), 400e9) == pytest.approx(7 / 8)
    assert gather_seconds(host, AxisPlacement(1, 1, 1), 1e12) == 0


@given(
    inner=st.sampled_from([1, 2, 4, 8]),
    outer=st.sampled_from([1, 2, 16]),
    total=st.floats(1e3, 1e12),
    family=st.sampled_from(["h100-80gb", "tpu-v5e", "tpu-v5p"]),
)
def test_wider_links_are_never_slower(inner: int, outer: int, total: float, family: str) -> None:
    found, where = machine(family, 64), AxisPlacement(inner, outer, inner * outer)
    wider = replace(found, hbm=2 * found.hbm, link=2 * found.link, network=2 * found.network)
    for seconds in (gather_seconds, reduce_seconds, exchange_seconds):
        assert 0 <= seconds(wider, where, total) <= seconds(found, where, total)
