"""Throughput targets: units, readings of a bare number, and physics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import flops_per_token
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.prediction.throughput import parse_throughput, readings

PER_TOKEN = flops_per_token(read_shape("llama2-7b"), 2048)


@pytest.mark.parametrize(
    ("text", "value", "unit", "scope"),
    [
        ("200TFLOPs/chip", 200e12, "flops", "chip"),
        ("200 TFLOP/s/chip", 200e12, "flops", "chip"),
        ("12 PFLOP/s per slice", 12e15, "flops", "slice"),
        ("275 TFLOPS", 275e12, "flops", None),
        ("24,800 tokens/s", 24_800, "tokens", None),
        ("24.8k tok/s/gpu", 24_800, "tokens", "chip"),
        ("275+", 275, None, None),
        ("275+ TFLOP/s", 275e12, "flops", None),
        ("1_500", 1500, None, None),
    ],
)
def test_units_are_read(text: str, value: float, unit: str | None, scope: str | None) -> None:
    target = parse_throughput(text)
    assert target.value == pytest.approx(value)
    assert (target.unit, target.scope) == (unit, scope)


@pytest.mark.parametrize("text", ["", "fast", "200 TFLOPs/galaxy", "200 bananas/s", "-3 TFLOPs/chip", "tokens/s"])
def test_what_is_no_throughput_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not understood"):
        parse_throughput(text)


def test_the_peak_itself_is_impossible_on_v4() -> None:
    with pytest.raises(InputError, match=r"275 of 275 TFLOP/s peak = 100\.00%"):
        readings(parse_throughput("275TFLOPs/chip"), find_target("tpu-v4-64"), PER_TOKEN)


def test_a_bare_275_on_v5e_64_is_answered_under_each_reading() -> None:
    answers = readings(parse_throughput("275+"), find_target("tpu-v5e-64"), PER_TOKEN)
    per_chip, per_slice, tokens = answers
    assert per_chip.verdict == "impossible"
    assert per_chip.share_of_peak == pytest.approx(275 / 197)
    assert "275 of 197 TFLOP/s peak = 139.59%" in per_chip.arithmetic
    assert per_slice.fits
    assert per_slice.share_of_peak == pytest.approx(275 / (64 * 197))
    assert "2.18%" in per_slice.arithmetic
    assert tokens.fits and tokens.meaning == "275 tokens/s per slice"


def test_a_bare_number_is_refused_only_where_no_reading_fits() -> None:
    with pytest.raises(InputError, match=r"impossible on tpu-v5e-64: .*per chip.*per slice.*tokens/s") as refused:
        readings(parse_throughput("1e12"), find_target("tpu-v5e-64"), PER_TOKEN)
    assert "/ 64 chips" in str(refused.value)


def test_above_the_best_published_run_is_flagged_but_not_refused() -> None:
    (answer,) = readings(parse_throughput("250TFLOPs/chip"), find_target("tpu-v4-64"), PER_TOKEN)
    assert answer.verdict == "above every published run"
    assert "58.9%" in answer.arithmetic
    (fine,) = readings(parse_throughput("150TFLOPs/chip"), find_target("tpu-v4-64"), PER_TOKEN)
    assert fine.verdict == "reached by published runs"


def test_tokens_are_turned_into_flops_with_the_arithmetic_shown() -> None:
    (answer,) = readings(parse_throughput("2,000 tokens/s/chip"), find_target("tpu-v5e-64"), PER_TOKEN)
    assert answer.tflops_per_chip == pytest.approx(2000 * PER_TOKEN / 1e12)
    assert answer.tokens_per_second == pytest.approx(2000 * 64)
    assert "FLOPs per token" in answer.arithmetic


def test_without_a_peak_nothing_can_be_judged() -> None:
    with pytest.raises(InputError, match="cpu-laptop declares no bf16 peak"):
        readings(parse_throughput("1"), find_target("cpu-laptop"), PER_TOKEN)


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_no_reading_that_fits_is_at_or_above_the_peak(number: float) -> None:
    target = find_target("tpu-v6e-256")
    try:
        answers = readings(parse_throughput(f"{number:f}"), target, PER_TOKEN)
    except InputError:
        # All three readings: even spread over the slice it is too much.
        assert number * PER_TOKEN / 256 >= 918e12
        return
    for answer in answers:
        assert answer.fits == (answer.tflops_per_chip < 918)
