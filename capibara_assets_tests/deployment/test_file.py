"""A deployment's file: what it says holds, a variable overrides it, and what is wrong in it is named."""

from pathlib import Path

import pytest
import yaml

from capibara_assets.definitions import deployment_resources
from capibara_assets.deployment.environment import Deployment, LaunchMode
from capibara_assets.deployment.file import DeploymentFile, find_deployment
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError

SHIPPED = sorted((resources_root() / "deployments").glob("*.yaml"))


def written(folder: Path, **sections: object) -> str:
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(sections))
    return str(file)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_deployment_can_be_chosen_by_its_name(file: Path) -> None:
    deployment = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": file.stem})
    assert deployment.name == file.stem
    hardware = deployment_resources(deployment)["target"]
    assert hardware.options_of(None).first.name == deployment.target


def test_no_file_chosen_means_the_local_one() -> None:
    default = Deployment.from_environment({})
    assert default == Deployment.from_environment({"CAPIBARA_DEPLOYMENT": "local"})
    assert default.launcher is LaunchMode.LOCAL and default.training_hours is None


def test_the_cluster_deployment_trains_in_pods_on_spot_nodes_first() -> None:
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": "kubernetes"})
    assert (found.launcher, found.profile, found.training_hours) == (LaunchMode.K8S, "full", 24)
    assert found.work.is_relative_to(found.volume_path)
    assert [(one.target, one.capacity) for one in found.hardware.targets] == [
        ("h100-8", "spot"),
        ("h100-8", "on-demand"),
    ]


def test_a_file_decides_and_a_variable_overrides_it_knowingly(tmp_path: Path) -> None:
    name = written(
        tmp_path,
        storage={"home": "/there", "store": "gs://bucket/ours"},
        launcher={"image": "ours:1", "secrets": ["one", "two"]},
        limits={"domains_at_once": 3},
    )
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name, "CAPIBARA_STORE": "/elsewhere"})
    assert (found.home, found.store, found.work) == (Path("/there"), "/elsewhere", Path("/there/work"))
    assert (found.image, found.secrets, found.parallel) == ("ours:1", ("one", "two"), 3)
    by = {one.name: one.by for one in found.settings}
    assert by["storage.store"] == "CAPIBARA_STORE" and by["storage.home"] == "mine.yaml"
    assert by["launcher.image"] == "mine.yaml" and by["launcher.mode"] == "default"


def test_every_setting_of_the_file_has_somebody_who_decided_it() -> None:
    named = {one.name for one in Deployment.from_environment({}).settings}
    fields = {
        f"{section}.{name}"
        for section, field in DeploymentFile.model_fields.items()
        for name in field.annotation.model_fields  # type: ignore[union-attr]
    }
    assert named == fields
    told = Deployment.from_environment({"CAPIBARA_SEED": "7"}).settings
    assert [(one.name, one.value, one.by) for one in told if one.name not in fields] == [
        ("CAPIBARA_SEED", 7, "CAPIBARA_SEED")
    ]


def test_hardware_and_budget_of_each_domain(tmp_path: Path) -> None:
    name = written(
        tmp_path,
        hardware={
            "default": {"targets": ["h100-8"], "max_hours": 12},
            "domains": {
                "sql": {
                    "targets": [{"target": "h200-1", "capacity": "spot", "usd_per_hour": 2.5}, "h100-2"],
                    "max_usd": 20,
                }
            },
        },
    )
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name})
    assert (found.target, found.targets) == ("h100-8", {"sql": "h200-1"})
    hardware = deployment_resources(found)["target"]
    sql, others = hardware.options_of(Domain.SQL), hardware.options_of(Domain.PYTHON)
    assert [str(one) for one in sql.options] == ["h200-1 (spot)", "h100-2"] and sql.max_usd == 20
    assert sql.hours_left(sql.first) == 8  # at the file's price; the target itself has none
    assert [str(one) for one in others.options] == ["h100-8"] and (others.max_usd, others.max_hours) == (None, 12)


@pytest.mark.parametrize(
    ("variable", "default", "own"),
    [
        ("cpu-laptop", "cpu-laptop", {"sql": "cpu-laptop"}),
        ("sql=h100-2", "h100-8", {"sql": "h100-2"}),
        ("h200-1,api=h100-2", "h200-1", {"sql": "h200-1", "api": "h100-2"}),
    ],
)
def test_a_target_by_variable_stands_for_the_files_and_leaves_its_budget(
    tmp_path: Path, variable: str, default: str, own: dict[str, str]
) -> None:
    name = written(
        tmp_path,
        hardware={
            "default": {"targets": ["h100-8", "h200-1"], "max_hours": 12},
            "domains": {"sql": {"targets": ["h200-1"], "max_usd": 20}},
        },
    )
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name, "CAPIBARA_TARGET": variable})
    assert (found.target, found.targets) == (default, own)
    assert found.hardware.max_hours == 12 and found.hardware_of["sql"].max_usd == 20


