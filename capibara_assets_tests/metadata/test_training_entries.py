"""What a materialization of trained adapters shows of a slice: what its chips did, compiling apart from steps."""

from typing import Any

from capibara_assets.metadata.training_entries import slice_entries

STEP: dict[str, Any] = {
    "device": "TPU v5 lite",
    "devices": 8,
    "compile_seconds": 31.25,
    "step_seconds": 0.5,
    "tflops_per_chip": 98.5,
    "share_of_peak": 0.5,
    "measured_over_predicted": 1.25,
    "peak_note": None,
}


def test_a_slices_voters_show_compiling_steps_and_utilisation() -> None:
    shown = slice_entries({"voter-0": STEP, "voter-1": {"seconds": 3.0}})["chips"].value
    assert "| voter-0 | 8 x TPU v5 lite | 31.2 | 0.5 | 125.0% | 98.5 | 50.0% |" in shown
    assert "voter-1" not in shown


def test_other_devices_have_no_share_and_other_targets_no_table() -> None:
    row = STEP | {"share_of_peak": None, "measured_over_predicted": None, "peak_note": "no share of a peak"}
    assert "| – | 98.5 | – |" in slice_entries({"voter-0": row})["chips"].value
    assert slice_entries({"voter-0": {"seconds": 3.0}}) == {}
