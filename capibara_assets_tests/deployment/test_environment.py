"""The environment's choices: a default for each, and a clear word on what cannot be read."""

import re
from pathlib import Path

import pytest

from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.definitions import deployment_resources
from capibara_assets.deployment.environment import Deployment, LaunchMode
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError

EXAMPLE = Path(__file__).resolve().parents[2] / ".env.example"


def test_an_empty_environment_means_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = Deployment.from_environment({})
    assert found.home == tmp_path / ".capibara" and found.store == str(tmp_path / ".capibara" / "store")
    assert found.base_model == str(resources_root() / "base_models" / "capibara-nano")
    assert (found.target, found.profile, found.launcher, found.seed, found.faults) == (
        "cpu-laptop",
        "demo",
        LaunchMode.LOCAL,
        None,
        {},
    )


def test_empty_counts_as_absent():
    names = ("STORE", "TARGET", "PROFILE", "SEED", "FAULTS", "BASE_MODEL", "EXPERIENCE", "SECRETS")
    empty = {f"CAPIBARA_{name}": "" for name in names}
    assert Deployment.from_environment({"CAPIBARA_HOME": "/h", **empty}) == Deployment.from_environment(
        {"CAPIBARA_HOME": "/h"}
    )


def test_the_home_moves_store_and_work():
    found = Deployment.from_environment({"CAPIBARA_HOME": "/somewhere"})
    assert (found.store, found.work) == ("/somewhere/store", Path("/somewhere/work"))
    apart = Deployment.from_environment({"CAPIBARA_HOME": "/somewhere", "CAPIBARA_STORE": "gs://bucket/prefix"})
    assert (apart.store, apart.work) == ("gs://bucket/prefix", Path("/somewhere/work"))


def test_lists_and_pairs_are_read():
    found = Deployment.from_environment(
        {
            "CAPIBARA_SEED": "7",
            "CAPIBARA_SECRETS": "hub,,e2b",
            "CAPIBARA_FAULTS": "voter-3=sign_flip,voter-1=nan",
        }
    )
    assert found.seed == 7 and found.secrets == ("hub", "e2b")
    assert found.faults == {"voter-3": "sign_flip", "voter-1": "nan"}
    resources = deployment_resources(found)
    assert resources["recipes"].overrides == {"training": {"seed": 7}} and resources["recipes"].faults == found.faults


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SEED", "seven", "CAPIBARA_SEED is 'seven'"),
        ("SEED", "1.5", "whole number"),
        ("SEED", "-1", "CAPIBARA_SEED is '-1': give a whole number from 0"),
        ("LAUNCHER", "slurm", "CAPIBARA_LAUNCHER is 'slurm': should be 'local' or 'k8s', not 'slurm'"),
        ("LAUNCHER", "k9s", "not 'k9s'; did you mean 'k8s'?"),
        ("REDACT_ALSO", "email,phone", "should be 'email' or 'ip', not 'phone'"),
        ("FETCH_GIB", "inf", "CAPIBARA_FETCH_GIB is 'inf'"),
        ("PARALLEL", "0", "CAPIBARA_PARALLEL is '0': give a whole number above zero"),
        ("FAULTS", "voter-3", "'voter-3': expected VOTER=FAULT"),
        ("TARGET", "\udcff", r"no hardware target '\udcff'"),
        ("TARGET", "laptop\n", r"no hardware target 'laptop\n'"),
        ("FAULTS", "voter-1=nan,sign_flip", "'sign_flip': expected VOTER=FAULT"),
    ],
)
def test_what_cannot_be_read_is_said_clearly(name: str, value: str, said: str):
    with pytest.raises(InputError, match=re.escape(said)):
        Deployment.from_environment({f"CAPIBARA_{name}": value})


def test_every_variable_is_in_the_example_file():
    """Whatever is read is documented where a person looks for it."""
    asked: set[str] = set()

    class Environment(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            asked.add(key)
            return default

    Deployment.from_environment(Environment())
    documented = set(re.findall(r"(?:CAPIBARA|GOOGLE_CLOUD)_[A-Z_]+", EXAMPLE.read_text()))
    assert len(asked) >= 15 and asked <= documented


def test_verdict_files_stand_for_those_of_the_recipe():
    audited = deployment_resources(Deployment.from_environment({"CAPIBARA_AUDIT": "/a.jsonl,/b.jsonl"}))
    assert audited["recipes"].load("dataset", DatasetRecipe).exclusions == ("/a.jsonl", "/b.jsonl")
    shipped = deployment_resources(Deployment.from_environment({}))
    assert shipped["recipes"].load("dataset", DatasetRecipe).exclusions == ()