def test_a_slice_that_trains_is_the_slice_that_is_planned_for(tmp_path: Path) -> None:
    name = written(tmp_path, hardware={"domains": {"sql": {"targets": ["tpu-v5e-8"]}}, "tpu": {"default": "tpu-v4-64"}})
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name})
    assert (found.tpu_target, found.tpu_targets) == ("tpu-v4-64", {"sql": "tpu-v5e-8"})


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"launcher": {"modus": "k8s"}}, "launcher: unknown key 'modus': did you mean 'mode'?"),
        ({"storrage": {}}, "unknown key 'storrage': did you mean 'storage'?"),
        ({"launcher": {"mode": "slurm"}}, "launcher.mode: should be 'local' or 'k8s', not 'slurm'"),
        ({"limits": {"domains_at_once": 0}}, "limits.domains_at_once: should be greater than or equal to 1, not 0"),
        (
            {"automation": {"freshness": {"evaluation": {"warn_days": 9, "fail_days": 3}}}},
            "automation.freshness.evaluation: warn_days is 9, give fewer than fail_days, 3",
        ),
        ({"automation": {"freshness": {"evaluation": {}}}}, "freshness.evaluation: give warn_days, fail_days or both"),
        (
            {"automation": {"freshness": {"evaluation": {"warn_days": 0}}}},
            "automation.freshness.evaluation.warn_days: should be greater than or equal to 0.01, not 0",
        ),
        ({"automation": {"freshness": {"evaluations": None}}}, "unknown key 'evaluations': did you mean 'evaluation'?"),
        ({"hardware": {"default": {"targets": []}}}, "hardware.default.targets"),
        (
            {"hardware": {"default": {"targets": ["h100-8"], "max_usd": -1}}},
            "hardware.default.max_usd: should be greater",
        ),
        ({"hardware": {"domains": {"cobol": {"targets": ["h100-8"]}}}}, "hardware.domains.cobol"),
        ({"hardware": {"default": {"targets": ["tpu-v5e-8", "h100-8"]}}}, "tpu-v5e-8 cannot stand beside others"),
        (
            {"experience": {"redact_also": ["names"]}},
            "experience.redact_also.0: should be 'email' or 'ip', not 'names'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_field_value_and_expectation(
    tmp_path: Path, sections: dict[str, object], said: str
) -> None:
    name = written(tmp_path, **sections)
    with pytest.raises(InputError) as caught:
        Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name})
    assert str(caught.value).startswith(f"{name}: ") and said in str(caught.value)


def test_a_deployment_that_there_is_not_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"CAPIBARA_DEPLOYMENT is 'kubernets'.*kubernetes, local"):
        Deployment.from_environment({"CAPIBARA_DEPLOYMENT": "kubernets"})
    with pytest.raises(InputError, match=r"no file .*mine\.yaml"):
        find_deployment(str(tmp_path / "mine.yaml"))


def test_an_address_is_named_by_a_variable_and_each_one_once(tmp_path: Path) -> None:
    for webhooks, words in (
        ([{"url_variable": "https://hooks.example/s3cret"}], r"notifications\.webhooks"),
        ([{"url_variable": "HOOK"}, {"url_variable": "HOOK"}], "two webhooks have the same url_variable"),
    ):
        name = written(tmp_path, notifications={"webhooks": webhooks})
        with pytest.raises(InputError, match=words):
            Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name})


def test_the_automation_has_no_rules_unless_the_file_gives_some(tmp_path: Path) -> None:
    assert not Deployment.from_environment({}).automation.limited
    name = written(
        tmp_path,
        automation={"domains": {"sql": {"new_examples": 50, "cool_down_hours": 6}}, "per_day": {"trainings": 4}},
    )
    found = Deployment.from_environment({"CAPIBARA_DEPLOYMENT": name})
    assert found.automation.limited and found.automation.longest_cool_down == 6 * 3600
    assert found.automation.of(Domain.SQL).new_examples == 50 and found.automation.of(Domain.ML).new_examples is None
    by = {one.name: one.by for one in found.settings}
    assert by["automation.per_day"] == "mine.yaml" and by["automation.default"] == "default"
    assert found.automation.freshness.evaluation and not found.automation.freshness.promoted_model
    with pytest.raises(InputError, match=r"automation.*new_examples"):
        Deployment.from_environment(
            {"CAPIBARA_DEPLOYMENT": written(tmp_path, automation={"default": {"new_examples": 0}})}
        )


@pytest.mark.parametrize("place", ["ftp://a", "gs://", "gs:///prefix", "s3://bucket/a", "https://host/a"])
@pytest.mark.parametrize("section", ["storage.store", "experience.folder", "storage.compute_logs"])
def test_a_place_is_a_folder_or_a_bucket_with_its_name(place: str, section: str, tmp_path: Path) -> None:
    part, _, name = section.partition(".")
    for sound in ("gs://my-bucket", "gs://my-bucket/a/b"):
        Deployment.from_environment({"CAPIBARA_DEPLOYMENT": written(tmp_path, **{part: {name: sound}})})
    with pytest.raises(InputError, match=name):
        Deployment.from_environment({"CAPIBARA_DEPLOYMENT": written(tmp_path, **{part: {name: place}})})
    variable = {"store": "CAPIBARA_STORE", "folder": "CAPIBARA_EXPERIENCE"}.get(name)
    if variable:
        assert Deployment.from_environment({variable: "a/folder"}).settings
        with pytest.raises(InputError, match=rf"{variable} is .*neither a folder nor gs://bucket/prefix"):
            Deployment.from_environment({variable: place})
