"""Fixtures shared by every test: where real data and the shipped base model lie."""

import gzip
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import hypothesis
import pytest
import yaml

from capibara_assets.locations import resources_root

REPOSITORY = Path(__file__).resolve().parent.parent

# As the command line does, and before anything imports torch: two workers whose threads spin while they wait take each
# other's cores, and tests that compute cost several times their work. Processes that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    # NumPy's threads cannot be told to sleep. What must not depend on their number is tested with a number of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The suite tries the same examples each time, so that red means the change at hand; HYPOTHESIS_PROFILE=explore tries
# others. No deadlines: machines differ.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


LONGEST = (
    "test_whole_graph.py",
    "test_forget_canary.py",
    "reliability/test_interrupt.py",
    "ui/test_browser.py",
    "reliability/test_automation.py",
    "cli/test_forget.py",
    "datasets/test_experience.py",
)
"""Files of a few tests that take minutes: they come first, or one worker would be left alone with them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the others as they were; `--no-loadscope-reorder` has xdist keep to it."""
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Keep absl from closing pytest's streams.

    absl, which Orbax brings, logs to the stderr it found when it was imported, which was pytest's, and closes that when
    logging is set up while another one is in place, as runs in this process do: all later tests would fail.
    """
    if (absl := sys.modules.get("absl.logging")) is not None:
        absl.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real experience and known answers; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CAPIBARA_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data in {folder}: set CAPIBARA_SHARED to run this test")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    return shared / "data"


@pytest.fixture(scope="session")
def nano() -> Path:
    """The base model that ships."""
    return resources_root() / "base_models" / "capibara-nano"


def sandboxes_of(folder: Path, per_domain: int) -> list[str]:
    """Lines of whole sandboxes from an experience folder, at most `per_domain` sandboxes of each agent."""
    sessions: dict[str, list[str]] = {}
    kind: dict[str, str] = {}
    for path in sorted((folder / "e2b_logs").glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                record = json.loads(line)
                sessions.setdefault(record["sandbox_id"], []).append(line)
                kind.setdefault(record["sandbox_id"], str(record.get("agent_id")))
    taken: dict[str, int] = {}
    chosen = []
    for sandbox in sorted(sessions, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        if taken.get(kind[sandbox], 0) < per_domain:
            taken[kind[sandbox]] = taken.get(kind[sandbox], 0) + 1
            chosen += sessions[sandbox]
    return chosen


@pytest.fixture(scope="session")
def small_experience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some sandboxes of every agent of the shipped experience, and its playbooks: small enough for whole graphs."""
    folder = tmp_path_factory.mktemp("experience")
    shipped = resources_root() / "experience"
    shutil.copytree(shipped / "playbooks", folder / "playbooks")
    (folder / "e2b_logs").mkdir()
    (folder / "e2b_logs" / "sessions.jsonl").write_text("".join(sandboxes_of(shipped, per_domain=30)))
    return folder


@pytest.fixture(scope="session")
def quick_recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped recipes, with just enough training to see a loss fall, and few short answers."""
    folder = tmp_path_factory.mktemp("recipes")
    for path in (resources_root() / "recipes").glob("*.yaml"):
        shutil.copyfile(path, folder / path.name)
    training = folder / "training-demo.yaml"
    values = yaml.safe_load(training.read_text())
    values["training"]["max_steps"] = 8
    training.write_text(yaml.safe_dump(values))
    consensus = folder / "consensus.yaml"
    # After so few steps the best of four voters may well be better than their agreement; whole runs keep the real bar.
    values = yaml.safe_load(consensus.read_text()) | {"tolerance": 0.2, "examples_per_shard": 12}
    values["merge"] |= {"methods": ["task_arithmetic", "ties"], "weight_steps": 1, "tokens_per_domain": 768}
    values["moe"] |= {"steps": 8, "tokens_per_domain": 512}
    consensus.write_text(yaml.safe_dump(values))
    evaluation = folder / "evaluation.yaml"
    values = yaml.safe_load(evaluation.read_text())
    values["generation"]["max_items"] = 2
    values["decoding"]["max_new_tokens"] = 16
    evaluation.write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture(scope="module")
def deployment_environment(
    small_experience: Path, quick_recipes: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Environment of a deployment of its own, on a copy of the small experience."""
    folder = tmp_path_factory.mktemp("deployment")
    shutil.copytree(small_experience, folder / "experience")
    return {
        "CAPIBARA_HOME": str(folder / "home"),
        "CAPIBARA_EXPERIENCE": str(folder / "experience"),
        "CAPIBARA_RECIPES": str(quick_recipes),
        "DAGSTER_HOME": "",
    }
