"""Hierarchical training: whose examples, how many steps, at which rate; and what happens without hard examples."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.training.request import FurtherDataset, TrainingRequest
from capibara_assets.training.step.settings import shared_steps
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import digests, manifest, train, train_stopped, voters

HIERARCHICAL = {"kind": "hierarchical"}


def write_table(folder: Path, domain: str, examples: int, hard: int = 0, repairs: int = 0, same: int = 0) -> Path:
    """Train and validation examples, a quarter for validation; the last `hard`, `repairs` of the train ones stand out.

    `same` of them are word for word those of any other table.
    """
    rows = []
    for number in range(examples):
        split = "validation" if number % 4 == 0 else "train"
        word = "shared" if split == "train" and number <= same + same // 3 else domain
        messages = [
            {"role": "user", "content": f"Add {number} in {word}."},
            {"role": "assistant", "content": f"def add_{number}_{word}(x):\n    return x + {number}\n"},
        ]
        left = examples - number
        rows.append({
            "example_id": f"e{number:03}", "group_id": f"g{number:03}", "split": split,
            "messages": json.dumps(messages),
            "kind": "repair" if split == "train" and left <= repairs else "solve",
            "difficulty": 0.9 if split == "train" and left <= hard else 0.2,
        })  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(folder / f"{domain}.parquet")
    return folder / f"{domain}.parquet"


@pytest.fixture
def request_of(make_request: MakeRequest, tmp_path: Path) -> Any:
    """A hierarchical request in domain python (30 train examples, six of them hard) beside sql (15)."""

    def make(work: str = "work", strategy: dict[str, Any] = HIERARCHICAL, **changes: Any) -> TrainingRequest:
        data = write_table(tmp_path / "data", "python", 40, hard=8, repairs=4, same=3)
        sql = FurtherDataset(dataset=write_table(tmp_path / "data", "sql", 20, same=3), digest="of sql")
        values = {"max_steps": None, "global_batch": 5, "warmup": 0.0, "epochs": 99} | changes
        request = make_request(work=work, data=data, voters=voters(strategy), **values)
        return request.model_copy(update={"further": {Domain.SQL: sql}})

    return make


def steps_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "step"]


def test_levels_have_their_own_examples_steps_and_rates(request_of: Any) -> None:
    events: list[dict[str, Any]] = []
    found = manifest(train(request_of(global_batch=10, micro_batch_tokens=2000), events=events))
    general, specialized, finetuning = found["levels"]
    # 30 own and 15 of sql, three of them the same: 42 in steps of 10, three times over
    assert general["domains"] == {"python": 30, "sql": 12}
    assert (general["examples"], general["steps"], general["learning_rate"]) == (42, 3 * 5, 0.01)
    assert (specialized["examples"], specialized["steps"], specialized["learning_rate"]) == (30, 2 * 3, 0.005)
    assert (finetuning["examples"], finetuning["repaired"], finetuning["difficult"]) == (6, 3, 6)
    assert (finetuning["steps"], finetuning["learning_rate"]) == (1, pytest.approx(0.001))
    assert found["steps"] == 15 + 6 + 1
    steps = steps_of(events)
    assert [event["level"] for event in steps] == ["general"] * 15 + ["specialized"] * 6 + ["finetuning"]
    # Each level has a schedule of its own: its first step at its peak, half a cosine down to a tenth of it
    rates = [event["learning_rate"] for event in steps]
    for first, last, peak in ((0, 14, 0.01), (15, 20, 0.005), (21, 21, 0.001)):
        count = last - first
        expected = [peak * (0.1 + 0.45 * (1 + math.cos(math.pi * n / max(1, count)))) for n in range(count + 1)]
        assert rates[first : last + 1] == pytest.approx(expected)
    started = next(event for event in events if event["event"] == "started")
    assert started["levels"] == found["levels"]


def test_other_domains_decide_the_digest_only_where_they_are_trained_on(request_of: Any) -> None:
    request = request_of()
    sql = request.further[Domain.SQL]
    other = request.model_copy(update={"further": {Domain.SQL: sql.model_copy(update={"digest": "another"})}})
    moved = request.model_copy(update={"further": {Domain.SQL: sql.model_copy(update={"dataset": Path("elsewhere")})}})
    assert other.input_digest() != request.input_digest() == moved.input_digest()
    assert other.inputs(request.recipe.voters[0]) != request.inputs(request.recipe.voters[0])
    plain = request_of(strategy={"kind": "plain"})
    other = plain.model_copy(update={"further": other.further})
    assert other.input_digest() == plain.input_digest()


def test_without_hard_examples_it_says_so_or_leaves_the_level_out(request_of: Any, make_request: MakeRequest) -> None:
    nothing = {"kind": "hierarchical", "hard_from": 1.0}
    request = request_of(strategy=nothing)
    easy = write_table(request.dataset.parent, "python", 40)
    request = request.model_copy(update={"dataset": easy})
    with pytest.raises(InputError, match=r"level finetuning: none of the 30 train examples .*without_hard: leave_out"):
        train(request)
    events: list[dict[str, Any]] = []
    lenient = request_of(work="lenient", strategy=nothing | {"without_hard": "leave_out"}, max_steps=4)
    write_table(request.dataset.parent, "python", 40)
    found = manifest(train(lenient, events=events))
    assert [(level["name"], level["examples"] > 0) for level in found["levels"]] == [
        ("general", True),
        ("specialized", True),
        ("finetuning", False),
    ]
    assert found["levels"][2]["steps"] == 0 and len(steps_of(events)) == 4
    with pytest.raises(InputError, match="not a table of examples"):  # of another make: no kinds, no difficulties
        train(make_request(work="no-kinds", voters=voters(HIERARCHICAL)))
    lenient = make_request(work="no-kinds", voters=voters({**HIERARCHICAL, "without_hard": "leave_out"}), max_steps=3)
    assert [level["examples"] > 0 for level in manifest(train(lenient))["levels"]] == [True, True, False]


def test_bounds_are_shared_out_in_proportion(request_of: Any) -> None:
    found = manifest(train(request_of(max_steps=10)))
    assert [level["steps"] for level in found["levels"]] == [6, 3, 1]
    with pytest.raises(InputError, match="max_steps 2 is less than one step for each of 3 levels"):
        train(request_of(work="few", max_steps=2))


@given(
    st.lists(st.tuples(st.integers(1, 200), st.floats(1, 5_000)), min_size=1, max_size=5),
    st.none() | st.integers(5, 400),
    st.none() | st.integers(1, 10**6),
)
def test_shared_steps(parts: list[tuple[int, float]], most: int | None, tokens: int | None) -> None:
    class Bounds:
        class training:
            max_steps, max_tokens = most, tokens

    planned = [steps for steps, _ in parts]
    steps = shared_steps(planned, [each for _, each in parts], Bounds)  # type: ignore[arg-type]
    assert all(1 <= given <= wanted for given, wanted in zip(steps, planned, strict=True))
    assert sum(steps) <= max(len(parts), most or sum(planned))
    if most is None and tokens is None:
        assert steps == planned
    spent = sum(given * each for given, (_, each) in zip(steps, parts, strict=True))
    if tokens and sum(steps) > len(parts):  # rounded to whole steps
        assert spent <= tokens + (len(parts) + 1) * max(each for _, each in parts)


@pytest.mark.resume
def test_stopped_and_resumed_it_is_the_same_to_the_bit(request_of: Any) -> None:
    expected = digests(train(request_of(work="whole", max_steps=6)))
    result = train_stopped(request_of(work="stopped", max_steps=6), calls=13, times=2)
    assert digests(result) == expected


def test_levels_have_different_names(make_request: MakeRequest) -> None:
    level = {"name": "one", "data": "domain", "epochs": 1}
    with pytest.raises(ValidationError, match="levels must have different names"):
        make_request(voters=voters({"kind": "hierarchical", "levels": [level, level]}))


def test_the_levels_of_the_specification_are_the_default(make_request: MakeRequest) -> None:
    levels = make_request(voters=voters(HIERARCHICAL)).recipe.voters[0].strategy.levels  # type: ignore[union-attr]
    assert [(level.name, level.epochs) for level in levels] == [("general", 3), ("specialized", 2), ("finetuning", 1)]
