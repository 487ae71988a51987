"""From lora_config into the voters' processes: the plan decides how they train, and each has GPUs of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
import yaml

from capibara_assets.assets.inputs import latest_digest, latest_metadata
from capibara_assets.assets.plans import lora_config
from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.lora.recipe import plan_lora
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.resources import BaseModel, Hardware, Recipes
from capibara_assets.storage.artifact import Artifact
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.request import TrainingRequest, read_request
from capibara_assets.training.standalone.materials import Materials
from capibara_assets.training.supervisor import run
from capibara_assets.training.supervisor.agent import torchrun_command
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets.training.voter_manifest import RESULT
from capibara_assets_tests.home import MadeHome
from capibara_assets_tests.planning.shapes import statistics
from capibara_assets_tests.published import Published
from capibara_assets_tests.training import stub_voters
from capibara_assets_tests.training.conftest import request_maker, save_dataset


def planned(published: Published, nano: Path, target: str, voters: int = 4) -> Artifact:
    """The plan of a domain, as the asset publishes it for so many voters."""
    published.put("moe_dataset", Domain.SQL, documents={"statistics": statistics(train=3000)})
    named = [{"name": f"v{number}", "seed": number, "shard": number} for number in range(voters)]
    resources = {
        "store": published.store,
        "recipes": Recipes(profile="full", overrides={"training": {"voters": named}}),
        "base_model": BaseModel(location=str(nano)),
        "target": Hardware(name=target),
    }
    assert dg.materialize([lora_config], partition_key="sql", instance=published.instance, resources=resources).success
    digest = latest_digest(published.instance, "lora_config", "sql")
    return published.store.open().open("lora_config", Domain.SQL, digest)


def requested(published: Published, nano: Path, plan: Artifact, voters: int, tmp_path: Path) -> TrainingRequest:
    """The request that the asset makes of a plan, for the full recipe."""
    dataset = published.put("moe_dataset", Domain.SQL, documents={"statistics": {}})
    recipe = shipped_recipe("training-full", TrainingRecipe)
    specs = tuple(VoterSpec(name=f"v{n}", seed=n, shard=n) for n in range(voters))
    recipe = recipe.model_copy(update={"voters": specs})
    target = find_target(plan.document("plan")["target"])
    return Materials(recipe, nano, "digest", dataset, plan, {}).request(tmp_path, "", None, {}, target)


def test_what_lora_config_plans_for_eight_gpus_is_what_the_voters_are_asked_for(
    published: Published, nano: Path, tmp_path: Path
) -> None:
    plan = planned(published, nano, "h100-8")
    request = requested(published, nano, plan, 4, tmp_path)
    hardware = request.recipe.hardware
    assert (hardware.backend, hardware.processes, hardware.precision) == ("single", 1, "bf16")
    assert request.recipe.model.quantization == "bf16"
    assert request.recipe.training.micro_batch == plan.document("plan")["micro_batch"]

    alone = planned(published, nano, "h100-8", voters=1)
    request = requested(published, nano, alone, 1, tmp_path)
    assert (request.recipe.hardware.backend, request.recipe.hardware.processes) == ("zero2", 8)
    assert request.planned is not None and {one.by for one in request.planned.decisions} == {"plan"}


def watching(request: TrainingRequest, spec: VoterSpec, connection: Connection) -> None:
    """First function of a voter that trains nothing: it notes which GPUs it sees, and for how long."""
    folder = request.folder(spec)
    seen = folder.with_suffix(f".{os.getpid()}.json")
    seen.parent.mkdir(parents=True, exist_ok=True)
    note = {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "from": time.monotonic()}
    connection.send({"event": "started", "pid": os.getpid()})
    time.sleep(0.2)
    seen.write_text(json.dumps(note | {"to": time.monotonic()}))
    if spec.name == "voter-1" and not (folder / "before").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "before").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    stub_voters.write_result(request, folder)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("gpus", "hardware", "groups"),
    [
        (("4", "5", "6"), {}, {"4", "5", "6"}),
        (("0", "1", "2", "3", "4"), {"backend": "zero2", "processes": 2}, {"0,1", "2,3"}),
    ],
    ids=["one_each", "two_each"],
)
def test_voters_in_their_processes_see_gpus_of_their_own(
    gpus: tuple[str, ...], hardware: dict[str, Any], groups: set[str], tmp_path: Path, nano: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Four voters, one of which is killed once: no two at a time on one GPU, and what is free is used again."""
    monkeypatch.setattr(run, "gpus_here", lambda: gpus)
    monkeypatch.setattr(run, "_enter", watching)
    request = request_maker(nano, save_dataset(tmp_path), tmp_path)(max_length=512, **hardware)
    outcome = train_domain(request, lambda event: None)
    assert outcome.finished == ("voter-0", "voter-1", "voter-2", "voter-3")
    notes = [json.loads(file.read_text()) for file in request.work.glob("voter-*.json")]
    assert len(notes) == 5 and {note["gpus"] for note in notes} == groups
    for one in notes:
        beside = [other for other in notes if other["from"] < one["to"] and one["from"] < other["to"]]
        assert len({other["gpus"] for other in beside}) == len(beside)
    assert outcome.summary["placement"]["gpus"] == [group.split(",") for group in sorted(groups)]
    assert outcome.summary["placement"]["at_once"] == len(groups)

    # A host with fewer GPUs puts together what others have trained.
    monkeypatch.setattr(run, "gpus_here", lambda: ("0",))
    assert train_domain(request, lambda event: None).finished == outcome.finished


