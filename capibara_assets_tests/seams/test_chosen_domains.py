"""Automation keeps to the domains that a run asked for, and a training of one voter goes through the whole graph."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.automation.chosen import chosen_domains
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build, deployment_resources
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets_tests.home import DOMAINS as TRAINED
from capibara_assets_tests.home import MadeHome, command_here
from capibara_assets_tests.ui.process import running_ui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OTHERS = {domain.value for domain in DOMAINS} - set(TRAINED)


def test_after_a_run_of_two_domains_the_first_tick_starts_no_other(made: MadeHome):
    definitions = build(made.deployment)
    with open_instance(made.deployment) as instance:
        assert chosen_domains(instance) == (Domain.PYTHON, Domain.SQL)
        result = dg.evaluate_automation_conditions(definitions, instance)
        asked = {
            (key.to_user_string(), partition)
            for key in definitions.resolve_asset_graph().materializable_asset_keys
            for partition in result.get_requested_partitions(key) or ()
        }
    assert asked == set()


@pytest.fixture
def ui(made: MadeHome, tmp_path: Path) -> Iterator[Path]:
    """The deployment's `capibara ui` with its daemon; gives its log."""
    with running_ui(made, tmp_path / "ui.log", CAPIBARA_TICK_SECONDS="3"):
        yield tmp_path / "ui.log"


@pytest.mark.extended
def test_the_ui_with_its_daemon_starts_no_other_domain(ui: Path, made: MadeHome):
    """Until each automation sensor has looked three times; what the sensor of files asks for has no partition."""
    deadline = time.monotonic() + 400
    with open_instance(made.deployment) as instance:
        looked: dict[str, int] = {}
        while min(looked.get(name, 0) for name in ("light_automation", "heavy_automation")) < 3:
            assert time.monotonic() < deadline, ui.read_text()[-4000:]
            for state in instance.all_instigator_state():
                ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=10)
                looked[state.instigator_name] = sum(tick.is_completed for tick in ticks)
            time.sleep(0.5)
        runs = instance.get_runs()
    assert "automation: python, sql (4 others" in ui.read_text()
    assert not {run.tags.get("dagster/partition") for run in runs} & OTHERS


def one_voter(made: MadeHome, profile: str) -> None:
    """The shipped recipe, sized for a base of random weights: without privacy's noise nothing could be told of it."""
    file = made.folder / "recipes" / "strategies" / f"{profile}.yaml"
    recipe = yaml.safe_load(file.read_text())
    strategy = recipe["voters"][0]["strategy"]
    small = {"clients": 2, "local_epochs": 4, "trained": "factors"} if profile == "federated" else {"trained": "b_only"}
    strategy |= small
    strategy["privacy"] |= {"epsilon": 1.0e6, "clip": 100.0, "delta": 1.0e-5}
    recipe["model"]["lora"] |= {"rank": 4, "alpha": 8}
    recipe["training"] |= {"max_steps": 24, "learning_rate": 3.0e-2, "evaluate_every": 8, "global_batch": 8}
    recipe["data"] |= {"max_validation_examples": 8}
    file.write_text(yaml.safe_dump(recipe))


@pytest.mark.extended
@pytest.mark.parametrize("profile", ["federated", "private"])
def test_a_profile_of_one_voter_becomes_a_consensus(profile: str, made: MadeHome):
    one_voter(made, profile)
    stages = "trained_adapters,consensus_checkpoint,expert_router"
    command_here(made.environment, "run", "--profile", profile, "--domains", "python", "--select", stages)
    with open_instance(made.deployment) as instance:
        digest = latest_digest(instance, "consensus_checkpoint", "python")
    store = deployment_resources(made.deployment)["store"].open()
    consensus = store.open("consensus_checkpoint", Domain.PYTHON, digest)
    certificate = consensus.document("certificate")
    assert (certificate["n"], certificate["f"], certificate["ballots"]) == (1, 0, [])
    assert certificate["voters"][0]["reason"].startswith("accepted without a vote")
    assert certificate["privacy"]["voter"]["epsilon"] > 0
    file = consensus.directory() / "certificate.json"
    shown = json.loads(command_here(made.environment, "consensus", "verify", str(file), "--json", exit_code=3))
    assert shown["problems"] == [] and any("1 voters stand none" in line for line in shown["reservations"])
