"""GPUs that are there, and how voters are spread over them; counts are made up, nothing computes."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training import devices
from capibara_assets.training.decided import PlannedRun
from capibara_assets.training.devices import Gpus, gpus_here, place
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.training.conftest import MakeRequest

CORES = 6


def gpus(count: int) -> Gpus:
    return tuple(map(str, range(count)))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A driver that lists four GPUs, beside a torch that was built for them."""
    monkeypatch.setattr(devices, "version", lambda _name: "2.13.0")
    for number in range(4):
        (tmp_path / "gpus" / f"0000:0{number}:00.0").mkdir(parents=True)
    return {"driver": tmp_path / "gpus", "nodes": tmp_path}


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, ("0", "1", "2", "3")),
        ("2,3", ("2", "3")),
        ("GPU-5ebe, GPU-77a1", ("GPU-5ebe", "GPU-77a1")),
        ("1,-1,2", ("1",)),
        ("", ()),
        ("NoDevFiles", ()),
    ],
)
def test_the_gpus_are_those_that_cuda_may_see(
    driver: dict[str, Path], visible: str | None, found: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_here(environment, **driver) == found
    monkeypatch.setattr(devices, "version", lambda _name: "2.13.0+cpu")
    assert gpus_here(environment, **driver) == ()


def test_a_container_may_have_device_nodes_alone(driver: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    nowhere = {"driver": tmp_path / "none", "nodes": tmp_path / "dev"}
    assert gpus_here({}, **nowhere) == ()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert gpus_here({}, **nowhere) == ("0", "1")


def test_without_a_driver_a_variable_makes_no_gpus(tmp_path: Path) -> None:
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "0,1"}, driver=tmp_path / "none", nodes=tmp_path) == ()


def on(request: TrainingRequest, count: int) -> list[Gpus]:
    """The groups of the voters that run at once on so many GPUs, in the order in which they start."""
    placement = place(request, gpus(count), CORES)
    taken: list[Gpus] = []
    for _ in range(min(placement.at_once, len(request.recipe.voters))):
        taken.append(placement.next_group(taken))
    return taken


def test_voters_have_a_gpu_each_while_there_are_some(make_request: MakeRequest) -> None:
    request = make_request()
    assert on(request, 1) == [("0",)]
    assert on(request, 3) == [("0",), ("1",), ("2",)]
    assert on(request, 8) == [("0",), ("1",), ("2",), ("3",)]


def test_voters_of_several_processes_have_as_many_gpus(make_request: MakeRequest) -> None:
    request = make_request(backend="zero2", processes=2)
    assert on(request, 2) == [("0", "1")]
    assert on(request, 5) == [("0", "1"), ("2", "3")]
    assert on(request, 8) == [("0", "1"), ("2", "3"), ("4", "5"), ("6", "7")]
    with pytest.raises(
        InputError, match="each voter has 2 processes, and this machine has 1 GPUs: plan for its target"
    ):
        place(request, gpus(1), CORES)


def test_the_recipe_may_put_several_voters_on_a_gpu(make_request: MakeRequest) -> None:
    assert on(make_request(parallel=4), 2) == [("0",), ("1",), ("0",), ("1",)]
    assert on(make_request(parallel=1), 2) == [("0",)]


def test_a_gpu_that_is_free_again_is_taken_next(make_request: MakeRequest) -> None:
    placement = place(make_request(), gpus(3), CORES)
    assert placement.next_group([("0",), ("2",)]) == ("1",)


@pytest.mark.parametrize(
    ("hardware", "at_once"),
    [({}, 6), ({"threads": 4}, 1), ({"backend": "ddp", "processes": 2}, 1), ({"parallel": 3}, 3)],
)
def test_on_processors_the_cores_decide(make_request: MakeRequest, hardware: dict[str, Any], at_once: int) -> None:
    placement = place(make_request(**hardware), (), CORES)
    assert placement.document() == {"gpus": [], "at_once": at_once, "note": None}
    assert placement.next_group([]) == ()


def test_a_plan_for_gpus_without_any_is_said(make_request: MakeRequest) -> None:
    planned = PlannedRun(target="h100-8", kind="gpu")
    request = make_request().model_copy(update={"planned": planned})
    assert "planned for the GPUs of h100-8, and here is none" in (place(request, (), CORES).note or "")
    assert place(request, gpus(2), CORES).note is None
