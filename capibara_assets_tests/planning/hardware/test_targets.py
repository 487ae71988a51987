"""Hardware targets: those that ship are consistent, and a wrong declaration is refused with the reason."""

import json
from math import prod
from pathlib import Path

import pytest
import yaml

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import find_target, load_targets, read_target

SHIPPED = {
    "axion-c4a-32",
    "cpu-laptop",
    "h100-2",
    "h100-8",
    "h200-1",
    "tpu-v4-64",
    "tpu-v5e-64",
    "tpu-v6e-256",
    "tpu-v6e-64",
}


def test_the_promised_targets_ship() -> None:
    assert set(load_targets()) == SHIPPED


def test_v4_names_count_cores_and_v5e_names_count_chips() -> None:
    assert find_target("tpu-v4-64").chips == 32
    assert find_target("tpu-v5e-64").chips == 64


def test_only_axes_of_sixteen_wrap_round_on_v6e() -> None:
    small, pod = find_target("tpu-v6e-64").topology, find_target("tpu-v6e-256").topology
    assert small is not None and pod is not None
    assert small.wrap == (False, False)
    assert pod.wrap == (True, True)


def test_the_issues_targets_are_what_the_issue_says() -> None:
    laptop, axion = find_target("cpu-laptop"), find_target("axion-c4a-32")
    assert (laptop.chips, laptop.launcher) == (1, "local")
    assert (axion.cores, axion.memory.total_gib, axion.bf16) == (32, 64, "native")
    assert [find_target(name).chips for name in ("h100-2", "h100-8", "h200-1")] == [2, 8, 1]
    for target in load_targets().values():
        assert target.launcher == {"cpu-laptop": "local"}.get(target.name, "tpu-vm" if target.kind == "tpu" else "k8s")
        assert target.kubernetes is not None or target.name == "cpu-laptop"


def test_chip_figures_agree_with_the_collected_ones(shared_data: Path) -> None:
    chips = json.loads((shared_data / "hardware" / "chips.json").read_text())
    names = {"h100": "h100-80gb-sxm", "h200": "h200-sxm"}
    compared = 0
    for target in load_targets().values():
        if target.kind == "cpu":
            continue
        chip = chips[names.get(target.family, target.family)]
        peak = target.peak("bf16")
        assert peak == chip["peak_tflops_bf16"] * 1e12
        assert target.memory.bandwidth_gb_per_s == chip["hbm_gbps"]
        if target.kind == "tpu":
            assert target.memory.usable_gib == chip["hbm_usable_gib_xla"]
            assert target.links is not None and target.topology is not None
            assert target.links.chip_gb_per_s == chip["ici_gbps_per_link_oneway"]
            name = (target.accelerator_type or "").replace("v5litepod", "v5e")
            assert chip["slices"][name] == "x".join(map(str, target.topology.axes))
            assert prod(target.topology.axes) == target.chips
        compared += 1
    assert compared == 7


def test_efficiencies_are_the_published_bests(shared_data: Path) -> None:
    polars = pytest.importorskip("polars")
    rows = polars.read_csv(shared_data / "hardware" / "published_training.csv", infer_schema_length=None)
    for name in ("tpu-v4-64", "tpu-v5e-64", "tpu-v6e-64"):
        target = find_target(name)
        mfu = rows.filter((polars.col("hardware") == target.family) & (polars.col("precision") == "bf16"))[
            "mfu_computed"
        ]
        shares = mfu.cast(polars.Float64).drop_nulls() / 100
        assert target.efficiency is not None
        # v4's best run is told in the prose of its source, not in the table, hence the lower bound.
        assert shares.max() - 0.005 <= target.efficiency.best <= shares.max() + 0.03
        assert target.efficiency.typical == pytest.approx(shares.median(), abs=0.001)


def declaration(**changes: object) -> dict[str, object]:
    return find_target("tpu-v5e-64").model_dump(mode="json") | changes


def written(folder: Path, document: dict[str, object], name: str = "tpu-v5e-64") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chips": 65}, "has 64 chips, not 65"),
        ({"colour": "blue"}, "colour"),
        ({"topology": {"axes": [8, 8], "wrap": [True], "note": ""}}, "equally long"),
        ({"efficiency": {"best": 0.5, "typical": 0.6, "source": "x"}}, "typical 0.6 exceeds best 0.5"),
        ({"price": {"usd_per_hour": 3.0, "date": None, "note": ""}}, "a price needs its date"),
        ({"peaks": {}}, "say why in peaks_note"),
        ({"links": None}, "needs topology, links"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_target(written(tmp_path, declaration(**changes)))


def test_a_target_is_named_like_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"name the file tpu-v5e-64\.yaml"):
        read_target(written(tmp_path, declaration(), name="other"))


def test_a_new_target_is_a_new_file(tmp_path: Path) -> None:
    written(tmp_path, declaration(name="tpu-mine"), name="tpu-mine")
    assert set(load_targets(tmp_path)) == {"tpu-mine"}


def test_an_empty_folder_is_no_set_of_targets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no hardware targets"):
        load_targets(tmp_path)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'tpu-v5e-64'"):
        find_target("tpu-v5e64")


def test_prices_are_dated_or_explained() -> None:
    for target in load_targets().values():
        assert (target.price.usd_per_hour is None) == (target.price.date is None)
        assert target.price.note
