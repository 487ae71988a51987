"""What a deployment declares reaches the stage that uses it: targets by domain, named bases, project and zone."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.opened import graph_run
from capibara_assets.cli.main import cli
from capibara_assets.definitions import deployment_resources
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets_tests.home import MadeHome, command_here

pytestmark = pytest.mark.slow


def document(made: MadeHome, asset: str, domain: str, name: str) -> dict:
    with open_instance(made.deployment) as instance:
        digest = latest_digest(instance, asset, domain)
    store = deployment_resources(made.deployment)["store"].open()
    return store.open(asset, Domain(domain), digest).document(name)


def file(made: MadeHome, asset: str, domain: str, name: str) -> str:
    with open_instance(made.deployment) as instance:
        digest = latest_digest(instance, asset, domain)
    store = deployment_resources(made.deployment)["store"].open()
    return (store.open(asset, Domain(domain), digest).directory("files") / name).read_text()


def test_a_domain_is_planned_for_its_own_target_and_the_cloud_stands_in_the_launch_files(own_home: MadeHome):
    """sql gets other hardware: its plans are made again, python's LoRA plan is current as it is."""
    before = document(own_home, "lora_config", "python", "plan")
    environment = own_home.environment | {
        "GOOGLE_CLOUD_PROJECT": "my-project-7",
        "GOOGLE_CLOUD_ZONE": "us-east5-a",
    }
    options = ("--target", "cpu-laptop,sql=h100-2", "--tpu-target", "sql=tpu-v6e-64", "--domains", "python,sql")
    printed = command_here(environment, "run", "--select", "lora_config,tpu_config", *options)
    plans = {
        (asset, domain): document(own_home, asset, domain, "plan")["target"]
        for asset in ("lora_config", "tpu_config")
        for domain in ("python", "sql")
    }
    assert plans == {
        ("lora_config", "python"): "cpu-laptop",
        ("lora_config", "sql"): "h100-2",
        ("tpu_config", "python"): "tpu-v5e-64",
        ("tpu_config", "sql"): "tpu-v6e-64",
    }
    assert document(own_home, "lora_config", "python", "plan") == before
    assert "1 asset partitions were current" in printed, "python's LoRA plan"
    assert "fits on 1 of 2 devices" in document(own_home, "lora_config", "sql", "plan")["reasons"]["zero_stage"]
    queued = file(own_home, "tpu_config", "python", "queued_resource.sh")
    assert "my-project-7" in queued and "us-east5-a" in queued
    assert "--project my-project-7 --region us-east5 " in file(own_home, "tpu_config", "python", "vertex.yaml")
    targets = {"CAPIBARA_TARGET": options[1], "CAPIBARA_TPU_TARGET": options[3]}
    deployment = Deployment.from_environment(environment | targets)
    with open_instance(deployment) as instance:
        again = graph_run(deployment, instance)
        assert all(again.is_current(asset, Domain(domain)) for asset, domain in plans)


def test_a_base_model_by_its_short_name_is_where_the_variable_says(own_home: MadeHome):
    environment = own_home.environment | {"MODEL_20B_PATH": own_home.environment["CAPIBARA_BASE_MODEL"]}
    del environment["CAPIBARA_BASE_MODEL"]
    printed = command_here(
        environment, "run", "--base-model", "20b", "--select", "lora_config", "--domains", "python,sql"
    )
    assert f"base model {environment['MODEL_20B_PATH']}" in printed and "2 asset partitions were current" in printed


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CAPIBARA_BASE_MODEL": "120b"}, "base model 120b: set MODEL_120B_PATH"),
        ({"CAPIBARA_TARGET": "h100-8,h200-1"}, "CAPIBARA_TARGET is 'h100-8,h200-1': expected one NAME"),
        ({"CAPIBARA_TPU_TARGET": "rust=tpu-v5e-64"}, "CAPIBARA_TPU_TARGET names rust, no domain: choose from python"),
        ({"CAPIBARA_TARGET": "sql="}, "expected one NAME"),
        ({"CAPIBARA_FETCH_GIB": "much"}, "CAPIBARA_FETCH_GIB is 'much'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(variables: dict[str, str], words: str):
    with pytest.raises(InputError, match=words):
        Deployment.from_environment(variables)


def test_a_zone_that_would_break_a_script_is_refused(own_home: MadeHome, monkeypatch: pytest.MonkeyPatch):
    for name, value in {**own_home.environment, "GOOGLE_CLOUD_ZONE": "a$(reboot)"}.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, ["run", "--select", "tpu_config", "--domains", "python"])
    assert isinstance(result.exception, InputError) and "GOOGLE_CLOUD_ZONE" in str(result.exception)


def test_a_base_of_the_hub_is_fetched_only_if_the_deployment_allows_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Offline, so that neither needs a network: one says how to fetch it, the other that it tried to."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    location = {"CAPIBARA_HOME": str(tmp_path), "CAPIBARA_BASE_MODEL": "nobody/no-such-model@main"}
    with pytest.raises(InputError, match="is not here: run `capibara model fetch"):
        _ = deployment_resources(Deployment.from_environment(location))["base_model"].path
    allowed = Deployment.from_environment(location | {"CAPIBARA_FETCH_GIB": "0.5"})
    with pytest.raises(InputError, match=r"cannot reach the Hub|the Hub refused"):
        _ = deployment_resources(allowed)["base_model"].path
