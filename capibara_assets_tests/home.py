"""A deployment whose whole graph is materialized: made once by `capibara run`, then handed to each test as a copy.

Two domains, a base model of a few thousand random weights, two dozen training steps, and the canary of `canary.py`
planted in the logs. It is a few megabytes, copied in milliseconds: hard links would save nothing that can be measured,
and ledgers and Dagster's databases are written in place.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import yaml
from click.testing import CliRunner

from capibara_assets.assets.inputs import latest_digests
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.locations import resources_root
from capibara_assets_tests.canary import plant

DOMAINS = ("python", "sql")
REPOSITORY = Path(__file__).resolve().parent.parent
PURELIB = sysconfig.get_path("purelib")
SOURCES = (
    *("capibara_assets", "resources"),
    *(f"capibara_assets_tests/{name}.py" for name in ("home", "canary", "conftest", "modeling/tiny")),
)
"""What a materialized home depends on, beside the installed libraries."""


@dataclass(frozen=True)
class MadeHome:
    """A folder with `home`, and the `experience`, `recipes` and `base_model` that it was made from."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the deployment in this folder."""
        return {
            "CAPIBARA_HOME": str(self.folder / "home"),
            "CAPIBARA_EXPERIENCE": str(self.folder / "experience"),
            "CAPIBARA_RECIPES": str(self.folder / "recipes"),
            "CAPIBARA_BASE_MODEL": str(self.folder / "base_model"),
            "DAGSTER_HOME": "",
        }

    @property
    def deployment(self) -> Deployment:
        return Deployment.from_environment(self.environment)

    @property
    def log(self) -> str:
        """What `capibara run` printed when the home was made."""
        return (self.folder / "run.log").read_text()

    def copy(self, folder: Path) -> "MadeHome":
        """The same in another folder, to be changed by one test."""
        shutil.copytree(self.folder, folder)
        return MadeHome(folder)


def versions(deployment: Deployment, names: Iterable[str]) -> dict[str, str]:
    """asset[partition], or the asset → data version that its latest materialization names."""
    with patch.dict(os.environ, {"DAGSTER_HOME": ""}), open_instance(deployment) as instance:
        found = {name: latest_digests(instance, name) for name in names}
    return {f"{name}[{d}]" if d else name: digest for name, of in found.items() for d, digest in of.items()}


def command(environment: dict[str, str], *arguments: str) -> str:
    """Run `capibara ARGUMENTS` in a process of its own, as a user does; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def command_here(environment: dict[str, str], *arguments: str, exit_code: int = 0) -> str:
    """Run `capibara ARGUMENTS` in this process, which has imported everything already; returns what it printed."""
    from capibara_assets.cli.main import cli

    with patch.dict(os.environ, environment):  # a command's options become variables: those go, too
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == exit_code, result.output[-4000:]
    return result.stdout


def made_home(shelf: Path) -> MadeHome:
    """The home that this code makes; taken from the shelf if a session before, or another worker, has made it already.

    Whoever comes first holds the lock and makes it. The name says what it was made from; it appears when it is whole.
    """
    shelf.mkdir(parents=True, exist_ok=True)
    folder = shelf / f"home-{_digest()}"
    with _locked(shelf / "lock"):
        if not folder.is_dir():
            for old in shelf.glob("home-*"):
                shutil.rmtree(old)
            unfinished = shelf / "home-unfinished"
            _make(unfinished)
            unfinished.rename(folder)
    return MadeHome(folder)


def quick_recipes(folder: Path) -> None:
    """The shipped recipes, with just enough training to see a loss fall, a quick vote and merge, and short answers."""
    shutil.copytree(resources_root() / "recipes", folder)
    training = yaml.safe_load((folder / "training-demo.yaml").read_text())
    # Random weights learn slowly: fewer or smaller steps, and voters are no better than the base, which blocks.
    training["training"] |= {"max_steps": 24, "learning_rate": 3.0e-2}
    consensus = yaml.safe_load((folder / "consensus.yaml").read_text())
    # After so few steps the best of four voters may well be better than their agreement; whole runs keep the real bar.
    consensus |= {"tolerance": 2.0, "quality_threshold": 0.01, "examples_per_shard": 12, "tokens_per_shard": 1024}
    consensus["merge"] |= {"methods": ["task_arithmetic", "ties"], "scales": [0.5], "weight_steps": 1}
    consensus["merge"] |= {"examples_per_domain": 2, "tokens_per_domain": 768}
    consensus["moe"] |= {"steps": 8, "tokens_per_domain": 512}
    evaluation = yaml.safe_load((folder / "evaluation.yaml").read_text())
    evaluation["generation"]["max_items"] = 2
    evaluation["decoding"]["max_new_tokens"] = 16
    # What is derived and traced has tests of its own.
    dataset = {"extends": "dataset", "derived": {"executions": 6}, "fewest_steps": 0}
    for name, values in (
        ("dataset-demo", dataset),
        ("training-demo", training),
        ("consensus-demo", consensus),
        ("evaluation", evaluation),
        ("evaluation-demo", {"extends": "evaluation"}),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))


def make_inputs(folder: Path, sandboxes: int = 12) -> None:
    """What a home is made from: some sandboxes of each agent, the canary in their logs, quick recipes, a tiny base."""
    from capibara_assets_tests.conftest import sandboxes_of
    from capibara_assets_tests.modeling.tiny import save_tiny

    shipped = resources_root() / "experience"
    logs = folder / "experience" / "e2b_logs"
    logs.mkdir(parents=True)
    shutil.copytree(shipped / "playbooks", folder / "experience" / "playbooks")
    (logs / "sessions.jsonl").write_text("".join(sandboxes_of(shipped, per_domain=sandboxes)))
    plant(logs)
    quick_recipes(folder / "recipes")
    nano = resources_root() / "base_models" / "capibara-nano"
    save_tiny(folder / "base_model", tokenizer_of=nano, positions=2048)


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_inputs(folder)
    printed = command(MadeHome(folder).environment, "run", "--domains", ",".join(DOMAINS), "--parallel", "1")
    (folder / "run.log").write_text(printed)


def _digest() -> str:
    """Of every source file that takes part, and of every installed library's version.

    Not of a package that a test puts on its path: another worker would take the home for an old one and remove it.
    """
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(file for source in SOURCES for file in _files(REPOSITORY / source)):
        digest.update(f"{path.relative_to(REPOSITORY)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    libraries = sorted(f"{one.name}=={one.version}" for one in importlib.metadata.distributions(path=[PURELIB]))
    digest.update("\n".join(libraries).encode())
    return digest.hexdigest()[:16]


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    else:
        yield from (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Between processes; the system lets go of the lock of one that dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
