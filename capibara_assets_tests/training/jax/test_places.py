"""Places of a JAX training: what lies on an object store is fetched, points and results are written back there."""

from pathlib import Path

import fsspec
import numpy as np
import pytest

from capibara_assets.errors import InputError
from capibara_assets.storage.mirror import upload
from capibara_assets.training.jax.places import POINTS, SCRATCH, JaxPlaces
from capibara_assets.training.jax.saved import JaxResumePoint, newest_point, save_point
from capibara_assets_tests.late import late
from capibara_assets_tests.training.jax.test_trainer import config, conversations

late("jax", reason="the extra tpu is not installed")

ARRAYS = {"x": np.ones(3, np.float32)}


def point(step: int) -> JaxResumePoint:
    return JaxResumePoint(step, "mine", ARRAYS, ARRAYS)


def test_points_and_results_travel_over_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = "memory://places"
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    upload(tmp_path / "base", f"{root}/base")
    conversations(tmp_path)
    upload(tmp_path, f"{root}/data")
    remote = {"base": f"{root}/base", "data": f"{root}/data/train.jsonl", "output": f"{root}/out"}
    settings = config(tmp_path, **remote)
    monkeypatch.setenv(SCRATCH, str(tmp_path / "one-host"))
    places = JaxPlaces.of(settings)
    assert places.data.read_bytes() == (tmp_path / "train.jsonl").read_bytes()
    for step in (2, 4, 6):
        places.save_point(save_point(places.output / POINTS, point(step)))
    (places.output / "adapter").mkdir()
    (places.output / "adapter" / "weights").write_bytes(b"7")
    (places.output / "result.json").write_text("{}")
    places.publish(last="result.json")
    monkeypatch.setenv(SCRATCH, str(tmp_path / "another-host"))
    found, passed_over = newest_point(JaxPlaces.of(settings).output / POINTS, "mine")
    assert found is not None and found.step == 6 and not passed_over
    system = fsspec.filesystem("memory")
    assert sorted(Path(place).name for place in system.ls("/places/out/points", detail=False)) == [
        "step-000000004",
        "step-000000006",
    ]
    assert system.cat("/places/out/adapter/weights") == b"7" and system.exists("/places/out/result.json")


def test_what_is_not_there_is_named_with_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere holds no config\.json"):
        JaxPlaces.of(config(tmp_path, base=str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match=r"memory://places/none\.jsonl does not exist; `capibara dataset export"):
        JaxPlaces.of(config(tmp_path, data="memory://places/none.jsonl"))