def test_a_run_on_the_laptop_says_who_decided(shared_home: MadeHome) -> None:
    deployment = shared_home.deployment
    with open_instance(deployment) as instance:
        shown = latest_metadata(instance, "trained_adapters", "python")
    assert "| hardware.backend | single | plan |" in shown["decided"]
    assert r"| training.micro\_batch | at most 1024 tokens at once | recipe |" in shown["decided"]
    assert "voters at a time, on processors" in shown["placement"]


def headroom_for_two(plan_of_one: dict[str, Any], plan_of_two: dict[str, Any]) -> float:
    """A share of an H100's memory in which a voter fits on two of them and not on one."""
    held = [plan["estimates"]["memory_bytes_per_device"]["total"] for plan in (plan_of_one, plan_of_two)]
    assert held[0] > held[1]
    return sum(held) / 2 / find_target("h100-2").usable_bytes


def start(environment: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    select = "lora_config,trained_adapters,consensus_checkpoint"
    command = [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", "sql", "--select", select]
    return subprocess.Popen(
        [*command, "--target", "h100-2"],
        env={**os.environ, **environment},
        stdout=log.open("wb"),
        stderr=log.open("ab"),
    )


def ranks_under(work: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or ()
        if "capibara_assets.training.rank" in line and any(str(work) in part for part in line):
            found.append(process)
    return [one for one in found if "torch.distributed.run" not in (one.info["cmdline"] or ())]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.resume
def test_voters_of_two_processes_reach_the_consensus_after_a_kill(own_home: MadeHome, tmp_path: Path) -> None:
    """The plan says two devices a voter, the recipe DDP; here they are two processors each, and one rank is killed."""
    recipes, deployment = own_home.folder / "recipes", own_home.deployment
    training = yaml.safe_load((recipes / "training-demo.yaml").read_text())
    training["hardware"] = {"backend": "ddp", "threads": 1}
    training["checkpoint"] |= {"every": 4}
    training["model"]["quantization"] = "none"
    (recipes / "training-demo.yaml").write_text(yaml.safe_dump(training))
    with open_instance(deployment) as instance:
        digest = latest_digest(instance, "moe_dataset", "sql")
    store = open_artifacts(deployment.store, deployment.work)
    figures = store.open("moe_dataset", Domain.SQL, digest).document("statistics")
    planning = yaml.safe_load((recipes / "planning.yaml").read_text())
    for level in planning["levels"].values():
        level["micro_batch"] = 1
    shape, rules = read_shape(own_home.folder / "base_model"), PlanningRecipe.model_validate(planning)
    sizes = [plan_lora("sql", figures, shape, find_target(f"h100-{n}"), rules).model_dump() for n in (1, 2)]
    for level in planning["levels"].values():
        level["headroom"] = headroom_for_two(*sizes)
    (recipes / "planning.yaml").write_text(yaml.safe_dump(planning))

    log, work = tmp_path / "run.log", deployment.work / "trained_adapters" / "sql"
    going = start(own_home.environment, log)
    deadline = time.monotonic() + 1500
    while not list(work.glob("*/voter-*/checkpoint-*")):
        assert going.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)
    ranks = ranks_under(work)
    assert len(ranks) >= 2, "two processes train one voter"
    ranks[0].kill()
    assert going.wait(timeout=1500) == 0, log.read_text()[-3000:]

    with open_instance(deployment) as instance:
        shown = latest_metadata(instance, "trained_adapters", "sql")
        digest = latest_digest(instance, "trained_adapters", "sql")
        assert latest_digest(instance, "consensus_checkpoint", "sql")
    assert "| hardware.backend | ddp | recipe |" in shown["decided"]
    assert "| hardware.processes | 2 | plan |" in shown["decided"]
    assert "planned for the GPUs of h100-2, and here is none: 2 processes a voter" in shown["placement"]
    trained = store.open("trained_adapters", Domain.SQL, digest)
    voters = trained.directory("voters")
    logs = {file.parent.name: read_events(file) for file in voters.glob("*/events.jsonl")}
    (killed,) = [name for name, log in logs.items() if any(event["event"] == "resumed" for event in log)]

    # That voter undisturbed, elsewhere, ends with the same adapter to the bit.
    request = read_request(trained.directory("launch") / "request.json")
    again = request.model_copy(
        update={"work": tmp_path / "again", "out": tmp_path / "again" / "out", "checkpoints": None}
    )
    again.work.mkdir()
    spec = next(voter for voter in again.recipe.voters if voter.name == killed)
    subprocess.run(torchrun_command(again, spec, again.write(), tmp_path), check=True, timeout=1500)
    file = "adapter_model.safetensors"
    assert (again.folder(spec) / RESULT / file).read_bytes() == (voters / killed / file).read_bytes()
