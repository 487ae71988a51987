"""The loss is right: whatever the micro-batches and the layout, and never of examples that have nothing to learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.loop.test_train import greatest_difference, manifest, train

QUIET = {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}


def losses(result: Path) -> list[float]:
    """Of each step and each validation."""
    curve = json.loads((result / "curve.json").read_text())
    return [point[key] for point in curve for key in ("loss", "validation_loss", "gradient_norm") if key in point]


def test_eight_at_once_are_eight_times_one_and_four_times_two(make_request: MakeRequest) -> None:
    found = [
        train(
            make_request(
                work=f"by-{size}", lora=QUIET, global_batch=8, micro_batch=size, accumulation=8 // size, max_steps=3
            )
        )
        for size in (8, 1, 2)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(losses(other), losses(found[0]), atol=1e-5)
        assert greatest_difference(read_adapter(other), read_adapter(found[0])) < 1e-4


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.extended)])
def test_packing_changes_the_layout_only(make_request: MakeRequest, attention: str) -> None:
    few = {"lora": QUIET, "attention": attention, "max_steps": 3}
    plain = train(make_request(work="plain", **few))
    rows = train(make_request(work="packed", **few, packing=True, micro_batch_tokens=256))
    np.testing.assert_allclose(losses(rows), losses(plain), atol=1e-5)
    by_four = train(make_request(work="four", **few, packing=True, micro_batch=3))
    np.testing.assert_allclose(losses(by_four), losses(plain), atol=1e-5)


@pytest.fixture
def with_bad_ones(dataset: Path, tmp_path: Path) -> Path:
    """The dataset with an example without an answer, and one that is too long."""
    table = pl.read_parquet(dataset)
    turns = [{"role": "user", "content": "Nothing to learn."}]
    long = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "one two three " * 200}]
    rows = [
        {"example_id": name, "group_id": name, "split": "train", "messages": json.dumps(messages)}
        for name, messages in (("unanswered", turns), ("endless", long))
    ]
    pl.concat([table, pl.DataFrame(rows)]).write_parquet(tmp_path / "bad.parquet")
    return tmp_path / "bad.parquet"


def test_an_example_without_a_supervised_token_is_named_or_left_out(
    make_request: MakeRequest, with_bad_ones: Path
) -> None:
    with pytest.raises(InputError, match="unanswered: no token of the assistant's turn is supervised"):
        train(make_request(data=with_bad_ones, on_fault="raise", too_long="leave_out"))
    events = list[dict[str, Any]]()
    found = manifest(train(make_request(data=with_bad_ones, max_steps=1), events=events))
    assert found["examples_left_out"] == 2
    started = next(event for event in events if event["event"] == "started")
    assert (started["left_out"], started["truncated"]) == (2, 0)


def test_what_is_too_long_is_left_out_or_refused_or_cut_and_counted(
    make_request: MakeRequest, with_bad_ones: Path
) -> None:
    with pytest.raises(InputError, match="endless: longer than max_length=128"):
        train(make_request(data=with_bad_ones, too_long="raise"))
    events = list[dict[str, Any]]()
    train(make_request(work="cut", data=with_bad_ones, max_steps=1, too_long="truncate"), events=events)
    started = next(event for event in events if event["event"] == "started")
    assert (started["left_out"], started["truncated"]) == (1, 1)
    with pytest.raises(InputError, match=r"cut to max_length 4, \d+ examples have no token with a loss: e000"):
        train(make_request(work="short", data=with_bad_ones, max_length=4, too_long="truncate"))
