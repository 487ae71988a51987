"""The next smaller setting: fewer examples at a time, the same step, and a recipe that is still one."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets.training.plan.plan import settings_of
from capibara_assets.training.plan.smaller import kills_for_memory, smaller_setting
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.training.conftest import MakeRequest


@pytest.mark.parametrize(
    ("given", "longest", "said", "left"),
    [
        (
            {"global_batch": 128, "micro_batch": 8, "accumulation": 2, "processes": 8, "backend": "ddp"},
            100,
            "micro_batch 4 x accumulation 4 in place of micro_batch 8",
            {"micro_batch": 4, "accumulation": 4, "global_batch": 128},
        ),
        ({"global_batch": 9, "micro_batch": 9}, 100, "micro_batch 3 x accumulation 3", {"accumulation": None}),
        ({"micro_batch_tokens": 400}, 100, "micro_batch_tokens 200 in place of 400", {"micro_batch_tokens": 200}),
        ({"micro_batch_tokens": 120}, 100, "micro_batch_tokens 100 in place of 120", {"micro_batch_tokens": 100}),
        ({"micro_batch_tokens": 90}, 100, "gradient_checkpointing 1", {"micro_batch_tokens": 90}),
        ({"micro_batch": 1, "gradient_checkpointing": 2}, 100, "gradient_checkpointing 1", {"micro_batch": 1}),
    ],
)
def test_what_is_tried_next(
    given: dict[str, Any], longest: int, said: str, left: dict[str, Any], make_request: MakeRequest
) -> None:
    request = make_request(**given)
    smaller = smaller_setting(request.recipe, settings_of(request, None), longest)
    assert smaller is not None and smaller.said.startswith(said)
    assert TrainingRecipe.model_validate(smaller.recipe.model_dump()) == smaller.recipe
    assert {name: getattr(smaller.recipe.training, name) for name in left} == left
    same = request.with_less_memory(smaller.recipe)
    assert same.input_digest() == request.input_digest(), "resume points stay valid"
    assert same.inputs(same.recipe.voters[0]) == request.inputs(request.recipe.voters[0])


def test_at_the_end_there_is_nothing_smaller(make_request: MakeRequest) -> None:
    request = make_request(micro_batch=1, gradient_checkpointing=1)
    assert smaller_setting(request.recipe, settings_of(request, None), 100) is None


@pytest.mark.parametrize(
    ("lines", "file"),
    [
        ("0::/user.slice/run.scope\n", "user.slice/run.scope/memory.events"),
        ("0::/hidden\n", "memory.events"),  # in a container
        ("5:cpu:/a\n4:memory:/job/7\n0::/\n", "memory/job/7/memory.oom_control"),
        ("4:memory:/job/7\n", "memory/memory.oom_control"),
    ],
)
def test_the_systems_count_of_kills_is_that_of_this_group(tmp_path: Path, lines: str, file: str) -> None:
    place, counts = tmp_path / "cgroup", tmp_path / file
    place.write_text(lines)
    assert kills_for_memory(tmp_path, place) == 0, "it does not count"
    counts.parent.mkdir(parents=True, exist_ok=True)
    counts.write_text("oom 3\noom_kill 12\noom_group_kill 1\n")
    assert kills_for_memory(tmp_path, place) == 12
    assert kills_for_memory(tmp_path, tmp_path / "none") == 0
